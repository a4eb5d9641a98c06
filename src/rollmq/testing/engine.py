"""Moves a test's queue: messages until all is said, handlers where they can run, time when nothing else can.

Both faces of the queue, with and without `await`, stand on this. The rule is Temporal's: while a handler
works, time stands still; when everybody waits, it jumps to the next moment at which something is due.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from contextvars import ContextVar
from typing import Any, Final, TypeVar

from rollmq.errors import HandlerHangs
from rollmq.library.client_core import ClientCore, ClientProfile
from rollmq.library.dialog import NEVER_US
from rollmq.library.handlers import Handler
from rollmq.library.payload_codec import Codec
from rollmq.testing.hands import Hands
from rollmq.testing.line import Line
from rollmq.testing.virtual_node import VirtualNode

T = TypeVar("T")

TURNS: Final = 5
"""Rounds that everything else in the event loop gets before time goes on without it."""
HANG_S: Final = 30.0
"""Real time for which a test waits for coroutines of which none ends and none asks for anything."""
LONGEST_US: Final = 10 * 366 * 86_400 * 1_000_000
"""Nobody waits longer than this in a test: whatever is due later will not be seen."""


class Engine:
    """The node, everybody who is connected to it, and its time."""

    def __init__(self, *, wall_us: int, seed: int) -> None:
        self.node = VirtualNode(wall_us=wall_us, seed=seed)
        self.clients: list[Line] = []
        self.workers: dict[str, Hands] = {}
        self.inside = ContextVar("inside", default=False)
        self.moves_count = 0
        """Grows whenever anything happens."""
        self._hired_count = 0
        self._blocked_count = 0
        """Coroutines of handlers that wait for the queue themselves."""
        self._wakers: list[asyncio.Future[None]] = []
        self._own_loop: asyncio.AbstractEventLoop | None = None

    # -- who is there

    def hire(self, handlers: Iterable[Handler], *, hands: int, codec: Codec | None) -> str:
        """A worker with these handlers; its id."""
        self._hired_count += 1
        worker_id = f"worker{self._hired_count}"
        instance = f"{worker_id}.1"
        self.workers[worker_id] = Hands(
            self, handlers, worker_id=worker_id, instance=instance, hands=hands, codec=codec
        )
        self.talk()
        return worker_id

    def client(self, profile: ClientProfile) -> ClientCore:
        """A client's session."""
        chance = self.node.chance
        core = ClientCore(profile, bits=chance.getrandbits, chance=chance.random)
        self.clients.append(Line(self.node, core))
        self.talk()
        return core

    # -- messages

    def moved(self) -> None:
        """Something has happened: whoever waits looks again."""
        self.moves_count += 1
        wakers, self._wakers = self._wakers, []
        for waker in wakers:
            if not waker.done():
                waker.get_loop().call_soon_threadsafe(_wake, waker)

    def talk(self) -> None:
        """Let everybody say what there is to say; no handler begins."""
        is_moving = True
        while is_moving:
            is_moving = self.node.turn()
            for line in [*self.clients, *(hands.line for hands in self.workers.values())]:
                is_moving |= line.move()
            for hands in self.workers.values():
                is_moving |= hands.look()
            self.moves_count += is_moving

    def call_plain(self) -> None:
        """Talk, and call plain functions until none waits to be called."""
        self.talk()
        while (hands := next((each for each in self.workers.values() if each.has_plain), None)) is not None:
            hands.call_next()
            self.talk()

    @property
    def wants_loop(self) -> bool:
        """Whether a coroutine waits to be begun."""
        return any(hands.has_async for hands in self.workers.values())

    @property
    def tasks_count(self) -> int:
        """Coroutines of handlers that have not ended."""
        return sum(hands.tasks_count for hands in self.workers.values())

    @property
    def is_busy(self) -> bool:
        """Whether a handler works, for which time stands still."""
        return self.tasks_count > self._blocked_count

    # -- time

    def skip(self, until_us: int) -> bool:
        """Let time jump to the next moment at which something is due, or, when none is before that, to
        `until_us`. Whether there was one."""
        node = self.node
        due_us = node.next_due_us()
        for line in self.clients:
            core = line.dialog
            if isinstance(core, ClientCore) and core.unanswered_count:
                due_us = min(due_us, core.next_us)
        has_one = due_us <= until_us
        if has_one or until_us < NEVER_US:
            self._go_to(max(min(due_us, until_us), node.now_us + 1) if has_one else until_us)
        return has_one

    def _go_to(self, now_us: int) -> None:
        node = self.node
        if now_us > node.now_us:
            node.pass_time(now_us - node.now_us)
            for line in [*self.clients, *(hands.line for hands in self.workers.values())]:
                line.pass_time()
        self.moved()
        self.talk()

    # -- without an event loop, as long as no coroutine is to run

    def work_here(self, is_over: Callable[[], bool], until_us: int) -> bool:
        """`work` for a test that has no event loop. Plain functions need none."""
        while True:
            self.call_plain()
            if is_over():
                return True
            if self.wants_loop or self.tasks_count:
                return self.on_own_loop(self.work(is_over, until_us))
            if not self.skip(until_us):
                return is_over()

    def pass_time_here(self, until_us: int) -> None:
        """`pass_time` for a test that has no event loop."""
        while True:
            self.call_plain()
            if self.wants_loop or self.tasks_count:
                self.on_own_loop(self.pass_time(until_us))
                return
            if not self.skip(until_us):
                self.call_plain()
                return

    def on_own_loop(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run it to its end where no loop runs."""
        if self._own_loop is None:
            self._own_loop = asyncio.new_event_loop()
        try:
            return self._own_loop.run_until_complete(coroutine)
        finally:
            coroutine.close()

    # -- on an event loop

    async def work(self, is_over: Callable[[], bool], until_us: int) -> bool:
        """Let the queue work until it is over (True), or nothing more happens up to then (False). For
        coroutines that work it waits, in real time."""
        is_handler = self.inside.get()
        self._blocked_count += is_handler
        try:
            while not self._advance_on_loop(is_over):
                if self.is_busy:
                    await self._next_move()
                elif not await self._others_move() and not self.skip(until_us):
                    self.talk()
                    return is_over()
            return True
        finally:
            self._blocked_count -= is_handler

    def _advance_on_loop(self, is_over: Callable[[], bool]) -> bool:
        self.call_plain()
        self.begin_async(asyncio.get_running_loop())
        return is_over()

    def begin_async(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin the coroutines that wait for it."""
        for hands in self.workers.values():
            if hands.has_async:
                hands.begin_async(loop)

    async def pass_time(self, until_us: int) -> None:
        """Let time pass up to then. Handlers that work are not waited for: it passes for them too."""
        while True:
            self._advance_on_loop(_never)
            if not await self._others_move() and not self.skip(until_us):
                break
        while await self._others_move():
            self._advance_on_loop(_never)

    async def _others_move(self) -> bool:
        """Let everything else on this loop have its turn. Whether that moved anything."""
        before = self.moves_count
        for _ in range(TURNS):
            await asyncio.sleep(0)
            if self.moves_count != before:
                return True
        return False

    async def _next_move(self) -> None:
        """Wait, in real time, until a handler ends or says something."""
        waker: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._wakers.append(waker)
        done, _ = await asyncio.wait((waker,), timeout=HANG_S)
        if not done:
            raise HandlerHangs(seconds=HANG_S, execs=sorted(self._running_execs()))

    def _running_execs(self) -> set[str]:
        return {held.exec for hands in self.workers.values() for held in hands.core.held.values()}

    def close(self) -> None:
        """The test is over."""
        for hands in self.workers.values():
            hands.close()
        loop, self._own_loop = self._own_loop, None
        if loop is not None:
            loop.run_until_complete(self._others_move())
            loop.close()
        queues = self.node.replica.machine.queues
        if queues is not None:
            queues.dispose()


def _wake(waker: "asyncio.Future[None]") -> None:
    if not waker.done():
        waker.set_result(None)


def _never() -> bool:
    return False
