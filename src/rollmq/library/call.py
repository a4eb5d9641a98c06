"""One submit, and one question, from the moment they are made to what became of them.

Values that ClientCore moves on; whoever holds one overrides `moved` to hear of it. Nothing here waits.
"""

from typing import Final

import msgspec

from rollmq.errors import RollmqError
from rollmq.wire.job_headers import ResultHeader
from rollmq.wire.message import NO_ID

WAITING: Final = 0
"""Not sent, or known not to be accepted and to be sent again."""
SENT: Final = 1
"""On its way: unknown until it is answered."""
ACCEPTED: Final = 2
"""Committed; its end is not known yet."""
ENDED: Final = 3
"""`outcome` says how."""
GONE: Final = 4
"""It was accepted, and how it ended will not be told: `error` says why."""
REFUSED: Final = 5
"""Nothing was queued; `error` says why."""
UNKNOWN: Final = 6
"""Whether it was accepted is not known; `error` says why."""

CANCEL: Final = "cancel"
"""The name of the one question that changes something; it is a message of its own."""


class ResultReply(msgspec.Struct, frozen=True):
    """The answer to the query `result`; behind a final state the Result itself follows."""

    state: str = ""


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """How a job ended."""

    state: str
    """"done", "dead" (in the dead letters, after its last try), "cancelled" or "dropped" (from the dead
    letters). `Client.map` says "refused", "unknown" or "gone" besides, of what has no end to tell of."""
    job_id: str = ""
    result: bytes = b""
    """What the handler returned; empty unless `ok`."""
    error: str = ""
    """Why it is not done, in words; empty when `ok`."""
    tries: int = 0
    """Tries of this life, the last one included."""
    position: int = 0
    """Of `Client.map`: which payload this is about, from 0."""
    detail: bytes = b""
    """Of a job that failed: the handler's traceback, as utf-8."""
    header: ResultHeader = ResultHeader()

    @property
    def ok(self) -> bool:
        """The handler returned, and `result` is what."""
        return self.state == "done"

    @property
    def error_type(self) -> str:
        """Class of the last try's error."""
        return self.header.error_type

    @property
    def reason(self) -> str:
        """Why a dead job is dead: tries, starts, rejected, expired, poison."""
        return self.header.reason

    @property
    def content_type(self) -> str:
        """Media type of the result, when the worker said it."""
        return self.header.content_type

    @property
    def run_us(self) -> int | None:
        """How long the last try ran; None when that was not told, or is not kept."""
        return self.header.run_us

    @property
    def ended_at_us(self) -> int:
        """Log time of its end, microseconds since 1970."""
        return self.header.ended_at_us


class Call:
    """A submit. The fields above the line are the caller's, those below the core's.

    Invariant: `job_id` names a job that may exist exactly when the state is none of WAITING and REFUSED, or
    `is_doubtful`.
    """

    __slots__ = (
        "began_us",
        "due_us",
        "error",
        "header",
        "is_doubtful",
        "is_open",
        "is_patient",
        "is_repeat",
        "job_id",
        "outcome",
        "payload",
        "position",
        "refused_count",
        "state",
        "subject",
        "twin",
        "wants_result",
    )

    def __init__(
        self,
        subject: bytes,
        payload: bytes,
        header: bytes = b"",
        *,
        position: int = 0,
        is_patient: bool = False,
    ) -> None:
        self.subject = subject
        """`job.submit.<exec>`; empty for a job that is known by its id alone."""
        self.payload = payload
        """Empty once it is answered."""
        self.header = header
        """Encoded SubmitJobHeader, with neither `resend` nor `wants_result`."""
        self.position = position
        """In a stream of submits."""
        self.is_patient = is_patient
        """A refusal that may pass is waited out, however long it takes."""
        self.wants_result = True
        """Its end is to be told when it comes; else only when it is asked for."""
        # ---
        self.state = WAITING
        self.job_id = NO_ID
        self.is_doubtful = False
        """Sent under this id, and the connection ended before the answer."""
        self.is_repeat = False
        """The id or key was known: nothing new was queued."""
        self.is_open = False
        """The core waits for its end."""
        self.began_us = 0
        """Since when patience is asked for."""
        self.due_us = 0
        """When it is to be sent again."""
        self.refused_count = 0
        self.outcome: Outcome | None = None
        self.error: RollmqError | None = None
        self.twin: Call | None = None
        """Another submit of the same key, which waits for the same job."""

    def moved(self) -> None:
        """It is ACCEPTED, or has reached its last state. Called by the core; may submit more."""

    def progressed(self, data: bytes, key_id: str) -> None:
        """Its handler said something."""


class Question:
    """A cancel or query: safe to repeat, so it is sent again on each connection until it is answered."""

    __slots__ = ("began_us", "error", "is_doubtful", "job_id", "name", "parts", "payload", "why")

    def __init__(self, name: str, *, job_id: bytes = NO_ID, payload: bytes = b"", why: str = "") -> None:
        self.name = name
        """Of a query, or CANCEL."""
        self.job_id = job_id
        self.payload = payload
        """The query's arguments, JSON."""
        self.why = why
        """Of a cancel: for the log."""
        # ---
        self.parts: list[bytes] = []
        """The answer: one JSON value, or the parts of a long list."""
        self.error: RollmqError | None = None
        self.is_doubtful = False
        self.began_us = 0

    def answered(self) -> None:
        """`parts` holds the answer, or `error` says why there is none. Called once."""
