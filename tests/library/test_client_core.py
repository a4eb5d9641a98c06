"""What a client tells of its submits, results and questions, whatever becomes of its connections."""

import uuid

import pytest

from rollmq.errors import (
    ClientClosed,
    KeyConflict,
    NotAuthorized,
    RequestUnknown,
    SubmitRefused,
    SubmitUnknown,
)
from rollmq.library.call import (
    ACCEPTED,
    CANCEL,
    ENDED,
    GONE,
    REFUSED,
    UNKNOWN,
    WAITING,
)
from rollmq.library.dialog import NEVER_US
from rollmq.wire.codec import encode_header
from rollmq.wire.headers import ErrorHeader, PongHeader
from rollmq.wire.job_headers import SubmitJobHeader
from rollmq.wire.message import MsgType
from tests.library.desk import (
    LOG_US,
    SECOND_US,
    Desk,
    Line,
    Noted,
    NotedQuestion,
    accepted,
    error_of,
    options_of,
)

M = MsgType


# --- ids ----------------------------------------------------------------------------------------------


def test_an_id_is_a_uuid7_in_the_nodes_log_time_drawn_at_the_first_try() -> None:
    desk = Desk()
    call = desk.submit()
    assert call.state == WAITING
    desk.now_us += 40 * SECOND_US
    line = desk.connect(log_us=LOG_US)
    (frame,) = line.take(desk.out())
    job_id = uuid.UUID(bytes=frame.msg_id)
    assert (job_id.version, job_id.variant) == (7, uuid.RFC_4122)
    assert job_id.int >> 80 == LOG_US // 1000
    assert call.job_id == frame.msg_id


def test_ids_are_never_equal_within_a_millisecond() -> None:
    desk = Desk()
    line = desk.connect()
    for _ in range(1000):
        desk.submit()
    frames = line.take(desk.out())
    assert len({frame.msg_id for frame in frames}) == 1000


def test_log_time_goes_on_with_our_own_clock_and_follows_each_pong() -> None:
    desk = Desk()
    line = desk.connect(log_us=LOG_US)
    desk.now_us += 2 * SECOND_US
    desk.submit()
    line.say(M.PONG, PongHeader(log_at_us=LOG_US + 100 * SECOND_US))
    desk.submit()
    first, second = line.take(desk.out())
    assert int.from_bytes(first.msg_id[:6], "big") == (LOG_US + 2 * SECOND_US) // 1000
    assert int.from_bytes(second.msg_id[:6], "big") == (LOG_US + 100 * SECOND_US) // 1000


# --- accepted, ended ----------------------------------------------------------------------------------


def test_a_call_is_accepted_and_ends_with_its_result() -> None:
    desk = Desk()
    line = desk.connect()
    call = accepted(desk, line)
    line.end(call.job_id, b"42", tries=2, run_us=7)
    assert call.states == [ACCEPTED, ENDED]
    assert call.outcome is not None
    assert (call.outcome.ok, call.outcome.result, call.outcome.tries) == (True, b"42", 2)
    assert call.outcome.run_us == 7
    assert desk.core.awaited_count == 0


def test_a_dead_job_says_why() -> None:
    desk = Desk()
    line = desk.connect()
    call = accepted(desk, line)
    line.end(
        call.job_id,
        b"Traceback",
        state="dead",
        tries=5,
        reason="tries",
        error_type="ValueError",
        error_message="no",
    )
    outcome = call.outcome
    assert outcome is not None
    assert not outcome.ok
    assert (outcome.state, outcome.error, outcome.reason) == ("dead", "ValueError: no", "tries")
    assert (outcome.result, outcome.detail) == (b"", b"Traceback")


def test_a_second_result_changes_nothing() -> None:
    desk = Desk()
    line = desk.connect()
    call = accepted(desk, line)
    line.end(call.job_id, b"first")
    line.end(call.job_id, b"second", state="cancelled")
    assert call.states == [ACCEPTED, ENDED]
    assert call.outcome is not None
    assert call.outcome.result == b"first"


def test_progress_is_passed_on_and_is_no_end() -> None:
    desk = Desk()
    line = desk.connect()
    call = accepted(desk, line)
    line.end(call.job_id, b"10 %", final=False, state="running", seq=1)
    assert call.news == [b"10 %"]
    assert call.state == ACCEPTED


def test_two_submits_of_one_key_wait_for_the_same_job() -> None:
    desk = Desk()
    line = desk.connect()
    first = accepted(desk, line)
    second = desk.submit()
    (frame,) = line.take(desk.out())
    line.accept(frame, first_id=first.job_id, repeated=True)
    assert second.is_repeat
    assert not first.is_repeat
    assert second.job_id == first.job_id
    assert desk.core.awaited_count == 2
    line.end(first.job_id, b"both")
    assert first.outcome == second.outcome
    assert desk.core.awaited_count == 0


# --- refused ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "retryable"),
    [("bad_job", False), ("queue_full", True), ("paused", True), ("disk_low", True), ("keys_full", True)],
)
def test_a_refusal_is_told_with_its_code(code: str, retryable: bool) -> None:
    desk = Desk()
    line = desk.connect()
    call = desk.submit()
    (frame,) = line.take(desk.out())
    line.refuse(frame, code, retryable=retryable, after_us=1_500_000)
    error = error_of(call)
    assert isinstance(error, SubmitRefused)
    assert (error.code, error.retryable, error.after_s) == (code, retryable, 1.5)
    assert call.states == [REFUSED]
    assert desk.core.unanswered_count == 0


def test_a_key_conflict_has_a_class_of_its_own() -> None:
    desk = Desk()
    line = desk.connect()
    call = desk.submit()
    (frame,) = line.take(desk.out())
    line.refuse(frame, "key_conflict")
    assert isinstance(error_of(call), KeyConflict)


@pytest.mark.parametrize("code", ["shutting_down", "overloaded", "id_in_future"])
def test_what_passes_in_a_moment_is_tried_again_under_a_new_id(code: str) -> None:
    desk = Desk()
    line = desk.connect()
    call = desk.submit()
    (first,) = line.take(desk.out())
    line.refuse(first, code, retryable=True)
    assert call.states == []
    desk.wait(SECOND_US)
    second = line.take(desk.out())[-1]
    assert second.msg_id != first.msg_id
    assert not options_of(second).resend, "no log holds it: it is a first send"
    line.accept(second)
    assert call.states == [ACCEPTED]
    assert call.error is None


def test_a_retry_waits_as_long_as_the_node_asks_for() -> None:
    desk = Desk()
    line = desk.connect()
    desk.submit()
    (frame,) = line.take(desk.out())
    line.refuse(frame, "overloaded", retryable=True, after_us=3 * SECOND_US)
    desk.wait(2_900_000)
    assert line.take(desk.out()) == []
    desk.wait(300_000)
    assert len(line.take(desk.out())) == 1


def test_a_patient_call_waits_out_any_refusal_that_may_pass() -> None:
    desk = Desk(patience_us=10 * SECOND_US)
    line = desk.connect()
    call = desk.submit(Noted(is_patient=True))
    for _ in range(20):
        while not (frames := line.take(desk.out())):
            line.say(M.PONG)
            desk.wait(SECOND_US)
        if frames[-1].type == M.SUBMIT_JOB:
            line.refuse(frames[-1], "queue_full", retryable=True)
    assert call.states == []
    assert call.refused_count > 10


def test_an_old_id_of_a_first_send_is_drawn_anew() -> None:
    desk = Desk()
    line = desk.connect()
    call = desk.submit()
    (first,) = line.take(desk.out())
    line.refuse(first, "too_old_to_tell", unknown=True)
    desk.wait(SECOND_US)
    (second,) = line.take(desk.out())
    assert second.msg_id != first.msg_id
    assert call.states == []


# --- unknown ------------------------------------------------------------------------------------------


def test_what_was_not_answered_is_sent_again_under_its_id() -> None:
    desk = Desk()
    line = desk.connect()
    call = desk.submit(Noted(header=encode_header(SubmitJobHeader(priority=3))))
    (first,) = line.take(desk.out())
    assert not options_of(first).resend
    desk.lose()
    assert call.states == []
    line = desk.connect()
    (second,) = line.take(desk.out())
    assert (second.msg_id, second.payload, second.subject) == (first.msg_id, b"p", "job.submit.x")
    assert options_of(second) == SubmitJobHeader(priority=3, resend=True)
    line.accept(second, repeated=True)
    assert call.state == ACCEPTED


def test_a_resend_that_is_too_old_to_tell_is_unknown() -> None:
    desk = Desk()
    line = desk.connect()
    call = desk.submit()
    line.take(desk.out())
    desk.lose()
    line = desk.connect()
    (second,) = line.take(desk.out())
    line.refuse(second, "too_old_to_tell", unknown=True)
    error = error_of(call)
    assert isinstance(error, SubmitUnknown)
    assert error.job_id == second.msg_id.hex()
    assert call.states == [UNKNOWN]


def test_a_resend_refused_for_a_passing_reason_is_unknown_for_a_copy_may_still_be_read() -> None:
    desk = Desk()
    line = desk.connect()
    call = desk.submit()
    line.take(desk.out())
    desk.lose()
    line = desk.connect()
    (second,) = line.take(desk.out())
    line.refuse(second, "paused", retryable=True)
    assert isinstance(error_of(call), SubmitUnknown)
    assert "paused" in str(error_of(call))


def test_a_resend_refused_for_a_reason_that_lies_in_it_is_refused() -> None:
    desk = Desk()
    line = desk.connect()
    call = desk.submit()
    line.take(desk.out())
    desk.lose()
    line = desk.connect()
    (second,) = line.take(desk.out())
    line.refuse(second, "key_conflict")
    assert call.states == [REFUSED]


def test_a_doubtful_call_keeps_its_id_through_every_retry() -> None:
    desk = Desk()
    line = desk.connect()
    desk.submit()
    (first,) = line.take(desk.out())
    desk.lose()
    for code in ("shutting_down", "leadership_lost", "overloaded"):
        line = desk.connect()
        (again,) = line.take(desk.out())
        assert again.msg_id == first.msg_id
        assert options_of(again).resend
        line.refuse(again, code, retryable=True, unknown=code == "leadership_lost")
        desk.lose()
        desk.wait(SECOND_US)
        line = desk.connect()
        desk.wait(SECOND_US)
        (again,) = line.take(desk.out())
        assert again.msg_id == first.msg_id
        desk.lose()


def test_a_leader_that_lost_its_office_leaves_the_call_doubtful() -> None:
    desk = Desk(patience_us=5 * SECOND_US)
    line = desk.connect()
    call = desk.submit()
    (frame,) = line.take(desk.out())
    line.refuse(frame, "leadership_lost", retryable=True, unknown=True)
    desk.lose()
    desk.wait(6 * SECOND_US)
    assert call.states == [UNKNOWN]


def test_an_answer_that_says_unknown_is_told_as_unknown() -> None:
    desk = Desk()
    line = desk.connect()
    call = desk.submit()
    (frame,) = line.take(desk.out())
    line.refuse(frame, "internal", unknown=True)
    assert call.states == [UNKNOWN]


# --- patience -----------------------------------------------------------------------------------------


def test_what_was_never_sent_is_refused_when_patience_ends() -> None:
    desk = Desk(patience_us=5 * SECOND_US)
    call = desk.submit()
    desk.wait(4_900_000)
    assert call.states == []
    desk.wait(300_000)
    assert call.states == [REFUSED]
    assert isinstance(error_of(call), SubmitRefused)
    assert "never sent" in str(error_of(call))
    assert desk.core.next_us == NEVER_US, "nothing is left to look at"


def test_what_was_sent_is_unknown_when_patience_ends() -> None:
    desk = Desk(patience_us=5 * SECOND_US)
    line = desk.connect()
    call = desk.submit()
    line.take(desk.out())
    desk.lose()
    desk.wait(6 * SECOND_US)
    assert call.states == [UNKNOWN]
    line = desk.connect()
    assert line.take(desk.out()) == [], "it is not sent again behind its caller's back"


def test_what_was_last_refused_is_refused_when_patience_ends() -> None:
    desk = Desk(patience_us=5 * SECOND_US)
    line = desk.connect()
    call = desk.submit()
    (frame,) = line.take(desk.out())
    line.refuse(frame, "shutting_down", retryable=True, after_us=10 * SECOND_US)
    desk.wait(6 * SECOND_US)
    assert call.states == [REFUSED]
    assert "shutting_down" in str(error_of(call))


# --- the connection's own end -------------------------------------------------------------------------


def test_a_node_that_says_goodbye_gets_nothing_new() -> None:
    desk = Desk()
    line = desk.connect()
    old = accepted(desk, line)
    line.say(M.GOODBYE)
    call = desk.submit()
    assert line.take(desk.out()) == []
    assert call.state == WAITING
    line.end(old.job_id)
    assert old.state == ENDED, "what is under way is still good"
    desk.lose()
    line = desk.connect()
    (frame,) = line.take(desk.out())
    line.accept(frame)
    assert call.state == ACCEPTED


def test_closing_tells_sent_from_unsent() -> None:
    desk = Desk()
    line = desk.connect()
    awaited = accepted(desk, line)
    sent = desk.submit()
    desk.lose()
    unsent = desk.submit()
    desk.core.close(desk.now_us)
    assert awaited.states == [ACCEPTED, GONE]
    assert sent.states == [UNKNOWN]
    assert unsent.states == [REFUSED]
    assert isinstance(error_of(unsent), ClientClosed)
    assert desk.submit().states == [REFUSED]


def test_a_fatal_answer_ends_everything_once() -> None:
    desk = Desk()
    line = desk.connect()
    awaited = accepted(desk, line)
    sent = desk.submit()
    cancel = desk.ask(NotedQuestion(CANCEL, job_id=awaited.job_id))
    desk.lose()
    unsent, question = desk.submit(), desk.ask(NotedQuestion("status"))
    line = Line(desk)
    desk.core.opened(desk.now_us)
    (hello,) = line.take(desk.out())
    header = ErrorHeader(code="not_authorized", text="no", closes=True)
    line.say(M.ERROR, header, corr_id=hello.msg_id)
    assert (awaited.state, sent.state, unsent.state) == (GONE, UNKNOWN, REFUSED)
    assert isinstance(error_of(unsent), NotAuthorized)
    assert isinstance(error_of(question), NotAuthorized)
    assert isinstance(error_of(cancel), RequestUnknown), "it may have been carried out"
    assert (cancel.answers_count, question.answers_count) == (1, 1)
