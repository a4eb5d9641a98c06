"""From a state directory to a machine: what is loaded must be what the log's markers say."""

import pytest

from rollmq.errors import StateDamaged
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


def test_a_state_that_is_not_what_a_marker_says_is_not_served() -> None:
    """Snapshot and log that do not belong together, or another `apply` than the one that led: every file
    may be sound, and what comes of them is not the group's state."""
    disk, log = SimDisk(), LogMaker()
    lines = [*log.enqueues(3), log.marker()]
    log.machine.no_ops += 1
    store = new_store(disk)
    store.write([*lines, log.enqueue(), log.marker()], 1)
    store.close()
    recovered = open_store(disk)[1]
    with pytest.raises(StateDamaged, match=r"as of entry 6 it counts .* the marker says"):
        load(recovered, ALONE)
