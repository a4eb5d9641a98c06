"""The header of every message between a client, worker, operator or reader and a node.

A header is a JSON object. A field that the receiver does not know is ignored, and one that is missing
has its default, so a newer side may add fields; a field of the wrong type is an error. (The log is
stricter: there an unknown field stops the node.) It checks shapes and bounds, never meaning.
"""

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from rollmq import limits
from rollmq.core.events import Backoff
from rollmq.core.job import PRIORITY_MAX
from rollmq.core.parties import WEIGHT_MAX

NUMBER_MAX = 2**53 - 1
"""Largest integer that every JSON reader keeps exactly."""

Number: TypeAlias = Annotated[int, Meta(ge=0, le=NUMBER_MAX)]
Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=limits.ID_CHARS_MAX)]
WorkerId: TypeAlias = Annotated[
    str, Meta(min_length=1, max_length=limits.ID_CHARS_MAX, pattern=r"\A[!-)+\-/-=?-~]+\Z")
]
NameOrNone: TypeAlias = Annotated[str, Meta(max_length=limits.ID_CHARS_MAX)]
JobId: TypeAlias = Annotated[str, Meta(min_length=32, max_length=32)]
Token: TypeAlias = Annotated[str, Meta(max_length=limits.TOKEN_CHARS_MAX)]
Text: TypeAlias = Annotated[str, Meta(max_length=limits.ERROR_TEXT_CHARS_MAX)]
UserHeaders: TypeAlias = Annotated[dict[str, str], Meta(max_length=limits.USER_HEADERS_MAX)]
Fence: TypeAlias = tuple[Number, Number]
CreditPair: TypeAlias = tuple[Number, Annotated[int, Meta(ge=0, le=limits.WORKER_HELD_MAX)]]
"""(assigns seen on this connection, how many more it will take). Absolute: repeating it adds nothing."""


class Header(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What every header is: unknown fields are ignored, defaults are not sent."""


class VersionHeader(Header, frozen=True):
    """The part of any hello, of any version, that is read first."""

    version: Number
    """The newest protocol version that the sender speaks."""
    version_min: Number = 0
    """The oldest one; 0 = the same as `version`."""


class HelloClientHeader(VersionHeader, frozen=True, kw_only=True):
    """A client, or the library's watching connection, says who it is."""

    client_id: Name
    """The tenant; many sessions may share it."""
    cap: Number = 0
    """Wished cap on its jobs in flight; 0 = the group's default. An operator's setting wins."""
    weight: Annotated[int, Meta(ge=1, le=WEIGHT_MAX)] = 1
    """Wished share between clients. An operator's setting wins."""
    token: Token = ""
    """Secret, when the node asks for one."""
    release: NameOrNone = ""
    """Name and version of the library, for people."""
    watches: bool = False
    """Only watch for LeaderIs: any node answers, nothing can be submitted."""


class HelloWorkerHeader(VersionHeader, frozen=True, kw_only=True):
    """A worker says who it is and what it takes. Its payload is a HeldList."""

    worker_id: WorkerId
    """Stable name of this worker: printable ASCII, one token of a subject, so no dot, wildcard or space."""
    instance: Name
    """Drawn at each start of the process: tells a reconnect from a second worker."""
    patterns: Annotated[list[str], Meta(max_length=limits.WORKER_PATTERNS_MAX)] = []
    """Matched against `job.assign.<exec>`."""
    hands: Annotated[int, Meta(ge=1, le=limits.WORKER_HANDS_MAX)] = 1
    """How many jobs it runs at once."""
    credit: Annotated[int, Meta(ge=0, le=limits.WORKER_HELD_MAX)] = 0
    """How many jobs it will take now, besides those it holds: the pair (0, credit)."""
    host: NameOrNone = ""
    """Where it runs, for people."""
    release: NameOrNone = ""
    """Version of the code that it runs, for people and reports."""
    token: Token = ""
    """Secret, when the node asks for one."""
    watches: bool = False
    """Only watch for LeaderIs: any node answers, nothing is assigned."""


class HelloOperatorHeader(VersionHeader, frozen=True):
    """A person's tool, or a reader of the log, says who it is."""

    by: NameOrNone = ""
    """Who gives the commands: it stands in the log beside each of them."""
    token: Token = ""
    """Secret, when the node asks for one."""
    release: NameOrNone = ""
    """Name and version of the tool, for people."""
    reads_only: bool = False
    """Only ReadLog will be sent: the role is reader, any node serves it."""


class HelloAnswerHeader(Header, frozen=True):
    """The node's answer to a hello: a frame of the hello's own type, corr_id = the hello's msg_id."""

    version: Number
    """The version that both speak from now on."""
    node_id: NameOrNone = ""
    """Who answers: 32 hex digits."""
    group: NameOrNone = ""
    """The group's uuid. A library that reconnects and finds another group stops."""
    term: Number = 0
    """The leader's term."""
    log_at_us: Number = 0
    """Log time now, microseconds since 1970: the library stamps job ids with it."""
    cap: Number = 0
    """The cap in force for this client; 0 = the group's default."""
    payload_bytes_max: Number = limits.PAYLOAD_BYTES_MAX
    """Largest payload or result that this group takes."""
    ping_every_us: Number = limits.PING_EVERY_US
    """How often to ping."""
    idle_us_max: Number = limits.IDLE_US_MAX
    """Silence after which either side gives the connection up."""


class Held(Header, frozen=True):
    """A job that a worker still holds."""

    job_id: JobId
    fence: Fence
    """Of the assign by which it holds it."""
    started: bool = False
    """Its handler has begun."""
    run_us: Number = 0
    """How long the handler has run, by the worker's monotonic clock."""
    left_us: Number = 0
    """How much of its timeout is left, extensions included; 0 when not started."""


class HeldOutcome(Header, frozen=True):
    """An outcome that no AckDone has confirmed. Its AckJob follows again after the hello's answer; until
    it comes the leader takes the job for one that runs."""

    job_id: JobId
    fence: Fence


class HeldList(Header, frozen=True):
    """The payload of HelloWorker, as JSON. Exhaustive: what it does not list is requeued at once."""

    held: Annotated[list[Held], Meta(max_length=limits.WORKER_HELD_MAX)] = []
    outcomes: Annotated[list[HeldOutcome], Meta(max_length=limits.WORKER_HELD_MAX)] = []


class BackoffOptions(Header, frozen=True):
    """The pause before try n+1: first_us times factor^(n-1), at most max_us, times a random 1-jitter to 1."""

    first_us: Annotated[int, Meta(ge=0, le=limits.TIMEOUT_MAX_US)] = 1_000_000
    factor: Annotated[float, Meta(ge=1.0, le=100.0)] = 2.0
    max_us: Annotated[int, Meta(ge=0, le=limits.TIMEOUT_MAX_US)] = 600_000_000
    jitter: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.25

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
    priority: Annotated[int, Meta(ge=0, le=PRIORITY_MAX)] = 0
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
    state: Literal["done", "dead", "cancelled", "dropped", "running"] = "done"
    """How the life ended; "running" exactly when not final."""
    tries: Number = 1
    """Tries of this life."""
    reason: NameOrNone = ""
    """Why it is dead: tries, starts, rejected, expired, poison, …"""
    error_type: Text = ""
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
    timeout_us: Number = 600_000_000
    """From the handler's start, timeout_factor already applied."""
    client_id: NameOrNone = ""
    """Who submitted it."""
    content_type: NameOrNone = ""
    key_id: NameOrNone = ""
    headers: UserHeaders | None = None
    """The caller's own labels."""
    accepted_at_us: Number = 0
    """Log time of its enqueue."""


class StartedJob(Header, frozen=True):
    """One job whose handler is about to run."""

    job_id: JobId
    fence: Fence


class StartedHeader(Header, frozen=True):
    """These handlers are about to run, in this order. Written to the socket before they do."""

    jobs: Annotated[list[StartedJob], Meta(min_length=1, max_length=limits.JOBS_PER_MESSAGE_MAX)]


class AckJobHeader(Header, frozen=True):
    """How an attempt ended. corr_id = job id; payload = the result, or the error's detail as utf-8."""

    fence: Fence
    """Of the assign."""
    seq: Number
    """Number of this ack on this connection, from 1; AckDone confirms it."""
    ok: bool = True
    what: Literal["", "retry", "reject", "snooze", "hand_back"] = ""
    """ok: empty. Otherwise what is to be done: retry (a failed try, after its backoff or after_us), reject
    (to the DLQ), snooze (no try is counted; after after_us), hand_back (its handler never began)."""
    after_us: Number | None = None
    """Not before so much later; null = the job's backoff. snooze needs it."""
    reason: NameOrNone = ""
    """hand_back: "drained", "refused" (no such handler) or "taken back" (answers Cancel)."""
    run_us: Number | None = None
    """How long the handler ran, by the worker's monotonic clock."""
    error_type: Text = ""
    error_message: Text = ""
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
    late: Annotated[list[Number], Meta(max_length=limits.JOBS_PER_MESSAGE_MAX)] = []
    """Which of them did not count: the attempt was no longer the job's current one."""


class CancelHeader(Header, frozen=True):
    """Stop a job. From a client corr_id = job id, and Accepted answers; to a worker likewise, with fence."""

    what: Literal["stop", "take_back"] = "stop"
    """To a worker: stop (nothing that it says of the attempt counts) or take_back (if not started)."""
    fence: Fence | None = None
    """To a worker: of the attempt. From a client: null."""
    why: Text = ""
    """For people; a client's stands in the log."""


class QueryHeader(Header, frozen=True):
    """A question or a command. Payload: its arguments, a JSON object, or empty."""

    name: Name
    """Which; see the list of queries."""


class ReplyHeader(Header, frozen=True):
    """Answers a Query; corr_id = its msg_id. Payload: JSON."""

    more: bool = False
    """Further Reply frames with the same corr_id follow: one long list in pieces."""
    index: Number = 0
    """The log index that the answer is true for; it is committed."""


class ReadLogHeader(Header, frozen=True):
    """Asks for committed entries. Each is answered by exactly one LogChunk or Error."""

    from_index: Annotated[int, Meta(ge=1, le=NUMBER_MAX)] = 1
    """First entry wanted."""
    bytes_max: Annotated[int, Meta(ge=1, le=limits.READ_LOG_BYTES_MAX)] = limits.READ_LOG_BYTES_MAX
    """Lines of at most so many bytes, but at least one line."""
    wait_us: Annotated[int, Meta(ge=0, le=limits.READ_LOG_WAIT_US_MAX)] = 0
    """When nothing is there yet: wait so long for it."""


class LogChunkHeader(Header, frozen=True):
    """Answers ReadLog; corr_id = its msg_id. Payload: whole lines, the very bytes of the log."""

    first_index: Number = 0
    """Index of the first line; 0 = nothing new, the payload is empty."""
    last_index: Number = 0
    """Index of the last line."""
    commit_index: Number = 0
    """The last committed entry that the node knows."""
    group: NameOrNone = ""
    """The group's uuid: (group, index) names an entry for ever."""


class PingHeader(Header, frozen=True):
    """Asks for a sign of life. It has no field."""


class PongHeader(Header, frozen=True):
    """Answers Ping; corr_id = its msg_id."""

    log_at_us: Number = 0
    """From a node: log time now. 0 = not told."""


class ErrorHeader(Header, frozen=True):
    """A request was refused, or a message broke the protocol. corr_id = the msg_id of what it answers."""

    code: Name
    """See the table of codes; a code you do not know: go by the fields below."""
    text: Text = ""
    """For people: what happened, whether anything changed, what to do."""
    retryable: bool = False
    """The same request may succeed later, unchanged."""
    unknown: bool = False
    """It cannot be told whether the request was carried out; otherwise nothing was changed."""
    closes: bool = False
    """The sender closes the connection behind this frame."""
    after_us: Number = 0
    """Retryable: not before so much later. 0 = by your own backoff."""
    request_type: Number = 0
    """Type byte of what it answers; 0 = of no particular message."""


class GoodbyeHeader(Header, frozen=True):
    """Says that its sender begins nothing new on this connection. Answered by Goodbye."""

    why: Text = ""
    """For people."""


class NotLeaderHeader(Header, frozen=True):
    """This node does not lead. It closes the connection behind this frame."""

    leader: NameOrNone | None = None
    """host:port to go to; null = not known, try the others."""
    term: Number = 0
    """The newest term that the node knows: a hint of a higher term beats one of a lower."""


class LeaderIsHeader(Header, frozen=True):
    """To watching connections: who leads now. Sent after the hello's answer and at each change."""

    leader: NameOrNone | None = None
    """host:port; null = nobody, as far as this node knows."""
    term: Number = 0
