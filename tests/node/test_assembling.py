"""From a state directory to a machine: what the log's markers count otherwise is told."""

from rollmq.node.assembling import load
from tests.sim.sim_disk import SimDisk
from tests.store.making import NODE, LogMaker, new_store, open_store

ALONE = frozenset([NODE])


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
