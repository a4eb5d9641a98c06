"""The queue of a test: what both of its faces can do, and the face with `await`.

    queue = Queue()
    queue.add(worker_or_app)
    job = await queue.submit("resize", b"…")
    outcome = await job.result()          # lets handlers run and time skip until the job has ended
    await queue.advance(seconds=60)

Everything happens in this process: no sockets, no threads, no sleeping.
"""

import time
from collections.abc import AsyncIterator, Callable, Coroutine
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, TypeVar, Unpack

import msgspec

from rollmq.core.events import AnyEvent
from rollmq.core.operate import Refusal
from rollmq.errors import NothingWillHappen, RequestRefused, ResultTimeout
from rollmq.library.call import ACCEPTED, ENDED, SENT, WAITING, Call, Outcome
from rollmq.library.client_core import ClientCore, ClientProfile
from rollmq.library.client_job import decode_outcome
from rollmq.library.handlers import make_handler
from rollmq.library.payload_codec import Codec, decoded
from rollmq.library.submit_options import Execs, Options, Seconds, SubmitOptions, header_and_payload
from rollmq.tasks import App
from rollmq.testing.engine import LONGEST_US, Engine
from rollmq.wire.query import ExplainReply
from rollmq.worker import Worker

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
CLIENT_ID: Final = "test"
HANDS: Final = 8
"""Jobs that a worker of a test runs at once."""
SECOND_US: Final = 1_000_000
ACCEPT_US_MAX: Final = 60 * SECOND_US
"""Of the queue's time: how long a submit may be refused for a passing reason."""


def to_us(span: Seconds) -> int:
    """Seconds, or a timedelta, as microseconds."""
    return round((span.total_seconds() if isinstance(span, timedelta) else span) * SECOND_US)


class TestCall(Call):
    """A submit of a test."""

    __test__ = False

    def __init__(self, subject: bytes, payload: bytes, header: bytes, codec: Codec | None) -> None:
        super().__init__(subject, payload, header)
        self.codec = codec
        self.reports: list[bytes] = []

    def progressed(self, data: bytes, key_id: str) -> None:
        """Its handler said something."""
        codec = self.codec
        self.reports.append(data if codec is None else decoded(codec, data, key_id, "progress"))


class Stage:
    """What does not wait: registering, looking, and operating."""

    def __init__(
        self,
        *,
        start: datetime | None = None,
        seed: int = 0,
        client_id: str = CLIENT_ID,
        cap: int = 0,
        codec: Codec | None = None,
        same_as: "Stage | None" = None,
    ) -> None:
        """`start` is what the queue takes for the time at first, by default now; `seed` decides all chance;
        `client_id`, `cap` and `codec` are those of whoever submits here, as for `Client`. With `same_as` this
        is another client of that queue."""
        wall_us = int(start.timestamp() * SECOND_US) if start is not None else time.time_ns() // 1000
        self.engine: Engine = same_as.engine if same_as is not None else Engine(wall_us=wall_us, seed=seed)
        self.codec = codec
        self._profile = ClientProfile(client_id, cap=cap)
        self._execs = Execs()
        self._apps: list[App] = []
        self._core: ClientCore | None = None

    # -- who works

    def add(self, worker: Worker | App) -> str:
        """Let the handlers of a worker, or the tasks of an app, run here; the id of the worker that does.

        A worker is connected to nothing else. What the app's tasks submit comes here until this is closed.
        """
        if isinstance(worker, App):
            self._apps.append(worker)
            worker.stand_in = Queue(same_as=self, client_id=worker.client_id, codec=worker.codec)
            return self.engine.hire(worker.handlers(), hands=HANDS, codec=worker.codec)
        return self.engine.hire(worker.handlers, hands=worker.hands, codec=worker.codec)

    def handler(self, exec: str) -> Callable[[F], F]:
        """Register the function below as the handler of an exec, or of a pattern of execs."""

        def register(function: F) -> F:
            handler = make_handler(exec, function, processes=False, max_jobs=None)
            self.engine.hire([handler], hands=HANDS, codec=self.codec)
            return function

        return register

    def kill_worker(self, worker_id: str) -> None:
        """The worker dies without a word, with all that it runs. Its jobs come back after the queue's grace
        of some seconds, if another worker can take them; `add` one, or `advance`."""
        self.engine.workers.pop(worker_id).kill()
        self.engine.talk()

    # -- looking

    @property
    def now(self) -> datetime:
        """What the queue takes for the time."""
        return datetime.fromtimestamp(self.engine.node.log_us() / SECOND_US).astimezone()

    @property
    def events(self) -> list[AnyEvent]:
        """The log: everything that was decided, in order."""
        return self.engine.node.events()

    def ask(self, name: str, **arguments: Any) -> Any:
        """An operator's question or command by its name in docs/protocol.md, such as `ask("status")`,
        `ask("dlq_list")`, `ask("pause", exec="resize")`. Raises RequestRefused."""
        value = self.engine.node.ask(name, msgspec.json.encode(arguments))
        self.engine.moved()
        self.engine.talk()
        if isinstance(value, Refusal):
            raise RequestRefused(code=value.code, text=value.text, retryable=False)
        return value

    def explain(self, job_id: str) -> ExplainReply:
        """Where a job stands and why it is not further."""
        return msgspec.convert(self.ask("explain", job_id=job_id), ExplainReply, from_attributes=True)

    def dead(self) -> list[Any]:
        """The dead letters, oldest first."""
        return list(self.ask("dlq_list").jobs)

    def redrive(self, *job_ids: str) -> None:
        """Give dead letters a new life: tries from zero."""
        self.ask("dlq_redrive", job_ids=list(job_ids), why="test")

    # -- clients

    def _submit(self, exec: str, payload: bytes, options: SubmitOptions) -> tuple[TestCall, ClientCore]:
        engine = self.engine
        core = self._core = self._core or engine.client(self._profile)
        header, encoded = header_and_payload(Options(**options), payload, self.codec)
        call = TestCall(self._execs.subject_of(exec), encoded, header, self.codec)
        core.submit(call, engine.node.now_us)
        engine.talk()
        engine.moved()
        while call.state in (WAITING, SENT) and engine.skip(engine.node.now_us + ACCEPT_US_MAX):
            pass  # refused for a passing reason: it is sent again a moment later
        if call.error is not None and call.state not in (ACCEPTED, ENDED):
            raise call.error
        return call, core

    def _is_idle(self) -> bool:
        engine = self.engine
        return not engine.is_busy and not engine.wants_loop

    def close(self) -> None:
        """The test is over. Apps that were added submit again to where they did before."""
        for app in self._apps:
            app.stand_in = None
        self.engine.close()


class AnyJob:
    """A job of a test, as it was submitted."""

    def __init__(self, stage: Stage, call: TestCall, core: ClientCore) -> None:
        self._stage, self._call, self._core = stage, call, core

    @property
    def id(self) -> str:
        """32 hex digits."""
        return self._call.job_id.hex()

    @property
    def reports(self) -> list[bytes]:
        """What its handlers have told by `job.progress` so far."""
        return self._call.reports

    @property
    def is_repeat(self) -> bool:
        """Its key was known: nothing new was queued, and this is the first job."""
        return self._call.is_repeat

    @property
    def state(self) -> str:
        """queued, inflight, dead, done, cancelled or dropped."""
        return self._stage.explain(self.id).state

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"

    # -- for those who wait

    def _until_us(self, timeout: Seconds | None) -> int:
        now_us = self._stage.engine.node.now_us
        return now_us + (LONGEST_US if timeout is None else to_us(timeout))

    def _is_over(self) -> bool:
        return self._call.state not in (WAITING, SENT, ACCEPTED)

    def _outcome(self, timeout: Seconds | None) -> Outcome:
        call = self._call
        if call.state == ENDED and call.outcome is not None:
            return call.outcome if call.codec is None else decode_outcome(call.codec, call.outcome)
        if call.error is not None:
            raise call.error
        if timeout is not None:
            raise ResultTimeout(job_id=self.id, seconds=to_us(timeout) / SECOND_US)
        raise NothingWillHappen(job_id=self.id, why=self._stage.explain(self.id).text)


class Job(AnyJob):
    """A job of a test with `await`."""

    async def result(self, timeout: Seconds | None = None) -> Outcome:
        """How it ended. Until then handlers run, and time skips to whatever is due next.

        `timeout` is of the queue's time. Raises ResultTimeout, and NothingWillHappen when no time would help.
        """
        await self._stage.engine.work(self._is_over, self._until_us(timeout))
        return self._outcome(timeout)

    async def cancel(self, why: str = "") -> None:
        """End it; a handler that runs is stopped if it can be. Raises RequestRefused."""
        self._stage.ask("cancel", job_id=self.id, why=why)

    async def explain(self) -> ExplainReply:
        """Where it stands and why it is not further."""
        return self._stage.explain(self.id)

    async def progress(self) -> AsyncIterator[bytes]:
        """What its handlers tell, until it has ended; time skips as it does for `result`."""
        reports, told = self._call.reports, 0
        while told < len(reports) or not self._is_over():
            if told == len(reports):
                await self._stage.engine.work(partial(self._has_news, told), self._until_us(None))
            for report in reports[told:]:
                told += 1
                yield report

    def _has_news(self, told: int) -> bool:
        return len(self._call.reports) > told or self._is_over()


class Queue(Stage):
    """The real queue inside of an async test. `async with Queue() as queue:` closes it."""

    async def submit(self, exec: str, payload: bytes = b"", **options: Unpack[SubmitOptions]) -> Job:
        """Submit a job; it is committed when this returns. No handler has begun yet.

        The options are those of `Client.submit`. Raises SubmitRefused, KeyConflict.
        """
        call, core = self._submit(exec, payload, options)
        return Job(self, call, core)

    async def run(self) -> None:
        """Let everything happen that can happen now. Handlers are waited for; time stands still."""
        await self.engine.work(self._is_idle, self.engine.node.now_us)

    async def advance(self, seconds: Seconds) -> None:
        """Let so much time pass; what is due meanwhile happens at its time. Handlers that work are not
        waited for, so a timeout catches them."""
        await self.engine.pass_time(self.engine.node.now_us + to_us(seconds))

    async def __aenter__(self) -> "Queue":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


class SyncJob(AnyJob):
    """A job of a test without `await`."""

    def result(self, timeout: Seconds | None = None) -> Outcome:
        """How it ended. Until then handlers run, and time skips to whatever is due next.

        `timeout` is of the queue's time. Raises ResultTimeout, and NothingWillHappen when no time would help.
        """
        self._stage.engine.work_here(self._is_over, self._until_us(timeout))
        return self._outcome(timeout)

    def cancel(self, why: str = "") -> None:
        """End it; a handler that runs is stopped if it can be. Raises RequestRefused."""
        self._stage.ask("cancel", job_id=self.id, why=why)

    def explain(self) -> ExplainReply:
        """Where it stands and why it is not further."""
        return self._stage.explain(self.id)


class SyncQueue(Stage):
    """The real queue inside of a plain test. `with SyncQueue() as queue:` closes it."""

    def submit(self, exec: str, payload: bytes = b"", **options: Unpack[SubmitOptions]) -> SyncJob:
        """Submit a job; it is committed when this returns. No handler has begun yet.

        The options are those of `Client.submit`. Raises SubmitRefused, KeyConflict.
        """
        call, core = self._submit(exec, payload, options)
        return SyncJob(self, call, core)

    def run(self) -> None:
        """Let everything happen that can happen now. Handlers are waited for; time stands still."""
        self.engine.work_here(self._is_idle, self.engine.node.now_us)

    def advance(self, seconds: Seconds) -> None:
        """Let so much time pass; what is due meanwhile happens at its time. Coroutines that work are not
        waited for, so a timeout catches them."""
        self.engine.pass_time_here(self.engine.node.now_us + to_us(seconds))

    def await_(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """What a coroutine returns, for code of yours that is async and a test that is not."""
        return self.engine.on_own_loop(coroutine)

    def __enter__(self) -> "SyncQueue":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
