"""Runs plain functions in threads: as many as run at once, made when they are needed.

A thread cannot be stopped from outside; a function that runs long may look at `job.is_stopped`. Programs run
from here too (command), and those can be stopped.
"""

import contextvars
import threading
from queue import SimpleQueue

from rollmq.library.command import Command
from rollmq.library.handling import outcome_of_stop, run_plain
from rollmq.library.held_job import HeldJob, Key, Outcome
from rollmq.library.kit import Kit


class ThreadRunner:
    """The threads of one worker. Its host starts no more jobs at once than there are hands."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit
        self._queue: SimpleQueue[HeldJob | None] = SimpleQueue()
        self._threads_count = 0
        self._running: dict[Key, HeldJob] = {}
        """As the host's thread knows it."""
        self._is_hurried = False

    def start(self, jobs: list[HeldJob]) -> None:
        """Run these. Always from one thread; `ended`, `stop` and `hurry` from the same."""
        for held in jobs:
            self._running[held.fence] = held
            self._queue.put(held)
        # A thread that told an outcome is back at the queue: so many are enough for every job at once.
        while self._threads_count < len(self._running):
            self._threads_count += 1
            # They do not keep the process: one that never ends could not be stopped otherwise.
            threading.Thread(target=self._run, name=f"rollmq-hand-{self._threads_count}", daemon=True).start()

    def ended(self, held: HeldJob) -> None:
        """The outcome of one job has been heard."""
        del self._running[held.fence]

    def stop(self, held: HeldJob) -> None:
        """Kill it, if it is a program."""
        function = self._kit.handlers.of(held.exec).function
        if isinstance(function, Command):
            function.stop(held.fence)

    def hurry(self) -> list[HeldJob]:
        """Kill programs; their jobs are handed back. What cannot be stopped is returned."""
        self._is_hurried = True
        for held in self._running.values():
            held.is_stopped = True
            self.stop(held)
        return [
            held
            for held in self._running.values()
            if not isinstance(self._kit.handlers.of(held.exec).function, Command)
        ]

    def close(self) -> None:
        """Threads end when they are idle. Does not wait."""
        for _ in range(self._threads_count):
            self._queue.put(None)

    def _run(self) -> None:
        kit = self._kit
        while (held := self._queue.get()) is not None:
            outcome = self._run_one(held)
            if outcome.what and (self._is_hurried or held.is_stopped):
                outcome = outcome_of_stop(held, is_leaving=self._is_hurried)
            kit.tell(((held, outcome),))

    def _run_one(self, held: HeldJob) -> Outcome:
        job = self._kit.job_of(held)
        if isinstance(job, Outcome):
            return job
        # A context of its own: what one job sets is not there for the next.
        return contextvars.Context().run(run_plain, self._kit.handlers.of(held.exec).function, job)
