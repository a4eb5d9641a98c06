"""Workers: who is refused, what a hello reconciles, what is asked back."""

import pytest

from rollmq.core.attempts import Outcome
from rollmq.core.effects import AskedBack, AttemptVoid
from rollmq.core.events import Assign
from rollmq.core.intake import Submit
from rollmq.core.job import INFLIGHT, QUEUED
from rollmq.core.liveness import Held, Hello
from rollmq.limits import (
    ID_CHARS_MAX,
    PAYLOAD_BYTES_MAX,
    UNSEEN_BYTES_MAX,
    UNSTARTED_MAX_US,
    WORKER_GRACE_US,
    WORKER_HANDS_MAX,
    WORKER_HELD_MAX,
    WORKER_PATTERNS_MAX,
)
from tests.properties.hall import Hall

ALL = ["job.assign.>"]


@pytest.mark.parametrize(
    "hello",
    [
        Hello("", "a", ALL),
        Hello("w" * (ID_CHARS_MAX + 1), "a", ALL),
        Hello("w", "", ALL),
        Hello("w", "a", []),
        Hello("w", "a", ["job..x"]),
        Hello("w", "a", ["job.assign.>.x"]),
        Hello("w", "a", ["job.assign.x*"]),
        Hello("w", "a", ALL * (WORKER_PATTERNS_MAX + 1)),
        Hello("w", "a", ALL, hands=0),
        Hello("w", "a", ALL, hands=WORKER_HANDS_MAX + 1),
        Hello("w", "a", ALL, credit=-1),
        Hello("w", "a", ALL, credit=WORKER_HELD_MAX + 1),
        Hello("w", "a", ALL, host="\ud800"),
    ],
)
def test_a_hello_that_cannot_be_is_refused(hello: Hello) -> None:
    hall = Hall()
    assert hall.leader.liveness.hello(hello)
    assert hall.leader.liveness.present == {}


def _with_jobs(count: int) -> tuple[Hall, list[Assign]]:
    hall = Hall()
    for _ in range(count):
        hall.submit("c", "e")
    hall.worker("w", credit=count)
    return hall, [assigned.event for assigned in hall.told()]


def _again(hall: Hall, *held: Held, instance: str = "a", outcomes: list[Outcome] | None = None) -> None:
    hello = Hello("w", instance, ALL, hands=8, held=list(held), outcomes=outcomes or [])
    assert hall.leader.liveness.hello(hello) is None


def _fence(event: Assign) -> tuple[int, int]:
    return event.term, event.index


def test_what_is_listed_goes_on() -> None:
    hall, (first, second) = _with_jobs(2)
    hall.leader.liveness.broken("w")
    _again(hall, Held(first.job_id, _fence(first), is_started=True), Held(second.job_id, _fence(second)))
    jobs = hall.machine.jobs
    assert jobs[first.job_id].is_started
    assert not jobs[second.job_id].is_started
    assert {job.state for job in jobs.values()} == {INFLIGHT}
    assert hall.leader.desk.scheduler.workers["w"].running == 2


def test_a_held_job_with_a_stale_fence_is_not_held() -> None:
    """The worker holds an older attempt of the job: the newer assign never reached it."""
    hall, (first,) = _with_jobs(1)
    hall.leader.attempts.give_back("w", first.job_id, _fence(first), "refused")
    (second,) = hall.take("w", 1)
    hall.leader.desk.take_effects()
    hall.leader.liveness.broken("w")
    _again(hall, Held(first.job_id, _fence(first), is_started=True))
    job = hall.machine.jobs[first.job_id]
    assert (job.state, job.attempt, job.tries) == (QUEUED, 2, 0)
    voids = [effect for effect in hall.leader.desk.take_effects() if isinstance(effect, AttemptVoid)]
    assert [(void.job_id, void.fence) for void in voids] == [(first.job_id, _fence(first))]
    assert _fence(second.event) == job.fence


def test_jobs_nobody_knows_are_void() -> None:
    hall, _ = _with_jobs(0)
    hall.leader.liveness.broken("w")
    _again(hall, Held("f" * 32, (1, 1)))
    (void,) = hall.leader.desk.take_effects()
    assert isinstance(void, AttemptVoid)


def test_an_outcome_in_the_hello_counts_before_the_lists_are_compared() -> None:
    hall, (first, second) = _with_jobs(2)
    hall.leader.liveness.broken("w")
    _again(
        hall,
        Held(second.job_id, _fence(second)),
        outcomes=[Outcome(first.job_id, _fence(first), result=b"r")],
    )
    assert hall.machine.finished.by_id[first.job_id].result == b"r"
    assert hall.machine.jobs[second.job_id].state == INFLIGHT


def test_a_new_process_with_the_old_id_is_blamed_for_as_many_jobs_as_it_has_hands() -> None:
    hall, events = _with_jobs(10)
    hall.leader.liveness.broken("w")
    _again(hall, instance="b")
    tries = [hall.machine.jobs[event.job_id].tries for event in events]
    assert tries == [1] * 8 + [0] * 2


def test_after_a_failover_the_log_says_whether_it_is_the_same_process() -> None:
    for instance, tries in (("a", 0), ("b", 1)):
        hall, (event,) = _with_jobs(1)
        hall.lead_again()
        _again(hall, instance=instance)
        assert hall.machine.jobs[event.job_id].tries == tries


def test_within_the_grace_nothing_is_lost_and_nothing_new_assigned() -> None:
    hall, (event,) = _with_jobs(1)
    hall.leader.liveness.broken("w")
    hall.submit("c", "e")
    hall.pass_time(WORKER_GRACE_US - 1)
    assert hall.told() == []
    assert hall.machine.jobs[event.job_id].state == INFLIGHT
    hall.pass_time(1)
    assert hall.machine.jobs[event.job_id].state == QUEUED


def test_jobs_behind_many_started_ones_are_asked_back_too() -> None:
    """More hands than one tick looks at: the started ones must not hide those that wait."""
    hall, events = _with_jobs(40)
    for event in events[:30]:
        hall.leader.attempts.begin("w", event.job_id, _fence(event))
    hall.worker("free")
    hall.take("free", 1)
    hall.pass_time(UNSTARTED_MAX_US)
    asked = [e.job_id for e in hall.leader.desk.take_effects() if isinstance(e, AskedBack)]
    assert asked == [event.job_id for event in events[30:]]


def test_a_job_that_is_asked_back_is_asked_again_only_after_another_minute() -> None:
    hall, (event,) = _with_jobs(1)
    hall.worker("free")
    hall.take("free", 1)
    asked: list[int] = []
    for second in range(UNSTARTED_MAX_US // 1_000_000 * 2 + 1):
        hall.leader.liveness.heard("w")
        hall.leader.liveness.heard("free")
        told = hall.leader.desk.take_effects()
        asked += [second for each in told if isinstance(each, AskedBack) and each.job_id == event.job_id]
        hall.pass_time(1_000_000)
    assert asked == [UNSTARTED_MAX_US // 1_000_000, UNSTARTED_MAX_US // 1_000_000 * 2]


def test_a_worker_gets_no_job_while_it_has_not_seen_as_many_bytes_as_may_be_under_way() -> None:
    hall = Hall()
    count = UNSEEN_BYTES_MAX // PAYLOAD_BYTES_MAX
    for number in range(count + 2):
        job_id = f"{hall.now_us // 1000:012x}7{number:019x}"
        hall.leader.intake.submit(Submit(job_id, "c", "e", bytes(PAYLOAD_BYTES_MAX)), None)
    hall.worker("w", credit=100)
    assert len(hall.told()) == count
    hall.leader.liveness.credit("w", 0, 100)  # it says that it is willing; what is under way stays under way
    hall.leader.schedule()
    assert hall.told() == []
    hall.leader.liveness.credit("w", 1, 100)
    hall.leader.schedule()
    assert len(hall.told()) == 1


def test_credit_of_a_worker_that_said_goodbye_gives_it_nothing() -> None:
    hall, _ = _with_jobs(0)
    hall.leader.liveness.goodbye("w")
    hall.submit("c", "e")
    assert hall.take("w", 5) == []


def test_what_an_absent_or_unknown_worker_says_is_ignored() -> None:
    hall, (event,) = _with_jobs(1)
    hall.leader.liveness.broken("w")
    for worker_id in ("w", "nobody"):
        hall.leader.liveness.heard(worker_id)
        hall.leader.liveness.credit(worker_id, 0, 9)
        hall.leader.liveness.broken(worker_id)
        hall.leader.liveness.goodbye(worker_id)
    hall.leader.attempts.give_back("nobody", event.job_id, _fence(event), "refused")
    hall.leader.attempts.outcome("nobody", Outcome(event.job_id, _fence(event)))
    assert hall.machine.jobs[event.job_id].state == INFLIGHT
