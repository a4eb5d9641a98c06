"""A worker without a process: the library's WorkerCore on a line, and handlers called where the test runs.

Plain functions are called at once, one after the other, by whoever lets the queue run; coroutines run as
tasks of the running event loop. Which job begins when, and what its end means, is the core's to say.
"""

import asyncio
import contextvars
from collections import deque
from collections.abc import Iterable
from typing import Any, Protocol

import msgspec

from rollmq.library.handlers import Handler, Handlers, Where, is_async
from rollmq.library.handling import run_plain
from rollmq.library.held_job import HeldJob, Outcome
from rollmq.library.job import Job
from rollmq.library.kit import Ended, Kit
from rollmq.library.loop_runner import LoopRunner
from rollmq.library.payload_codec import Codec
from rollmq.library.worker_core import WorkerCore, WorkerProfile
from rollmq.testing.line import Line
from rollmq.testing.virtual_node import VirtualNode


class Hub(Protocol):
    """What hands need of the queue that they belong to."""

    node: VirtualNode
    inside: contextvars.ContextVar[bool]
    """Whether the code that asks is a handler's."""

    def moved(self) -> None:
        """Something has happened."""


class Hands:
    """One worker of a test."""

    def __init__(
        self,
        hub: Hub,
        handlers: Iterable[Handler],
        *,
        worker_id: str,
        instance: str,
        hands: int,
        codec: Codec | None,
    ) -> None:
        self._hub = hub
        self.handlers = Handlers()
        for handler in handlers:
            self.handlers.add(self._adapted(handler))
        self.worker_id = worker_id
        profile = WorkerProfile(worker_id, instance, self.handlers.patterns(), hands=hands)
        self.core = WorkerCore(profile, takes=lambda name: self.handlers.find(name) is not None)
        self.line = Line(hub.node, self.core)
        self.tasks_count = 0
        """Coroutines that have begun, or are about to, and have not ended."""
        self._waiting: deque[HeldJob] = deque()
        """To be begun."""
        self._kit = Kit(self.handlers, self, codec)
        self._runner: LoopRunner | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._escaped: BaseException | None = None
        self._is_gone = False

    def _adapted(self, handler: Handler) -> Handler:
        """The same handler, run here: there are no threads and child processes in a test."""
        function = handler.function
        if is_async(function):

            async def run(job: Job) -> Any:
                self._hub.inside.set(True)
                return await function(job)

            return msgspec.structs.replace(handler, function=run, where=Where.LOOP)

        def call(job: Job) -> Any:
            self._hub.inside.set(True)
            try:
                return function(job)
            except (KeyboardInterrupt, GeneratorExit) as error:
                self._escaped = error
                raise

        return msgspec.structs.replace(handler, function=call, where=Where.THREAD)

    # -- running

    def look(self) -> bool:
        """Take what the core wants done. Whether there was anything."""
        stops, starts = self.core.take_stops(), self.core.take_starts()
        for held in stops:
            if self._runner is not None:
                self._runner.stop(held)
        self._waiting.extend(starts)
        return bool(stops or starts)

    @property
    def has_plain(self) -> bool:
        """Whether a plain function is to be called."""
        return any(self._where(held) is Where.THREAD for held in self._waiting)

    @property
    def has_async(self) -> bool:
        """Whether a coroutine is to be begun."""
        return any(self._where(held) is Where.LOOP for held in self._waiting)

    def _where(self, held: HeldJob) -> Where:
        return self.handlers.of(held.exec).where

    def call_next(self) -> None:
        """Call the next plain function, to its end."""
        held = next(held for held in self._waiting if self._where(held) is Where.THREAD)
        self._waiting.remove(held)
        # A context of its own: what one job sets is not there for the next, nor for the test.
        outcome = contextvars.copy_context().run(self._run_plain, held)
        outcome.run_us = max(self._hub.node.now_us - held.started_us, 0)
        self._kit.tell([(held, outcome)])
        escaped, self._escaped = self._escaped, None
        if escaped is not None:
            raise escaped

    def _run_plain(self, held: HeldJob) -> Outcome:
        job = self._kit.job_of(held)
        return job if isinstance(job, Outcome) else run_plain(self.handlers.of(held.exec).function, job)

    def begin_async(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin the coroutines on this loop, which runs."""
        if self._runner is None or self._loop is not loop:
            if self._runner is not None:
                self._runner.close()
            self._runner, self._loop = LoopRunner(loop, self._kit), loop
        begun = [held for held in self._waiting if self._where(held) is Where.LOOP]
        self._waiting = deque(held for held in self._waiting if self._where(held) is Where.THREAD)
        self.tasks_count += len(begun)
        self._runner.start(begun)

    def tell(self, ended: Iterable[Ended]) -> None:
        """Handlers have ended."""
        for held, outcome in ended:
            if self._where(held) is Where.LOOP:
                self.tasks_count -= 1
                outcome.run_us = max(self._hub.node.now_us - held.started_us, 0)
            if not self._is_gone:
                self.core.finished(held, outcome)
        if not self._is_gone:
            self.core.settle()
        self._hub.moved()

    # -- what handlers say

    def progress(self, held: HeldJob, data: bytes, key_id: str = "") -> None:
        """Pass it on."""
        self.core.progress(held, data, key_id=key_id)
        self._hub.moved()

    def extend(self, held: HeldJob, extend_us: int) -> None:
        """Ask for more time."""
        self.core.extend(held, extend_us)
        self._hub.moved()

    # -- ends

    def kill(self) -> None:
        """The process is gone, with all that it held, and nobody is told but by the broken connection."""
        self._is_gone = True
        self._waiting.clear()
        self.line.cut()
        if self._runner is not None:
            self._runner.hurry()
        self._hub.moved()

    def close(self) -> None:
        """The test is over."""
        self._is_gone = True
        if self._runner is not None and self._loop is not None and not self._loop.is_closed():
            self._runner.hurry()
            self._runner.close()
