"""Runs plain functions in threads: as many as run at once, made when they are needed.

A thread cannot be stopped from outside; a function that runs long may look at `job.is_stopped`.
"""

import contextvars
import threading
from queue import SimpleQueue

from rollmq.library.handling import run_plain
from rollmq.library.held_job import HeldJob
from rollmq.library.kit import Kit


class ThreadRunner:
    """The threads of one worker. Its host starts no more jobs at once than there are hands."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit
        self._queue: SimpleQueue[HeldJob | None] = SimpleQueue()
        self._threads_count = 0
        self._running_count = 0

    def start(self, jobs: list[HeldJob]) -> None:
        """Run these. Always from one thread, `ended` from the same."""
        self._running_count += len(jobs)
        for held in jobs:
            self._queue.put(held)
        # A thread that told an outcome is back at the queue: so many are enough for every job at once.
        while self._threads_count < self._running_count:
            self._threads_count += 1
            # They do not keep the process: one that never ends could not be stopped otherwise.
            threading.Thread(target=self._run, name=f"rollmq-hand-{self._threads_count}", daemon=True).start()

    def ended(self) -> None:
        """The outcome of one job has been heard."""
        self._running_count -= 1

    def close(self) -> None:
        """Threads end when they are idle. Does not wait."""
        for _ in range(self._threads_count):
            self._queue.put(None)

    def _run(self) -> None:
        kit = self._kit
        while (held := self._queue.get()) is not None:
            function = kit.handlers.of(held.exec).function
            # A context of its own: what one job sets is not there for the next.
            outcome = contextvars.Context().run(run_plain, function, kit.job_of(held))
            kit.tell(((held, outcome),))
