"""Things that are due at a time, earliest first, where most are cancelled before.

Cancelling leaves a stale entry behind; when stale entries outnumber live ones they are swept out,
so memory stays bounded by what is live and the cost per entry stays logarithmic.
"""

from collections.abc import Callable, Hashable, Iterator
from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeVar

T = TypeVar("T", bound=Hashable)

SWEEP_FROM: Final = 256
"""Below this many entries sweeping costs more than it frees."""


class Timers(Generic[T]):
    """A heap of (due_us, number, item). An entry is live while `is_live(item, due_us)` says so.

    A cancelled item that is pushed again for the same time has two entries that look live: whoever takes
    out the first one makes the other stale, and a sweep keeps one.
    """

    def __init__(self, is_live: Callable[[T, int], bool]) -> None:
        self._is_live = is_live
        self._heap: list[tuple[int, int, T]] = []
        self._number = 0
        self._stale_count = 0

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def next_due_us(self) -> int | None:
        """A lower bound of when the next live entry is due; null when there is none."""
        return self._heap[0][0] if self._heap else None

    def push(self, due_us: int, item: T) -> None:
        """Remember the item; an equal due time keeps the order of pushing."""
        self._number += 1
        heappush(self._heap, (due_us, self._number, item))

    def cancelled(self) -> None:
        """Tell that one entry has just become stale."""
        self._stale_count += 1
        if len(self._heap) > SWEEP_FROM and self._stale_count * 2 > len(self._heap):
            live = {(e[0], e[2]): e for e in self._heap if self._is_live(e[2], e[0])}
            self._heap = list(live.values())
            heapify(self._heap)
            self._stale_count = 0

    def pop_due(self, now_us: int) -> Iterator[T]:
        """Take out every live entry that is due, earliest first. Stop whenever you like."""
        heap = self._heap
        while heap and heap[0][0] <= now_us:
            due_us, _, item = heappop(heap)
            if self._is_live(item, due_us):
                yield item
                heap = self._heap  # a sweep while the caller worked may have replaced it
            elif self._stale_count:
                self._stale_count -= 1
