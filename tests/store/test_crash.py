"""After a crash at any call, with any loss that a disk may suffer, all that was acknowledged is there.

The story knows the state: it writes, cuts, seals, votes, folds and drops as a node would, remembers what
was acknowledged, and after each crash compares what is read back with what may be there.
"""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollmq.core.line import decode_line
from rollmq.core.machine import Machine
from rollmq.core.raft_ready import HardState
from rollmq.core.state import dump_state, load_state
from rollmq.errors import StoreFailed
from rollmq.store.fold import fold_base, fold_snapshot
from rollmq.store.opening import Recovered, StoreOptions
from tests.sim.sim_disk import PowerCut, SimDisk
from tests.store.making import LogMaker, new_store, open_store

OPTIONS = StoreOptions(disk_free_bytes_min=0, ballast_bytes=0, keep_history_bytes=2000)


class Story:
    """A node's life on one disk, and what has been acknowledged in it."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.disk = SimDisk()
        self.store = new_store(self.disk, OPTIONS)
        self.log = LogMaker()
        self.acknowledged = 0
        self.committed = 0
        self.vote = HardState(term=1, voted_for="bb" * 16)
        self.may_vote = self.vote
        self.may_keep_from: int | None = None
        """While a cut runs: whatever is kept must reach at least to here."""

    def act(self) -> None:
        """One thing that a node does."""
        self.random.choices(
            (self.write, self.cut, self.seal, self.save_vote, self.fold, self.drop),
            weights=(10, 2, 3, 1, 2, 2),
        )[0]()

    def write(self) -> None:
        lines = []
        for _ in range(self.random.choice((1, 1, 2, 5, 30))):
            if self.random.random() < 0.08:
                lines.append(self.log.marker())
            elif self.random.random() < 0.1:
                lines.append(self.log.noop())
            else:
                lines.append(self.log.enqueue(self.random.choice((0, 10, 300, 5000))))
        self.store.write(lines, self.acknowledged + 1)
        self.acknowledged = len(self.log.lines)
        if self.random.random() < 0.5:
            self.committed = self.random.randint(self.committed, self.acknowledged)

    def cut(self) -> None:
        if self.committed == self.acknowledged:
            return
        from_index = self.random.randint(self.committed + 1, self.acknowledged)
        self.save_vote_of(HardState(term=self.log.term + 1))
        self.may_keep_from = from_index - 1
        self.store.cut(from_index)
        self.log.cut(from_index)
        self.acknowledged = from_index - 1
        self.may_keep_from = None

    def seal(self) -> None:
        self.store.seal(self.committed)

    def save_vote(self) -> None:
        if self.vote.voted_for is None:
            self.save_vote_of(HardState(term=self.vote.term, voted_for="cc" * 16))

    def save_vote_of(self, vote: HardState) -> None:
        self.may_vote = vote
        self.store.save_vote(vote)
        self.vote = vote

    def fold(self) -> None:
        result = fold_snapshot(self.disk)
        if result is not None:
            self.store.adopt_snapshot(result)

    def drop(self) -> None:
        until = self.store.base_index_due(now_us=0, confirmed_index=None)
        if until is not None:
            fold_base(self.disk, until_index=until)
            self.store.drop_history(until)

    def act_until_the_cut(self) -> None:
        """Until the call at which the power is cut."""
        while True:
            self.act()

    def crash(self) -> None:
        if self.random.random() < 0.2:
            self.disk.kill()
        else:
            self.disk.crash(self.random)

    def reopen(self) -> None:
        """Start again, perhaps with crashes in the start itself, and check what is there."""
        while self.random.random() < 0.3:
            self.disk.stop_at = self.disk.calls + self.random.randrange(40)
            try:
                open_store(self.disk, OPTIONS)[0].close()
            except PowerCut:
                self.crash()
            else:
                self.disk.kill()
        self.store, recovered = open_store(self.disk, OPTIONS)
        self.check(recovered)

    def check(self, recovered: Recovered) -> None:
        least = self.acknowledged if self.may_keep_from is None else self.may_keep_from
        assert least <= recovered.last_index <= len(self.log.lines), "acknowledged entries are missing"
        assert recovered.hard_state in (self.vote, self.may_vote)
        assert recovered.notes == ()
        found = [entry.line for entry in recovered.entries()]
        assert found == self.log.lines[recovered.state_index : recovered.last_index]
        kept = self.log.lines[: recovered.last_index]
        machine = Machine()
        for line in kept:
            machine.apply(decode_line(line))
        loaded = _machine_of(recovered)
        assert b"".join(dump_state(loaded)) == b"".join(dump_state(machine))
        self.go_on_from(recovered)

    def go_on_from(self, recovered: Recovered) -> None:
        self.vote = self.may_vote = recovered.hard_state
        term = max(self.log.term, self.vote.term)
        self.log.cut(recovered.last_index + 1)
        self.log.term = term
        if self.vote.term < term:
            self.save_vote_of(HardState(term=term))
        self.acknowledged = recovered.last_index
        self.may_keep_from = None


def _machine_of(recovered: Recovered) -> Machine:
    machine = load_state(recovered.state_lines()) if recovered.state else Machine()
    for entry in recovered.entries():
        machine.apply(entry.event)
    return machine


def live(random: Random, *, lives: int, acts: int) -> Story:
    """Lives that each end in a power cut, or in a failing call and the death of the process."""
    story = Story(random)
    for _ in range(lives):
        at = story.disk.calls + random.randrange(1, 120)
        is_cut = random.random() < 0.7
        story.disk.stop_at, story.disk.error_at = (at, None) if is_cut else (None, at)
        story.disk.keeps_pages_after_sync_error = random.random() < 0.5
        try:
            for _ in range(random.randrange(acts)):
                story.act()
        except (PowerCut, StoreFailed, OSError):
            story.crash()
        else:
            story.crash()
        story.reopen()
    return story


@settings(max_examples=60)
@given(st.integers(0, 2**32))
def test_a_crash_at_any_call_loses_nothing_that_was_acknowledged(seed: int) -> None:
    """Pitfall 7: one node that loses what it synced is enough to lose data of the group."""
    live(Random(seed), lives=6, acts=30)


@pytest.mark.parametrize("seed", range(20))
def test_a_long_life_with_drops_and_folds_survives(seed: int) -> None:
    live(Random(seed), lives=12, acts=60)


def test_the_stories_reach_what_they_are_about() -> None:
    """A property over stories in which nothing happens would prove nothing."""
    seen: set[str] = set()
    for seed in range(40):
        story = live(Random(seed), lives=5, acts=80)
        names = story.disk.files()
        seen.update(
            word for word in ("base-", "state-", "torn-", ".jsonl", "gaps") for name in names if word in name
        )
        seen.update({"two open"} if sum(name.startswith("wal/events") for name in names) > 1 else ())
    assert seen == {"base-", "state-", "torn-", ".jsonl", "gaps", "two open"}


@pytest.mark.parametrize("seed", range(40))
def test_what_a_start_has_seen_survives_a_power_cut_right_after_it(seed: int) -> None:
    """A process dies between a write and its fsync, the next one reads what was written, then the power
    goes. What the second one has seen, and may have told its peers, must not be gone."""
    random = Random(seed)
    story = Story(random)
    for _ in range(random.randrange(30)):
        story.act()
    story.disk.stop_at = story.disk.calls + random.randrange(10)
    with pytest.raises(PowerCut):
        story.act_until_the_cut()
    story.disk.kill()
    _, first = open_store(story.disk, OPTIONS)
    story.disk.crash(random)
    _, second = open_store(story.disk, OPTIONS)
    assert second.last_index == first.last_index
    assert second.hard_state == first.hard_state
