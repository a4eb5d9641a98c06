"""Typed tasks: functions that are called here and run in a worker.

    app = App()                                          # ROLLMQ_SERVER

    @app.task(tries_max=3, timeout=60)
    def resize(url: str, width: int) -> str: ...

    job = await resize.submit("https://…", width=300)    # or resize.submit_sync(…); resize(…) just calls it
    name = await job.value(timeout=60)

Arguments and results are JSON, read and written by msgspec with the types of the signature, never pickle. How
they are read is in library/task_types, how jobs travel in client and worker.
"""

import asyncio
import copy
import os
import weakref
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any, Final, Generic, NamedTuple, ParamSpec, Protocol, TypeVar, Unpack, cast, overload

from rollmq import sync
from rollmq.client import Client
from rollmq.errors import ArgumentsWrong, ResultWrong, TaskFailed, TaskProblem
from rollmq.library.call import Outcome as Ended
from rollmq.library.client_job import Job as SubmittedJob
from rollmq.library.handlers import Handler, Handlers, is_async, make_handler
from rollmq.library.handling import outcome_of_result, rejected
from rollmq.library.held_job import Outcome
from rollmq.library.job import Job
from rollmq.library.payload_codec import Codec
from rollmq.library.submit_options import SubmitOptions
from rollmq.library.task_types import CONTENT_TYPE, TaskTypes
from rollmq.worker import Worker

__all__ = ["App", "SyncTaskJob", "Task", "TaskJob", "current_job"]

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")
"""What a plain call returns: the result, or the coroutine that makes it."""

_CURRENT: Final[ContextVar[Job]] = ContextVar("rollmq_job")


def current_job() -> Job:
    """The job that the code runs for: its id, attempt, `progress` and `extend`. Raises TaskProblem outside
    of one, as when a task is just called."""
    job = _CURRENT.get(None)
    if job is None:
        raise TaskProblem("current_job() was called where no job runs: the task was called, not submitted.")
    return job


class TaskJob(Generic[R]):
    """A submitted task."""

    def __init__(self, job: SubmittedJob, task: "Task[..., Any, R]") -> None:
        self.job = job
        """The same without types: progress, explain, …"""
        self._task = task

    @property
    def id(self) -> str:
        """32 hex digits."""
        return self.job.id

    async def value(self, timeout: float | None = None) -> R:
        """Wait for what the task returns.

        Raises TaskFailed when the job has ended without that (its last error is in the message), ResultWrong
        when it is not of the task's type, and what `result` raises.
        """
        return self._task.value_of(await self.job.result(timeout))

    async def result(self, timeout: float | None = None) -> Ended:
        """Wait for the job's outcome, whatever it is; see Job.result."""
        return await self.job.result(timeout)

    async def cancel(self, why: str = "") -> None:
        """End the job as cancelled; see Job.cancel."""
        await self.job.cancel(why)

    def __repr__(self) -> str:
        return f"<TaskJob {self.id} {self._task.name}>"


class SyncTaskJob(Generic[R]):
    """A task that was submitted without an event loop; usable from any thread. See TaskJob."""

    def __init__(self, job: sync.Job, task: "Task[..., Any, R]") -> None:
        self.job = job
        self._task = task

    @property
    def id(self) -> str:
        """32 hex digits."""
        return self.job.id

    def value(self, timeout: float | None = None) -> R:
        """Wait for what the task returns. Raises as TaskJob.value does."""
        return self._task.value_of(self.job.result(timeout))

    def result(self, timeout: float | None = None) -> Ended:
        """Wait for the job's outcome, whatever it is."""
        return self.job.result(timeout)

    def cancel(self, why: str = "") -> None:
        """End the job as cancelled."""
        self.job.cancel(why)

    def __repr__(self) -> str:
        return f"<SyncTaskJob {self.id} {self._task.name}>"


class Task(Generic[P, C, R]):
    """A function of an app. Calling it just calls the function."""

    def __init__(self, app: "App", name: str, function: Callable[P, C], options: SubmitOptions) -> None:
        self.app = app
        self.name = name
        """The exec of its jobs."""
        self.function = function
        self.submit_options = options
        self.__doc__ = function.__doc__
        self.__module__ = function.__module__
        self.__name__ = getattr(function, "__name__", name)
        self.__qualname__ = getattr(function, "__qualname__", name)
        self.__wrapped__ = function
        self.run_job: Callable[[Job], Any] = self._run_async if is_async(function) else self._run_plain
        """The handler of its jobs."""
        self._types: TaskTypes | None = None

    @property
    def types(self) -> TaskTypes:
        """What its signature says. Raises TaskProblem for types that JSON cannot hold."""
        if self._types is None:
            self._types = TaskTypes(self.name, self.function)
        return self._types

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> C:
        """Call the function, here and now; the queue has nothing to do with it."""
        return self.function(*args, **kwargs)

    def options(self, **options: Unpack[SubmitOptions]) -> "Task[P, C, R]":
        """The same task with other options for what is submitted by it: `resize.options(delay=60).submit(…)`.
        They are those of Client.submit: key, headers, priority, delay, expires_in, timeout, tries_max, …"""
        changed = copy.copy(self)
        changed.submit_options = cast(SubmitOptions, {**self.submit_options, **options})
        return changed

    async def submit(self, *args: P.args, **kwargs: P.kwargs) -> TaskJob[R]:
        """Run it in a worker. Returns when the job is committed.

        Raises ArgumentsWrong when the arguments do not fit the signature (nothing was sent), and what
        Client.submit raises.
        """
        payload = self.types.payload_of(args, kwargs)
        client = await self.app.client()
        return TaskJob(await client.submit(self.name, payload, **self._submit_options()), self)

    def submit_sync(self, *args: P.args, **kwargs: P.kwargs) -> SyncTaskJob[R]:
        """The same without an event loop: from any thread, also in prefork servers. It blocks."""
        payload = self.types.payload_of(args, kwargs)
        job = self.app.client_sync().submit(self.name, payload, **self._submit_options())
        return SyncTaskJob(job, self)

    def value_of(self, outcome: Ended) -> R:
        """The value in an outcome of one of its jobs. Raises TaskFailed and ResultWrong."""
        if not outcome.ok:
            raise TaskFailed(
                name=self.name,
                job_id=outcome.job_id,
                state=outcome.state,
                error=f"{outcome.error_type}: {outcome.error}" if outcome.error_type else outcome.error,
                outcome=outcome,
            )
        try:
            return cast(R, self.types.result_of(outcome.result))
        except ValueError as error:
            raise ResultWrong(signature=self.types.shown, job_id=outcome.job_id, reason=str(error)) from error

    def _submit_options(self) -> SubmitOptions:
        return {"content_type": CONTENT_TYPE, **self.submit_options}

    # -- in the worker

    def _run_plain(self, job: Job) -> Outcome:
        call = self._call_of(job)
        return self._outcome_of(call()) if callable(call) else call

    async def _run_async(self, job: Job) -> Outcome:
        call = self._call_of(job)
        return self._outcome_of(await call()) if callable(call) else call

    def _call_of(self, job: Job) -> Callable[[], Any] | Outcome:
        try:
            args, kwargs = self.types.call_of(job.payload)
        except ValueError as error:
            return rejected(
                ArgumentsWrong.__name__,
                f"{error}. The task is {self.types.shown} here; perhaps its caller has another version.",
            )
        _CURRENT.set(job)
        function: Callable[..., Any] = self.function
        return lambda: function(*args, **kwargs)

    def _outcome_of(self, value: object) -> Outcome:
        try:
            outcome = outcome_of_result(self.types.result_bytes(value))
        except ValueError as error:
            return rejected(
                ResultWrong.__name__,
                f"the task returned what it does not say: {error}. It is {self.types.shown}.",
            )
        outcome.content_type = CONTENT_TYPE
        return outcome

    def __repr__(self) -> str:
        return f"<Task {self.name}>"


class TaskMaker(Protocol):
    """What `@app.task(…)` is: a decorator for plain and for async functions."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Task[P, Coroutine[Any, Any, R], R]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R, R]: ...


class App:
    """Tasks that belong together, and the way to the group that runs them.

    `name` goes before the names of its tasks (`shop.resize`). The rest is as for Client; without `servers`,
    ROLLMQ_SERVER. Nothing happens before a task is submitted or run.
    """

    def __init__(
        self,
        name: str = "",
        *,
        servers: str | None = None,
        client_id: str = "default",
        token: str | None = None,
        codec: Codec | None = None,
    ) -> None:
        self.name = name
        self.servers = servers
        self.client_id = client_id
        self.codec = codec
        self.tasks: dict[str, Task[..., Any, Any]] = {}
        self._handlers = Handlers()
        self.stand_in: Any = None
        """What takes the place of every client of this app: a queue of rollmq.testing."""
        self._token = token
        self._sync_clients: dict[int, sync.Client] = {}
        """By process: what was used before a fork is of no use behind it."""
        self._clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Kept] = (
            weakref.WeakKeyDictionary()
        )

    @overload
    def task(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Task[P, Coroutine[Any, Any, R], R]: ...

    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R, R]: ...

    @overload
    def task(
        self,
        /,
        *,
        name: str | None = None,
        processes: bool = False,
        max_jobs: int | None = None,
        **options: Unpack[SubmitOptions],
    ) -> TaskMaker: ...

    def task(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        processes: bool = False,
        max_jobs: int | None = None,
        **options: Unpack[SubmitOptions],
    ) -> Any:
        """Make a task of the function below, plain or async.

        `name` is the exec of its jobs, by default the function's. `processes` and `max_jobs` are those of
        Worker.handler, the options those of Client.submit: they hold for every job of the task, unless
        `task.options(…)` says otherwise. Raises TaskProblem and HandlerProblem.
        """

        def make(function: Callable[..., Any]) -> Task[..., Any, Any]:
            chosen = name or ".".join(filter(None, (self.name, getattr(function, "__name__", ""))))
            if chosen in self.tasks:
                raise TaskProblem(f"there are two tasks {chosen!r}. Give one of them another name=.")
            task: Task[..., Any, Any] = Task(self, chosen, function, options)
            self._handlers.add(
                make_handler(chosen, task.run_job, processes=processes, max_jobs=max_jobs, written=function)
            )
            self.tasks[chosen] = task
            return task

        return make if function is None else make(function)

    # -- running

    def handlers(self) -> list[Handler]:
        """Every task as a worker's handler. Raises TaskProblem for types that JSON cannot hold."""
        for task in self.tasks.values():
            task.types  # noqa: B018  (read now, and not by the first job)
        return list(self._handlers)

    def worker(self, **options: Any) -> Worker:
        """A worker that runs all its tasks; the options are those of Worker."""
        ours = {"servers": self.servers, "token": self._token, "codec": self.codec}
        worker = Worker(**{**ours, **options})
        for handler in self.handlers():
            worker.handlers.add(handler)
        return worker

    # -- submitting

    async def client(self) -> Client:
        """The client of the running loop. It is closed with the loop, or by `close`."""
        if self.stand_in is not None:
            return cast(Client, self.stand_in)
        loop = asyncio.get_running_loop()
        kept = self._clients.get(loop)
        if kept is None or kept.keeper.done():
            client = Client(self.servers, client_id=self.client_id, token=self._token, codec=self.codec)
            await client.__aenter__()
            kept = self._clients[loop] = _Kept(client, loop.create_task(_keep(client)))
        return kept.client

    def client_sync(self) -> sync.Client:
        """The client of this process for `submit_sync`. It is closed when the process ends."""
        client = self._sync_clients.get(os.getpid())
        if client is None:
            # One that loses the race against another thread is never used, so it never connects.
            made = sync.Client(self.servers, client_id=self.client_id, token=self._token, codec=self.codec)
            client = self._sync_clients.setdefault(os.getpid(), made)
        return client

    async def close(self) -> None:
        """Close the running loop's client, if there is one. That of `submit_sync` is not."""
        kept = self._clients.pop(asyncio.get_running_loop(), None)
        if kept is not None:
            kept.keeper.cancel()
            await asyncio.wait({kept.keeper})

    async def __aenter__(self) -> "App":
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<App {self.name or '(no name)'} tasks={len(self.tasks)}>"


class _Kept(NamedTuple):
    """A client and the task that closes it with its loop."""

    client: Client
    keeper: "asyncio.Task[None]"


async def _keep(client: Client) -> None:
    """Until the loop ends, which cancels what still runs on it."""
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        await client.close()
