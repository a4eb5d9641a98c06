"""What is left of a damaged node's log: which entries are sound, what is missing, what is known of its end.

Pure: `store.survey` reads the files and fills it in, `repair` plans by it. It may not decide where a missing
entry comes from.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from rollmq.core.raft_messages import TermRun
from rollmq.core.raft_ready import HardState


class TermRange(NamedTuple):
    """Sound entries in a row, all of one term."""

    first_index: int
    last_index: int
    term: int


class Hole(NamedTuple):
    """Entries that are damaged or missing, with sound ones behind them, or known to be committed."""

    first_index: int
    last_index: int
    check_index: int
    """The sound entry behind them; 0: they are in a sealed segment, and so committed."""
    check_term: int


@dataclass(slots=True)
class Survey:
    """What of a log is sound.

    Invariant: `ranges` ascend, do not overlap, and lie between `gone_index` and `last_index`.
    """

    state_index: int = 0
    """The newest sound snapshot or base; 0: the empty state."""
    state_term: int = 0
    gone_index: int = 0
    """Up to here lines are gone on purpose: a declared gap."""
    sealed_index: int = 0
    """Up to here entries are known to be committed."""
    last_index: int = 0
    """The end: no entry behind it is sound."""
    is_end_sure: bool = True
    """Nothing is missing behind last_index that this node may have confirmed."""
    hard_state: HardState | None = None
    """Term and vote; None: damaged."""
    members_index: int = 0
    voters: frozenset[str] = frozenset()
    """Who votes, as of that entry; empty: not known."""
    ranges: list[TermRange] = field(default_factory=list)

    @property
    def last_term(self) -> int:
        """The term of the last entry, or of the state when no entry follows it."""
        return self.term_at(self.last_index) or 0

    @property
    def needs_state(self) -> bool:
        """The log begins behind entries that no sound state holds."""
        return self.state_index < self.gone_index

    @property
    def needs_repair(self) -> bool:
        """Whether this node may not count as it is."""
        return (
            self.needs_state
            or not self.is_end_sure
            or self.hard_state is None
            or next(self.holes(), None) is not None
        )

    def term_at(self, index: int) -> int | None:
        """The term of an entry, None if it is not sound."""
        for each in self.ranges:
            if each.first_index <= index <= each.last_index:
                return each.term
        return self.state_term if index == self.state_index else None

    def holes(self) -> Iterator[Hole]:
        """What is missing between the entries that are sound, in order."""
        expected = self.gone_index + 1
        for each in [*self.ranges, None]:
            first_index = each.first_index if each is not None else self.last_index + 1
            if first_index > expected:
                is_committed = first_index - 1 <= self.sealed_index or each is None
                check = (0, 0) if is_committed or each is None else (each.first_index, each.term)
                yield Hole(expected, first_index - 1, *check)
            if each is not None:
                expected = each.last_index + 1

    def covered(self) -> tuple[tuple[int, int], ...]:
        """The sound entries as (first, last), terms aside."""
        found: list[tuple[int, int]] = []
        for each in self.ranges:
            if found and found[-1][1] + 1 == each.first_index:
                found[-1] = (found[-1][0], each.last_index)
            else:
                found.append((each.first_index, each.last_index))
        return tuple(found)

    def with_lines(self, lines: Iterable[TermRange]) -> "Survey":
        """The same with these entries made sound."""
        return replace(self, ranges=joined([*self.ranges, *lines]))


def joined(ranges: Iterable[TermRange]) -> list[TermRange]:
    """The same entries in order, in as few ranges as there can be."""
    found: list[TermRange] = []
    for each in sorted(ranges):
        last = found[-1] if found else None
        if last is not None and last.term == each.term and last.last_index + 1 == each.first_index:
            found[-1] = TermRange(last.first_index, each.last_index, each.term)
        else:
            found.append(each)
    return found


def ranges_of(runs: Sequence[TermRun], last_index: int) -> list[TermRange]:
    """Runs of terms as ranges, the last of which ends with last_index."""
    ends = [first_index - 1 for first_index, _ in runs[1:]] + [last_index]
    return [TermRange(first, end, term) for (first, term), end in zip(runs, ends, strict=True)]


def common_index(ours: Sequence[TermRange], others: Sequence[TermRange]) -> int:
    """The last entry that two logs are seen to share (5.3: then all before it are equal too); 0 if none."""
    return max(
        (
            min(mine.last_index, theirs.last_index)
            for mine in ours
            for theirs in others
            if mine.term == theirs.term
            and max(mine.first_index, theirs.first_index) <= min(mine.last_index, theirs.last_index)
        ),
        default=0,
    )
