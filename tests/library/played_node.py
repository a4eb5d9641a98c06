"""A node that a test plays: it listens on a port of its own, keeps every frame, says what it is told to.

async with PlayedNode() as node:
    visit = await node.visit()               # somebody connected and said hello
    visit.answer(term=1)
    frame = await visit.heard(MsgType.SUBMIT_JOB)
    visit.say(Frame(MsgType.ACCEPTED, …))
"""

import asyncio
import socket
from collections.abc import Callable
from types import TracebackType
from typing import cast

from rollmq.wire.codec import FrameDecoder, encode, encode_header
from rollmq.wire.headers import HelloAnswerHeader, LeaderIsHeader, NotLeaderHeader
from rollmq.wire.message import Frame, MsgType

SOON_S = 20.0
"""Longer than anything here takes on a busy machine."""
FRAME_BYTES_MAX = 16 * 1024 * 1024
GROUP = "5" * 32


class Visit(asyncio.Protocol):
    """One connection to a played node."""

    def __init__(self, node: "PlayedNode") -> None:
        self.node = node
        self.frames: list[Frame] = []
        self.is_closed = False
        self._decoder = FrameDecoder(FRAME_BYTES_MAX)
        self._taken_count = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.node.open.append(self)

    def data_received(self, data: bytes) -> None:
        for frame in self._decoder.feed(data):
            assert isinstance(frame, Frame)
            self.frames.append(frame)
            if len(self.frames) == 1:
                self.node.visits.append(self)
            if self.node.on_frame is not None:
                self.node.on_frame(self, frame)
        self.node.changed()

    def connection_lost(self, _exc: Exception | None) -> None:
        self.is_closed = True
        self.node.open.remove(self)
        self.node.changed()

    def say(self, frame: Frame) -> None:
        self.transport.write(encode(frame))

    def answer(self, *, term: int = 1, group: str = GROUP, log_at_us: int = 1_000_000_000_000) -> None:
        """The hello's answer."""
        hello = self.frames[0]
        header = HelloAnswerHeader(version=1, group=group, term=term, log_at_us=log_at_us)
        self.say(Frame(hello.type, corr_id=hello.msg_id, header=encode_header(header)))

    def send_away(self, leader: str | None, *, term: int = 1) -> None:
        header = NotLeaderHeader(leader=leader, term=term)
        self.say(Frame(MsgType.NOT_LEADER, header=encode_header(header)))
        self.transport.close()

    def announce(self, leader: str | None, *, term: int) -> None:
        header = LeaderIsHeader(leader=leader, term=term)
        self.say(Frame(MsgType.LEADER_IS, header=encode_header(header)))

    async def heard(self, kind: MsgType) -> Frame:
        """The next frame of this kind that nobody has taken yet."""
        await self.node.until(lambda: any(frame.type == kind for frame in self.frames[self._taken_count :]))
        while self.frames[self._taken_count].type != kind:
            self._taken_count += 1
        self._taken_count += 1
        return self.frames[self._taken_count - 1]


class PlayedNode:
    """Listens while it is entered."""

    def __init__(self, on_frame: Callable[[Visit, Frame], None] | None = None) -> None:
        self.on_frame = on_frame
        self.visits: list[Visit] = []
        """Connections that said hello, in order."""
        self.open: list[Visit] = []
        self._taken_count = 0
        self._change = asyncio.Event()

    async def __aenter__(self) -> "PlayedNode":
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Visit(self), "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._server.close()
        for visit in list(self.open):
            visit.transport.abort()
        await self.until(lambda: not self.open)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def changed(self) -> None:
        self._change.set()

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait for a fact that comes true with a frame or an end."""
        async with asyncio.timeout(SOON_S):
            while not is_so():
                self._change.clear()
                await self._change.wait()

    async def visit(self) -> Visit:
        """The next connection that said hello."""
        await self.until(lambda: len(self.visits) > self._taken_count)
        self._taken_count += 1
        return self.visits[self._taken_count - 1]


def free_port_taken_by_nobody() -> int:
    """A port on which nothing listens."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
