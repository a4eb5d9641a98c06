"""The header of every message about jobs: submits, assigns, what workers say of them, results.

Shapes and bounds only; what a message means for the queue is for core to say.
"""

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta

from rollmq import limits
from rollmq.core.events import Backoff
from rollmq.wire.headers import Fence, Header, JobId, NameOrNone, Number, Text

UserHeaders: TypeAlias = Annotated[dict[str, str], Meta(max_length=limits.USER_HEADERS_MAX)]
HandBackReason: TypeAlias = Literal["", "drained", "refused", "taken back"]
CreditPair: TypeAlias = tuple[Number, Annotated[int, Meta(ge=0, le=limits.WORKER_HELD_MAX)]]
"""(assigns seen on this connection, how many more it will take). Absolute: repeating it adds nothing."""


class BackoffOptions(Header, frozen=True):
    """The pause before try n+1: first_us times factor^(n-1), at most max_us, times a random 1-jitter to 1."""

    first_us: Annotated[int, Meta(ge=0, le=limits.TIMEOUT_MAX_US)] = 1_000_000
    """After the first failed try."""
    factor: Annotated[float, Meta(ge=1.0, le=100.0)] = 2.0
    """Each further pause is so much longer."""
    max_us: Annotated[int, Meta(ge=0, le=limits.TIMEOUT_MAX_US)] = 600_000_000
    """The longest pause."""
    jitter: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.25
    """Share of the pause that chance may take away, so that failures do not return in step."""

    def to_log(self) -> Backoff:
        """The same as the log says it. There nothing is bounded: what is logged was checked here."""
        return Backoff(self.first_us, self.factor, self.max_us, self.jitter)


class SubmitJobHeader(Header, frozen=True):
    """Options of a job. All defaults: an empty header, the common and fastest case."""

    content_type: NameOrNone = ""
    """Media type of the payload."""
    content_digest: NameOrNone = ""
    """Hex digest of the payload before any codec; needed with a key, to tell a repeat from a conflict."""
    key_id: NameOrNone = ""
    """Which key of the codec encrypted the payload."""
    key: Annotated[str, Meta(max_length=limits.KEY_CHARS_MAX)] = ""
    """The caller's idempotency key, scoped to client and exec; empty = none."""
    headers: UserHeaders | None = None
    """The caller's own labels; the handler sees them."""
    priority: Annotated[int, Meta(ge=0, le=limits.PRIORITY_MAX)] = 0
    """0 to 9, higher first."""
    delay_us: Number = 0
    """Not before so much later than its acceptance."""
    not_before_us: Number = 0
    """Not before this log time; with delay_us the later one counts."""
    expires_in_us: Number = 0
    """Dead if not assigned so long after its acceptance; 0 = never."""
    expires_at_us: Number = 0
    """Dead if not assigned by this log time; with expires_in_us the earlier one counts; 0 = never."""
    timeout_us: Annotated[int, Meta(ge=1, le=limits.TIMEOUT_MAX_US)] = 600_000_000
    """From the handler's start to its end."""
    timeout_factor: Annotated[float, Meta(ge=1.0, le=10.0)] = 1.0
    """The timeout of try n+1 is that of try n times this."""
    tries_max: Annotated[int, Meta(ge=1, le=limits.TRIES_MAX_MAX)] = 5
    """Tries before it is buried."""
    backoff: BackoffOptions | None = None
    """Pause between tries; null = the default of each of its fields."""
    resend: bool = False
    """This msg_id has been sent before, perhaps on another connection. A first send that is answered
    with too_old_to_tell draws a new id; a resend ends unknown."""
    wants_result: bool = True
    """Push the Result to this session when the job ends."""


class AcceptedHeader(Header, frozen=True):
    """A submit or cancel is committed. corr_id = its msg_id; msg_id = the job's id."""

    repeated: bool = False
    """The id or key was known: msg_id is the first job's id, nothing new was queued."""


class ResultHeader(Header, frozen=True):
    """What became of a job, or how far it is. corr_id = job id; payload = result, detail or progress."""

    final: bool = True
    """False: progress or a partial result; nothing of it is kept."""
    state: Literal["done", "dead", "cancelled", "dropped", "gone", "running"] = "done"
    """How the life ended; "gone" when that is no longer kept; "running" exactly when not final."""
    tries: Number = 1
    """Tries of this life."""
    reason: NameOrNone = ""
    """Why it is dead: tries, starts, rejected, expired, poison, …"""
    error_type: Text = ""
    """Class of the last try's error."""
    error_message: Text = ""
    """Of the last try."""
    content_type: NameOrNone = ""
    """Media type of the payload."""
    key_id: NameOrNone = ""
    """Which key of the codec encrypted the payload."""
    ended_at_us: Number = 0
    """Log time of its end."""
    run_us: Number | None = None
    """Run time of the last try; null when the worker did not say."""
    fence: Fence | None = None
    """Progress from a worker: of the attempt that it belongs to. Not told to clients."""
    seq: Number = 0
    """Progress: a higher one is newer."""
    extend_us: Number = 0
    """Progress from a worker: the handler asks that its timeout ends so much later from now."""


class AssignJobHeader(Header, frozen=True):
    """A job for the worker. msg_id = job id; payload = the client's."""

    attempt: Number
    """From 1, never restarting in the job's life."""
    fence: Fence
    """(term, index) of the assign; echoed by everything that the worker says of the attempt."""
    seq: Number
    """Number of this assign on this connection, from 1; what Credit calls seen."""
    tries: Number = 0
    """Tries that ended before this attempt."""
    tries_max: Number = 5
    """Tries before it is buried: the handler may see that this is the last one."""
    timeout_us: Number = 600_000_000
    """From the handler's start, timeout_factor already applied."""
    client_id: NameOrNone = ""
    """Who submitted it."""
    content_type: NameOrNone = ""
    """Media type of the payload."""
    key_id: NameOrNone = ""
    """Which key of the codec encrypted the payload."""
    headers: UserHeaders | None = None
    """The caller's own labels."""
    accepted_at_us: Number = 0
    """Log time of its enqueue."""


class StartedJob(Header, frozen=True):
    """One job whose handler is about to run."""

    job_id: JobId
    """The job."""
    fence: Fence
    """Of its assign."""


class StartedHeader(Header, frozen=True):
    """These handlers are about to run, in this order. Written to the socket before they do."""

    jobs: Annotated[tuple[StartedJob, ...], Meta(min_length=1, max_length=limits.JOBS_PER_MESSAGE_MAX)]
    """In the order in which they begin."""


class AckJobHeader(Header, frozen=True):
    """How an attempt ended. corr_id = job id; payload = the result, or the error's detail as utf-8."""

    fence: Fence
    """Of the assign."""
    seq: Number
    """Number of this ack on this connection, from 1; AckDone confirms it."""
    ok: bool = True
    """The handler returned. False: see what."""
    what: Literal["", "retry", "reject", "snooze", "hand_back"] = ""
    """ok: empty. Otherwise what is to be done: retry (a failed try, after its backoff or after_us), reject
    (to the DLQ), snooze (no try is counted; after after_us), hand_back (its handler never began)."""
    after_us: Number | None = None
    """Not before so much later; null = the job's backoff. snooze needs it."""
    reason: HandBackReason = ""
    """hand_back: drained, refused (no such handler) or taken back (answers Cancel)."""
    run_us: Number | None = None
    """How long the handler ran, by the worker's monotonic clock."""
    error_type: Text = ""
    """Class of the error: what reports count by."""
    error_message: Text = ""
    """Its text, for people."""
    content_type: NameOrNone = ""
    """Media type of the result."""
    key_id: NameOrNone = ""
    """Which key of the codec encrypted the payload."""
    credit: CreditPair | None = None
    """(seen, more), as in Credit; null = unchanged."""


class CreditHeader(Header, frozen=True):
    """How much the worker will take. Absolute, so it may be repeated and may be lost."""

    seen: Number
    """The highest `seq` of AssignJob that it has seen on this connection."""
    more: Annotated[int, Meta(ge=0, le=limits.WORKER_HELD_MAX)]
    """How many it will take besides those."""


class AckDoneHeader(Header, frozen=True):
    """Acks are committed: the worker may forget these outcomes."""

    seq: Number
    """Up to and including this ack of this connection."""
    late: Annotated[tuple[Number, ...], Meta(max_length=limits.JOBS_PER_MESSAGE_MAX)] = ()
    """Which of them did not count: the attempt was no longer the job's current one."""


class CancelHeader(Header, frozen=True):
    """Stop a job. From a client corr_id = job id, and Accepted answers; to a worker likewise, with fence."""

    what: Literal["stop", "take_back"] = "stop"
    """To a worker: stop (nothing that it says of the attempt counts) or take_back (if not started)."""
    fence: Fence | None = None
    """To a worker: of the attempt. From a client: null."""
    why: Text = ""
    """For people; a client's stands in the log."""
