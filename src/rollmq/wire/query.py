"""Questions and commands: the arguments of each Query and the value of its Reply, both JSON.

Arguments forbid unknown fields, unlike headers: a node that ignored a newer tool's filter would answer
another question, or carry out more than was asked. Replies may gain fields. Shapes and bounds only.
"""

from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from rollmq import limits
from rollmq.wire.headers import Header, JobId, Number, Text

Filter: TypeAlias = Annotated[str, Meta(max_length=limits.SUBJECT_BYTES_MAX)]
PageLimit: TypeAlias = Annotated[int, Meta(ge=1, le=limits.QUERY_ROWS_MAX)]
Cursor: TypeAlias = Annotated[str, Meta(max_length=512)]

JobState: TypeAlias = Literal["", "queued", "delayed", "inflight", "dead"]
ROWS_DEFAULT: Final = 100


class Arguments(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """What every query's arguments are."""


class NoArguments(Arguments, frozen=True):
    """Nothing is asked for in particular."""


class JobArguments(Arguments, frozen=True):
    """About one job."""

    job_id: JobId
    """Which."""


class PageArguments(Arguments, frozen=True):
    """One page of a list."""

    limit: PageLimit = ROWS_DEFAULT
    """At most so many rows."""
    after: Cursor = ""
    """The `after` of the page before; empty: from the beginning."""


class JobsArguments(PageArguments, frozen=True):
    """One page of open or dead jobs."""

    exec: Filter = ""
    """Only of this exec."""
    client_id: Filter = ""
    """Only of this client."""
    state: JobState = ""
    """Only in this state; empty: queued, delayed and inflight."""


class DlqArguments(PageArguments, frozen=True):
    """One page of dead letters."""

    exec: Filter = ""
    """Only of this exec."""
    client_id: Filter = ""
    """Only of this client."""
    error: Filter = ""
    """Only those whose last error is of this type."""
    reason: Filter = ""
    """Only those that died for this reason: tries, starts, rejected, expired, poison."""


class DeadArguments(Arguments, frozen=True):
    """What to do something with in the DLQ."""

    job_ids: Annotated[list[JobId], Meta(min_length=1, max_length=limits.REDRIVE_JOBS_MAX)]
    """These; those that are not in the DLQ are passed over."""
    why: Text = ""
    """Stands in the log."""


class CancelArguments(JobArguments, frozen=True):
    """Which job to cancel."""

    why: Text = ""
    """Stands in the log."""


class PauseArguments(Arguments, frozen=True):
    """Which exec to pause."""

    exec: Filter
    """Which."""
    submits: bool = False
    """Refuse its submits too."""
    why: Text = ""
    """Stands in the log."""


class ResumeArguments(Arguments, frozen=True):
    """Which exec to resume."""

    exec: Filter
    """Which."""
    why: Text = ""
    """Stands in the log."""


class ClientSetArguments(Arguments, frozen=True):
    """A client's new cap and weight."""

    client_id: Filter
    """Which; it need not have been seen yet."""
    cap: Number | None = None
    """Most of its jobs in flight; 0 = the group's default; null = as it is."""
    weight: Annotated[int, Meta(ge=1, le=limits.WEIGHT_MAX)] | None = None
    """Its share of turns; null = as it is."""


class SettingsSetArguments(Arguments, frozen=True):
    """New values of the group's settings."""

    changes: Annotated[dict[str, Number], Meta(min_length=1, max_length=64)]
    """Name and value of each that changes; the others stay."""


class DrainArguments(Arguments, frozen=True):
    """Who is to stop politely."""

    worker_id: Filter = ""
    """This worker; empty: the node that is asked."""
    why: Text = ""
    """For people."""


class MemberArguments(Arguments, frozen=True):
    """Which node is to be a member, or no longer."""

    node: Filter
    """Its id, or the host:port at which it is."""
    replaces: Filter = ""
    """Of `members_replace`: who goes once the new one votes; an id or host:port."""


class PipelineConfirmArguments(Arguments, frozen=True):
    """How much history a pipeline has taken."""

    name: Filter
    """Of the pipeline."""
    index: Number
    """Everything up to here has been taken."""


# --- replies --------------------------------------------------------------------------------------


class Reply(Header, frozen=True, omit_defaults=False):
    """What every reply is: all fields are sent, and a reader ignores those that it does not know."""


class ExecStatus(Reply, frozen=True):
    """One exec's queue."""

    queued: int
    """Waiting, delayed ones included."""
    inflight: int
    """Assigned and not yet ended."""
    delayed: int
    """Of the queued ones, how many wait for their time."""
    paused: bool
    """Nothing of it is handed out."""
    refuses_submits: bool
    """Its submits are refused too."""


class MemberStatus(Reply, frozen=True):
    """One node of the group."""

    node_id: str
    """32 hex digits."""
    voter: bool
    """False: a learner that does not count yet."""
    address: str = ""
    """host:port at which it is, as far as the node that answers knows."""
    replaces: str = ""
    """Who is removed once it votes."""
    behind: int | None = None
    """Entries that the leader has and it has not confirmed; null: it does not answer, or the leader did not
    say."""


class ArchiveStatus(Reply, frozen=True):
    """How shipping sealed segments to an archive stands on one node."""

    place: str
    """The archive, without the user and password of its URL."""
    shipped: int
    """Segments that this node has shipped since its process began."""
    waiting: int
    """Its sealed segments that it does not know to be there yet."""
    missed: int
    """Segments that it dropped before they were there."""
    failures: int
    """How often in a row shipping failed; 0 = all is well."""
    problem: str
    """Why it failed last, or which file is in the way; empty: nothing is wrong."""


class Status(Reply, frozen=True, kw_only=True):
    """A node and, as of what it knows, the queues."""

    node: str
    """The node's id."""
    group: str
    """The group's uuid."""
    role: str
    """leader, follower or candidate."""
    leader: str | None
    """host:port of the leader; null = not known."""
    term: int
    """The node's term."""
    last_index: int
    """The last entry of its log."""
    commit_index: int
    """The last entry that is known to be committed."""
    applied_index: int
    """The last entry whose effects are out."""
    queued: int | None
    """Jobs waiting; null: this node keeps no queue (a static follower)."""
    inflight: int | None
    """Jobs assigned and not yet ended."""
    dlq: int | None
    """Dead letters."""
    finished: int | None
    """Finished jobs that are remembered; bounded by `settings.finished_max`."""
    workers: int | None
    """Connected workers; null: only the leader knows."""
    clients: int | None
    """Clients that are remembered."""
    members: list[MemberStatus]
    """Who is in the group."""
    execs: dict[str, ExecStatus]
    """Per exec; at most 1,000 of them."""
    execs_count: int
    """How many execs there are."""
    queued_bytes: int | None
    """Payloads of queued jobs."""
    dlq_bytes: int | None
    """Payloads and error details of dead letters."""
    no_ops: int | None
    """Stale events in the log: anything but 0 is a bug of rollmq."""
    at_us: int
    """Log time of the answer; 0: not known here."""
    uptime_us: int
    """Since this process began."""
    version: str
    """Release of the node."""
    connections: int
    """Open connections of this node."""
    accepted_count: int = 0
    """Jobs that it accepted since its process began, while it led: two answers give a rate."""
    assigned_count: int = 0
    """Attempts that it handed out, likewise."""
    ended_count: int = 0
    """Jobs that came to an end, likewise."""
    is_disk_low: bool
    """Its disk is nearly full: submits are refused."""
    disk_free_bytes: int | None
    """Free space where its state is; null: not measured yet."""
    fold_failures: int
    """How often in a row making a snapshot failed; 0 = all is well."""
    fold_failure: str
    """Why it failed last."""
    archive: ArchiveStatus | None = None
    """Null: this node ships nothing."""
    warnings: list[str]
    """What an operator should look at, in words."""


class JobRow(Reply, frozen=True, kw_only=True):
    """One job in a list."""

    job_id: str
    """32 hex digits."""
    exec: str
    """What is to be run."""
    client_id: str
    """Whose job it is."""
    state: str
    """queued, delayed, inflight or dead."""
    priority: int
    """0 to 9."""
    life: int
    """1, and one more for each redrive."""
    attempt: int
    """Number of its newest attempt; 0 before the first."""
    tries: int
    """Tries of this life."""
    tries_max: int
    """Tries that this life has."""
    enqueued_us: int
    """When it was accepted."""
    until_us: int
    """Delayed: when it may run; in flight and started: when it times out; else 0."""
    worker_id: str
    """Who has it, or had it last."""
    is_started: bool
    """In flight: its handler runs."""
    payload_bytes: int
    """Length of its payload."""
    key: str
    """The caller's own name for it."""
    error_type: str
    """Of its last error; empty: none yet."""
    error_message: str
    """Of its last error, cut to 200 characters."""
    errors_count: int
    """Errors that are kept."""
    dead_us: int
    """When it came into the DLQ; 0: it is not there."""
    dead_reason: str
    """tries, starts, rejected, expired or poison."""


class Page(Reply, frozen=True, kw_only=True):
    """What every page of a list ends with."""

    after: str
    """Hand it in to get the next page; empty: this was the last. A page may be empty and not the last."""
    may_miss: bool = False
    """Rows may be missing: the list changed much since the page before, or goes on behind its deepest row."""


class JobsPage(Page, frozen=True, kw_only=True):
    """Jobs, those longest in the list first."""

    jobs: list[JobRow]
    """The rows."""
    at_us: int = 0
    """Log time of the answer."""


class ClientRow(Reply, frozen=True):
    """One client."""

    client_id: str
    """The tenant."""
    cap: int
    """Most of its jobs in flight; 0 = the group's default."""
    cap_in_force: int
    """The cap that counts."""
    weight: int
    """Its share of turns."""
    by: str
    """The operator who set these; empty: its own wish."""
    queued: int
    """Its jobs that wait."""
    inflight: int
    """Its jobs in flight."""
    keys: int
    """Its keys that are remembered."""


class ClientsPage(Page, frozen=True, kw_only=True):
    """Clients, in the order in which they were first seen."""

    clients: list[ClientRow]
    """The rows."""


class WorkerRow(Reply, frozen=True):
    """One connected worker."""

    worker_id: str
    """Its id."""
    state: str
    """ready, draining, or away (its connection broke; it has some seconds to come back)."""
    hands: int
    """How many jobs it runs at once."""
    held: int
    """Jobs that it has, started or not."""
    credit: int
    """How many more it takes now."""
    silent_us: int
    """Since anything was heard of it."""
    host: str
    """Where it runs."""
    release: str
    """Version of its code."""
    patterns: list[str]
    """What it takes; the first eight."""
    patterns_count: int
    """How many patterns it has."""


class WorkersPage(Page, frozen=True, kw_only=True):
    """Workers, in the order in which they came."""

    workers: list[WorkerRow]
    """The rows."""


class ExecRow(ExecStatus, frozen=True):
    """One exec, with who could run it."""

    exec: str
    """Its name."""
    workers: int
    """Connected workers that match it."""
    credit: int
    """How many more jobs these take now."""


class ExecsPage(Page, frozen=True, kw_only=True):
    """Execs, in the order in which they came."""

    execs: list[ExecRow]
    """The rows."""


class MembersReply(Reply, frozen=True):
    """Who is in the group."""

    group: str
    """The group's uuid."""
    node: str
    """The id of the node that answers."""
    leader: str | None
    """host:port of the leader."""
    members: list[MemberStatus]
    """All of them."""
    asking: tuple[MemberStatus, ...] = ()
    """New nodes that wait to become members."""


class DoneReply(Reply, frozen=True):
    """A command was carried out, and is committed."""

    changed_count: int
    """How many jobs or settings it changed; 0: all was so already."""


class ErrorTold(Header, frozen=True):
    """How one attempt failed. Defaults are left out."""

    at_us: int
    """When, in log time."""
    attempt: int
    """Which."""
    type: str = ""
    """Of the error."""
    message: str = ""
    """Its text."""
    detail: str = ""
    """A traceback, or the end of stderr; empty when a codec has passed it, or where it is too much."""
    key_id: str = ""
    """The codec's key; empty without a codec."""


class ExplainReply(Header, frozen=True):
    """Where a job stands and why it is not further. Defaults are left out."""

    job_id: str
    """Which."""
    state: str
    """queued, inflight, dead, done, cancelled, dropped or unknown."""
    reason: str
    """A word for programs: paused, capped, no_worker, no_credit, delayed, backing_off, snoozed, in_turn,
    in_flight, finished, tries, …"""
    text: str
    """The same for people."""
    until_us: int = 0
    """Waiting for a time, or in flight: until when."""
    before_count: int | None = None
    """About how many come before it; null when that says nothing."""
    worker_id: str = ""
    """In flight: who has it."""
    fence: tuple[int, int] | None = None
    """Of its newest attempt."""
    tries: int = 0
    """Tries of this life."""
    errors: tuple[ErrorTold, ...] = ()
    """Of its last attempts that failed, as many as the setting `errors_kept` says, oldest first."""
