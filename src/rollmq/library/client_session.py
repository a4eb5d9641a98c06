"""A ClientCore on an event loop: who awaits is woken, who submits too much waits, what is said is written.

One session belongs to the loop on which it was opened. It makes one future per wait and none per frame.
"""

import asyncio
import os
import random
from collections import deque
from collections.abc import Callable
from typing import Final

from rollmq import limits
from rollmq.errors import ClientClosed, ClientForked
from rollmq.library.call import Call, Question
from rollmq.library.client_core import ClientCore, ClientProfile
from rollmq.library.link import CLOSE_S, Link, monotonic_us
from rollmq.library.payload_codec import Codec
from rollmq.library.route import Route

SEED_BYTES: Final = 32


class ClientSession:
    """What Client, its jobs and its streams share."""

    def __init__(self, servers: str, profile: ClientProfile, codec: Codec | None) -> None:
        # Seeded by the system: ids must differ between processes. (After a fork they would not; see check.)
        chance = random.Random(os.urandom(SEED_BYTES))
        self.codec = codec
        self.core = ClientCore(profile, bits=chance.getrandbits, chance=chance.random)
        self.link = Link(
            self.core, Route(servers, chance.random), chance=chance.random, after_turn=self._turned
        )
        self.loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0
        self._for_room: deque[asyncio.Future[None]] = deque()

    @property
    def is_open(self) -> bool:
        """Entered and not closed."""
        return self.loop is not None and not self.link.is_stopped

    def open(self) -> None:
        """Begin to connect, on the running loop."""
        self.loop = asyncio.get_running_loop()
        self._pid = os.getpid()
        self.link.start()

    async def close(self, timeout_s: float = CLOSE_S) -> None:
        """Wait for the answers that are due, say goodbye, and tell everybody who still waits."""
        if self.loop is None:
            return
        await self.link.close(timeout_s)
        self.core.close(monotonic_us())
        self._wake(len(self._for_room))

    def check(self) -> asyncio.AbstractEventLoop:
        """The loop; raises ClientClosed or ClientForked when nothing can be sent."""
        if self.loop is None or self.core.is_closed:
            raise ClientClosed()
        if self._pid != os.getpid():
            raise ClientForked()
        return self.loop

    # -- what may be asked of it

    def submit(self, call: Call) -> None:
        """Send it; whoever calls has seen that there is room."""
        self.core.submit(call, monotonic_us())
        self.link.flush_soon()

    def await_result(self, call: Call) -> None:
        """See to it that the call's end is told."""
        self.core.await_result(call, monotonic_us())
        self.link.flush_soon()

    async def ask(
        self, name: str, *, job_id: bytes = b"", payload: bytes = b"", why: str = ""
    ) -> list[bytes]:
        """A cancel or query, until it is answered."""
        asked = _Asked(self.check(), name, job_id or bytes(16), payload, why)
        self.core.ask(asked, monotonic_us())
        self.link.flush_soon()
        await asked.answer
        if asked.error is not None:
            raise asked.error
        return asked.parts

    async def room(self) -> None:
        """Wait until another submit may be made."""
        loop = self.check()
        while not self.core.has_room:
            waiter = loop.create_future()
            self._for_room.append(waiter)
            await waiter

    def when_room(self, then: Callable[[], None]) -> None:
        """The same for those who do not await. When the client is closed meanwhile it is called too."""
        waiter = self.check().create_future()
        waiter.add_done_callback(lambda _: then())
        self._for_room.append(waiter)

    # -- inside

    def _turned(self) -> None:
        if self._for_room and self.core.has_room:
            self._wake(limits.UNANSWERED_MAX - self.core.unanswered_count)

    def _wake(self, count: int) -> None:
        """They look again, in their order; who finds no room waits again."""
        while count > 0 and self._for_room:
            waiter = self._for_room.popleft()
            if not waiter.done():
                waiter.set_result(None)
                count -= 1


class _Asked(Question):
    """A question that somebody awaits."""

    __slots__ = ("answer",)

    def __init__(
        self, loop: asyncio.AbstractEventLoop, name: str, job_id: bytes, payload: bytes, why: str
    ) -> None:
        super().__init__(name, job_id=job_id, payload=payload, why=why)
        self.answer: asyncio.Future[None] = loop.create_future()

    def answered(self) -> None:
        if not self.answer.done():
            self.answer.set_result(None)
