"""What falls due for everybody at once does not stop the leader's loop."""

from rollmq.limits import TIMEOUTS_PER_TICK
from tests.core.audit import audit
from tests.properties.hall import Hall


def test_attempts_that_time_out_together_are_ended_a_bounded_number_at_a_tick() -> None:
    hall = Hall()
    count = 2 * TIMEOUTS_PER_TICK - 200
    for number in range(18):
        hall.worker(f"w{number}", credit=count // 18)
    for _ in range(count):
        hall.submit("c", "e")
    while given := hall.told():
        for assigned in given:
            event = assigned.event
            hall.leader.attempts.begin(event.worker_id, event.job_id, (event.term, event.index))
    assert hall.machine.inflight.count == count
    hall.pass_time(600_000_001)
    assert 0 < hall.machine.inflight.count <= count - TIMEOUTS_PER_TICK
    hall.pass_time(1)
    assert hall.machine.inflight.count == 0
    audit(hall.machine)
