"""Every event of the log: a decided fact, exactly as one line of JSON holds it.

An event carries its index and term, so it is also the log's entry. Structs forbid unknown fields:
a node that skipped one would diverge silently, so it stops instead. A field is only ever added
with a default; anything else raises FORMAT_VERSION (see docs/log-format.md, "Format drill").
"""

from typing import TypeAlias

import msgspec

FORMAT_VERSION = 1
"""Version of the lines in segments and snapshots. A reader refuses any other, by name."""

MACHINE_VERSION = 1
"""Version of what `apply` does. It is in the log (`settings`), so that replicas agree on it."""

Fence: TypeAlias = tuple[int, int]
"""(term, index) of the assign that began an attempt. A worker echoes it; late answers differ in it."""


class Part(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """A value inside an event."""


class Event(
    msgspec.Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True, tag_field="type"
):
    """What every line has. Invariant: index grows by one; term and at_us never fall."""

    index: int
    term: int
    at_us: int


class Backoff(Part, frozen=True):
    """The pause before try n+1: first_us * factor^(n-1), at most max_us, times a random 1-jitter..1."""

    first_us: int = 1_000_000
    factor: float = 2.0
    max_us: int = 600_000_000
    jitter: float = 0.25


class Enqueue(Event, frozen=True, tag="enqueue"):
    """A job is accepted: into its exec's queue."""

    job_id: str
    client_id: str
    exec: str
    payload: bytes = b""
    payload_bytes: int = 0
    content_type: str = ""
    content_digest: str = ""
    """Of the payload before any codec, so that a repeated key can be compared. Hex, "" without a key."""
    key_id: str = ""
    """Names the codec's key; the key itself is never logged."""
    key: str = ""
    headers: dict[str, str] | None = None
    priority: int = 0
    not_before_us: int = 0
    expires_at_us: int = 0
    timeout_us: int = 600_000_000
    timeout_factor: float = 1.0
    tries_max: int = 5
    backoff: Backoff | None = None


class Assign(Event, frozen=True, tag="assign"):
    """An attempt begins: out of the queue, into in-flight. Its (term, index) is the attempt's fence."""

    job_id: str
    worker_id: str
    attempt: int
    ready_us: int
    """When the job could first have been assigned: latest of enqueue, not_before and last requeue."""
    credit_left: int


class Ending(Event, frozen=True):
    """What every event says that ends an attempt."""

    job_id: str
    fence: Fence
    attempt: int
    worker_id: str
    started: bool
    tries: int
    """Tries of this life, this attempt included if it counts as one."""
    held_us: int
    run_us: int | None
    """By the worker's monotonic clock; null when it did not say."""


class Ack(Ending, frozen=True, tag="ack"):
    """The handler succeeded: the job is finished, its result kept for its retention."""

    result: bytes = b""
    result_bytes: int = 0
    content_type: str = ""
    key_id: str = ""


class FailRequeue(Ending, frozen=True, tag="fail_requeue"):
    """The handler failed or snoozed: back to the queue, after its backoff."""

    error_type: str = ""
    error_message: str = ""
    error_detail: str = ""
    not_before_us: int = 0
    counted: bool = True
    """False for a snooze: the attempt is no try."""


class TimeoutRequeue(Ending, frozen=True, tag="timeout_requeue"):
    """Over its time: back to the queue, after its backoff."""

    not_before_us: int = 0


class WorkerDownRequeue(Ending, frozen=True, tag="worker_down_requeue"):
    """The worker is gone, drained, refused the job or gave it back: back to the queue at once."""

    reason: str = "gone"


class MaybeEnding(Event, frozen=True):
    """The fields of an Ending for a job that may have been queued: then fence is null."""

    job_id: str
    fence: Fence | None = None
    attempt: int = 0
    worker_id: str = ""
    started: bool = False
    tries: int = 0
    held_us: int = 0
    run_us: int | None = None


class Dlq(MaybeEnding, frozen=True, tag="dlq"):
    """Into the dead letters: tries or starts used up, rejected, expired, or poison."""

    reason: str = ""
    error_type: str = ""
    error_message: str = ""
    error_detail: str = ""


class Redrive(Event, frozen=True, tag="redrive"):
    """Out of the DLQ: queued again in a new life, tries from zero."""

    job_ids: list[str]
    by: str = ""
    why: str = ""


class Drop(Event, frozen=True, tag="drop"):
    """Out of the DLQ and gone. By an operator, or by rollmq when the DLQ is over its bound."""

    job_ids: list[str]
    by: str = ""
    why: str = ""


class Cancel(MaybeEnding, frozen=True, tag="cancel"):
    """Finished as cancelled; a running worker is told, its late ack changes nothing."""

    by: str = ""
    why: str = ""


class Client(Event, frozen=True, tag="client"):
    """A client's cap and weight. `by` empty: the client's own wish, which an operator's setting beats."""

    client_id: str
    cap: int
    weight: int = 1
    by: str = ""


class Worker(Event, frozen=True, tag="worker"):
    """What the log must know of a worker; only when it changed, before the first assign that needs it."""

    worker_id: str
    instance: str
    host: str = ""
    release: str = ""
    patterns: list[str] = []
    hands: int = 1


class Pause(Event, frozen=True, tag="pause"):
    """No job of this exec is assigned; new ones are refused too if `submits`."""

    exec: str
    submits: bool = False
    by: str = ""
    why: str = ""


class Resume(Event, frozen=True, tag="resume"):
    """The exec's jobs are assigned again."""

    exec: str
    by: str = ""
    why: str = ""


class Settings(Event, frozen=True, tag="settings"):
    """What `apply` and the decisions depend on. Each field's reason stands in limits.py."""

    machine_version: int = MACHINE_VERSION
    results_keep_us: int = 86_400_000_000
    results_max: int = 1_000_000
    results_bytes_max: int = 268_435_456
    finished_max: int = 1_000_000
    keys_keep_us: int = 86_400_000_000
    keys_per_client_max: int = 1_000_000
    queued_max: int = 10_000_000
    queued_bytes_max: int = 8_589_934_592
    dlq_max: int = 100_000
    errors_kept: int = 5
    crashes_max: int = 3
    starts_max: int = 100
    ageing_us: int = 60_000_000
    cap_default: int = 100_000
    clients_max: int = 100_000
    workers_max: int = 10_000
    by: str = ""


class Pipeline(Event, frozen=True, tag="pipeline"):
    """A pipeline has taken the history up to here."""

    name: str
    confirmed_index: int


class Counts(Part, frozen=True):
    """How much of everything there is; replicas compare these after every marker."""

    queued: int = 0
    inflight: int = 0
    dlq: int = 0
    finished: int = 0
    results: int = 0
    keys: int = 0
    clients: int = 0
    workers: int = 0
    no_ops: int = 0
    """Stale events so far. A correct leader proposes none."""


class ExecCensus(Part, frozen=True):
    """One exec at the moment of a marker; for the pipeline, not part of the proof."""

    exec: str
    queued: int = 0
    delayed: int = 0
    inflight: int = 0
    free_credit: int = 0
    capped_clients: int = 0


class SnapshotMarker(Event, frozen=True, tag="snapshot_marker"):
    """The last line of a segment: every replica seals here and may snapshot."""

    segment_digest: str = ""
    """sha256 of the segment's bytes before this line, its header included."""
    counts: Counts = Counts()
    snapshot_index: int = 0
    snapshot_digest: str = ""
    execs: list[ExecCensus] = []
    workers: list[str] = []


class Noop(Event, frozen=True, tag="noop"):
    """A new leader's first entry: with it, everything before it commits."""


class Member(Part, frozen=True):
    """One node of the group."""

    node_id: str
    voter: bool = True


class Members(Event, frozen=True, tag="members"):
    """Who is a member, from this entry on."""

    group: str
    """The group's uuid: the hash of the first members' ids."""
    members: list[Member] = []


AnyEvent: TypeAlias = (
    Enqueue
    | Assign
    | Ack
    | FailRequeue
    | TimeoutRequeue
    | WorkerDownRequeue
    | Dlq
    | Redrive
    | Drop
    | Cancel
    | Client
    | Worker
    | Pause
    | Resume
    | Settings
    | Pipeline
    | SnapshotMarker
    | Noop
    | Members
)
