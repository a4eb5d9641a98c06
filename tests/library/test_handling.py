"""Whatever a handler does becomes an outcome that the protocol can carry."""

from datetime import timedelta
from typing import Any

import pytest

from rollmq import limits
from rollmq.library.handling import outcome_of_error, outcome_of_result, run_plain
from rollmq.library.held_job import HeldJob, Outcome
from rollmq.library.job import Job
from rollmq.library.verdicts import Reject, Retry, Snooze
from rollmq.wire.codec import encode_header
from rollmq.wire.job_headers import AckJobHeader, AssignJobHeader

HELD = HeldJob(bytes(16), "x", AssignJobHeader(attempt=1, fence=(1, 1), seq=1), b"")
NOBODY: Any = None


def raised(error: BaseException) -> Outcome:
    def handler(_job: Job) -> None:
        raise error

    return run_plain(handler, Job(HELD, NOBODY, b""))


def ack_of(outcome: Outcome) -> bytes:
    """The header that would tell it. It must fit."""
    header = AckJobHeader(
        fence=(1, 1),
        seq=1,
        ok=not outcome.what,
        error_type=outcome.error_type,
        error_message=outcome.error_message,
    )
    encoded = encode_header(header)
    assert len(encoded) <= limits.HEADER_BYTES_MAX
    assert len(outcome.payload) <= limits.PAYLOAD_BYTES_MAX
    return encoded


@pytest.mark.parametrize("result", [b"x", bytearray(b"x"), memoryview(b"x")])
def test_bytes_of_any_kind_are_a_result(result: object) -> None:
    assert outcome_of_result(result).payload == b"x"
    assert outcome_of_result(None).payload == b""


@pytest.mark.parametrize("result", ["text", 3, {"a": 1}, bytes(limits.PAYLOAD_BYTES_MAX + 1)])
def test_what_is_no_result_is_rejected_with_what_to_do(result: object) -> None:
    outcome = outcome_of_result(result)
    assert outcome.what == "reject"
    assert "Encode it" in outcome.error_message or "Store it elsewhere" in outcome.error_message


def test_every_exception_is_an_outcome_even_those_that_end_programs() -> None:
    class Odd(BaseException):
        """Of somebody who derives from the wrong class."""

    for error in (ValueError("no"), SystemExit(3), KeyboardInterrupt(), Odd("odd"), GeneratorExit()):
        outcome = raised(error)
        assert (outcome.what, outcome.error_type) == ("retry", type(error).__name__)
        assert outcome.run_us is not None
        ack_of(outcome)


def test_verdicts_are_told_without_a_traceback_unless_something_caused_them() -> None:
    assert raised(Retry("later", after=timedelta(seconds=2))).after_us == 2_000_000
    assert raised(Retry("later")).payload == b""
    assert raised(Snooze(after=1)).what == "snooze"
    assert raised(Reject("no")).payload == b""
    with pytest.raises(Retry) as caught:
        raise Retry("later") from ValueError("the cause")
    assert b"the cause" in outcome_of_error(caught.value).payload


@pytest.mark.parametrize("after", [-1, float("nan"), float("inf"), 367 * 86_400])
def test_a_pause_that_is_none_is_refused_where_it_is_written(after: float) -> None:
    with pytest.raises(ValueError, match="a pause has 0 seconds to a year"):
        Snooze(after=after)


def test_texts_that_nobody_can_encode_or_that_are_too_long_still_fit() -> None:
    for text in ("\ud800" * 10, "\x00" * 100_000, "\U0001f600" * 100_000, "x" * 10_000_000):
        ack_of(raised(ValueError(text)))


def test_the_end_of_a_long_traceback_is_kept() -> None:
    def deep(count: int) -> None:
        if count:
            deep(count - 1)
        raise ValueError("y" * 200_000 + " the very end")

    def handler(_job: Job) -> None:
        deep(50)

    outcome = run_plain(handler, Job(HELD, NOBODY, b""))
    assert len(outcome.payload) <= limits.ERROR_DETAIL_BYTES_MAX
    assert outcome.payload.rstrip().endswith(b"the very end")


def test_an_exception_whose_text_raises_is_an_outcome_too() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    outcome = raised(Broken())
    assert (outcome.what, outcome.error_type) == ("retry", "Broken")
    ack_of(outcome)
