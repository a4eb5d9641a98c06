"""The declared gaps: entries that this directory no longer holds, on purpose.

What is missing and not declared is damage. A gap is declared before the first file in it goes.
"""

import msgspec

from rollmq.store.disk import Disk
from rollmq.store.layout import GAPS_FILE, SegmentName
from rollmq.store.sealed_file import read_value, write_value


class Gap(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """Entries `first` to `last` are gone."""

    first: int
    last: int
    reason: str
    """`retention`; `install_snapshot` for what a follower skipped; `repair` for what no node had any more."""


class Gaps(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """All declared gaps, in order."""

    gaps: tuple[Gap, ...] = ()

    def covers(self, first: int, last: int) -> bool:
        """Whether all these entries are declared to be gone."""
        return any(gap.first <= first and last <= gap.last for gap in self.gaps)

    def with_gap(self, gap: Gap) -> "Gaps":
        """These and one more; gaps that touch become one."""
        merged: list[Gap] = []
        for each in sorted((*self.gaps, gap), key=lambda each: each.first):
            if merged and each.first <= merged[-1].last + 1:
                before = merged.pop()
                each = Gap(before.first, max(before.last, each.last), before.reason)
            merged.append(each)
        return Gaps(tuple(merged))


_decoder = msgspec.json.Decoder(Gaps)


def read_gaps(disk: Disk) -> Gaps:
    """The declared gaps; none if there is no such file. Raises StateDamaged."""
    return read_value(disk, GAPS_FILE, _decoder) or Gaps()


def declare_gap(disk: Disk, gap: Gap) -> None:
    """Add a gap; durable on return."""
    write_value(disk, GAPS_FILE, read_gaps(disk).with_gap(gap))


def undeclared(segments: list[SegmentName], gaps: Gaps) -> list[tuple[int, int]]:
    """The ranges of entries that no segment holds and no gap declares. The last segment may be open."""
    missing: list[tuple[int, int]] = []
    expected = 1
    for segment in segments:
        if segment.first_index > expected and not gaps.covers(expected, segment.first_index - 1):
            missing.append((expected, segment.first_index - 1))
        if segment.last_index is None:
            break  # where an open segment ends, and what follows it, only its lines can say
        expected = max(expected, segment.last_index + 1)
    return missing
