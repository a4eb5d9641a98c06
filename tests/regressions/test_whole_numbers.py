"""To Python 2 is as good as 2.0; in the canonical state they are different bytes."""

from rollmq.core.events import Backoff
from rollmq.core.intake import Submit
from rollmq.core.line import decode_line
from rollmq.core.machine import Machine
from rollmq.core.state import dump_state
from tests.core.naming import T0_US
from tests.properties.hall import Hall


def test_a_factor_given_as_an_int_is_the_same_on_leader_and_follower() -> None:
    hall = Hall()
    job_id = f"{T0_US // 1000:012x}7{1:019x}"
    backoff = Backoff(first_us=1, factor=2, max_us=10, jitter=0)
    hall.leader.intake.submit(Submit(job_id, "c", "e", timeout_factor=2, backoff=backoff), None)
    follower = Machine()
    for line in hall.leader.desk.take_lines():
        follower.apply(decode_line(line))
    assert list(dump_state(follower)) == list(dump_state(hall.machine))
