"""Runs async handlers in the user's event loop.

Jobs come in batches and begin one after the other; those that end at their first step are told together. A
task exists only for handlers that wait. It never holds the loop longer than a turn, unless a handler does.
"""

import asyncio
import time
from collections import deque
from functools import partial
from typing import Final

from rollmq.library.eager import Eager
from rollmq.library.handling import begin_async, outcome_of_stop, step_async
from rollmq.library.held_job import HeldJob, Key, Outcome
from rollmq.library.kit import Ended, Kit
from rollmq.library.mailbox import Mailbox

TURN_NS: Final = 5_000_000
"""How long jobs are begun before everything else in the loop has its turn, and their ends are told."""

_now_ns = time.monotonic_ns


class LoopRunner:
    """The handlers of one loop. `start` and `stop` come from any thread, in this order for one job."""

    def __init__(self, loop: asyncio.AbstractEventLoop, kit: Kit) -> None:
        self._loop = loop
        self._kit = kit
        self._eager = Eager(loop, step_async)
        self._queue: deque[HeldJob] = deque()
        self._is_scheduled = False
        self._tasks: dict[Key, asyncio.Task[object]] = {}
        self._is_hurried = False
        self._starts = Mailbox[HeldJob](loop, self._take)
        self._stops = Mailbox[HeldJob](loop, self._cancel)

    def start(self, jobs: list[HeldJob]) -> None:
        """Run these."""
        self._starts.put_all(jobs)

    def stop(self, held: HeldJob) -> None:
        """Cancel this one, if it still runs."""
        self._stops.put(held)

    def hurry(self) -> None:
        """On the loop: cancel all, and hand them back; also those that still come."""
        self._is_hurried = True
        for task in [*self._tasks.values()]:
            task.cancel()

    def close(self) -> None:
        """On the loop: nothing begins any more."""
        self._is_hurried = True
        self._eager.close()

    def _take(self, jobs: list[HeldJob]) -> None:
        self._queue.extend(jobs)
        if not self._is_scheduled:
            self._turn()

    def _turn(self) -> None:
        self._is_scheduled = False
        queue, begin = self._queue, self._begin
        ended: list[Ended] = []
        now_ns = _now_ns()
        until_ns = now_ns + TURN_NS
        while queue:
            held = queue.popleft()
            outcome = begin(held, now_ns)
            began_ns, now_ns = now_ns, _now_ns()
            if outcome is not None:
                outcome.run_us = (now_ns - began_ns) // 1000
                ended.append((held, outcome))
            if now_ns >= until_ns and queue:
                self._is_scheduled = True
                self._loop.call_soon(self._turn)
                break
        if ended:
            self._kit.tell(ended)

    def _begin(self, held: HeldJob, now_ns: int) -> Outcome | None:
        """Its outcome, if it has one already."""
        if held.is_stopped or self._is_hurried:
            return outcome_of_stop(held, is_leaving=self._is_hurried)
        kit = self._kit
        job = kit.job_of(held)
        if type(job) is Outcome:
            return job
        try:
            item = self._eager.begin(begin_async, kit.handlers.of(held.exec).function, job)
        except asyncio.CancelledError:
            return outcome_of_stop(held, is_leaving=self._is_hurried)
        if type(item) is Outcome:
            return item
        assert isinstance(item, asyncio.Task)
        self._tasks[held.fence] = item
        item.add_done_callback(partial(self._done, held, now_ns))
        return None

    def _done(self, held: HeldJob, began_ns: int, task: asyncio.Task[object]) -> None:
        del self._tasks[held.fence]
        if task.cancelled():
            outcome = outcome_of_stop(held, is_leaving=self._is_hurried)
        else:
            result = task.result()
            assert type(result) is Outcome
            outcome = result
        outcome.run_us = (_now_ns() - began_ns) // 1000
        self._kit.tell([(held, outcome)])

    def _cancel(self, jobs: list[HeldJob]) -> None:
        for held in jobs:
            task = self._tasks.get(held.fence)
            if task is not None:
                task.cancel()
