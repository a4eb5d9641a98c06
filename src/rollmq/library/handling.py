"""Runs one handler once, and makes an outcome of whatever it does.

This is one of the two places where every exception is caught: what a user's code raises belongs into the
job's history and must not end the worker. It knows neither connections nor threads.
"""

import time
import traceback
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from rollmq import limits
from rollmq.library.held_job import HeldJob, Outcome
from rollmq.library.job import Job
from rollmq.library.verdicts import Reject, Retry, Snooze
from rollmq.wire.job_headers import HandBackReason

T = TypeVar("T")
Plain = Callable[[Job], object]
Async = Callable[[Job], Coroutine[Any, Any, object]]

TRACEBACK_BYTES_MAX: Final = limits.ERROR_DETAIL_BYTES_MAX * 3 // 4
"""Of a traceback before any codec, which may make it longer; its end says the most."""
ERROR_TYPE_CHARS_MAX: Final = 256
OURS: Final = ("rollmq.library.", "rollmq.tasks", "asyncio.")
"""Modules that stand between a runner and the code of a user."""

_now_ns = time.monotonic_ns


def run_plain(function: Plain, job: Job) -> Outcome:
    """Call a plain handler in the thread that asks. Nothing passes through: a thread that ended of it would
    take its hand along."""
    began_ns = _now_ns()
    try:
        outcome = outcome_of_result(function(job))
    except BaseException as error:
        outcome = outcome_of_error(error)
    outcome.run_us = (_now_ns() - began_ns) // 1000
    return outcome


def begin_async(function: Async, job: Job) -> tuple[Coroutine[Any, Any, object] | None, object]:
    """Begin an async handler and take its first step. (None, its Outcome), or what goes on and what it waits
    for. Only cancelling, and what ends the process, passes through."""
    try:
        coroutine = function(job)
        return coroutine, coroutine.send(None)
    except StopIteration as stop:
        return None, outcome_of_result(stop.value)
    except (Exception, SystemExit) as error:
        return None, outcome_of_error(error)


def step_async(advance: Callable[[Any], object], value: object) -> object:
    """The next step, by `send` or `throw` of the coroutine: what it waits for. Its end is a StopIteration,
    as that of any coroutine, with its Outcome."""
    try:
        return advance(value)
    except StopIteration as stop:
        outcome = outcome_of_result(stop.value)
    except (Exception, SystemExit) as error:
        outcome = outcome_of_error(error)
    raise StopIteration(outcome)


def attempt(find: Callable[[], T]) -> tuple[T | None, str]:
    """What importing user code gives, or the end of its traceback: it may raise anything."""
    try:
        return find(), ""
    except (Exception, SystemExit) as error:
        return None, _detail_of(error).decode("utf-8", "replace")


def outcome_of_result(result: object) -> Outcome:
    """What a handler returned: bytes, or nothing. Handlers of ours may say an outcome themselves."""
    if type(result) is bytes:
        if len(result) <= limits.PAYLOAD_BYTES_MAX:
            return Outcome(result)
        return rejected(
            "ResultTooLarge",
            f"the result has {len(result):,} bytes, at most {limits.PAYLOAD_BYTES_MAX:,} are taken. "
            f"Store it elsewhere and return a reference to it.",
        )
    if result is None:
        return Outcome()
    if type(result) is Outcome:
        return result
    if isinstance(result, bytes | bytearray | memoryview):
        return outcome_of_result(bytes(memoryview(result)))
    return rejected(
        "ResultNotBytes",
        f"the handler returned {type(result).__name__}, a result is bytes or None. "
        f"Encode it, for example with json.dumps(result).encode().",
    )


def outcome_of_error(error: BaseException) -> Outcome:
    """What a handler raised."""
    message = clean_text(_text_of(error), limits.ERROR_TEXT_CHARS_MAX)
    error_type = clean_text(type(error).__name__, ERROR_TYPE_CHARS_MAX)
    if isinstance(error, Snooze):
        return Outcome(what="snooze", after_us=error.after_us, error_type=error_type, error_message=message)
    what = "reject" if isinstance(error, Reject) else "retry"
    after_us = error.after_us if isinstance(error, Retry) else None
    return Outcome(
        _detail_of(error), what=what, after_us=after_us, error_type=error_type, error_message=message
    )


def rejected(error_type: str, message: str) -> Outcome:
    """A failure that running again would not cure."""
    return Outcome(what="reject", error_type=error_type, error_message=message)


def failed(error_type: str, message: str, detail: bytes = b"") -> Outcome:
    """A failed try that is not of the handler's own making."""
    message = clean_text(message, limits.ERROR_TEXT_CHARS_MAX)
    return Outcome(detail, what="retry", error_type=error_type, error_message=message)


def hand_back(reason: HandBackReason = "drained") -> Outcome:
    """No end of its own: this worker leaves, and another one is to run it."""
    return Outcome(what="hand_back", reason=reason)


def outcome_of_stop(held: HeldJob, *, is_leaving: bool) -> Outcome:
    """A handler was stopped from outside. If the node said so, nobody reads this."""
    if is_leaving:
        return hand_back()
    if held.is_stopped:
        return failed("Timeout", "the handler was stopped: it was over its time, and no node said so")
    return failed("CancelledError", "the handler was cancelled, by itself or by what it awaited")


def clean_text(text: str, chars_max: int) -> str:
    """A text that can be encoded and is not too long."""
    return text[:chars_max].encode("utf-8", "replace").decode()


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as another:
        return f"its text cannot be had: {type(another).__name__}"


def _detail_of(error: BaseException) -> bytes:
    """The traceback, without the frames of ours that called the handler."""
    if isinstance(error, Retry | Reject) and error.__cause__ is None:
        return b""
    first = trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals.get("__name__", "").startswith(OURS):
        trace = trace.tb_next
    text = "".join(traceback.format_exception(type(error), error, trace or first))
    return text.encode("utf-8", "replace")[-TRACEBACK_BYTES_MAX:]
