"""The one thread that works on the disk: in order, off the event loop. It decides nothing.

Writes, seals, folds and looks at the free space all go through it, so the store needs no lock. What fails in
it ends the node: after a failed write nobody knows what is on disk (rule 4).
"""

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Final, NamedTuple

STACK_NAME: Final = "rollmq-store"


class Work(NamedTuple):
    """Something to do in the thread, and what the loop does with its result."""

    do: Callable[[], Any]
    then: Callable[[Any], None]


class StoreThread:
    """Runs one piece of work at a time, first come, first served."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_failure: Callable[[BaseException], None]) -> None:
        self._loop = loop
        self._on_failure = on_failure
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=STACK_NAME, daemon=True)
        self._thread.start()

    def do(self, do: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """Do it in the thread; `then` gets the result in the loop."""
        self._queue.put(Work(do, then))

    def stop(self) -> None:
        """Finish what was asked for, then end. Blocks: call it when nothing is served any more."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            try:
                result = work.do()
            except BaseException as error:  # a thread's death must not pass unseen: the loop stops the node
                self._loop.call_soon_threadsafe(self._on_failure, error)
                return
            self._loop.call_soon_threadsafe(work.then, result)
