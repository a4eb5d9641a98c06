"""What a handler is given: the job, and how to report progress or ask for more time.

It says what it is told to a `Port` and knows nothing of what is behind it: a connection in another
thread, or a pipe to another process.
"""

from collections.abc import Generator, Mapping
from typing import Final, Protocol

from rollmq import limits
from rollmq.errors import MessageTooLarge
from rollmq.library.held_job import HeldJob
from rollmq.library.verdicts import Pause, pause_us
from rollmq.wire.headers import Fence

_NO_HEADERS: Final[Mapping[str, str]] = {}


class Port(Protocol):
    """Takes what a running handler says. May be called from any thread."""

    def progress(self, held: HeldJob, data: bytes) -> None:
        """Pass something on to the client; some of it may be lost."""

    def extend(self, held: HeldJob, extend_us: int) -> None:
        """Ask that its time ends so much later from now."""


class Told:
    """What `progress` returns: it was said already, so awaiting it only gives the loop a turn."""

    __slots__ = ()

    def __await__(self) -> Generator[None, None, None]:
        yield


_TOLD: Final = Told()


class Job:
    """One attempt at a job, as its handler sees it."""

    __slots__ = ("_held", "_port", "payload")

    def __init__(self, held: HeldJob, port: Port, payload: bytes) -> None:
        self._held = held
        self._port = port
        self.payload = payload
        """What the client submitted, decoded by the codec if there is one."""

    @property
    def id(self) -> str:
        """32 hex digits; the same in every attempt."""
        return self._held.job_id.hex()

    @property
    def fence(self) -> Fence:
        """Names this attempt: (term, index) of its assign."""
        return self._held.fence

    @property
    def exec(self) -> str:
        """What is to be run."""
        return self._held.exec

    @property
    def headers(self) -> Mapping[str, str]:
        """The caller's own labels."""
        return self._held.header.headers or _NO_HEADERS

    @property
    def attempt(self) -> int:
        """From 1, counting every assign, also those that never started."""
        return self._held.header.attempt

    @property
    def tries(self) -> int:
        """Tries that failed before this one."""
        return self._held.header.tries

    @property
    def tries_max(self) -> int:
        """After so many failed tries it goes to the dead letters."""
        return self._held.header.tries_max

    @property
    def client_id(self) -> str:
        """Who submitted it."""
        return self._held.header.client_id

    @property
    def content_type(self) -> str:
        """Media type of the payload, when the client said it."""
        return self._held.header.content_type

    @property
    def timeout_us(self) -> int:
        """How long this try may take from its start, without extensions."""
        return self._held.header.timeout_us

    @property
    def is_stopped(self) -> bool:
        """Whether this attempt no longer counts: a plain function that runs long may look and give up."""
        return self._held.is_stopped

    def progress(self, data: bytes) -> Told:
        """Tell the client how far it is, or a part of the result.

        It is passed on and not kept, and some of it may be lost. Async handlers write `await
        job.progress(…)`, plain functions call it; it never waits for the network. Raises TypeError for
        what is not bytes, MessageTooLarge for more than a payload may have.
        """
        if not isinstance(data, bytes):
            raise TypeError(f"progress is bytes, not {type(data).__name__}: encode it first")
        if len(data) > limits.PAYLOAD_BYTES_MAX:
            raise MessageTooLarge(part="progress", size=len(data), size_max=limits.PAYLOAD_BYTES_MAX)
        self._port.progress(self._held, data)
        return _TOLD

    def extend(self, seconds: Pause) -> None:
        """Ask that this attempt's time ends so many seconds from now. Only the handler itself can.

        Raises ValueError for what is no pause.
        """
        self._port.extend(self._held, pause_us(seconds))

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.exec} attempt={self.attempt}>"
