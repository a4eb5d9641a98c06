"""A leader that falls may have read a later clock than the next one; its queues stay first in, first out."""

from rollmq.core.events import Enqueue
from rollmq.core.machine import Machine
from tests.core.audit import audit


def test_a_delay_that_ended_by_a_fallen_leaders_clock_keeps_its_lane_in_order() -> None:
    """Seed 1795120675483 of groups: what the next one accepted stood behind a younger job."""
    machine = Machine()
    assert machine.queues is not None
    machine.apply(Enqueue(1, 1, 0, job_id="j1", client_id="c1", exec="e", not_before_us=5_000_000))
    machine.queues.advance(9_000_000, machine.clients.by_id, 100)  # and its leader falls, unheard
    machine.apply(Enqueue(2, 2, 8_000_000, job_id="j2", client_id="c1", exec="e"))
    audit(machine)
    queue = machine.queues.execs["e"]
    assert [job.id for job in (machine.queues.candidate(queue),) if job is not None] == ["j1"]
