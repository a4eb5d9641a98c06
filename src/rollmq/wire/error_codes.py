"""Every code of an Error frame: what it means, and what the receiver does about it.

A code's row is the contract with clients in every language; docs/protocol.md prints this table.
It decides nothing: who refuses names the code.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from rollmq.errors import ProtocolError
from rollmq.wire.message import Frame


class ErrorCode(StrEnum):
    """The `code` of an Error frame."""

    # Framing and session: a message that the protocol does not allow.
    FRAME_TOO_LARGE = "frame_too_large"
    BAD_FRAME = "bad_frame"
    UNKNOWN_TYPE = "unknown_type"
    ILLEGAL_MESSAGE = "illegal_message"
    SUBJECT_TOO_LONG = "subject_too_long"
    BAD_SUBJECT = "bad_subject"
    HEADER_TOO_LARGE = "header_too_large"
    BAD_HEADER = "bad_header"
    BAD_PAYLOAD = "bad_payload"
    UNSUPPORTED_VERSION = "unsupported_version"
    HANDSHAKE_TIMEOUT = "handshake_timeout"
    IDLE_TIMEOUT = "idle_timeout"
    TOO_MANY_CONNECTIONS = "too_many_connections"
    # Who is who.
    NOT_AUTHORIZED = "not_authorized"
    WORKER_EXISTS = "worker_exists"
    WRONG_GROUP = "wrong_group"
    NOT_A_MEMBER = "not_a_member"
    NODE_EXISTS = "node_exists"
    # Submits.
    PAYLOAD_TOO_LARGE = "payload_too_large"
    QUEUE_FULL = "queue_full"
    KEYS_FULL = "keys_full"
    KEY_CONFLICT = "key_conflict"
    DISK_LOW = "disk_low"
    OVERLOADED = "overloaded"
    PAUSED = "paused"
    BAD_JOB = "bad_job"
    ID_IN_FUTURE = "id_in_future"
    TOO_OLD_TO_TELL = "too_old_to_tell"
    SHUTTING_DOWN = "shutting_down"
    # Questions and commands.
    JOB_UNKNOWN = "job_unknown"
    UNKNOWN_QUERY = "unknown_query"
    BAD_COMMAND = "bad_command"
    JOB_FINISHED = "job_finished"
    JOB_DEAD = "job_dead"
    HISTORY_GONE = "history_gone"
    LEADERSHIP_LOST = "leadership_lost"
    INTERNAL = "internal"


class CodeRow(NamedTuple):
    """What a code tells its receiver."""

    means: str
    retryable: bool = False
    """The same request may succeed later, or elsewhere, unchanged."""
    closes: bool = False
    """The sender closes the connection behind this frame."""
    unknown: bool = False
    """Whether the request was carried out cannot be told; otherwise it was refused and changed nothing."""


CODE_ROWS: Final[Mapping[ErrorCode, CodeRow]] = {
    ErrorCode.FRAME_TOO_LARGE: CodeRow("`length` announces more than this connection may send", closes=True),
    ErrorCode.BAD_FRAME: CodeRow("the lengths inside a frame contradict each other", closes=True),
    ErrorCode.UNKNOWN_TYPE: CodeRow("no message has this type; the frame was skipped"),
    ErrorCode.ILLEGAL_MESSAGE: CodeRow(
        "this role may not send this message in this state (see the session table)", closes=True
    ),
    ErrorCode.SUBJECT_TOO_LONG: CodeRow("the subject is over its limit; the frame was skipped"),
    ErrorCode.BAD_SUBJECT: CodeRow("the subject is not utf-8, or not of the form its message needs"),
    ErrorCode.HEADER_TOO_LARGE: CodeRow("the header is over its limit; the frame was skipped"),
    ErrorCode.BAD_HEADER: CodeRow(
        "the header is no JSON object, or a field is missing, of the wrong type or over its limit"
    ),
    ErrorCode.BAD_PAYLOAD: CodeRow("the payload of a message of the protocol does not have its form"),
    ErrorCode.UNSUPPORTED_VERSION: CodeRow(
        "no version in common; the text says which are spoken", closes=True
    ),
    ErrorCode.HANDSHAKE_TIMEOUT: CodeRow("no complete hello in time", retryable=True, closes=True),
    ErrorCode.IDLE_TIMEOUT: CodeRow("nothing was heard for too long", retryable=True, closes=True),
    ErrorCode.TOO_MANY_CONNECTIONS: CodeRow(
        "the node serves as many connections as it may", retryable=True, closes=True
    ),
    ErrorCode.NOT_AUTHORIZED: CodeRow("the token does not allow this role or command", closes=True),
    ErrorCode.WORKER_EXISTS: CodeRow("another live instance has this worker id", retryable=True, closes=True),
    ErrorCode.WRONG_GROUP: CodeRow("the peer belongs to another group", closes=True),
    ErrorCode.NOT_A_MEMBER: CodeRow("the peer is no member of this group", retryable=True, closes=True),
    ErrorCode.NODE_EXISTS: CodeRow("another node has this id: a state directory was copied", closes=True),
    ErrorCode.PAYLOAD_TOO_LARGE: CodeRow("the payload is over its limit"),
    ErrorCode.QUEUE_FULL: CodeRow("as many jobs, or as many bytes, wait as may", retryable=True),
    ErrorCode.KEYS_FULL: CodeRow("the client's window of remembered keys is full", retryable=True),
    ErrorCode.KEY_CONFLICT: CodeRow("the key was used for a job with other content"),
    ErrorCode.DISK_LOW: CodeRow("the node's disk is nearly full", retryable=True),
    ErrorCode.OVERLOADED: CodeRow("too much waits to be committed", retryable=True),
    ErrorCode.PAUSED: CodeRow("the exec is paused for submits", retryable=True),
    ErrorCode.BAD_JOB: CodeRow("the job id, the exec or an option is not what the queue takes"),
    ErrorCode.ID_IN_FUTURE: CodeRow("the job id's time lies too far ahead of log time", retryable=True),
    ErrorCode.TOO_OLD_TO_TELL: CodeRow(
        "the job id is older than what is remembered: perhaps it ran; a first send draws a new id",
        unknown=True,
    ),
    ErrorCode.SHUTTING_DOWN: CodeRow("the node is shutting down and accepts nothing new", retryable=True),
    ErrorCode.JOB_UNKNOWN: CodeRow("no such job is remembered"),
    ErrorCode.UNKNOWN_QUERY: CodeRow("no query or command has this name"),
    ErrorCode.BAD_COMMAND: CodeRow("an argument of the query or command is missing or wrong"),
    ErrorCode.JOB_FINISHED: CodeRow("the job is finished: the command came too late"),
    ErrorCode.JOB_DEAD: CodeRow("the job is in the DLQ: it can be redriven or dropped"),
    ErrorCode.HISTORY_GONE: CodeRow("the log before the index that the text names was dropped"),
    ErrorCode.LEADERSHIP_LOST: CodeRow(
        "the leader lost its office before the answer was certain", retryable=True, unknown=True
    ),
    ErrorCode.INTERNAL: CodeRow("the node failed at this request; its log says why", unknown=True),
}

LIMIT_CODES: Final[Mapping[str, ErrorCode]] = {
    "FRAME_BYTES_MAX": ErrorCode.FRAME_TOO_LARGE,
    "HELLO_FRAME_BYTES_MAX": ErrorCode.FRAME_TOO_LARGE,
    "FRAME_SUBJECT_BYTES_MAX": ErrorCode.SUBJECT_TOO_LONG,
    "SUBJECT_BYTES_MAX": ErrorCode.BAD_SUBJECT,
    "HEADER_BYTES_MAX": ErrorCode.HEADER_TOO_LARGE,
    "PAYLOAD_BYTES_MAX": ErrorCode.PAYLOAD_TOO_LARGE,
    "ERROR_DETAIL_BYTES_MAX": ErrorCode.PAYLOAD_TOO_LARGE,
    "SNAPSHOT_CHUNK_BYTES_MAX": ErrorCode.PAYLOAD_TOO_LARGE,
    "ID_CHARS_MAX": ErrorCode.BAD_HEADER,
    "KEY_CHARS_MAX": ErrorCode.BAD_HEADER,
    "TOKEN_CHARS_MAX": ErrorCode.BAD_HEADER,
    "USER_HEADERS_MAX": ErrorCode.BAD_HEADER,
    "ERROR_TEXT_CHARS_MAX": ErrorCode.BAD_HEADER,
    "WORKER_PATTERNS_MAX": ErrorCode.BAD_HEADER,
    "WORKER_HANDS_MAX": ErrorCode.BAD_HEADER,
    "JOBS_PER_MESSAGE_MAX": ErrorCode.BAD_HEADER,
    "TIMEOUT_MAX_US": ErrorCode.BAD_HEADER,
    "TRIES_MAX_MAX": ErrorCode.BAD_HEADER,
    "READ_LOG_BYTES_MAX": ErrorCode.BAD_HEADER,
    "READ_LOG_WAIT_US_MAX": ErrorCode.BAD_HEADER,
    "WORKER_HELD_MAX": ErrorCode.BAD_PAYLOAD,
    "CONNECTIONS_MAX": ErrorCode.TOO_MANY_CONNECTIONS,
    "HANDSHAKES_MAX": ErrorCode.TOO_MANY_CONNECTIONS,
    "HANDSHAKE_US_MAX": ErrorCode.HANDSHAKE_TIMEOUT,
    "IDLE_US_MAX": ErrorCode.IDLE_TIMEOUT,
}
"""Which Error frame answers the violation of which bound of limits.py."""


def violation(code: ErrorCode, text: str, frame: Frame | None = None) -> ProtocolError:
    """The error to raise for a violation; `frame` is the message that did it, if it could be read."""
    closes = CODE_ROWS[code].closes
    if frame is None:
        return ProtocolError(code=code, text=text, closes=closes)
    return ProtocolError(
        code=code, text=text, closes=closes, request_id=frame.msg_id, request_type=frame.type
    )
