"""A leader that was paused does not take its own silence for that of its workers."""

from rollmq.core.liveness import Hello
from rollmq.limits import WORKER_SILENT_MAX_US
from tests.replica.trio import WALL_US, Member, Trio

MINUTE_US = 60_000_000


def leading_alone() -> tuple[Trio, Member]:
    """One node that leads, with one worker that runs a job."""
    trio = Trio(size=1)
    leader = trio.leader()
    assert leader.replica.leader is not None
    hello = Hello("w1", "a", ["job.assign.>"], hands=1, credit=1)
    assert leader.replica.leader.liveness.hello(hello) is None
    trio.submit(leader)
    trio.run(100)
    return trio, leader


def crashes_of(leader: Member) -> list[int]:
    return [job.crashes for job in leader.replica.machine.jobs.values()]


def test_a_pause_of_the_leader_costs_no_worker_its_job() -> None:
    trio, leader = leading_alone()
    trio.now_us += MINUTE_US
    trio.run(1_000)
    assert leader.replica.leader is not None
    assert "w1" in leader.replica.leader.liveness.present
    assert crashes_of(leader) == [0]
    assert leader.replica.machine.last_at_us <= WALL_US + trio.now_us


def test_silence_is_still_found_after_the_pause() -> None:
    trio, leader = leading_alone()
    trio.now_us += MINUTE_US
    trio.run(WORKER_SILENT_MAX_US // 1000 + 1_000)
    assert leader.replica.leader is not None
    assert "w1" not in leader.replica.leader.liveness.present
    assert crashes_of(leader) == [1]
