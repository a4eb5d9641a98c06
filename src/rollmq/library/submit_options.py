"""What a caller says about a job, as the header of its SubmitJob.

Seconds and dates in, microseconds out. Nonsense is refused here, in the words of the protocol; what only the
leader can know is the leader's to refuse.
"""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeAlias, TypedDict

import msgspec

from rollmq import limits
from rollmq.core.subject import ASSIGN_PREFIX, BadSubject, check_subject
from rollmq.errors import SubmitRefused
from rollmq.library.payload_codec import Codec, encoded
from rollmq.wire.codec import encode_header
from rollmq.wire.error_codes import ErrorCode
from rollmq.wire.job_headers import SubmitJobHeader
from rollmq.wire.readers import submit_subject

Seconds: TypeAlias = float | int | timedelta
EXECS_KNOWN_MAX: Final = 10_000
"""Execs whose check is remembered by one client."""
TIMEOUT_DEFAULT_S: Final = 600
TRIES_MAX_DEFAULT: Final = 5


@dataclass(frozen=True, slots=True)
class Backoff:
    """The pause between two tries, in seconds: `first`, then `factor` times the one before, up to `longest`;
    chance takes away up to the share `jitter` of each."""

    first: float = 1.0
    factor: float = 2.0
    longest: float = 600.0
    jitter: float = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Everything that `submit` takes besides exec and payload. See Client.submit."""

    key: str | None = None
    headers: Mapping[str, str] | None = None
    priority: int = 0
    delay: Seconds | None = None
    not_before: datetime | float | None = None
    expires_in: Seconds | None = None
    timeout: Seconds = TIMEOUT_DEFAULT_S
    tries_max: int = TRIES_MAX_DEFAULT
    backoff: Backoff | Seconds | None = None
    content_type: str = ""


class SubmitOptions(TypedDict, total=False):
    """The same, for those who take them by name and pass them on."""

    key: str | None
    headers: Mapping[str, str] | None
    priority: int
    delay: Seconds | None
    not_before: datetime | float | None
    expires_in: Seconds | None
    timeout: Seconds
    tries_max: int
    backoff: Backoff | Seconds | None
    content_type: str


DEFAULTS: Final = Options()


class Execs:
    """Subjects of the execs that were submitted to, checked once each."""

    def __init__(self) -> None:
        self._subjects: dict[str, bytes] = {}

    def subject_of(self, exec_name: str) -> bytes:
        """`job.submit.<exec>`. Raises SubmitRefused for what is no name."""
        subject = self._subjects.get(exec_name)
        if subject is None:
            try:
                check_subject(ASSIGN_PREFIX + exec_name)
            except (BadSubject, TypeError, UnicodeError) as error:
                raise _refused(ErrorCode.BAD_JOB, f"exec {exec_name!r}: {error}") from error
            if len(self._subjects) >= EXECS_KNOWN_MAX:
                self._subjects.clear()
            subject = self._subjects[exec_name] = submit_subject(exec_name).encode()
        return subject


def header_and_payload(options: Options, payload: bytes, codec: Codec | None) -> tuple[bytes, bytes]:
    """The header, empty for nothing but defaults, and the payload behind the codec. Raises SubmitRefused, and
    CodecFailed."""
    if type(payload) is not bytes:
        raise TypeError(f"a payload is bytes, not {type(payload).__name__}: encode it first")
    digest = hashlib.sha256(payload).hexdigest() if options.key else ""
    key_id = ""
    if codec is not None:
        payload, key_id = encoded(codec, payload, "the payload")
    if len(payload) > limits.PAYLOAD_BYTES_MAX:
        text = f"the payload has {len(payload):,} bytes, at most {limits.PAYLOAD_BYTES_MAX:,} are allowed"
        raise _refused(ErrorCode.PAYLOAD_TOO_LARGE, text)
    if options is DEFAULTS and not key_id:
        return b"", payload
    return _header(options, digest, key_id), payload


def _header(options: Options, digest: str, key_id: str) -> bytes:
    said: dict[str, object] = {
        "content_type": options.content_type,
        "content_digest": digest,
        "key_id": key_id,
        "key": options.key or "",
        "headers": dict(options.headers) if options.headers is not None else None,
        "priority": options.priority,
        "delay_us": _us(options.delay),
        "not_before_us": _at_us(options.not_before),
        "expires_in_us": _us(options.expires_in),
        "timeout_us": _us(options.timeout),
        "tries_max": options.tries_max,
        "backoff": _backoff(options.backoff),
    }
    try:
        header = encode_header(msgspec.convert(said, SubmitJobHeader))
    except msgspec.ValidationError as error:
        raise _refused(ErrorCode.BAD_JOB, f"an option is not what the queue takes: {error}") from error
    # `resend` and `wants_result` may be added to it later.
    if len(header) > limits.HEADER_BYTES_MAX - 64:
        text = f"the options have {len(header):,} bytes, at most {limits.HEADER_BYTES_MAX - 64:,} are allowed"
        raise _refused(ErrorCode.HEADER_TOO_LARGE, text)
    return header


def _us(seconds: Seconds | None) -> int:
    if seconds is None:
        return 0
    return _finite_us(seconds.total_seconds() if isinstance(seconds, timedelta) else seconds)


def _finite_us(seconds: float) -> int:
    if not math.isfinite(seconds):
        raise _refused(ErrorCode.BAD_JOB, f"{seconds} is no number of seconds")
    return int(seconds * 1_000_000)


def _at_us(at: datetime | float | None) -> int:
    if at is None:
        return 0
    if isinstance(at, datetime) and at.tzinfo is None:
        raise _refused(ErrorCode.BAD_JOB, "not_before has no time zone: write datetime.now(UTC) + …")
    return _finite_us(at.timestamp() if isinstance(at, datetime) else at)


def _backoff(backoff: Backoff | Seconds | None) -> dict[str, object] | None:
    if backoff is None:
        return None
    if not isinstance(backoff, Backoff):
        seconds = backoff.total_seconds() if isinstance(backoff, timedelta) else float(backoff)
        backoff = Backoff(first=seconds, factor=1.0, longest=seconds, jitter=0.0)
    return {
        "first_us": _us(backoff.first),
        "factor": backoff.factor,
        "max_us": _us(backoff.longest),
        "jitter": backoff.jitter,
    }


def _refused(code: ErrorCode, text: str) -> SubmitRefused:
    return SubmitRefused(code=code, text=text, retryable=False)
