"""Bugs that seeds have found, each as the shortest story, and as seeds.

A seed tells another story once the simulator draws something more, so the stories are what lasts; the seeds
below fail, as the simulator is now, when the fix is taken out.
"""

from random import Random

import pytest

from rollmq.core.events import Ack, AnyEvent, Assign, Cancel, Enqueue, TimeoutRequeue
from rollmq.core.machine import Machine
from rollmq.errors import StoreFailed
from tests.sim.check import run_seed
from tests.sim.invariants import audit
from tests.sim.sim_disk import SimDisk
from tests.store.making import LogMaker, lines_of, new_store, open_store

SECOND_US = 1_000_000


def machine_of(*events: AnyEvent) -> Machine:
    """The machine after these events."""
    machine = Machine()
    for event in events:
        machine.apply(event)
    return machine


def test_a_delayed_job_that_is_cancelled_does_not_come_back_when_its_delay_ends() -> None:
    machine = machine_of(
        Enqueue(1, 1, 0, job_id="j1", client_id="c1", exec="e", tries_max=1, not_before_us=5 * SECOND_US),
        Cancel(2, 1, 1, job_id="j1"),
        Enqueue(3, 1, 9 * SECOND_US, job_id="j2", client_id="c1", exec="e", tries_max=1),
    )
    audit(machine)
    assert machine.queues is not None
    assert machine.queues.candidate(machine.queues.execs["e"]) is machine.jobs["j2"]


def test_a_job_that_is_acked_late_in_its_backoff_does_not_come_back_when_that_ends() -> None:
    ending = {"job_id": "j1", "fence": (1, 2), "attempt": 1, "worker_id": "w1", "started": True}
    machine = machine_of(
        Enqueue(1, 1, 0, job_id="j1", client_id="c1", exec="e", tries_max=3),
        Assign(2, 1, 0, job_id="j1", worker_id="w1", attempt=1, ready_us=0, credit_left=0),
        TimeoutRequeue(3, 1, 1, tries=1, held_us=1, run_us=None, not_before_us=5 * SECOND_US, **ending),  # type: ignore[arg-type]
        Ack(4, 1, 2, tries=1, held_us=2, run_us=None, **ending),  # type: ignore[arg-type]
        Enqueue(5, 1, 9 * SECOND_US, job_id="j2", client_id="c1", exec="e", tries_max=1),
    )
    audit(machine)
    assert machine.queues is not None
    assert machine.queues.candidate(machine.queues.execs["e"]) is machine.jobs["j2"]


@pytest.mark.parametrize("keeps_pages", [True, False])
def test_what_a_failed_fsync_left_in_the_page_cache_is_not_taken_for_durable(keeps_pages: bool) -> None:
    disk, log = SimDisk(), LogMaker()
    store = new_store(disk)
    store.write([log.noop(), log.enqueue()], 1)
    disk.keeps_pages_after_sync_error, disk.sync_errors = keeps_pages, 1
    with pytest.raises(StoreFailed):
        store.write([log.enqueue(5_000)], 3)
    store.close()
    # The machine has not stopped: the next process sees the line, and the kernel takes its page for clean.
    store, recovered = open_store(disk)
    seen = lines_of(recovered)
    if not keeps_pages:
        log.cut(3)
        log.term = 1
    assert seen == log.lines
    store.write(log.enqueues(2), store.next_index)
    disk.crash(Random(1))
    _, recovered = open_store(disk)
    assert lines_of(recovered) == log.lines


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(
            1009, id="a repeat of a submit whose result is not kept any more: its client waited for ever"
        ),
        pytest.param(57, id="a failed fsync, a restart, a power cut: a hole before the mark"),
        pytest.param(60, id="the same, in a segment that was sealed meanwhile"),
        pytest.param(
            1795053427048, id="a submit of unknown outcome, told of by the receipt of its key's repeat"
        ),
    ],
)
def test_a_seed_that_once_failed_is_sound(seed: int) -> None:
    run_seed(seed)
