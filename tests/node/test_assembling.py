"""From a state directory to a replica: what the markers count otherwise is told; nothing is read twice."""

import pytest

from rollmq.core.raft_ready import HardState, RaftSettings
from rollmq.core.segment_digest import SegmentDigest
from rollmq.node.assembling import assemble, load
from tests.sim.sim_disk import SimDisk
from tests.store.making import GROUP, NODE, LogMaker, new_store, open_store

ALONE = frozenset([NODE])


def digests_asked_for(founders: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Assemble the replica of a log with four entries in its open segment: how far the digests go that are
    taken of it. Each but one of an empty segment reads the file."""
    disk, log = SimDisk(), LogMaker()
    begun, _ = open_store(disk)
    begun.set_group(GROUP, founders)
    begun.save_vote(HardState(term=1, voted_for=NODE))
    begun.write([log.noop(), *log.enqueues(3)], 1)
    begun.close()
    store, recovered = open_store(disk)
    taken: list[SegmentDigest] = []
    take = store.segment_digest

    def segment_digest(next_index: int | None = None) -> SegmentDigest:
        taken.append(take(next_index))
        return taken[-1]

    monkeypatch.setattr(store, "segment_digest", segment_digest)
    assemble(store, recovered, settings=RaftSettings(), chance=lambda: 0.5, jitter=lambda: 0.5, now_us=0)
    return [digest.next_index for digest in taken]


def test_a_start_reads_the_open_segment_once_for_its_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone all of it is applied at once; in a group nothing is, and a marker may come before that."""
    assert digests_asked_for((NODE,), monkeypatch) == [5]
    assert digests_asked_for((NODE, "c" * 32), monkeypatch) == [1, 5]


def test_a_state_that_is_what_the_markers_say_is_loaded() -> None:
    disk, log = SimDisk(), LogMaker()
    store = new_store(disk)
    store.write([*log.enqueues(3), log.marker(), log.enqueue(), log.marker()], 1)
    store.close()
    loaded = load(open_store(disk)[1], ALONE)
    assert loaded.machine.last_index == 6
    assert loaded.machine.counts() == log.machine.counts()
    assert loaded.doubt == ""


def test_a_state_that_is_not_what_a_marker_says_is_told_and_loaded() -> None:
    """The leader of then may have been the odd one, and its marker is in the log of all for ever: who refused
    it would never start again."""
    disk, log = SimDisk(), LogMaker()
    lines = [*log.enqueues(3), log.marker()]
    log.machine.no_ops += 1
    store = new_store(disk)
    store.write([*lines, log.enqueue(), log.marker()], 1)
    store.close()
    loaded = load(open_store(disk)[1], ALONE)
    assert loaded.machine.last_index == 6
    assert loaded.doubt.startswith("as of entry 6 the log comes to ")
