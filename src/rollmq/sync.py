"""The client for programs without an event loop: threads, Django, Flask, prefork servers.

    client = rollmq.sync.Client("127.0.0.1:5000")          # at import; it connects when it is first used
    job = client.submit("image.resize", b"...")            # from any thread
    outcome = job.result(timeout=60)

The same client as rollmq.Client, on a loop in a thread of its own. Every method waits for its answer.
"""

import atexit
import queue
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from itertools import islice
from types import TracebackType
from typing import Any, Final, Unpack

from rollmq import client as asynchronous
from rollmq.client import OUTSTANDING
from rollmq.errors import ClientClosed
from rollmq.library.call import REFUSED, Call, Outcome
from rollmq.library.client_job import Job as AsyncJob
from rollmq.library.loop_thread import LoopThread
from rollmq.library.making import Item, ManyJob, options_of, placed
from rollmq.library.stream import outcome_of
from rollmq.library.submit_options import SubmitOptions
from rollmq.wire.query import ExplainReply, Status

CLOSE_S: Final = 5.0


class Job:
    """An accepted job; usable from any thread. See rollmq.Job."""

    __slots__ = ("_job", "_thread")

    def __init__(self, job: AsyncJob, thread: LoopThread) -> None:
        self._job = job
        self._thread = thread

    @property
    def id(self) -> str:
        """32 hex digits."""
        return self._job.id

    @property
    def is_repeat(self) -> bool:
        """Its key was used before, and this is the first job of that key."""
        return self._job.is_repeat

    @property
    def position(self) -> int:
        """Its place in what `submit_many` was given."""
        return self._job.position

    def result(self, timeout: float | None = None) -> Outcome:
        """Wait until the job has ended, and say how. Raises what rollmq.Job.result does, and ClientForked."""
        self._thread.check()
        return self._thread.wait_for(self._job.result(timeout))

    def cancel(self, why: str = "") -> None:
        """End the job as cancelled. Raises RequestRefused when it had ended, RequestUnknown without an
        answer."""
        self._thread.check()
        self._thread.wait_for(self._job.cancel(why))

    def explain(self) -> ExplainReply:
        """Where the job stands and why it is not further."""
        self._thread.check()
        return self._thread.wait_for(self._job.explain())

    def progress(self) -> Iterator[bytes]:
        """What the handler says while it runs, until the job has ended. Some of it may be lost."""
        self._thread.check()
        news = self._job.progress()
        while (data := self._thread.wait_for(_next_of(news))) is not None:
            yield data

    def __repr__(self) -> str:
        return f"<Job {self.id}>"


class Client:
    """One session of a client, for any number of threads. Options are those of rollmq.Client.

    It begins with its first use, so one that was made before a fork may be used after it, in each child. One
    that was *used* before the fork refuses there, with ClientForked: its connection and its thread stayed in
    the parent. It is closed at exit, by `close`, or by `with`; what is used after that raises ClientClosed.
    """

    def __init__(self, servers: str | None = None, **options: Any) -> None:
        self._make: Callable[[], asynchronous.Client] = lambda: asynchronous.Client(servers, **options)
        self._make()  # Wrong options are told here, not at the first use.
        self._lock = threading.Lock()
        self._thread: LoopThread | None = None
        self._client: asynchronous.Client | None = None
        self._is_closed = False

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    def close(self, timeout: float = CLOSE_S) -> None:
        """Wait, for up to so many seconds, for answers that are due, and end the thread. Accepted jobs go
        on."""
        if self._thread is not None:
            self._thread.check()
        with self._lock:
            self._is_closed = True
            thread, client = self._thread, self._client
            self._thread = self._client = None
        if thread is not None and client is not None:
            thread.wait_for(client.close(timeout))
            thread.stop()
            atexit.unregister(self._close_at_exit)

    # -- submitting

    def submit(self, exec: str, payload: bytes = b"", **options: Unpack[SubmitOptions]) -> Job:
        """Submit a job; returns when it is committed. Options and errors are those of rollmq.Client.submit,
        and ClientForked. Given up while it waits (Ctrl-C), it is unknown."""
        client, thread = self._begun()
        return Job(thread.wait_for(client.submit(exec, payload, **options)), thread)

    def submit_many(self, items: Iterable[Item], *, outstanding: int = OUTSTANDING) -> Iterator[Job]:
        """As rollmq.Client.submit_many. The items are taken in the thread that iterates."""
        client, thread = self._begun()
        stream = _Stream(client, thread, outstanding)
        failed: Call | None = None
        for call in stream.through_of(client.maker.many(stream, items)):
            assert isinstance(call, ManyJob)
            if call.state < REFUSED:
                yield Job(call, thread)
            else:
                failed = failed or call
                stream.is_stopped = True
        if failed is not None:
            raise placed(failed)

    def map(
        self,
        exec: str,
        payloads: Iterable[bytes],
        *,
        outstanding: int = OUTSTANDING,
        **options: Unpack[SubmitOptions],
    ) -> Iterator[Outcome]:
        """As rollmq.Client.map. The payloads are taken in the thread that iterates."""
        client, thread = self._begun()
        stream = _Stream(client, thread, outstanding)
        for call in stream.through_of(client.maker.each(stream, exec, payloads, options_of(options))):
            yield outcome_of(call, client.codec)

    # -- asking

    def job(self, job_id: str) -> Job:
        """A handle of a job that was submitted before. Raises JobUnknown for what is no id."""
        client, thread = self._begun()
        return Job(client.job(job_id), thread)

    def result(self, job_id: str, timeout: float | None = None) -> Outcome:
        """How a job ended: `job(job_id).result(timeout)`."""
        return self.job(job_id).result(timeout)

    def status(self) -> Status:
        """The leader's status. Raises RequestUnknown when no answer came."""
        client, thread = self._begun()
        return thread.wait_for(client.status())

    # -- inside

    def _close_at_exit(self) -> None:
        """Also registered in every child that was forked since: there it is none of its business."""
        if self._thread is not None and self._thread.is_ours:
            self.close()

    def _begun(self) -> tuple[asynchronous.Client, LoopThread]:
        """Client and thread, from the first use on."""
        thread, client = self._thread, self._client
        if thread is not None:
            thread.check()  # Before the lock: a fork may have left it taken.
        if thread is None or client is None:
            thread, client = self._begin()
        return client, thread

    def _begin(self) -> tuple[LoopThread, asynchronous.Client]:
        with self._lock:
            if self._is_closed:
                raise ClientClosed()
            if self._thread is None or self._client is None:
                client, thread = self._make(), LoopThread("rollmq client")
                thread.wait_for(client.__aenter__())
                self._thread, self._client = thread, client
                atexit.register(self._close_at_exit)
            return self._thread, self._client


class _Stream:
    """Calls between two threads: taken from the source in one, sent and answered in the other, in batches."""

    def __init__(self, client: asynchronous.Client, thread: LoopThread, outstanding: int) -> None:
        if outstanding < 1:
            raise ValueError(f"outstanding is 1 or more, not {outstanding}")
        self.is_stopped = False
        self._session = client.session
        self._thread = thread
        self._outstanding = outstanding
        self._batches: queue.SimpleQueue[list[Call]] = queue.SimpleQueue()
        self._through: list[Call] = []
        """On the loop, until the end of its turn."""

    def through_of(self, source: Iterator[Call]) -> Iterator[Call]:
        """The calls of the source, each once it is through."""
        under_way_count = 0
        while True:
            wanted = 0 if self.is_stopped else self._outstanding - under_way_count
            calls = list(islice(source, wanted))
            to_send = [call for call in calls if call.error is None]
            if to_send:
                under_way_count += len(to_send)
                self._thread.call(self._send, to_send)
            yield from (call for call in calls if call.error is not None)
            if not under_way_count:
                if calls:
                    continue  # all of them were refused before they were sent
                return
            batch = self._batches.get()
            under_way_count -= len(batch)
            yield from batch

    def through(self, call: Call) -> None:
        """Called on the loop."""
        if not self._through:
            self._thread.call_at_turns_end(self._hand_over)
        self._through.append(call)

    def _hand_over(self) -> None:
        through, self._through = self._through, []
        self._batches.put(through)

    def _send(self, calls: list[Call]) -> None:
        """Called on the loop. Without room it goes on when there is some."""
        session = self._session
        for at, call in enumerate(calls):
            if not session.core.has_room:
                session.when_room(lambda rest=calls[at:]: self._send(rest))  # type: ignore[misc]
                return
            session.submit(call)


async def _next_of(news: AsyncIterator[bytes]) -> bytes | None:
    return await anext(news, None)
