"""The log as the Raft core sees it: pointers into it, its terms, and the lines still needed in memory.

It may not decide anything and may not touch a disk. Lines are opaque bytes; there is no object per
entry: lines lie in one list with a base index, terms are runs `(first index, term)`.

The pointers, and which order holds:

    snapshot_index   the last entry that may be gone from the disk; its term is still known
    applied_index    the host has applied it and released its effects up to here
    commit_index     on a majority of disks: it will never be taken back
    persisted_index  on this node's disk (synced), and part of the log as it is now
    handed_index     given to the host to be written, not necessarily synced yet
    last_index       the end; on a leader, what has been decided

    always:    snapshot <= applied <= commit <= last
               snapshot <= persisted <= handed <= last
    no order:  commit and persisted. A leader counts itself only after its own fsync, but a majority of
               the others may have the entry on disk before that; then commit > persisted here. The same
               on a follower that has lines in memory which the leader already knows to be committed.
               After a crash such a node has a shorter log than it had committed, which is sound: the
               majority that committed it does not need this node.

In memory are the lines from `held_index` on: all that are not yet written, committed and applied, and before
them a bounded tail for followers. What is older the host reads from its store.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final

from rollmq.core.line import BODY_AT
from rollmq.core.members import MEMBERS_START, Configuration, Membership, is_members_line, members_in
from rollmq.core.raft_messages import TermRun
from rollmq.core.segment_digest import MARKER_START, is_marker_line

LOOKED_AT: Final = (MARKER_START, MEMBERS_START)
"""How lines begin that mean something here; all others are opaque."""


def bytes_of(lines: Iterable[bytes]) -> int:
    """How many bytes these lines have together."""
    return sum(map(len, lines))


def prefix_within(lines: list[bytes], bytes_max: int) -> list[bytes]:
    """The longest beginning of `lines` of at most bytes_max, but at least one line."""
    if bytes_of(lines) <= bytes_max:
        return lines
    count = bisect_right(list(accumulate(map(len, lines))), bytes_max)
    return lines[: max(count, 1)]


class RaftLog:
    """Entries by index. Every method that moves a pointer leaves the orders above intact, and asserts it."""

    __slots__ = (
        "_lines",
        "_run_indexes",
        "_run_terms",
        "_tail_bytes_max",
        "applied_index",
        "commit_index",
        "cut_from",
        "handed_index",
        "held_bytes",
        "held_index",
        "last_index",
        "membership",
        "new_markers",
        "persisted_index",
        "snapshot_index",
        "truncate_from",
        "uncommitted_bytes",
    )

    def __init__(
        self,
        *,
        snapshot_index: int = 0,
        snapshot_term: int = 0,
        term_runs: Sequence[TermRun] = (),
        last_index: int | None = None,
        applied_index: int | None = None,
        membership: Membership | None = None,
        tail_bytes_max: int,
    ) -> None:
        """Describe what is on disk: entries after the snapshot up to last_index, their terms as runs.

        applied_index (by default the snapshot) is known to be committed: the host has applied it.
        membership: what snapshot and entries say of it (`membership_found`).
        """
        self.membership = membership or Membership(Configuration(frozenset()))
        """Follows the log: a `members` entry counts when it is appended and no longer when it is cut."""
        self.new_markers: list[int] = []
        """Markers that a leader sent since the host looked: it checks them before they are confirmed."""
        self.snapshot_index = snapshot_index
        self.last_index = snapshot_index if last_index is None else last_index
        self.handed_index = self.persisted_index = self.last_index
        self.applied_index = self.commit_index = snapshot_index if applied_index is None else applied_index
        self._run_indexes = [snapshot_index]
        self._run_terms = [snapshot_term]
        self._lines: list[bytes] = []
        self._tail_bytes_max = tail_bytes_max
        self.held_index = self.last_index + 1
        """The index of the first line in memory, last_index + 1 when there is none."""
        self.held_bytes = 0
        self.uncommitted_bytes = 0
        """Of lines in memory that are not committed."""
        self.cut_from: int | None = None
        """The lowest index cut since the host was told, which sets it back to None."""
        self.truncate_from: int | None = None
        """The disk may hold lines from here on that are no longer the log's; hand_out sets it back."""
        for index, term in term_runs:
            assert self._run_indexes[-1] < index, "term runs ascend, the first after the snapshot"
            assert index <= self.last_index, "a term run begins within the log"
            self._add_run(index, term)
        self.check()

    def check(self) -> None:
        """Assert the orders of the pointers."""
        assert self.snapshot_index <= self.applied_index, "a snapshot holds applied entries only"
        assert self.applied_index <= self.commit_index, "only committed entries are applied"
        assert self.commit_index <= self.last_index, "committed entries are in the log"
        assert self.snapshot_index <= self.persisted_index, "a snapshot is durable before the log moves up"
        assert self.persisted_index <= self.handed_index, "only what was handed out can be on disk"
        assert self.handed_index <= self.last_index, "only what is in the log can be handed out"
        assert self.handed_index < (self.truncate_from or self.handed_index + 1), "cut lines are not on disk"
        assert self.held_index <= self.handed_index + 1, "what is not yet written is in memory"
        assert self.held_index + len(self._lines) == self.last_index + 1, "lines in memory end at the end"

    # Terms

    @property
    def last_term(self) -> int:
        """The term of the last entry, or of the snapshot when there is none after it."""
        return self._run_terms[-1]

    def term_at(self, index: int) -> int | None:
        """The term of an entry; None when it is beyond the end or before the snapshot's last."""
        if not self.snapshot_index <= index <= self.last_index:
            return None
        if index >= self._run_indexes[-1]:
            return self._run_terms[-1]
        return self._run_terms[bisect_right(self._run_indexes, index) - 1]

    def matches(self, index: int, term: int) -> bool:
        """Whether entry `index` is here with this term; then all before it are equal too (5.3)."""
        return self.term_at(index) == term

    def is_up_to_date(self, *, last_index: int, last_term: int) -> bool:
        """Whether a log that ends so is at least as new as ours (5.4.1).

        The term counts first: a longer log can be older. An empty log after a snapshot ends with that.
        """
        return (last_term, last_index) >= (self.last_term, self.last_index)

    def runs(self, first_index: int, last_index: int) -> tuple[TermRun, ...]:
        """The terms of entries first..last, as runs of which the first begins at first_index."""
        assert self.snapshot_index < first_index <= last_index + 1, "a range after the snapshot"
        if first_index > last_index:
            return ()
        if first_index >= self._run_indexes[-1]:
            return ((first_index, self._run_terms[-1]),)
        begin = bisect_right(self._run_indexes, first_index) - 1
        end = bisect_right(self._run_indexes, last_index)
        later = zip(self._run_indexes[begin + 1 : end], self._run_terms[begin + 1 : end], strict=True)
        return ((first_index, self._run_terms[begin]), *later)

    def first_difference(self, first_index: int, term_runs: Sequence[TermRun], last_index: int) -> int:
        """The first index of first..last that is not here with the term given; last + 1 when all are."""
        index = first_index
        for number, (_, term) in enumerate(term_runs):
            run_end = term_runs[number + 1][0] - 1 if number + 1 < len(term_runs) else last_index
            while index <= run_end:
                if self.term_at(index) != term:
                    return index
                index = min(self._end_of_run(index), run_end) + 1
        return index

    def last_at_most(self, *, index: int, term: int) -> TermRun:
        """The last entry at or before `index` whose term is at most `term`, as (index, term).

        Both sides skip whole terms with it when the consistency check failed (5.3). At the earliest it
        is the snapshot's last entry, whatever its term.
        """
        index = max(min(index, self.last_index), self.snapshot_index)
        run = bisect_right(self._run_indexes, index) - 1
        while run > 0 and self._run_terms[run] > term:
            index = self._run_indexes[run] - 1
            run -= 1
        if self._run_terms[run] > term:
            index = self.snapshot_index
        return index, self._run_terms[run]

    def _end_of_run(self, index: int) -> int:
        position = bisect_right(self._run_indexes, index)
        return self._run_indexes[position] - 1 if position < len(self._run_indexes) else self.last_index

    def _add_run(self, index: int, term: int) -> None:
        assert term >= self._run_terms[-1], "terms never fall along the log"
        if term > self._run_terms[-1]:
            self._run_indexes.append(index)
            self._run_terms.append(term)

    # Lines

    def append(self, lines: Sequence[bytes], *, term: int) -> int:
        """Add lines of one term at the end. Returns the index of the first."""
        first_index = self.last_index + 1
        if term != self._run_terms[-1]:
            self._add_run(first_index, term)
        size = bytes_of(lines)
        self._lines += lines
        self.last_index += len(lines)
        self.held_bytes += size
        self.uncommitted_bytes += size
        return first_index

    def append_runs(self, lines: Sequence[bytes], term_runs: Sequence[TermRun]) -> None:
        """Add a leader's lines at the end, with their terms. Runs may begin before the first line."""
        assert lines, "there is something to add"
        first_index = self.last_index + 1
        begin = bisect_right(term_runs, first_index, key=lambda run: run[0]) - 1
        assert begin >= 0, "the first line has a term"
        for index, term in term_runs[begin:]:
            self._add_run(max(index, first_index), term)
        self.append(lines, term=self._run_terms[-1])
        for index, line in enumerate(lines, start=first_index):
            if not line.startswith(LOOKED_AT, BODY_AT):
                continue
            if is_members_line(line):
                # Thesis 4.1: a server uses the newest configuration in its log, committed or not.
                self.membership.append(index, members_in(line))
            elif is_marker_line(line):
                self.new_markers.append(index)
        self.check()

    def cut(self, index: int) -> None:
        """Take away everything from `index` on: it conflicts with the leader's log (5.3)."""
        assert index > self.commit_index, "a committed entry is never cut"
        assert index <= self.last_index, "there is something to cut"
        if index < self.held_index:
            dropped, self._lines, self.held_index = self._lines, [], index
        else:
            dropped = self._lines[index - self.held_index :]
            del self._lines[index - self.held_index :]
        size = bytes_of(dropped)
        self.held_bytes -= size
        self.uncommitted_bytes -= size
        while self._run_indexes[-1] >= index:
            self._run_indexes.pop()
            self._run_terms.pop()
        self.last_index = index - 1
        self.handed_index = min(self.handed_index, self.last_index)
        # A line that returns later with the same index and term is another line on disk: not written yet.
        self.persisted_index = min(self.persisted_index, self.last_index)
        self.membership.cut(index)  # Pitfall 33: reverted with the entry.
        self.new_markers = [each for each in self.new_markers if each < index]
        self.cut_from = min(index, self.cut_from or index)
        self.truncate_from = min(index, self.truncate_from or index)
        self.check()

    def lines(self, first_index: int, last_index: int) -> list[bytes]:
        """The lines first..last, which must be in memory (first_index >= held_index)."""
        assert first_index >= self.held_index, "older lines are in the store"
        assert last_index <= self.last_index, "there are no lines after the end"
        return self._lines[first_index - self.held_index : last_index + 1 - self.held_index]

    def take(self, first_index: int, *, bytes_max: int, lines_max: int) -> list[bytes]:
        """The lines from first_index on, bounded, but at least one if there is one."""
        return prefix_within(
            self.lines(first_index, min(first_index + lines_max - 1, self.last_index)), bytes_max
        )

    # Pointers

    @property
    def is_unwritten(self) -> bool:
        """The disk does not have the log as it is, nor was it handed out to be written."""
        return self.handed_index < self.last_index or self.truncate_from is not None

    def hand_out(self, bytes_max: int) -> list[bytes]:
        """The lines after handed_index, bounded, to be written now, once truncate_from is obeyed."""
        self.truncate_from = None
        if self.handed_index == self.last_index:
            return []
        lines = prefix_within(self.lines(self.handed_index + 1, self.last_index), bytes_max)
        self.handed_index += len(lines)
        self.check()
        return lines

    def persisted_to(self, index: int) -> None:
        """The lines handed out up to `index` are on disk, except those that were cut meanwhile."""
        self.persisted_index = max(self.persisted_index, min(index, self.handed_index))
        self._release()
        self.check()

    def commit_to(self, index: int) -> bool:
        """Everything up to `index` is committed. False when that was known."""
        if index <= self.commit_index:
            return False
        assert index <= self.last_index, "committed entries are in the log"
        first_held = max(self.commit_index + 1, self.held_index)
        if first_held <= index:
            self.uncommitted_bytes -= bytes_of(self.lines(first_held, index))
        self.commit_index = index
        self.membership.committed_to(index)
        self.check()
        return True

    def applied_to(self, index: int) -> None:
        """The host has applied everything up to `index` and no longer needs these lines."""
        assert self.applied_index <= index, "applying goes forward"
        self.applied_index = index
        self._release()
        self.check()

    def compact_to(self, index: int) -> None:
        """A durable snapshot holds everything up to `index`: what is before it may be gone from the disk."""
        assert self.snapshot_index <= index, "a snapshot is never older than the one before"
        assert index <= self.applied_index, "a snapshot holds applied entries only"
        assert index <= self.persisted_index, "a snapshot is folded from lines on disk"
        run = bisect_right(self._run_indexes, index) - 1
        del self._run_indexes[:run]
        del self._run_terms[:run]
        self._run_indexes[0] = index
        self.snapshot_index = index
        self._release()
        self.check()

    def replace_by_snapshot(self, index: int, term: int, configuration: Configuration) -> None:
        """A leader's snapshot is durable here in place of the whole log (section 7, step 7)."""
        assert index > self.commit_index, "a snapshot that is behind is ignored (pitfall 29)"
        self._lines = []
        self.held_bytes = self.uncommitted_bytes = 0
        self._run_indexes, self._run_terms = [index], [term]
        self.snapshot_index = self.applied_index = self.commit_index = index
        self.persisted_index = self.handed_index = self.last_index = index
        self.held_index = index + 1
        self.cut_from = self.truncate_from = None
        self.new_markers = []
        self.membership = Membership(configuration, index=index)
        self.check()

    def _release(self) -> None:
        """Let go of the oldest lines once twice the tail is in memory, so that the cost is spread."""
        if self.held_bytes <= 2 * self._tail_bytes_max:
            return
        last_index = min(self.persisted_index, self.applied_index)
        done_count = max(last_index + 1 - self.held_index, 0)
        sizes = list(accumulate(map(len, self._lines[:done_count])))
        count = bisect_right(sizes, self.held_bytes - self._tail_bytes_max)
        if count == 0:
            return
        del self._lines[:count]
        self.held_index += count
        self.held_bytes -= sizes[count - 1]
