"""RaftLog against a dumb twin: a plain list of (term, line), with every answer computed the long way."""

import random

import pytest

from rollmq.core.raft_log import RaftLog, prefix_within
from rollmq.core.raft_messages import TermRun

Entry = tuple[int, bytes]


def runs_of(entries: list[Entry], first_index: int) -> tuple[TermRun, ...]:
    """The terms of these entries as runs."""
    runs: list[TermRun] = []
    for index, (term, _) in enumerate(entries, start=first_index):
        if not runs or runs[-1][1] != term:
            runs.append((index, term))
    return tuple(runs)


class Twins:
    """The log and its twin, moved by the same steps."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.log = RaftLog(tail_bytes_max=self.chance.choice([0, 30, 1000]))
        self.twin: list[Entry] = []
        self.disk: list[Entry] = []
        self.handed: list[tuple[int, list[bytes]]] = []
        self.is_cut_while_out = False

    def lines(self) -> list[bytes]:
        """Some lines of random lengths."""
        return [b"x" * self.chance.randrange(20) + b"\n" for _ in range(self.chance.randrange(1, 6))]

    def step(self) -> None:
        """One random move."""
        moves = (
            self.append,
            self.append_runs,
            self.cut,
            self.hand_out,
            self.persist,
            self.commit,
            self.apply,
        )
        self.chance.choice(moves)()
        if self.chance.random() < 0.05:
            self.compact()

    def append(self) -> None:
        lines = self.lines()
        term = self.log.last_term + self.chance.choice([0, 0, 1])
        assert self.log.append(lines, term=term) == len(self.twin) + 1
        self.twin += [(term, line) for line in lines]

    def append_runs(self) -> None:
        """As a follower: the message may begin before the end of the log."""
        entries = []
        term = self.log.last_term
        for line in self.lines():
            term += self.chance.choice([0, 1])
            entries.append((term, line))
        back = self.chance.randrange(min(3, len(self.twin) - self.log.snapshot_index) + 1)
        known = self.twin[len(self.twin) - back :]
        runs = runs_of(known + entries, len(self.twin) - back + 1)
        self.log.append_runs([line for _, line in entries], runs)
        self.twin += entries

    def cut(self) -> None:
        if self.log.commit_index == self.log.last_index or self.chance.random() < 0.5:
            return
        index = self.chance.randrange(self.log.commit_index + 1, self.log.last_index + 1)
        self.log.cut(index)
        del self.twin[index - 1 :]

    def hand_out(self) -> None:
        if self.handed:
            return
        first_index, truncate_from = self.log.handed_index + 1, self.log.truncate_from
        lines = self.log.hand_out(self.chance.choice([10, 1000]))
        if truncate_from is not None:
            del self.disk[truncate_from - 1 :]
        assert lines == [line for _, line in self.twin[first_index - 1 :][: len(lines)]]
        assert len(self.disk) == first_index - 1, "lines are handed out without a gap"
        self.disk += self.twin[first_index - 1 : first_index - 1 + len(lines)]
        self.handed.append((first_index + len(lines) - 1, lines))

    def persist(self) -> None:
        if self.handed:
            last_index, _ = self.handed.pop()
            self.log.persisted_to(last_index)

    def commit(self) -> None:
        self.log.commit_to(self.chance.randrange(self.log.last_index + 1))

    def apply(self) -> None:
        self.log.applied_to(self.chance.randrange(self.log.applied_index, self.log.commit_index + 1))

    def compact(self) -> None:
        highest = min(self.log.applied_index, self.log.persisted_index)
        if highest >= self.log.snapshot_index:
            self.log.compact_to(self.chance.randrange(self.log.snapshot_index, highest + 1))

    def compare(self) -> None:
        """Every question, asked of both."""
        log, twin = self.log, self.twin
        log.check()
        assert log.last_index == len(twin)
        first = log.snapshot_index
        for index in range(first - 1, len(twin) + 2):
            known = first <= index <= len(twin)
            term = twin[index - 1][0] if known and index > 0 else (0 if known else None)
            assert log.term_at(index) == term
        held = twin[log.held_index - 1 :]
        assert log.lines(log.held_index, log.last_index) == [line for _, line in held]
        assert log.held_bytes == sum(len(line) for _, line in held)
        uncommitted = twin[max(log.held_index - 1, log.commit_index) :]
        assert log.uncommitted_bytes == sum(len(line) for _, line in uncommitted)
        assert self.disk[: log.persisted_index] == twin[: log.persisted_index], "what counts is on disk"
        self.compare_ranges()

    def compare_ranges(self) -> None:
        log, twin = self.log, self.twin
        first, last = log.snapshot_index + 1, len(twin)
        if first > last:
            return
        begin = self.chance.randrange(first, last + 1)
        end = self.chance.randrange(begin, last + 1)
        assert log.runs(begin, end) == runs_of(twin[begin - 1 : end], begin)
        other = [
            (max(1, term + self.chance.choice([0, 0, 0, 1])), line) for term, line in twin[begin - 1 : end]
        ]
        other = [(max(t for t, _ in other[: n + 1]), line) for n, (_, line) in enumerate(other)]
        other += [(other[-1][0], b"new\n")] * self.chance.randrange(3)
        end = begin + len(other) - 1
        different = next(
            (i for i, e in enumerate(other, start=begin) if i > last or twin[i - 1][0] != e[0]), end + 1
        )
        assert log.first_difference(begin, runs_of(other, begin), end) == different
        term = self.chance.randrange(log.last_term + 2)
        expected = next(
            (i for i in range(end, first - 1, -1) if i <= last and twin[i - 1][0] <= term), first - 1
        )
        assert log.last_at_most(index=end, term=term)[0] == expected


@pytest.mark.parametrize("block", range(4))
def test_the_log_answers_like_its_twin_after_any_steps(block: int) -> None:
    for seed in range(block * 50, (block + 1) * 50):
        twins = Twins(seed)
        for _ in range(60):
            try:
                twins.step()
                twins.compare()
            except AssertionError as error:
                error.add_note(f"seed {seed}")
                raise


def test_only_a_bounded_tail_of_finished_lines_stays_in_memory() -> None:
    log = RaftLog(tail_bytes_max=1000)
    for _ in range(100):
        log.append([b"x" * 99 + b"\n"], term=1)
        log.hand_out(10_000)
        log.persisted_to(log.last_index)
        log.commit_to(log.last_index)
        log.applied_to(log.last_index)
        assert log.held_bytes <= 2000
    assert log.held_bytes >= 1000


@pytest.mark.parametrize("held_up", ["persisted", "applied"])
def test_a_line_that_is_not_yet_written_or_applied_stays_in_memory(held_up: str) -> None:
    log = RaftLog(tail_bytes_max=0)
    log.append([b"a\n", b"b\n", b"c\n"], term=1)
    log.hand_out(100)
    log.commit_to(3)
    log.persisted_to(1 if held_up == "persisted" else 3)
    log.applied_to(1 if held_up == "applied" else 3)
    assert log.lines(2, 3) == [b"b\n", b"c\n"]


def test_a_log_starts_from_the_description_of_what_is_on_disk() -> None:
    log = RaftLog(
        snapshot_index=10,
        snapshot_term=3,
        term_runs=[(11, 3), (14, 5)],
        last_index=15,
        applied_index=12,
        tail_bytes_max=0,
    )
    assert [log.term_at(index) for index in range(9, 17)] == [None, 3, 3, 3, 3, 5, 5, None]
    assert (log.commit_index, log.persisted_index, log.last_term, log.held_index) == (12, 15, 5, 16)


def test_an_empty_log_after_a_snapshot_is_as_new_as_the_snapshot() -> None:
    """Pitfall 9."""
    log = RaftLog(snapshot_index=10, snapshot_term=3, tail_bytes_max=0)
    assert not log.is_up_to_date(last_index=9, last_term=3)
    assert not log.is_up_to_date(last_index=99, last_term=2)
    assert log.is_up_to_date(last_index=10, last_term=3)


@pytest.mark.parametrize(
    ("pointer", "value", "law"),
    [
        ("snapshot_index", 4, "a snapshot holds applied entries only"),
        ("applied_index", 9, "only committed entries are applied"),
        ("commit_index", 9, "committed entries are in the log"),
        ("persisted_index", 9, "only what was handed out can be on disk"),
        ("handed_index", 9, "only what is in the log can be handed out"),
        ("held_index", 10, "what is not yet written is in memory"),
    ],
)
def test_every_order_of_the_pointers_is_asserted(pointer: str, value: int, law: str) -> None:
    """Pitfall 24: applied <= commit, and the rest of the first page of raft_log.py."""
    log = RaftLog(tail_bytes_max=0)
    log.append([b"x\n"] * 8, term=1)
    log.hand_out(100)
    log.persisted_to(8)
    log.commit_to(6)
    log.applied_to(3)
    setattr(log, pointer, value)
    with pytest.raises(AssertionError, match=law):
        log.check()


def test_terms_never_fall_along_the_log() -> None:
    log = RaftLog(tail_bytes_max=0)
    log.append([b"x\n"], term=5)
    with pytest.raises(AssertionError, match="terms never fall"):
        log.append([b"y\n"], term=4)


def test_a_range_is_bounded_in_bytes_but_never_empty() -> None:
    assert prefix_within([b"aaaa", b"bbbb", b"cc"], 8) == [b"aaaa", b"bbbb"]
    assert prefix_within([b"aaaa", b"bbbb"], 3) == [b"aaaa"]
    assert prefix_within([], 3) == []
