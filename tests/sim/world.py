"""Virtual time: a queue of things that will happen, one random generator, and the trace of what did.

Nothing here, and nothing that is built on it, reads a clock or depends on the order of a set: the seed
alone decides a run, so a failure can be repeated as often as it takes to understand it.
"""

import hashlib
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Final

SECOND_US: Final = 1_000_000
LINES_KEPT: Final = 400


class Violation(AssertionError):
    """A promise was broken, or the simulated system contradicts itself."""


class Timer:
    """Something that will happen, unless it is cancelled."""

    __slots__ = ("call", "due_us")

    def __init__(self, due_us: int, call: Callable[[], None]) -> None:
        self.due_us = due_us
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        """It will not happen."""
        self.call = None


class World:
    """One run: its time, its chance, its trace."""

    def __init__(self, seed: int | str, *, echo: Callable[[str], None] | None = None) -> None:
        self.seed = seed
        self.random = Random(f"world/{seed}")
        self.now_us = 0
        """True time since the run began. What a node takes for the time is its own affair."""
        self.is_calm = False
        """The storm is over: no new faults."""
        self.lines: deque[str] = deque(maxlen=LINES_KEPT)
        self.events_count = 0
        self._echo = echo
        self._sha = hashlib.sha256()
        self._heap: list[tuple[int, int, Timer]] = []
        self._number = 0

    # -- time

    def after(self, delay_us: int, call: Callable[[], None]) -> Timer:
        """Let something happen so much later; equal times keep the order of asking."""
        timer = Timer(self.now_us + max(delay_us, 0), call)
        self._number += 1
        heappush(self._heap, (timer.due_us, self._number, timer))
        return timer

    def run(self, until_us: int, is_over: Callable[[], bool] | None = None) -> None:
        """Let time pass up to a moment, or until it is over."""
        heap = self._heap
        while heap and heap[0][0] <= until_us:
            due_us, _, timer = heappop(heap)
            call = timer.call
            if call is None:
                continue
            self.now_us = due_us
            self.events_count += 1
            call()
            if is_over is not None and self.events_count % 16 == 0 and is_over():
                return
        self.now_us = max(self.now_us, until_us)

    # -- chance

    def happens(self, probability: float) -> bool:
        """Whether something of this probability happens; a zero draws nothing."""
        return probability > 0 and self.random.random() < probability

    def between(self, span: tuple[int, int]) -> int:
        """A number of a range, small ones more often: most delays are short and a few are long."""
        low, high = span
        return low + int((high - low) * self.random.random() ** 3)

    def rarely(self, mean_us: int) -> int:
        """When a thing happens next that happens every mean_us on average."""
        return int(self.random.expovariate(1.0) * mean_us) + 1

    # -- the trace

    def say(self, who: str, what: str) -> None:
        """Note what happened."""
        line = f"{self.now_us / 1e6:12.6f} {who:<10} {what}"
        self._sha.update(line.encode())
        self.lines.append(line)
        if self._echo is not None:
            self._echo(line)

    def digest(self) -> str:
        """Of all that was noted: two runs of one seed must agree in it."""
        return self._sha.hexdigest()
