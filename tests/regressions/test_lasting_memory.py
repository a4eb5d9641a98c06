"""What is over leaves nothing behind, and coming back in crowds stays cheap."""

import sys

from rollmq.core.intake import Submit
from rollmq.core.liveness import Hello
from tests.core.audit import audit
from tests.core.naming import T0_US
from tests.core.test_cost import lines_of
from tests.properties.hall import Hall

YEAR_US = 365 * 86_400_000_000


def submit(hall: Hall, exec_name: str, *, expires_at_us: int, payload: bytes = b"") -> str:
    hall.count += 1
    job_id = f"{hall.now_us // 1000:012x}7{hall.count:019x}"
    hall.leader.intake.submit(
        Submit(job_id, "c", exec_name, payload=payload, expires_at_us=expires_at_us), None
    )
    return job_id


def test_a_job_that_is_passed_around_has_one_expiry() -> None:
    hall = Hall()
    hall.worker("w")
    job_id = submit(hall, "e", expires_at_us=T0_US + YEAR_US)
    for _ in range(2_000):
        (assigned,) = hall.take("w", 1)
        fence = (assigned.event.term, assigned.event.index)
        hall.leader.attempts.give_back("w", job_id, fence, "refused")
    queues = hall.machine.queues
    assert queues is not None
    assert len(queues.expiries) < 300


def test_a_finished_jobs_payload_is_not_kept_until_it_would_have_expired() -> None:
    hall = Hall()
    hall.worker("w")
    payload = bytes(range(100))
    held = sys.getrefcount(payload)
    submit(hall, "e", expires_at_us=T0_US + YEAR_US, payload=payload)
    assert sys.getrefcount(payload) > held
    (assigned,) = hall.take("w", 1)
    hall.end(assigned.event)
    hall.told()
    del assigned
    assert sys.getrefcount(payload) == held


def test_execs_that_come_and_go_while_nobody_has_credit_leave_nothing_in_the_rings() -> None:
    hall = Hall()
    hall.worker("w", "job.assign.>")
    for number in range(30):
        submit(hall, f"e{number}", expires_at_us=hall.now_us + 1)
        hall.told()
        for _ in range(13):
            hall.pass_time(10_000_000)
    queues = hall.machine.queues
    assert queues is not None
    assert not queues.execs
    assert [len(pattern.ring) for pattern in hall.leader.desk.scheduler._patterns.values()] == [0]


def crowd(worker_count: int) -> Hall:
    """Workers that hold eight jobs each, given out in turn, of which none has begun."""
    hall = Hall()
    for _ in range(8 * worker_count):
        hall.submit("c", "e")
    for number in range(worker_count):
        hello = Hello(f"w{number}", "a", ["job.assign.>"], hands=1, credit=8)
        assert hall.leader.liveness.hello(hello) is None
        hall.sent[f"w{number}"] = 0
    while hall.told():
        pass
    assert hall.machine.inflight.count == 8 * worker_count
    return hall


def lose_all(worker_count: int) -> float:
    hall = crowd(worker_count)
    hall.now_us += 16_000_000
    cost = lines_of(lambda: hall.leader.tick(hall.now_us))
    assert hall.machine.inflight.count == 0
    audit(hall.machine)
    return cost / worker_count


def give_all_back(worker_count: int) -> float:
    hall = crowd(worker_count)
    held = [job for jobs in hall.machine.inflight.by_worker.values() for job in jobs.values()]

    def give_back() -> None:
        for job in held:
            assert job.fence is not None
            hall.leader.attempts.give_back(job.worker_id, job.id, job.fence, "drained")

    cost = lines_of(give_back)
    audit(hall.machine)
    return cost / worker_count


def test_losing_many_workers_at_once_costs_no_more_for_each_of_them() -> None:
    assert lose_all(400) < 2 * lose_all(40)


def test_many_workers_that_hand_back_at_once_cost_a_bounded_search_each() -> None:
    assert give_all_back(400) < 1.5 * give_all_back(200)
