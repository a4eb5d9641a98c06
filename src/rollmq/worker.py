"""Worker: runs jobs. The public face of the library's worker half.

    worker = Worker("127.0.0.1:5000", hands=8)

    @worker.handler("image.resize")
    async def resize(job):
        return b"..."

    asyncio.run(worker.run())

It holds options and handlers; the connection is in library/worker_thread, handlers run in library/crew.
"""

import asyncio
import contextlib
import os
import random
import re
import secrets
import socket
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from rollmq import __version__, limits
from rollmq.errors import HandlerProblem
from rollmq.library.child import is_child
from rollmq.library.child_process import ChildProcess
from rollmq.library.crew import Crew
from rollmq.library.handlers import Handler, Handlers, Where, check_patterns, check_place, make_handler
from rollmq.library.job import Job
from rollmq.library.payload_codec import Codec
from rollmq.library.route import Route
from rollmq.library.worker_core import WorkerCore, WorkerProfile
from rollmq.library.worker_thread import HURRY_S, WorkerThread
from rollmq.wire.headers import NameOrNone, Token, WorkerId

__all__ = ["Job", "Worker"]

F = TypeVar("F", bound=Callable[..., Any])

END_S: Final = 2 * HURRY_S + 2.0
"""How long a run that is cancelled takes at most to stop its handlers, hand their jobs back and leave."""
JOIN_S: Final = 5.0


class Worker:
    """Takes jobs from a group and runs each by the handler of its exec.

    `servers` is `host:port`, several with commas; without it ROLLMQ_SERVER. `worker_id` must be unique among
    the group's workers; without it one is made of host and process. `patterns` are those of its handlers
    unless given. `hands` is how many jobs run at once; `credit` how many it holds, running ones included:
    twice the hands, and the hands alone once jobs run longer than a second. `codec` is that of the clients.

    Nothing happens before `run`. Raises HandlerProblem for options that make no worker.
    """

    def __init__(
        self,
        servers: str | None = None,
        *,
        worker_id: str | None = None,
        patterns: Sequence[str] | None = None,
        hands: int = 8,
        credit: int | None = None,
        codec: Codec | None = None,
        token: str | None = None,
        release: str = "",
    ) -> None:
        self.servers = servers
        self.worker_id = worker_id or make_worker_id()
        self.hands = hands
        self.credit = credit
        self.codec = codec
        self.release = release
        self.patterns = tuple(patterns) if patterns is not None else None
        """As they were given; None: those of the handlers."""
        self.handlers = Handlers()
        self._token = token
        self._thread: WorkerThread | None = None
        self._is_stopping = False
        self._check_options()

    def _check_options(self) -> None:
        _check_range("hands", self.hands, limits.WORKER_HANDS_MAX)
        if self.credit is not None:
            _check_range("credit", self.credit, limits.WORKER_HELD_MAX)
        for name, value, kind in (
            ("worker_id", self.worker_id, WorkerId),
            ("release", self.release, NameOrNone),
            ("token", self._token or "", Token),
        ):
            try:
                msgspec.convert(value, kind)
            except msgspec.ValidationError as error:
                shown = "it" if name == "token" else repr(value)
                raise HandlerProblem(f"{name}: {shown} cannot be used: {error}.") from error

    def handler(self, exec: str, *, processes: bool = False, max_jobs: int | None = None) -> Callable[[F], F]:
        """Register the function below as the handler of an exec, or of a pattern of execs.

        It is called with a Job and returns bytes or None. An `async def` runs in the loop of `run`, a plain
        function in a thread; with `processes` either runs in a child process, which is killed when its job is
        cancelled or over its time, and replaced after `max_jobs`. Raises HandlerProblem.
        """

        def register(function: F) -> F:
            self.handlers.add(make_handler(exec, function, processes=processes, max_jobs=max_jobs))
            return function

        return register

    async def run(self) -> None:
        """Work until `stop` is called, then finish what runs.

        It reconnects by itself for as long as it takes. Raises what makes that useless (NotAuthorized,
        WrongGroup, …), HandlerProblem before it has begun, and when it is cancelled hands its jobs back.
        """
        await self._check()
        loop = asyncio.get_running_loop()
        over = asyncio.Event()
        core = WorkerCore(self._profile(), takes=lambda name: self.handlers.find(name) is not None)

        def on_over() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(over.set)

        self._thread = thread = WorkerThread(
            core,
            Route(self._servers(), random.random),
            make_crew=lambda thread: Crew(self.handlers, hands=self.hands, reports=thread, codec=self.codec),
            on_over=on_over,
        )
        thread.start()
        if self._is_stopping:
            thread.drain()
        try:
            await over.wait()
        except asyncio.CancelledError:
            thread.hurry()
            await asyncio.wait({loop.create_task(over.wait())}, timeout=END_S)
            raise
        finally:
            self._thread = None
            thread.crew.close()
            await asyncio.to_thread(thread.join, JOIN_S)
            await asyncio.to_thread(thread.crew.join, JOIN_S)
        error = thread.failure or core.fatal
        if error is not None:
            raise error

    def stop(self, *, now: bool = False) -> None:
        """Take nothing more, hand back what has not begun, finish what runs; then `run` returns.

        `now`: do not wait for what runs. It is cancelled or killed and handed back, as a try; a plain
        function in a thread runs on until the process ends. May be called from any thread and from signal
        handlers.
        """
        self._is_stopping = True
        thread = self._thread
        if thread is not None and now:
            thread.hurry()
        elif thread is not None:
            thread.drain()

    # -- inside

    async def _check(self) -> None:
        if is_child():
            raise HandlerProblem(
                "a worker was started while a child process imported the main script. Start it under "
                '`if __name__ == "__main__":`.'
            )
        if self._thread is not None:
            raise HandlerProblem("this worker runs already. Make another one, with an id of its own.")
        if not self.handlers:
            raise HandlerProblem(
                "this worker has no handlers: register one with @worker.handler(exec) before it runs."
            )
        check_patterns(self._patterns(), self.handlers)
        for handler in self.handlers:
            if handler.where is Where.PROCESS:
                check_place(handler)
                # A child that cannot begin is found now, and not by the first job's failing.
                await asyncio.to_thread(_try_child, handler)

    def _patterns(self) -> tuple[str, ...]:
        return self.handlers.patterns() if self.patterns is None else self.patterns

    def _servers(self) -> str:
        return self.servers or os.environ.get("ROLLMQ_SERVER", "")

    def _profile(self) -> WorkerProfile:
        token = os.environ.get("ROLLMQ_TOKEN", "") if self._token is None else self._token
        return WorkerProfile(
            worker_id=self.worker_id,
            instance=secrets.token_hex(8),
            patterns=self._patterns(),
            hands=self.hands,
            credit=self.credit,
            host=socket.gethostname()[: limits.ID_CHARS_MAX],
            release=self.release or f"rollmq {__version__}",
            token=token,
        )


def make_worker_id() -> str:
    """Host, process and some chance: containers share the first two."""
    host = re.sub(r"[^A-Za-z0-9_-]", "-", socket.gethostname().split(".")[0])[:64]
    return f"{host or 'worker'}-{os.getpid()}-{secrets.token_hex(2)}"


def _check_range(name: str, value: int, value_max: int) -> None:
    if not 1 <= value <= value_max:
        raise HandlerProblem(f"{name}={value} makes no worker: 1 to {value_max:,} are possible.")


def _try_child(handler: Handler) -> None:
    child = ChildProcess(handler)
    child.wait_ready()
    child.leave()
