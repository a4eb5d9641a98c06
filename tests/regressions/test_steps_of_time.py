"""Log time may go ahead at once, when a majority's clocks or an operator say so: nobody slept meanwhile."""

from rollmq.core.intake import Submit
from rollmq.core.job import INFLIGHT
from rollmq.core.liveness import Hello
from tests.replica.trio import WALL_US, Trio

HOUR_US = 3_600_000_000


def test_a_step_of_the_clock_loses_no_worker_and_ends_no_handler() -> None:
    trio = Trio(size=1)
    member = trio.leader()
    leader = member.replica.leader
    assert leader is not None
    for worker_id in ("here", "away"):
        assert leader.liveness.hello(Hello(worker_id, "a", ["job.assign.e"], hands=1, credit=1)) is None
    ids = [f"{WALL_US // 1000:012x}7{number:019x}" for number in range(2)]
    for job_id in ids:
        leader.intake.submit(Submit(job_id, "c", "e", timeout_us=60_000_000), None)
    trio.run(100)
    jobs = [leader.desk.machine.jobs[job_id] for job_id in ids]
    for job in jobs:
        assert job.fence is not None
        leader.attempts.begin(job.worker_id, job.id, job.fence)
    leader.liveness.broken("away")
    member.replica.set_time(mono_us=trio.now_us, wall_us=WALL_US + trio.now_us + HOUR_US)
    before_us = leader.desk.now_us
    member.replica.step_time()
    assert leader.desk.now_us >= before_us + HOUR_US
    member.replica.tick()
    member.turn()
    assert [job.state for job in jobs] == [INFLIGHT, INFLIGHT]
    assert all(job.deadline_us > leader.desk.now_us for job in jobs)
    trio.run(10_000)
    assert [job.worker_id for job in jobs if job.state == INFLIGHT] == ["here"], "the grace went on"


def test_what_is_delayed_is_due_after_a_step() -> None:
    trio = Trio(size=1)
    member = trio.leader()
    leader = member.replica.leader
    assert leader is not None
    job_id = f"{WALL_US // 1000:012x}7{1:019x}"
    due_us = leader.desk.now_us + HOUR_US // 2
    leader.intake.submit(Submit(job_id, "c", "e", not_before_us=due_us), None)
    assert leader.liveness.hello(Hello("w", "a", ["job.assign.e"], hands=1, credit=1)) is None
    trio.run(100)
    job = leader.desk.machine.jobs[job_id]
    assert job.state != INFLIGHT
    member.replica.set_time(mono_us=trio.now_us, wall_us=WALL_US + trio.now_us + HOUR_US)
    member.replica.step_time()
    member.replica.tick()
    member.turn()
    assert job.state == INFLIGHT
