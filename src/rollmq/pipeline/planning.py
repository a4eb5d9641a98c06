"""Which piece of which file is read for which entries, so that each entry is read exactly once.

Pure: names of segments in, pieces out. What is missing is a piece too, so that it cannot be overlooked.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from rollmq.pipeline.errors import HistoriesDiffer
from rollmq.pipeline.places import DeclaredGap, Found, Segment

TASKS: Final = 32
"""So many tasks share the work, where their bounds allow: enough to keep some executors busy to the end."""
TASK_ENTRIES_MIN: Final = 131_072
"""Entries of one task at least: a second's work, far above a task's own cost; and each writes a file."""
TASK_ENTRIES_MAX: Final = 1_048_576
TASK_BYTES_MAX: Final = 536_870_912
"""A task's memory does not depend on it, but how much is done again after a failure does."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Entries `first` to `last`, to be read from any one of these files, which hold the same bytes."""

    group: str
    first: int
    last: int
    segment_first: int
    segment_last: int
    urls: tuple[str, ...]
    size_bytes: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether it is a whole segment: then one digest proves it."""
        return (self.first, self.last) == (self.segment_first, self.segment_last)


@dataclass(frozen=True, slots=True)
class Missing:
    """Entries that no file holds."""

    group: str
    first: int
    last: int
    kind: str
    """missing, or gap when a directory declares that they are gone on purpose."""
    reason: str


Part = Piece | Missing


def plan_parts(
    found: Found, *, starts: dict[str, int] | None = None, start: int = 1, end: int | None = None
) -> list[Part]:
    """What to read for the entries from `start` (or each group's own start) to `end`, both included.

    Raises HistoriesDiffer: where segments end is in the log, so those of one history are equal or apart.
    """
    parts: list[Part] = []
    for group in sorted({each.group for each in found.segments}):
        first = (starts or {}).get(group, start)
        segments = [each for each in found.segments if each.group == group]
        parts += _plan_group(group, segments, found.gaps, first, end)
    return parts


def _plan_group(
    group: str, segments: Sequence[Segment], gaps: Iterable[DeclaredGap], start: int, end: int | None
) -> list[Part]:
    parts: list[Part] = []
    expected, before = start, None
    for same in _copies(segments):
        segment = same[0]
        if before is not None and segment.first <= before.last:
            raise HistoriesDiffer(group=group, one=before.url, other=segment.url)
        before = segment
        if segment.last < expected or (end is not None and segment.first > end):
            continue
        if segment.first > expected:
            parts.append(_missing(group, expected, segment.first - 1, gaps))
        first = max(segment.first, expected)
        last = segment.last if end is None else min(segment.last, end)
        urls = tuple(each.url for each in same)
        parts.append(Piece(group, first, last, segment.first, segment.last, urls, segment.size_bytes))
        expected = segment.last + 1
    return parts


def _missing(group: str, first: int, last: int, gaps: Iterable[DeclaredGap]) -> Missing:
    for gap in gaps:
        if gap.group == group and gap.first <= first and last <= gap.last:
            return Missing(group, first, last, "gap", f"declared: {gap.reason}")
    return Missing(group, first, last, "missing", "no file holds these entries, and no gap is declared")


def _copies(segments: Sequence[Segment]) -> list[list[Segment]]:
    """Segments in order of their first entries, those that are copies of each other together."""
    by_range: dict[tuple[int, int], list[Segment]] = {}
    for each in sorted(segments):
        by_range.setdefault((each.first, each.last), []).append(each)
    return [by_range[key] for key in sorted(by_range)]


def last_indexes(parts: Iterable[Part]) -> dict[str, int]:
    """The last entry of each group that these parts reach."""
    found: dict[str, int] = {}
    for part in parts:
        found[part.group] = max(found.get(part.group, 0), part.last)
    return found


def pack(parts: Sequence[Part]) -> list[tuple[Part, ...]]:
    """Parts of about equal work, in order: a quiet queue's small segments share one task."""
    fair = sum(map(_entries, parts)) // TASKS
    entries_max = min(max(fair, TASK_ENTRIES_MIN), TASK_ENTRIES_MAX)
    tasks: list[tuple[Part, ...]] = []
    batch: list[Part] = []
    entries = size_bytes = 0
    for part in parts:
        count = _entries(part)
        part_bytes = part.size_bytes if isinstance(part, Piece) else 0
        if batch and (entries + count > entries_max or size_bytes + part_bytes > TASK_BYTES_MAX):
            tasks.append(tuple(batch))
            batch, entries, size_bytes = [], 0, 0
        batch.append(part)
        entries += count
        size_bytes += part_bytes
    if batch:
        tasks.append(tuple(batch))
    return tasks


def _entries(part: Part) -> int:
    """What reading it costs, in entries."""
    return part.last - part.first + 1 if isinstance(part, Piece) else 0
