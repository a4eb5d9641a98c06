"""The sealed segments: which there are, which may go, and how they go.

Bytes first, then age; a pipeline's confirmation delays, but never beyond the byte bound. Only segments
before the older snapshot are dropped, and only behind a base: a state from which the rest can be audited.
It never touches an open segment, and it does not fold: the helper writes the base.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rollmq.core.line import LineDamaged, decode_line
from rollmq.errors import WalCorrupt
from rollmq.limits import WAL_BATCH_BYTES_MAX
from rollmq.store import layout
from rollmq.store.disk import Disk
from rollmq.store.gaps import Gap, declare_gap
from rollmq.store.layout import SegmentName


@dataclass(frozen=True, slots=True)
class SealedSegment:
    """A sealed segment, with what retention asks about it."""

    name: SegmentName
    size_bytes: int
    last_at_us: int

    @property
    def last_index(self) -> int:
        assert self.name.last_index is not None
        return self.name.last_index


@dataclass(frozen=True, slots=True)
class Retention:
    """What of the history is kept."""

    keep_bytes: int
    keep_us: int


def droppable(
    segments: Sequence[SealedSegment],
    retention: Retention,
    *,
    older_snapshot_index: int,
    confirmed_index: int | None,
    now_us: int,
) -> list[SealedSegment]:
    """The oldest segments that are to go now. `confirmed_index` is None when there is no pipeline.

    Log time, not the file's: it is the same on every replica and survives a copy of the directory.
    """
    excess_bytes = sum(segment.size_bytes for segment in segments) - retention.keep_bytes
    dropped: list[SealedSegment] = []
    for segment in segments:
        if segment.last_index > older_snapshot_index:
            break
        is_old = segment.last_at_us < now_us - retention.keep_us
        is_taken = confirmed_index is None or segment.last_index <= confirmed_index
        if not (excess_bytes > 0 or (is_old and is_taken)):
            break
        dropped.append(segment)
        excess_bytes -= segment.size_bytes
    return dropped


def describe_segment(disk: Disk, name: SegmentName) -> SealedSegment:
    """Size and age of a sealed segment; the age is that of its marker."""
    file = disk.open(name.name, "read")
    try:
        size_bytes = file.size_bytes()
        wanted = 64 * 1024
        while True:
            tail = file.read_at(max(0, size_bytes - wanted), wanted)
            start = tail.rfind(b"\n", 0, -1) + 1
            if start or wanted >= min(size_bytes, 2 * WAL_BATCH_BYTES_MAX):
                break
            wanted *= 4
    finally:
        file.close()
    try:
        last_at_us = decode_line(tail[start:]).at_us
    except LineDamaged as error:
        raise WalCorrupt(
            path=disk.path_of(name.name), line=0, reason=f"its marker is damaged: {error}"
        ) from error
    return SealedSegment(name, size_bytes, last_at_us)


def drop_until(disk: Disk, base_index: int) -> list[SegmentName]:
    """Remove what the base at this index holds: older segments, then older bases. Durable on return.

    The base is durable and the gap is declared before the first file goes, so a crash anywhere leaves a
    directory that says what it holds; calling this again finishes it.
    """
    doomed = [
        segment
        for segment in layout.sealed_segments(disk)
        if segment.last_index is not None and segment.last_index <= base_index
    ]
    older_bases = [base for base in layout.bases(disk) if base.last_index < base_index]
    if not doomed and not older_bases:
        return []
    assert disk.exists(layout.base_name(base_index)), "nothing is dropped without the base that replaces it"
    declare_gap(disk, Gap(1, base_index, "retention"))
    for name in [*(segment.name for segment in doomed), *(base.name for base in older_bases)]:
        disk.unlink(name)
    disk.sync_folder(layout.HISTORY)
    return doomed


def finish_drop(disk: Disk) -> list[SegmentName]:
    """At start: finish a drop that a crash interrupted. Without a base there is none."""
    found = layout.bases(disk)
    return drop_until(disk, found[0].last_index) if found else []
