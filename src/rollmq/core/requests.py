"""What is brought to a leader: submits, outcomes, workers' hellos, what it must know of the log.

Plain values, read from outside. They stand apart from the code that decides about them, because that is
compiled in an optional build and a msgspec struct cannot be (docs/decisions/0011-compiled-core.md).
"""

from typing import Final

import msgspec

from rollmq.core.events import Backoff, Fence

# What a failed handler asks for.
RETRY: Final = "retry"
SNOOZE: Final = "snooze"
REJECT: Final = "reject"


class Submit(msgspec.Struct, frozen=True, gc=False):
    """What a client asks for; the fields of `enqueue`."""

    job_id: str
    client_id: str
    exec: str
    payload: bytes = b""
    content_type: str = ""
    content_digest: str = ""
    key_id: str = ""
    key: str = ""
    headers: dict[str, str] | None = None
    priority: int = 0
    not_before_us: int = 0
    expires_at_us: int = 0
    timeout_us: int = 600_000_000
    timeout_factor: float = 1.0
    tries_max: int = 5
    backoff: Backoff | None = None
    is_plain: bool = False
    """Whoever made it knows that it has no options: everything behind the payload is its default."""


class Wish(msgspec.Struct, frozen=True, gc=False):
    """What a client asked for itself when it connected."""

    cap: int = 0
    weight: int = 1


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """What a worker says of an attempt."""

    job_id: str
    fence: Fence
    is_ok: bool = True
    result: bytes = b""
    content_type: str = ""
    key_id: str = ""
    run_us: int | None = None
    error_type: str = ""
    error_message: str = ""
    error_detail: bytes = b""
    wants: str = RETRY
    """After a failure: retry, snooze (no try) or reject (straight to the DLQ)."""
    after_us: int | None = None
    """The pause the handler asked for, instead of the backoff."""


class Held(msgspec.Struct, frozen=True, gc=False):
    """A job that a worker says it still holds."""

    job_id: str
    fence: Fence
    is_started: bool = False
    left_us: int | None = None
    """What is left of its time, by the worker's monotonic clock."""


class Hello(msgspec.Struct, frozen=True, gc=False):
    """A worker introduces itself; `held` is exhaustive."""

    worker_id: str
    instance: str
    patterns: list[str]
    hands: int = 8
    credit: int = 0
    host: str = ""
    release: str = ""
    held: list[Held] = []
    outcomes: list[Outcome] = []


class SegmentFacts(msgspec.Struct, frozen=True, gc=False):
    """What a leader must know of the log to propose a marker; the replica tells."""

    first_index: int
    """Of the segment being filled."""
    byte_count: int
    digest: str
    """sha256 of all its bytes so far."""
    snapshot_index: int = 0
    snapshot_digest: str = ""
