"""An event loop in a thread of its own, for those who have none: it runs what they want, and they wait.

It knows nothing of what it runs. After a fork the thread is the parent's alone, so the child is told so.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

import uvloop

from rollmq.errors import ClientForked

T = TypeVar("T")
JOIN_S: Final = 10.0


class LoopThread:
    """A loop that runs from the making of this until `stop`."""

    def __init__(self, name: str) -> None:
        self._pid = os.getpid()
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def is_ours(self) -> bool:
        """The thread runs in this process; it does not come along into a forked one."""
        return self._pid == os.getpid()

    def check(self) -> None:
        """Raise ClientForked if the thread is another process's."""
        if not self.is_ours:
            raise ClientForked()

    def wait_for(self, what: Coroutine[Any, Any, T]) -> T:
        """Run it on the loop and wait for its end; given up (Ctrl-C), it is cancelled there."""
        assert threading.current_thread() is not self._thread, (
            "called from its own loop, it would wait for ever"
        )
        running = asyncio.run_coroutine_threadsafe(what, self._loop)
        try:
            return running.result()
        except BaseException:
            running.cancel()
            raise

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Call it on the loop, soon; nobody waits."""
        self._loop.call_soon_threadsafe(function, *arguments)

    def call_at_turns_end(self, function: Callable[[], object]) -> None:
        """The same, for those who are on the loop already."""
        self._loop.call_soon(function)

    def stop(self) -> None:
        """End the loop and the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(JOIN_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()
