"""Headers: what each may hold, and those of hellos, questions, the log and the connection itself.

A header is a JSON object. A field that the receiver does not know is ignored, and one that is missing
has its default, so a newer side may add fields; a field of the wrong type is an error. (The log is
stricter: there an unknown field stops the node.) What is said of jobs is in job_headers, between nodes
in peer_headers. A header checks shapes and bounds, never meaning.
"""

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from rollmq import limits

NUMBER_MAX = 2**53 - 1
"""Largest integer that every JSON reader keeps exactly."""

Number: TypeAlias = Annotated[int, Meta(ge=0, le=NUMBER_MAX)]
ONE_LINE = r"\A[^\x00-\x1f\x7f]*\Z"
"""No control characters: these strings stand in logs and on terminals, where a newline could forge a line."""
Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=limits.ID_CHARS_MAX, pattern=ONE_LINE)]
WorkerId: TypeAlias = Annotated[
    str, Meta(min_length=1, max_length=limits.ID_CHARS_MAX, pattern=r"\A[!-)+\-/-=?-~]+\Z")
]
NameOrNone: TypeAlias = Annotated[str, Meta(max_length=limits.ID_CHARS_MAX, pattern=ONE_LINE)]
JobId: TypeAlias = Annotated[str, Meta(min_length=32, max_length=32)]
Token: TypeAlias = Annotated[str, Meta(max_length=limits.TOKEN_CHARS_MAX)]
Text: TypeAlias = Annotated[str, Meta(max_length=limits.ERROR_TEXT_CHARS_MAX)]
Fence: TypeAlias = tuple[Number, Number]


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
    weight: Annotated[int, Meta(ge=1, le=limits.WEIGHT_MAX)] = 1
    """Wished share between clients. An operator's setting wins."""
    token: Token = ""
    """Secret, when the node asks for one."""
    release: NameOrNone = ""
    """Name and version of the library, for people."""
    watches: bool = False
    """Only watch for LeaderIs: any node answers, nothing can be submitted."""
    many: bool = False
    """AcceptedJobs and Results are understood, and may come instead of Accepted and Result."""


class HelloWorkerHeader(VersionHeader, frozen=True, kw_only=True):
    """A worker says who it is and what it takes. Its payload is a HeldList."""

    worker_id: WorkerId
    """Stable name of this worker: printable ASCII, one token of a subject, so no dot, wildcard or space."""
    instance: Name
    """Drawn at each start of the process: tells a reconnect from a second worker."""
    patterns: Annotated[tuple[str, ...], Meta(max_length=limits.WORKER_PATTERNS_MAX)] = ()
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
    many: bool = False
    """AssignJobs is understood, and may come instead of AssignJob."""


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
    many: bool = False
    """SubmitJobs and AckJobs are understood, and may be said instead of SubmitJob and AckJob."""


class Held(Header, frozen=True):
    """A job that a worker still holds."""

    job_id: JobId
    """The job."""
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
    """The job."""
    fence: Fence
    """Of the assign by which it had it."""


class HeldList(Header, frozen=True):
    """The payload of HelloWorker, as JSON. Exhaustive: what it does not list is requeued at once."""

    held: Annotated[tuple[Held, ...], Meta(max_length=limits.WORKER_HELD_MAX)] = ()
    """Jobs that it runs or keeps ready."""
    outcomes: Annotated[tuple[HeldOutcome, ...], Meta(max_length=limits.WORKER_HELD_MAX)] = ()
    """What it has finished and will tell again."""


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
    leave: bool = False
    """To a worker: an operator wants it to stop for good: finish what runs, hand back the rest, do not
    come back. Otherwise the node stops, and the worker goes on and reconnects."""


class NotLeaderHeader(Header, frozen=True):
    """This node does not lead. It closes the connection behind this frame."""

    leader: NameOrNone | None = None
    """host:port to go to; null = not known, try the others."""
    term: Number = 0
    """The newest term that the node knows: a hint of a higher term beats one of a lower."""
    why: Text = ""
    """Why there is no leader, for people; empty when there is one, or when that is not known."""


class LeaderIsHeader(Header, frozen=True):
    """To watching connections: who leads now. Sent after the hello's answer and at each change."""

    leader: NameOrNone | None = None
    """host:port; null = nobody, as far as this node knows."""
    term: Number = 0
    """Its term: an announcement of a lower one is stale."""
