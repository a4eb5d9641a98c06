"""Attempts: what a worker may say, within which bounds, and what of it counts."""

import pytest

from rollmq.core.attempts import Outcome, timeout_of
from rollmq.core.effects import AckDone
from rollmq.core.events import Assign
from rollmq.core.inflight import is_current, may_ack_late
from rollmq.core.job import BY_FAILURE, BY_LOSS, BY_RETURN, BY_SNOOZE, BY_TIMEOUT, INFLIGHT, QUEUED, Job
from rollmq.limits import (
    ERROR_TEXT_CHARS_MAX,
    ID_CHARS_MAX,
    PAYLOAD_BYTES_MAX,
    TIMEOUT_MAX_US,
    WORKER_GRACE_US,
)
from tests.properties.hall import Hall

MINUTE_US = 60_000_000


def _running() -> tuple[Hall, Assign, Job]:
    hall = Hall()
    hall.submit("c", "e")
    hall.worker("w", credit=1)
    (assigned,) = hall.told()
    return hall, assigned.event, hall.machine.jobs[assigned.event.job_id]


def _fence(event: Assign) -> tuple[int, int]:
    return event.term, event.index


def test_only_the_holder_of_the_current_attempt_may_begin_it() -> None:
    hall, event, job = _running()
    begin = hall.leader.attempts.begin
    begin("other", job.id, _fence(event))
    begin("w", job.id, (event.term, event.index + 1))
    begin("w", "f" * 32, _fence(event))
    assert not job.is_started
    begin("w", job.id, _fence(event))
    assert job.is_started
    assert job.deadline_us == hall.now_us + job.timeout_us


def test_said_twice_a_start_does_not_lengthen_the_time() -> None:
    hall, event, job = _running()
    hall.leader.attempts.begin("w", job.id, _fence(event))
    deadline_us = job.deadline_us
    hall.pass_time(MINUTE_US)
    hall.leader.attempts.begin("w", job.id, _fence(event))
    assert job.deadline_us == deadline_us


def test_a_late_ack_shows_that_a_lost_attempt_had_been_a_try() -> None:
    """Nobody knew that the handler ran when the worker was lost; its outcome proves it."""
    hall = Hall()
    for _ in range(9):
        hall.submit("c", "e")
    hall.worker("w", credit=9)
    hidden = hall.told()[-1].event  # behind as many as it has hands
    hall.leader.liveness.broken("w")
    hall.pass_time(WORKER_GRACE_US)
    job = hall.machine.jobs[hidden.job_id]
    assert (job.state, job.tries) == (QUEUED, 0)
    hall.leader.attempts.outcome("w", Outcome(job.id, _fence(hidden)))
    assert hall.machine.finished.by_id[job.id].tries == 1


def test_the_timeout_grows_but_not_beyond_every_bound() -> None:
    _, _, job = _running()
    job.timeout_us, job.timeout_factor, job.tries = 1_000_000, 10.0, 3
    assert timeout_of(job) == 1_000_000_000
    for tries in (20, 400, 999):
        job.tries = tries
        assert timeout_of(job) == TIMEOUT_MAX_US


def test_a_result_that_is_too_large_is_a_rejection_that_says_so() -> None:
    hall, event, job = _running()
    outcome = Outcome(job.id, _fence(event), result=bytes(PAYLOAD_BYTES_MAX + 1))
    hall.leader.attempts.outcome("w", outcome)
    dead = hall.machine.dead[job.id]
    assert dead.dead_reason == "rejected"
    assert dead.errors is not None
    assert dead.errors[-1].type == "ResultTooLarge"


def test_what_a_failure_says_is_cut_to_what_the_log_holds() -> None:
    hall, event, job = _running()
    outcome = Outcome(
        job.id, _fence(event), is_ok=False, run_us=-5, error_type="T" * 999, error_message="\ud800" * 99_999
    )
    hall.leader.attempts.outcome("w", outcome)
    assert job.errors is not None
    assert len(job.errors[-1].type) == ID_CHARS_MAX
    assert job.errors[-1].message == "?" * ERROR_TEXT_CHARS_MAX
    hall.leader.desk.take_lines()


def test_a_pause_that_a_handler_asks_for_is_at_most_a_year() -> None:
    hall, event, job = _running()
    hall.leader.attempts.outcome("w", Outcome(job.id, _fence(event), is_ok=False, after_us=2**60))
    assert job.ready_us == hall.now_us + TIMEOUT_MAX_US


def test_another_worker_cannot_answer_for_the_holder() -> None:
    hall, event, job = _running()
    hall.leader.attempts.outcome("other", Outcome(job.id, _fence(event)))
    assert job.state == INFLIGHT
    (done,) = hall.leader.desk.take_effects()
    assert isinstance(done, AckDone)
    assert done.is_late


def test_a_repeated_ack_is_confirmed_and_not_called_late() -> None:
    hall, event, job = _running()
    for _ in range(2):
        hall.leader.attempts.outcome("w", Outcome(job.id, _fence(event), result=b"r"))
    confirmed = [effect for effect in hall.leader.desk.take_effects() if isinstance(effect, AckDone)]
    assert [done.is_late for done in confirmed] == [False, False]
    assert hall.machine.counts().finished == 1


@pytest.mark.parametrize(
    ("ended_by", "counts"),
    [
        (BY_TIMEOUT, True),
        (BY_LOSS, True),
        (BY_FAILURE, False),
        (BY_SNOOZE, False),
        (BY_RETURN, False),
        ("", False),
    ],
)
def test_a_late_ack_counts_only_after_timeout_and_loss(ended_by: str, counts: bool) -> None:
    _, event, job = _running()
    assert is_current(job, _fence(event))
    assert not may_ack_late(job, _fence(event))
    job.state, job.ended_by = QUEUED, ended_by
    assert not is_current(job, _fence(event))
    assert may_ack_late(job, _fence(event)) is counts
    assert not may_ack_late(job, (event.term + 1, event.index))
