"""A job as the client that submitted it sees it: its id, its end, what its handler says meanwhile.

It asks its session and decides nothing.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Final

import msgspec

from rollmq.errors import ResultTimeout
from rollmq.library.call import ACCEPTED, CANCEL, GONE, Call, Outcome
from rollmq.library.client_session import ClientSession
from rollmq.library.payload_codec import Codec, decoded
from rollmq.wire.codec import encode_payload
from rollmq.wire.query import ExplainReply

NEWS_MAX: Final = 64
"""Progress that was not read yet: the newest are kept, for only they say how far the job is."""
_decode_explanation = msgspec.json.Decoder(ExplainReply).decode


class Job(Call):
    """An accepted job. It may be awaited, asked about and cancelled, by any number of tasks of its loop.

    `id` is its 32 hex digits. `is_repeat`: its key was used before, and this is the first job of that key.
    `position` is its place in what `submit_many` was given.
    """

    __slots__ = ("_accepting", "_ends", "_news", "_news_waiter", "_session")

    def __init__(
        self,
        session: ClientSession,
        subject: bytes,
        payload: bytes,
        header: bytes = b"",
        *,
        position: int = 0,
        is_patient: bool = False,
    ) -> None:
        super().__init__(subject, payload, header, position=position, is_patient=is_patient)
        self._session = session
        self._accepting: asyncio.Future[None] | None = None
        self._ends: list[asyncio.Future[None]] | None = None
        self._news: deque[tuple[bytes, str]] | None = None
        self._news_waiter: asyncio.Future[None] | None = None

    @property
    def id(self) -> str:
        """32 hex digits."""
        return self.job_id.hex()

    # -- for its users

    async def result(self, timeout: float | None = None) -> Outcome:
        """Wait until the job has ended, and say how. A job that failed is an Outcome too: look at `ok`.

        Raises ResultTimeout after so many seconds (the job goes on), ResultExpired when it has ended and its
        result is no longer kept, JobUnknown when nobody remembers it, CodecFailed when its result cannot be
        decoded, and what ended this client: ClientClosed, NotAuthorized, WrongGroup.
        """
        if self.outcome is None and self.error is None:
            await self._ended(timeout)
        if self.outcome is None:
            assert self.error is not None
            raise self.error
        codec = self._session.codec
        return self.outcome if codec is None else decode_outcome(codec, self.outcome)

    async def cancel(self, why: str = "") -> None:
        """End the job as cancelled, wherever it is; `why` stands in the log. Returns once that is committed.

        Raises RequestRefused when it had ended already (code `job_finished` or `job_dead`), and
        RequestUnknown when no answer came: it may be cancelled, and its result says whether it is.
        """
        await self._session.ask(CANCEL, job_id=self.job_id, why=why)

    async def explain(self) -> ExplainReply:
        """Where the job stands and why it is not further. Raises RequestUnknown when no answer came."""
        payload = encode_payload({"job_id": self.id})
        (answer,) = await self._session.ask("explain", payload=payload)
        return _decode_explanation(answer)

    async def progress(self) -> AsyncIterator[bytes]:
        """What the handler says while it runs, until the job has ended. Some of it may be lost: it is not
        kept anywhere, and of what is not read in time only the newest is."""
        loop = self._session.check()
        if not self.is_open:
            self._session.await_result(self)
        while True:
            while self._news:
                data, key_id = self._news.popleft()
                codec = self._session.codec
                yield data if codec is None else decoded(codec, data, key_id, f"progress of job {self.id}")
            if self.state != ACCEPTED:
                return
            self._news_waiter = loop.create_future()
            await self._news_waiter

    # -- for its client

    async def accepted(self) -> "Job":
        """Submitted: wait for the answer."""
        if self.error is None and self.state < ACCEPTED:
            self._accepting = self._session.check().create_future()
            try:
                await self._accepting
            finally:
                self._accepting = None
        if self.state > GONE:
            assert self.error is not None
            raise self.error
        return self

    def moved(self) -> None:
        """Called by the core."""
        accepting = self._accepting
        if accepting is not None and not accepting.done():
            accepting.set_result(None)
        if self.state != ACCEPTED:
            if self._ends is not None:
                for end in self._ends:
                    if not end.done():
                        end.set_result(None)
            self._wake_reader()

    def progressed(self, data: bytes, key_id: str) -> None:
        """Called by the core."""
        if self._news is None:
            self._news = deque(maxlen=NEWS_MAX)
        self._news.append((data, key_id))
        self._wake_reader()

    def _wake_reader(self) -> None:
        waiter, self._news_waiter = self._news_waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def _ended(self, timeout: float | None) -> None:
        loop = self._session.check()
        if not self.is_open:
            self._session.await_result(self)
            if self.state != ACCEPTED:
                return
        end = loop.create_future()
        if self._ends is None:
            self._ends = []
        self._ends.append(end)
        timer = None if timeout is None else loop.call_later(timeout, _expire, end, self.id, timeout)
        try:
            await end
        finally:
            if timer is not None:
                timer.cancel()
            self._ends.remove(end)

    def __repr__(self) -> str:
        return f"<Job {self.id}>"


def known_job(session: ClientSession, job_id: bytes) -> Job:
    """A handle of a job that somebody submitted, some time."""
    job = Job(session, b"", b"")
    job.job_id = job_id
    job.state = ACCEPTED
    return job


def decode_outcome(codec: Codec, outcome: Outcome) -> Outcome:
    """The outcome with its result, or its error's detail, as it was before the codec. Raises CodecFailed."""
    key_id = outcome.header.key_id
    if outcome.state == "done":
        result = decoded(codec, outcome.result, key_id, f"the result of job {outcome.job_id}")
        return msgspec.structs.replace(outcome, result=result)
    if not outcome.detail:
        return outcome
    detail = decoded(codec, outcome.detail, key_id, f"the error of job {outcome.job_id}")
    return msgspec.structs.replace(outcome, detail=detail)


def _expire(end: "asyncio.Future[None]", job_id: str, seconds: float) -> None:
    if not end.done():
        end.set_exception(ResultTimeout(job_id=job_id, seconds=seconds))
