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
    """Its place in the log: the entry before it has one less."""
    term: int
    """The term of the leader that decided it."""
    at_us: int
    """Log time: read once, by that leader."""


class Backoff(Part, frozen=True):
    """The pause before try n+1: first_us * factor^(n-1), at most max_us, times a random 1-jitter..1."""

    first_us: int = 1_000_000
    """Before the second try."""
    factor: float = 2.0
    """How much longer each pause is than the one before."""
    max_us: int = 600_000_000
    """No pause is longer."""
    jitter: float = 0.25
    """Which share of the pause chance may take off. What it was is in the event that it decided."""


class Enqueue(Event, frozen=True, tag="enqueue"):
    """A job is accepted: into its exec's queue."""

    job_id: str
    """Made by the client, once: a UUIDv7 in log time. A repeated submit has the same."""
    client_id: str
    """The tenant: whose turn, cap and weight count."""
    exec: str
    """What is to be run, and so which queue."""
    payload: bytes = b""
    """The user's bytes, after the codec."""
    payload_bytes: int = 0
    """Their length, for readers who leave the payload out."""
    content_type: str = ""
    """What the payload is, as the caller says; never looked at."""
    content_digest: str = ""
    """Of the payload before any codec, so that a repeated key can be compared. Hex, "" without a key."""
    key_id: str = ""
    """Names the codec's key; the key itself is never logged."""
    key: str = ""
    """The caller's own name for this job, remembered with client and exec: a repeat gets the first job."""
    headers: dict[str, str] | None = None
    """The caller's labels and trace context; handed to the worker."""
    priority: int = 0
    """0 to 9, higher first."""
    not_before_us: int = 0
    """Not assigned before this log time; 0 is at once."""
    expires_at_us: int = 0
    """Into the DLQ if it is queued then, for the first time or again; 0 is never."""
    timeout_us: int = 600_000_000
    """From the handler's start; then the attempt is ended."""
    timeout_factor: float = 1.0
    """How much longer the timeout of each try is than the one before."""
    tries_max: int = 5
    """Tries of one life; then the DLQ."""
    backoff: Backoff | None = None
    """Null: the defaults of `Backoff`."""


class Assign(Event, frozen=True, tag="assign"):
    """An attempt begins: out of the queue, into in-flight. Its (term, index) is the attempt's fence."""

    job_id: str
    worker_id: str
    """Who runs it."""
    attempt: int
    """From 1, over all lives."""
    ready_us: int
    """When the job could first have been assigned: latest of enqueue, not_before and last requeue."""
    credit_left: int
    """How many more jobs the worker takes after this one; for reports."""


class Ending(Event, frozen=True):
    """What every event says that ends an attempt."""

    job_id: str
    fence: Fence
    """(term, index) of the assign that began the attempt."""
    attempt: int
    worker_id: str
    started: bool
    """The handler had started, or must be presumed to have."""
    tries: int
    """Tries of this life, this attempt included if it counts as one."""
    held_us: int
    """From assign to this event, in log time."""
    run_us: int | None
    """By the worker's monotonic clock; null when it did not say."""


class Ack(Ending, frozen=True, tag="ack"):
    """The handler succeeded: the job is finished, its result kept for its retention."""

    result: bytes = b""
    """The handler's bytes, after the codec."""
    result_bytes: int = 0
    """Their length."""
    content_type: str = ""
    key_id: str = ""
    """Names the codec's key of the result."""


class FailRequeue(Ending, frozen=True, tag="fail_requeue"):
    """The handler failed or snoozed: back to the queue, after its backoff."""

    error_type: str = ""
    """The exception's class, or what the handler calls it."""
    error_message: str = ""
    error_detail: bytes = b""
    """The traceback, after the codec."""
    not_before_us: int = 0
    """The end of its backoff."""
    counted: bool = True
    """False for a snooze: the attempt is no try."""
    key_id: str = ""
    """Names the codec's key of the detail."""


class TimeoutRequeue(Ending, frozen=True, tag="timeout_requeue"):
    """Over its time: back to the queue, after its backoff."""

    not_before_us: int = 0
    """The end of its backoff."""


class WorkerDownRequeue(Ending, frozen=True, tag="worker_down_requeue"):
    """The worker is gone, drained, refused the job or gave it back: back to the queue at once."""

    reason: str = "gone"
    """gone, drained, refused or taken back. Only the first says that the worker died."""


class MaybeEnding(Event, frozen=True):
    """The fields of an Ending for a job that may have been queued: then fence is null."""

    job_id: str
    fence: Fence | None = None
    """Null: the job was queued, and what follows is left out."""
    attempt: int = 0
    worker_id: str = ""
    started: bool = False
    tries: int = 0
    held_us: int = 0
    run_us: int | None = None


class Dlq(MaybeEnding, frozen=True, tag="dlq"):
    """Into the dead letters: tries or starts used up, rejected, expired, or poison."""

    reason: str = ""
    """tries or starts (used up), rejected, expired, or poison."""
    error_type: str = ""
    error_message: str = ""
    error_detail: bytes = b""
    key_id: str = ""
    """Names the codec's key of the detail."""


class Redrive(Event, frozen=True, tag="redrive"):
    """Out of the DLQ: queued again in a new life, tries from zero."""

    job_ids: list[str]
    by: str = ""
    """The operator."""
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
    """Most of its jobs in flight at once; 0 is the group's default."""
    weight: int = 1
    """Its share of turns beside other clients."""
    by: str = ""


class Worker(Event, frozen=True, tag="worker"):
    """What the log must know of a worker; only when it changed, before the first assign that needs it."""

    worker_id: str
    instance: str
    """Drawn at each start of its process."""
    host: str = ""
    release: str = ""
    patterns: list[str] = []
    """Matched against `job.assign.<exec>`."""
    hands: int = 1
    """How many jobs it runs at once."""


class Pause(Event, frozen=True, tag="pause"):
    """No job of this exec is assigned; new ones are refused too if `submits`."""

    exec: str
    submits: bool = False
    """New jobs are refused too."""
    by: str = ""
    why: str = ""


class Resume(Event, frozen=True, tag="resume"):
    """The exec's jobs are assigned again."""

    exec: str
    by: str = ""
    why: str = ""


class Settings(Event, frozen=True, tag="settings"):
    """What `apply` and the decisions depend on, for the whole group, until the next one."""

    machine_version: int = MACHINE_VERSION
    """Which version of `apply` this group runs; a leader proposes only its own."""
    results_keep_us: int = 86_400_000_000
    """How long a result can be asked for: a day, so that a client may be down for a night."""
    results_max: int = 1_000_000
    """Results kept at most, whatever their age."""
    results_bytes_max: int = 268_435_456
    """Bytes of results kept at most: they are in memory on every node."""
    finished_max: int = 1_000_000
    """Finished ids remembered, so that a late resend is answered and not run again."""
    keys_keep_us: int = 86_400_000_000
    """How long a caller's key means its first job: a day covers any retry of a caller."""
    keys_per_client_max: int = 1_000_000
    """Keys remembered per client; beyond it keyed submits are refused, none is forgotten early."""
    queued_max: int = 10_000_000
    """Jobs queued at most; beyond it submits are refused."""
    queued_bytes_max: int = 8_589_934_592
    """Bytes of queued and running jobs' payloads and error details; beyond it submits are refused:
    they are in memory on every node."""
    dlq_max: int = 100_000
    """Dead letters kept; beyond it the oldest are dropped, by a `drop` event."""
    dlq_bytes_max: int = 2_147_483_648
    """Bytes of dead letters' payloads and error details kept, likewise: they are in memory on every node."""
    errors_kept: int = 5
    """Errors kept with each job, the newest."""
    crashes_max: int = 3
    """Workers that may die while they run a job, before it is buried as poison."""
    starts_max: int = 100
    """Starts of one life, snoozes included, before a job is buried."""
    ageing_us: int = 60_000_000
    """How long a job waits at a priority before it rises to the next."""
    cap_default: int = 100_000
    """The cap of a client that has none of its own: as good as none."""
    clients_max: int = 100_000
    """Clients remembered; beyond it those idle longest are forgotten, with their wishes."""
    workers_max: int = 10_000
    """Workers remembered; beyond it those changed longest ago that hold nothing are forgotten."""
    by: str = ""


class Pipeline(Event, frozen=True, tag="pipeline"):
    """A pipeline has taken the history up to here."""

    name: str
    confirmed_index: int
    """Everything up to here has been taken."""


class Counts(Part, frozen=True):
    """How much of everything there is; replicas compare these after every marker."""

    queued: int = 0
    """Waiting in their queues, delayed ones included."""
    inflight: int = 0
    """Assigned and not yet ended."""
    dlq: int = 0
    """Dead letters."""
    finished: int = 0
    """Finished ids that are remembered."""
    results: int = 0
    """Of these, those whose result is kept."""
    keys: int = 0
    """Callers' keys that are remembered."""
    clients: int = 0
    """Clients that are remembered."""
    workers: int = 0
    """Workers that are remembered."""
    no_ops: int = 0
    """Stale events so far. A correct leader proposes none."""


class ExecCensus(Part, frozen=True):
    """One exec at the moment of a marker; for the pipeline, not part of the proof."""

    exec: str
    queued: int = 0
    delayed: int = 0
    """Of the queued ones, how many wait for their time."""
    inflight: int = 0
    free_credit: int = 0
    """Of the workers that could take its jobs."""
    capped_clients: int = 0
    """Clients whose turn came here and was passed over, because they are at their cap."""


class SnapshotMarker(Event, frozen=True, tag="snapshot_marker"):
    """The last line of a segment: every replica seals here and may snapshot."""

    segment_digest: str = ""
    """sha256 of the segment's bytes before this line, its header included."""
    counts: Counts = Counts()
    """Of the state as of this entry, to compare replicas by."""
    snapshot_index: int = 0
    """Of the leader's newest snapshot; 0 when there is none."""
    snapshot_digest: str = ""
    """sha256 of that snapshot's file."""
    execs: list[ExecCensus] = []
    """Census of the busiest execs, bounded."""
    workers: list[str] = []
    """Census of the connected workers, bounded."""


class Noop(Event, frozen=True, tag="noop"):
    """A new leader's first entry: with it, everything before it commits."""


class Member(Part, frozen=True):
    """One node of the group."""

    node_id: str
    voter: bool = True
    """False: a learner that does not count yet."""
    replaces: str = ""
    """Who is removed once this node votes; empty: nobody."""


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
