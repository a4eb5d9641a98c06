"""The power is cut at every single call of an operation, one after the other, and nothing is lost.

The stories of test_crash.py choose at random; here each step of each operation that has several is met.
"""

from collections.abc import Callable
from random import Random

import pytest

from rollmq.core.raft_ready import HardState
from rollmq.store import layout
from rollmq.store.fold import fold_base, fold_snapshot
from rollmq.store.store import Store
from tests.sim.sim_disk import PowerCut, SimDisk
from tests.store.making import GROUP, NODE, SMALL, LogMaker, new_store, open_store, state_of

LOSSES_PER_STEP = 6
"""Different losses tried at each call."""


def prepared() -> tuple[SimDisk, Store, LogMaker]:
    """Two sealed segments with a snapshot each, a third sealed, a complete one, an open one."""
    disk, log = SimDisk(), LogMaker()
    store = new_store(disk)
    for number in range(3):
        store.write([*log.enqueues(3), log.marker()], store.next_index)
        store.seal(store.next_index - 1)
        if number < 2:
            result = fold_snapshot(disk)
            assert result is not None
            store.adopt_snapshot(result)
    store.write([*log.enqueues(3), log.marker(), *log.enqueues(4)], store.next_index)
    return disk, store, log


def _fold(disk: SimDisk, store: Store) -> None:
    result = fold_snapshot(disk)
    assert result is not None
    store.adopt_snapshot(result)


def _drop(disk: SimDisk, store: Store) -> None:
    fold_base(disk, until_index=4)
    store.drop_history(4)


OPERATIONS: dict[str, Callable[[SimDisk, Store], object]] = {
    "seal": lambda _disk, store: store.seal(16),
    "cut inside a file": lambda _disk, store: store.cut(19),
    "cut a whole file": lambda _disk, store: store.cut(17),
    "cut a marker and a file": lambda _disk, store: store.cut(16),
    "snapshot": _fold,
    "retention": _drop,
    "vote": lambda _disk, store: store.save_vote(HardState(term=2, voted_for="cc" * 16)),
    "marker and next file": lambda _disk, store: store.write(_marker_batch(), 21),
}


def _marker_batch() -> list[bytes]:
    _, _, log = prepared()
    return [*log.enqueues(2), log.marker(), *log.enqueues(2)]


def _calls_of(operation: Callable[[SimDisk, Store], object]) -> int:
    disk, store, _ = prepared()
    before = disk.calls
    operation(disk, store)
    return disk.calls - before


@pytest.mark.parametrize("name", OPERATIONS)
def test_the_power_cut_at_each_call_leaves_what_a_start_understands(name: str) -> None:
    operation = OPERATIONS[name]
    calls = _calls_of(operation)
    assert calls > 2
    for at in range(calls + 1):
        for seed in range(LOSSES_PER_STEP):
            disk, store, log = prepared()
            disk.stop_at = disk.calls + at
            if at < calls:
                with pytest.raises(PowerCut):
                    operation(disk, store)
            else:
                operation(disk, store)
            disk.crash(Random(seed))
            _check(name, disk, log, is_done=at == calls)


def _check(name: str, disk: SimDisk, log: LogMaker, *, is_done: bool) -> None:
    reopened, recovered = open_store(disk)
    lines = log.lines
    if name == "marker and next file":
        lines = [*lines, *_marker_batch()]
    least = {"cut inside a file": 18, "cut a whole file": 16, "cut a marker and a file": 15}.get(name, 20)
    most = least if is_done and name.startswith("cut") else len(lines)
    assert least <= recovered.last_index <= most
    if is_done and name == "marker and next file":
        assert recovered.last_index == len(lines)
    assert recovered.notes == ()
    assert [entry.line for entry in recovered.entries()] == lines[
        recovered.state_index : recovered.last_index
    ]
    assert not [each for each in disk.files() if each.endswith(layout.TEMPORARY)]
    _goes_on(disk, reopened, recovered.last_index)


def _goes_on(disk: SimDisk, store: Store, last_index: int) -> None:
    """What was recovered can be written to, sealed, folded, dropped and read again."""
    log = LogMaker(term=3, behind=last_index)
    store.save_vote(HardState(term=3))
    store.write([*log.enqueues(2), log.noop()], store.next_index)
    store.seal(last_index)
    _fold_if_any(disk, store)
    store.close()
    _, again = open_store(disk)
    assert again.last_index == last_index + 3
    assert again.torn is None
    assert state_of(again)


def _fold_if_any(disk: SimDisk, store: Store) -> None:
    result = fold_snapshot(disk)
    if result is not None:
        store.adopt_snapshot(result)


def test_a_first_start_can_be_cut_off_at_each_call() -> None:
    probe = SimDisk()
    open_store(probe)
    for at in range(probe.calls):
        for seed in range(LOSSES_PER_STEP):
            disk = SimDisk()
            disk.stop_at = at
            with pytest.raises(PowerCut):
                open_store(disk)
            disk.crash(Random(seed))
            store, recovered = open_store(disk)
            assert recovered.identity.node_id == NODE
            assert recovered.last_index == 0
            store.set_group(GROUP)
            store.close()
            assert open_store(disk)[1].identity.group == GROUP


def test_an_identity_that_was_answered_with_survives() -> None:
    """Each node fsyncs its id before it answers anyone: a later start in the folder has the same one."""
    for seed in range(20):
        disk = SimDisk()
        store, recovered = open_store(disk)
        store.set_group(GROUP)
        disk.crash(Random(seed))
        _, again = Store.open(disk, fresh_node_id="dd" * 16, options=SMALL)
        assert again.identity.node_id == recovered.identity.node_id
        assert again.identity.group == GROUP
