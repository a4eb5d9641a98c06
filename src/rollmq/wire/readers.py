"""Messages with more to check than each field alone: header, subject and payload read together.

What a client sends is either taken whole or answered with an Error; nothing is repaired here, and
nothing is asked of the queue's state.
"""

from rollmq import limits
from rollmq.core.subject import ASSIGN_PREFIX, BadSubject, check_pattern, check_subject
from rollmq.errors import ProtocolError
from rollmq.wire.codec import header_of, payload_of
from rollmq.wire.error_codes import ErrorCode, violation
from rollmq.wire.headers import HeldList, HelloWorkerHeader
from rollmq.wire.job_headers import AckJobHeader, SubmitJobHeader
from rollmq.wire.many_headers import SubmitJobsHeader
from rollmq.wire.message import Frame, type_name

SUBMIT_PREFIX = "job.submit."


def submit_subject(exec_name: str) -> str:
    """The subject of a SubmitJob."""
    return SUBMIT_PREFIX + exec_name


def assign_subject(exec_name: str, worker_id: str) -> str:
    """The subject of an AssignJob."""
    return f"{ASSIGN_PREFIX}{exec_name}.{worker_id}"


def exec_of_submit(frame: Frame) -> str:
    """The exec that a SubmitJob is for. A caller that knows the exec already may skip this: it costs."""
    if not frame.subject.startswith(SUBMIT_PREFIX):
        raise _refuse(frame, ErrorCode.BAD_SUBJECT, f"its subject begins with {SUBMIT_PREFIX}<exec>")
    exec_name = frame.subject[len(SUBMIT_PREFIX) :]
    try:
        check_subject(ASSIGN_PREFIX + exec_name)
    except BadSubject as error:
        raise _refuse(frame, ErrorCode.BAD_SUBJECT, str(error)) from error
    return exec_name


def exec_of_assign(frame: Frame) -> str:
    """The exec that an AssignJob is for: what stands between the prefix and the worker's id."""
    exec_name, dot, _worker_id = frame.subject[len(ASSIGN_PREFIX) :].rpartition(".")
    if not dot or not exec_name or not frame.subject.startswith(ASSIGN_PREFIX):
        raise _refuse(frame, ErrorCode.BAD_SUBJECT, f"its subject is {ASSIGN_PREFIX}<exec>.<worker>")
    return exec_name


def read_submit(frame: Frame) -> SubmitJobHeader:
    """A submit's options."""
    header = header_of(frame, SubmitJobHeader)
    if header.key and not header.content_digest:
        # Without it a repeat could not be told from a conflict, and one of the two would be answered wrongly.
        raise _refuse(frame, ErrorCode.BAD_HEADER, "a key needs content_digest, taken before any codec")
    return header


def read_submits(frame: Frame) -> SubmitJobsHeader:
    """Sizes and options of many submits."""
    header = header_of(frame, SubmitJobsHeader)
    if header.options is not None and (header.options.key or header.options.resend):
        # A key names one job, and only one of them may have been sent before.
        raise _refuse(frame, ErrorCode.BAD_HEADER, "a job with a key, and one sent before, goes alone")
    return header


def read_ack(frame: Frame) -> AckJobHeader:
    """An attempt's outcome."""
    header = header_of(frame, AckJobHeader)
    if header.ok == bool(header.what):
        raise _refuse(frame, ErrorCode.BAD_HEADER, "`what` is empty when ok, and says what to do otherwise")
    if header.what == "snooze" and header.after_us is None:
        raise _refuse(frame, ErrorCode.BAD_HEADER, "a snooze needs after_us")
    if not header.ok and len(frame.payload) > limits.ERROR_DETAIL_BYTES_MAX:
        text = (
            f"an error's detail has {len(frame.payload):,} bytes, "
            f"at most {limits.ERROR_DETAIL_BYTES_MAX:,} are allowed"
        )
        raise _refuse(frame, ErrorCode.PAYLOAD_TOO_LARGE, text)
    return header


def read_hello_worker(frame: Frame) -> tuple[HelloWorkerHeader, HeldList]:
    """Who a worker is, what it takes, and what it still holds."""
    header = header_of(frame, HelloWorkerHeader)
    for pattern in header.patterns:
        try:
            check_pattern(pattern)
        except BadSubject as error:
            raise _refuse(frame, ErrorCode.BAD_HEADER, f"patterns: {error}") from error
    held = payload_of(frame, HeldList)
    if len(held.held) + len(held.outcomes) > limits.WORKER_HELD_MAX:
        text = f"it lists more than {limits.WORKER_HELD_MAX:,} jobs and outcomes"
        raise _refuse(frame, ErrorCode.BAD_PAYLOAD, text)
    return header, held


def _refuse(frame: Frame, code: ErrorCode, text: str) -> ProtocolError:
    return violation(code, f"{type_name(frame.type)}: {text}", frame)
