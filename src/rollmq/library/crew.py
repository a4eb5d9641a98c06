"""All the hands of a worker: the loop, the threads and the children, as one.

It spreads what begins and stops to where the handler runs, and decides nothing. The methods are called in
the connection's thread unless they say otherwise.
"""

import asyncio

from rollmq.library.handlers import Handlers, Where
from rollmq.library.held_job import HeldJob
from rollmq.library.kit import Kit, Reports
from rollmq.library.loop_runner import LoopRunner
from rollmq.library.payload_codec import Codec
from rollmq.library.process_runner import ProcessRunner
from rollmq.library.thread_runner import ThreadRunner


class Crew:
    """Made in the loop in which async handlers are to run."""

    def __init__(
        self, handlers: Handlers, *, hands: int, reports: Reports, codec: Codec | None = None
    ) -> None:
        self._handlers = handlers
        self._is_async_only = all(handler.where is Where.LOOP for handler in handlers)
        kit = Kit(handlers, reports, codec)
        self._user_loop = asyncio.get_running_loop()
        self._loop = LoopRunner(self._user_loop, kit)
        self._threads = ThreadRunner(kit)
        self._processes = ProcessRunner(kit, hands=hands)

    def start(self, jobs: list[HeldJob]) -> None:
        """Run these: the node was told."""
        if self._is_async_only:
            self._loop.start(jobs)
            return
        by_place: dict[Where, list[HeldJob]] = {where: [] for where in Where}
        for held in jobs:
            by_place[self._handlers.of(held.exec).where].append(held)
        if begun := by_place[Where.LOOP]:
            self._loop.start(begun)
        if begun := by_place[Where.THREAD]:
            self._threads.start(begun)
        if begun := by_place[Where.PROCESS]:
            self._processes.start(begun)

    def stop(self, held: HeldJob) -> None:
        """Stop it where that is possible."""
        where = self._handlers.of(held.exec).where
        if where is Where.LOOP:
            self._loop.stop(held)
        elif where is Where.THREAD:
            self._threads.stop(held)
        else:
            self._processes.stop(held)

    def ended(self, held: HeldJob) -> None:
        """Its outcome was heard: the hand is free."""
        if self._is_async_only:
            return
        where = self._handlers.of(held.exec).where
        if where is Where.THREAD:
            self._threads.ended(held)
        elif where is Where.PROCESS:
            self._processes.ended(held)

    def hurry(self) -> list[HeldJob]:
        """Stop everything that can be stopped, and hand it back. What cannot be is returned."""
        self._user_loop.call_soon_threadsafe(self._loop.hurry)
        self._processes.hurry()
        return self._threads.hurry()

    def close(self) -> None:
        """On the user's loop, when the connection's thread has ended: nothing begins any more."""
        self._loop.close()
        self._threads.close()
        self._processes.close()

    def join(self, timeout_s: float) -> None:
        """Wait for the children of a closed crew. Blocking."""
        self._processes.join(timeout_s)
