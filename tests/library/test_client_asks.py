"""Results after a reconnect, cancels and queries, bounds and nonsense: the rest of what a client asks."""

import msgspec
import pytest

from rollmq.errors import JobUnknown, RequestRefused, RequestUnknown, ResultExpired
from rollmq.library.call import ACCEPTED, CANCEL, ENDED, GONE, SENT
from rollmq.wire.message import Frame, MsgType
from tests.library.desk import SECOND_US, Desk, Noted, NotedQuestion, accepted, error_of, options_of

M = MsgType


# --- results after a reconnect ------------------------------------------------------------------------


def test_results_are_asked_for_again_after_a_reconnect() -> None:
    desk = Desk()
    line = desk.connect()
    call = accepted(desk, line)
    desk.lose()
    line = desk.connect()
    (query,) = line.take(desk.out())
    assert query.type == M.QUERY
    assert msgspec.json.decode(query.payload) == {"job_id": call.job_id.hex()}
    line.reply(query, {"state": "inflight"})
    assert call.state == ACCEPTED
    line.end(call.job_id, b"late")
    assert call.state == ENDED


@pytest.mark.parametrize(
    ("state", "error"),
    [("expired", ResultExpired), ("too_old_to_tell", ResultExpired), ("unknown", JobUnknown)],
)
def test_a_result_that_is_gone_is_told_as_such(state: str, error: type[Exception]) -> None:
    desk = Desk()
    line = desk.connect()
    call = accepted(desk, line)
    desk.lose()
    line = desk.connect()
    (query,) = line.take(desk.out())
    line.reply(query, {"state": state})
    assert call.states == [ACCEPTED, GONE]
    assert isinstance(error_of(call), error)
    assert call.outcome is None


def test_many_results_are_asked_for_a_bounded_number_at_a_time() -> None:
    desk = Desk()
    line = desk.connect()
    calls = [desk.submit() for _ in range(1000)]
    for frame in line.take(desk.out()):
        line.accept(frame)
    desk.lose()
    line = desk.connect()
    asked = 0
    while queries := line.take(desk.out()):
        assert len(queries) <= 256
        asked += len(queries)
        for query in queries:
            line.reply(query, {"state": "queued"})
    assert asked == len(calls)


@pytest.mark.pure
def test_beyond_the_bound_results_come_only_when_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollmq.limits.RESULTS_AWAITED_MAX", 1)
    desk = Desk()
    line = desk.connect()
    first, second = accepted(desk, line), desk.submit()
    (frame,) = line.take(desk.out())
    assert not options_of(frame).wants_result
    line.accept(frame)
    assert desk.core.awaited_count == 1
    desk.core.await_result(second, desk.now_us)
    (query,) = line.take(desk.out())
    line.reply(query, {"state": "finished"})
    line.end(second.job_id, b"asked for")
    assert second.state == ENDED
    assert first.state == ACCEPTED


# --- questions ----------------------------------------------------------------------------------------


def test_a_cancel_is_answered_when_it_is_committed() -> None:
    desk = Desk()
    line = desk.connect()
    call = accepted(desk, line)
    cancel = desk.ask(NotedQuestion(CANCEL, job_id=call.job_id))
    (frame,) = line.take(desk.out())
    assert (frame.type, frame.corr_id) == (M.CANCEL, call.job_id)
    line.say(M.ACCEPTED, msg_id=call.job_id, corr_id=frame.msg_id)
    assert (cancel.answers_count, cancel.error) == (1, None)
    line.end(call.job_id, b"", state="cancelled")
    assert call.outcome is not None
    assert call.outcome.state == "cancelled"


def test_a_cancel_that_comes_too_late_is_refused() -> None:
    desk = Desk()
    line = desk.connect()
    cancel = desk.ask(NotedQuestion(CANCEL, job_id=b"j" * 16))
    (frame,) = line.take(desk.out())
    line.refuse(frame, "job_finished")
    assert isinstance(error_of(cancel), RequestRefused)


def test_a_repeated_cancel_that_finds_the_job_ended_may_have_ended_it_itself() -> None:
    desk = Desk()
    line = desk.connect()
    cancel = desk.ask(NotedQuestion(CANCEL, job_id=b"j" * 16))
    line.take(desk.out())
    desk.lose()
    line = desk.connect()
    (frame,) = line.take(desk.out())
    assert frame.type == M.CANCEL
    line.refuse(frame, "job_finished")
    assert isinstance(error_of(cancel), RequestUnknown)


def test_a_query_is_asked_on_each_connection_until_it_is_answered() -> None:
    desk = Desk()
    status = desk.ask(NotedQuestion("status"))
    line = desk.connect()
    (first,) = line.take(desk.out())
    line.reply(first, {"part": 1}, more=True)
    desk.lose()
    line = desk.connect()
    (second,) = line.take(desk.out())
    line.reply(second, {"part": 1}, more=True)
    line.reply(second, {"part": 2})
    assert status.parts == [b'{"part":1}', b'{"part":2}']
    assert status.answers_count == 1


def test_a_question_that_nobody_answers_is_unknown_when_patience_ends() -> None:
    desk = Desk(patience_us=5 * SECOND_US)
    unsent = desk.ask(NotedQuestion("status"))
    desk.wait(6 * SECOND_US)
    line = desk.connect()
    sent = desk.ask(NotedQuestion("status"))
    line.take(desk.out())
    desk.wait(6 * SECOND_US)
    assert isinstance(error_of(unsent), RequestUnknown)
    assert isinstance(error_of(sent), RequestUnknown)


# --- bounds and nonsense ------------------------------------------------------------------------------


@pytest.mark.pure
def test_there_is_room_for_a_bounded_number_of_unanswered_submits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollmq.limits.UNANSWERED_MAX", 2)
    desk = Desk()
    line = desk.connect()
    desk.submit()
    assert desk.core.has_room
    desk.submit()
    assert not desk.core.has_room
    first, second = line.take(desk.out())
    line.accept(first)
    assert desk.core.has_room
    line.refuse(second, "shutting_down", retryable=True)
    desk.submit()
    assert not desk.core.has_room, "what is to be sent again counts"


@pytest.mark.pure
def test_there_is_room_for_a_bounded_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollmq.limits.UNANSWERED_BYTES_MAX", 10)
    desk = Desk()
    line = desk.connect()
    desk.submit(Noted(b"x" * 10))
    assert not desk.core.has_room
    (frame,) = line.take(desk.out())
    line.accept(frame)
    assert desk.core.has_room


def test_answers_to_nothing_are_passed_over() -> None:
    desk = Desk()
    line = desk.connect()
    call = desk.submit()
    line.take(desk.out())
    stranger = Frame(M.SUBMIT_JOB, b"?" * 16)
    line.accept(stranger)
    line.refuse(stranger, "bad_job")
    line.reply(stranger, {})
    line.end(stranger.msg_id)
    assert call.states == []


def test_an_answer_whose_header_cannot_be_read_is_as_good_as_not_sent() -> None:
    desk = Desk()
    line = desk.connect()
    call = accepted(desk, line)
    frame = Frame(M.RESULT, corr_id=call.job_id, header=b"{nonsense")
    desk.core.feed(line._session.send(frame), desk.now_us)
    assert call.state == ACCEPTED
    line.end(call.job_id)
    assert call.state == ENDED


def test_a_call_on_its_way_says_so() -> None:
    desk = Desk()
    desk.connect()
    assert desk.submit().state == SENT
