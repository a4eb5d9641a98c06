"""From what a caller hands in to the calls that a core sends. It sends nothing and may run in any thread."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any, Protocol, TypeAlias, TypeVar

from rollmq.errors import RollmqError
from rollmq.library.call import ENDED, REFUSED, Call
from rollmq.library.client_job import Job
from rollmq.library.client_session import ClientSession
from rollmq.library.payload_codec import Codec
from rollmq.library.submit_options import DEFAULTS, Execs, Options, SubmitOptions, header_and_payload

Item: TypeAlias = tuple[str, bytes] | tuple[str, bytes, Mapping[str, Any]]
"""What `submit_many` takes: exec and payload, and the options of `submit` by their names."""
JobT = TypeVar("JobT", bound=Job)


class Through(Protocol):
    """A stream of calls."""

    def through(self, call: Call) -> None:
        """A call of this stream has reached what the stream waits for. Called on the core's loop."""


class ManyJob(Job):
    """A job of `submit_many`."""

    __slots__ = ("stream",)
    stream: Through | None

    def moved(self) -> None:
        """Called by the core."""
        stream, self.stream = self.stream, None
        if stream is not None:
            stream.through(self)
        super().moved()


class MapCall(Call):
    """A submit of `map`: only its end is of interest."""

    __slots__ = ("stream",)
    stream: Through

    def moved(self) -> None:
        """Called by the core."""
        if self.state >= ENDED:
            self.stream.through(self)


class Maker:
    """Makes the calls of one client."""

    def __init__(self, session: ClientSession, codec: Codec | None) -> None:
        self._session = session
        self._codec = codec
        self._execs = Execs()

    def job(self, kind: type[JobT], exec: str, payload: bytes, options: Options) -> JobT:
        """A job that is not sent yet. Raises SubmitRefused, and CodecFailed."""
        subject = self._execs.subject_of(exec)
        header, encoded = header_and_payload(options, payload, self._codec)
        return kind(self._session, subject, encoded, header)

    def many(self, stream: Through, items: Iterable[Item]) -> Iterator[Call]:
        """A job per item, patient; one that cannot be made comes as a call that is refused already."""
        for position, item in enumerate(items):
            try:
                options = options_of(item[2]) if len(item) > 2 else DEFAULTS
                job = self.job(ManyJob, item[0], item[1], options)
            except RollmqError as error:
                yield _refused(ManyJob(self._session, b"", b"", position=position), error)
                continue
            job.position, job.is_patient, job.stream = position, True, stream
            yield job

    def each(self, stream: Through, exec: str, payloads: Iterable[bytes], options: Options) -> Iterator[Call]:
        """A call per payload, likewise."""
        subject, codec = self._execs.subject_of(exec), self._codec
        for position, payload in enumerate(payloads):
            try:
                header, encoded = header_and_payload(options, payload, codec)
            except RollmqError as error:
                yield _refused(MapCall(subject, b"", position=position), error)
                continue
            call = MapCall(subject, encoded, header, position=position, is_patient=True)
            call.stream = stream
            yield call


def options_of(given: Mapping[str, Any] | SubmitOptions) -> Options:
    """Options by their names. Raises TypeError for a name that is none."""
    try:
        return Options(**given) if given else DEFAULTS
    except TypeError:
        names = tuple(each.name for each in fields(Options))
        wrong = next(name for name in given if name not in names)
        raise TypeError(f"a submit has no option {wrong!r}; it has {', '.join(names)}") from None


def placed(call: Call) -> RollmqError:
    """The error of a call of a stream, with its place in it."""
    assert call.error is not None
    call.error.position = call.position  # type: ignore[attr-defined]
    return call.error


def _refused(call: Call, error: RollmqError) -> Call:
    """A call that never gets as far as a node."""
    call.state, call.error = REFUSED, error
    return call
