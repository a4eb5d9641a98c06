"""What surrounds a handler wherever it runs: how it gets its job, where it reports, who takes its outcome.

The codec is applied here, in the thread of the handler, and nowhere else. Shared by all runners of a worker;
nothing here changes while they run.
"""

from collections.abc import Callable, Iterable
from typing import Protocol, TypeAlias

from rollmq import limits
from rollmq.errors import CodecFailed
from rollmq.library.handlers import Handlers
from rollmq.library.handling import failed, rejected
from rollmq.library.held_job import HeldJob, Outcome
from rollmq.library.job import Job, Port
from rollmq.library.payload_codec import Codec, decoded, encoded

Ended: TypeAlias = tuple[HeldJob, Outcome]


class Reports(Protocol):
    """Takes what handlers say and how they end, encoded; from any thread."""

    def progress(self, held: HeldJob, data: bytes, key_id: str = "") -> None:
        """Something for the client."""

    def extend(self, held: HeldJob, extend_us: int) -> None:
        """More time."""

    def tell(self, ended: Iterable[Ended]) -> None:
        """These have ended."""


class Kit:
    """One worker's surroundings of handlers."""

    def __init__(self, handlers: Handlers, reports: Reports, codec: Codec | None) -> None:
        self.handlers = handlers
        self.port: Port = reports if codec is None else _CodingPort(reports, codec)
        """For Job."""
        self.tell: Callable[[Iterable[Ended]], None] = reports.tell if codec is None else self._tell_encoded
        """Takes what has ended, several at once where that is possible."""
        self._reports = reports
        self._codec = codec

    def job_of(self, held: HeldJob) -> Job | Outcome:
        """What the handler is given; an outcome if its payload cannot be decoded."""
        if self._codec is None:
            return Job(held, self.port, held.payload)
        try:
            payload = decoded(self._codec, held.payload, held.header.key_id, "the payload")
        except CodecFailed as error:
            return failed(CodecFailed.__name__, str(error))
        return Job(held, self.port, payload)

    def _tell_encoded(self, ended: Iterable[Ended]) -> None:
        assert self._codec is not None
        self._reports.tell([(held, _encoded(self._codec, outcome)) for held, outcome in ended])


class _CodingPort:
    """Encodes progress."""

    def __init__(self, reports: Reports, codec: Codec) -> None:
        self._reports = reports
        self._codec = codec
        self.extend = reports.extend

    def progress(self, held: HeldJob, data: bytes) -> None:
        """Raises CodecFailed in the handler."""
        data, key_id = encoded(self._codec, data, "progress")
        if len(data) <= limits.PAYLOAD_BYTES_MAX:  # progress may be lost
            self._reports.progress(held, data, key_id)


def _encoded(codec: Codec, outcome: Outcome) -> Outcome:
    """A result always, the detail of an error if there is one."""
    is_result = not outcome.what
    if not is_result and not outcome.payload:
        return outcome
    what = "the result" if is_result else "the error's detail"
    try:
        outcome.payload, outcome.key_id = encoded(codec, outcome.payload, what)
    except CodecFailed as error:
        return failed(CodecFailed.__name__, str(error)) if is_result else _without_detail(outcome)
    if is_result and len(outcome.payload) > limits.PAYLOAD_BYTES_MAX:
        size, size_max = f"{len(outcome.payload):,}", f"{limits.PAYLOAD_BYTES_MAX:,}"
        return rejected(
            "ResultTooLarge", f"encoded the result has {size} bytes, at most {size_max} are taken"
        )
    if not is_result and len(outcome.payload) > limits.ERROR_DETAIL_BYTES_MAX:
        return _without_detail(outcome)
    return outcome


def _without_detail(outcome: Outcome) -> Outcome:
    outcome.payload, outcome.key_id = b"", ""
    return outcome
