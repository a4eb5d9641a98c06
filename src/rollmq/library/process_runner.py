"""Runs handlers in child processes: one job at a time in each, as many as run at once.

A thread per child waits for it, so that neither the connection nor the user's loop does. A job that is
stopped has its child killed; the next one gets a new child.
"""

import threading
import time
from queue import SimpleQueue

from rollmq.library.child_process import ChildProcess
from rollmq.library.handlers import Handler
from rollmq.library.handling import failed, outcome_of_stop
from rollmq.library.held_job import HeldJob, Outcome
from rollmq.library.kit import Kit


class ProcessRunner:
    """The children of one worker. `start`, `ended`, `stop` and `hurry` come from one thread, the host's."""

    def __init__(self, kit: Kit, *, hands: int) -> None:
        self._kit = kit
        self._hands = hands
        self._keepers: list[Keeper] = []
        self._is_hurried = False

    def start(self, jobs: list[HeldJob]) -> None:
        """Run these."""
        for held in jobs:
            self._keeper_for(self._kit.handlers.of(held.exec)).run(held)

    def ended(self, held: HeldJob) -> None:
        """The outcome of one job has been heard."""
        for keeper in self._keepers:
            if keeper.held is held:
                keeper.held = None

    def stop(self, held: HeldJob) -> None:
        """Kill the child that runs it."""
        for keeper in self._keepers:
            if keeper.held is held:
                keeper.kill(held)

    def hurry(self) -> None:
        """Kill them all; their jobs are handed back."""
        for keeper in self._keepers:
            keeper.is_hurried = True
            if keeper.held is not None:
                keeper.kill(keeper.held)

    def close(self) -> None:
        """No more jobs come: children end when they are idle. Does not wait."""
        for keeper in self._keepers:
            keeper.leave()

    def join(self, timeout_s: float) -> None:
        """Wait for the children of a closed runner."""
        until = time.monotonic() + timeout_s
        for keeper in self._keepers:
            keeper.join(max(until - time.monotonic(), 0))

    def _keeper_for(self, handler: Handler) -> "Keeper":
        idle = [keeper for keeper in self._keepers if keeper.held is None]
        for keeper in idle:
            if keeper.handler is handler:
                return keeper
        if len(self._keepers) >= self._hands:
            # All of another function, and there are as many processes as there may be.
            assert idle, "more jobs at once than hands"
            idle[0].leave()
            self._keepers.remove(idle[0])
        keeper = Keeper(handler, self._kit)
        self._keepers.append(keeper)
        return keeper


class Keeper:
    """A thread and the child that it waits for, with a new one whenever the last has ended."""

    def __init__(self, handler: Handler, kit: Kit) -> None:
        self.handler = handler
        self.held: HeldJob | None = None
        """What it runs, as the host's thread knows it."""
        self.is_hurried = False
        self._kit = kit
        self._queue: SimpleQueue[HeldJob | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._running: HeldJob | None = None
        self._child: ChildProcess | None = None
        """Both under the lock: a kill must hit the child of this very job."""
        self._thread = threading.Thread(target=self._main, name="rollmq-child", daemon=True)
        self._thread.start()

    def run(self, held: HeldJob) -> None:
        """Its outcome is told to the kit."""
        self.held = held
        self._queue.put(held)

    def kill(self, held: HeldJob) -> None:
        """Kill the child, if it runs this job."""
        with self._lock:
            if self._running is held and self._child is not None:
                self._child.kill()
                self._child.is_over = True  # Also if the job has just ended: no other one is for this child.

    def leave(self) -> None:
        """End when idle."""
        self._queue.put(None)

    def join(self, timeout_s: float) -> None:
        """Wait for that."""
        self._thread.join(timeout_s)

    def _main(self) -> None:
        while (held := self._queue.get()) is not None:
            outcome = self._run(held)
            self._kit.tell(((held, outcome),))
            child = self._child
            if child is not None and child.is_over:
                # After the outcome was told, and before the next job, whose time would run meanwhile.
                self._child = ChildProcess(self.handler)
                child.leave()
        if self._child is not None:
            self._child.leave()

    def _run(self, held: HeldJob) -> Outcome:
        child, outcome = self._child, None
        if child is not None and not child.is_over:
            outcome = self._run_in(child, held)
        if outcome is None and not held.is_stopped:
            # There is no child yet, or it died while it was idle: that costs no job a try.
            outcome = self._run_in(ChildProcess(self.handler), held)
        if outcome is None or (outcome.what and (self.is_hurried or held.is_stopped)):
            return self._stopped(held)
        return outcome

    def _stopped(self, held: HeldJob) -> Outcome:
        if self.is_hurried or held.is_stopped:
            return outcome_of_stop(held, is_leaving=self.is_hurried)
        return failed("ProcessEnded", "the child process ended before the handler began")

    def _run_in(self, child: ChildProcess, held: HeldJob) -> Outcome | None:
        with self._lock:
            self._child, self._running = child, held
        outcome = None
        if not held.is_stopped and not self.is_hurried:
            job = self._kit.job_of(held)
            outcome = job if isinstance(job, Outcome) else child.run(held, job.payload, self._kit.port)
        with self._lock:
            self._running = None
        return outcome
