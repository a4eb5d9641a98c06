"""The job: what it is, where it stands in its life, and where it stands in its queue.

            enqueue              assign                ack
    (none) ─────────> queued <══════════> in-flight ─────────> finished
                        ^ │     *_requeue     │                   ^
                redrive │ │ dlq           dlq │        drop       │
                        │ v                   v                   │
                        dead  <───────────────┘ ──────────────────┘

A cancel takes a queued or in-flight job to finished.

Only `machine.apply` may change a job; `queues` owns its links, `leader` its volatile fields.
"""

from operator import attrgetter
from typing import TYPE_CHECKING, Final, Optional

import msgspec

from rollmq.core.events import Backoff, Fence
from rollmq.core.record import NO_BYTES, Record

if TYPE_CHECKING:
    from rollmq.core.queues import Lane

QUEUED: Final = "queued"
INFLIGHT: Final = "inflight"
DEAD: Final = "dead"
"""In the DLQ: this life is over, an operator may begin another."""

# How the last attempt ended when the job went on. After the first three its late ack may count.
BY_TIMEOUT: Final = "timeout"
BY_LOSS: Final = "lost"
BY_UNSTARTED_LOSS: Final = "lost unstarted"
BY_FAILURE: Final = "failed"
BY_SNOOZE: Final = "snoozed"
BY_RETURN: Final = "returned"
LATE_ACK_AFTER: Final = frozenset({BY_TIMEOUT, BY_LOSS, BY_UNSTARTED_LOSS})
AVOID_WORKER_AFTER: Final = frozenset({BY_TIMEOUT, BY_FAILURE})

# Final states of a job that is finished.
DONE: Final = "done"
CANCELLED: Final = "cancelled"
DROPPED: Final = "dropped"


class JobError(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """One failed attempt, kept with the job for whoever looks into the DLQ."""

    at_us: int
    attempt: int
    type: str = ""
    message: str = ""
    detail: bytes = NO_BYTES
    key_id: str = ""
    """Names the key of the codec that the detail passed."""


class JobRecord(Record, tag="job"):
    """The replicated part of an open or dead job: one line of the canonical state."""

    id: str
    client_id: str
    exec: str
    enqueued_index: int
    enqueued_us: int
    payload: bytes = NO_BYTES
    content_type: str = ""
    content_digest: str = ""
    key_id: str = ""
    key: str = ""
    headers: dict[str, str] | None = None
    priority: int = 0
    expires_at_us: int = 0
    timeout_us: int = 0
    timeout_factor: float = 1.0
    tries_max: int = 0
    backoff: Backoff | None = None

    state: str = QUEUED
    life: int = 1
    attempt: int = 0
    """Number of the newest attempt. Invariant: never falls, not even in a new life."""
    tries: int = 0
    """Invariant: tries <= tries_max."""
    starts: int = 0
    crashes: int = 0
    """Workers that died while they ran this job, in this life."""
    fence: Fence | None = None
    """Of the newest attempt; null before the first."""
    worker_id: str = ""
    assigned_us: int = 0
    ended_by: str = ""
    """How the newest attempt ended, if it did and the job goes on; empty while in-flight."""
    ready_us: int = 0
    """When it could first have been assigned since it was last queued."""
    place_us: int = 0
    place_index: int = 0
    """(place_us, place_index) is its place in its lane: FIFO. A job handed back unstarted keeps its place."""
    errors: list[JobError] | None = None
    dead_us: int = 0
    dead_reason: str = ""


class Job(JobRecord, gc=False, tag="job"):
    """A job in memory: the record, its links in a lane, and what only a leader knows of its attempt.

    Links make reference cycles that no collector will break, so whoever unlinks clears them.
    """

    lane: Optional["Lane"] = None
    """Set while it waits in a lane. A queued job without a lane is delayed."""
    prev: Optional["Job"] = None
    next: Optional["Job"] = None
    since_us: int = 0
    """When it came into its lane's priority level; ageing counts from here."""
    is_started: bool = False
    """Volatile: the worker said that the handler of the current attempt runs."""
    deadline_us: int = 0
    """Volatile: when the current attempt times out; 0 before it started."""
    asked_back_us: int = 0
    """Volatile: when the leader asked the worker to give the unstarted job back; 0 if it did not."""


class Finished(Record, tag="finished"):
    """What is remembered of a finished job: that its id was used, and for a while its result."""

    id: str
    client_id: str
    exec: str
    state: str
    ended_us: int
    tries: int = 0
    life: int = 1
    result: bytes = NO_BYTES
    content_type: str = ""
    key_id: str = ""
    is_result_dropped: bool = False
    """The retention took the result away; the answer is "expired", not "unknown"."""
    fence: Fence | None = None
    """Of the attempt whose ack counted, so that a repeated ack is told apart from a late one."""
    why: str = ""


_record_fields = attrgetter(*JobRecord.__struct_fields__)


def record_of(job: Job) -> JobRecord:
    """The replicated part of a job, for the canonical state."""
    return JobRecord(*_record_fields(job))


def weight_of(job: JobRecord) -> int:
    """The bytes that a job brought with it, in memory on every node: payload and error details."""
    if not job.errors:
        return len(job.payload)
    return len(job.payload) + sum(len(error.detail) for error in job.errors)


def job_of(record: JobRecord) -> Job:
    """A job from its line of the canonical state; its owner puts it where its state says."""
    return Job(*_record_fields(record))
