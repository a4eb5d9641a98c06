"""Things from any thread to one loop, as many at once as have gathered.

A single call wakes the loop for whatever was put until it looks: at fifty thousand jobs a second the waking,
not the work, would be the price. What is put when nobody listens any more is dropped.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class Mailbox(Generic[T]):
    """Takes from anywhere, gives to `take` on the loop, in the order in which it came.

    Invariant: if something lies here, `_is_called` is true or about to be, so the loop will look.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, take: Callable[[list[T]], None]) -> None:
        self._loop = loop
        self._take = take
        self._items: deque[T] = deque()
        self._is_called = False

    def put(self, item: T) -> None:
        """From any thread."""
        self._items.append(item)
        if not self._is_called:
            self._call()

    def put_all(self, items: Iterable[T]) -> None:
        """The same for several; no other thread's come between them."""
        self._items.extend(items)
        if not self._is_called:
            self._call()

    def _call(self) -> None:
        self._is_called = True
        # The loop is closed: whoever listened has gone, and what is put here concerns nobody.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        # First, so that what is put from here on calls again; then only as many as lie here now.
        self._is_called = False
        take_one = self._items.popleft
        self._take([take_one() for _ in range(len(self._items))])
