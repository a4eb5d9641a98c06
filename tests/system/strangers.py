"""Peers of a real node that do as they like: connections of bare bytes, by the thousand if need be.

They live in the test's own process, on one loop; what they send is whatever the test says.
"""

import asyncio
import secrets
from pathlib import Path
from typing import cast

from rollmq.wire.codec import FrameDecoder, encode_frame, encode_header
from rollmq.wire.headers import HelloClientHeader
from rollmq.wire.message import Frame, MsgType
from tests.library.played_node import FRAME_BYTES_MAX

AT_ONCE = 100
"""Connections that are greeted at a time: fewer than a node lets wait."""


def hello(client_id: str = "stranger") -> bytes:
    """A HelloClient."""
    header = encode_header(HelloClientHeader(version=1, client_id=client_id))
    return encode_frame(MsgType.HELLO_CLIENT, secrets.token_bytes(16), header=header)


class Stranger(asyncio.Protocol):
    """One connection. It answers pings, unless it is told to be deaf."""

    def __init__(self, *, answers_pings: bool = True) -> None:
        self.frames: list[Frame] = []
        self.came = asyncio.Event()
        self.ended = asyncio.Event()
        self._answers_pings = answers_pings
        self._decoder = FrameDecoder(FRAME_BYTES_MAX)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        for frame in self._decoder.feed(data):
            assert isinstance(frame, Frame)
            if frame.type != MsgType.PING:
                self.frames.append(frame)
                self.came.set()
            elif self._answers_pings:
                self.say(encode_frame(MsgType.PONG, corr_id=frame.msg_id))

    def connection_lost(self, _exc: Exception | None) -> None:
        self.ended.set()
        self.came.set()

    def say(self, data: bytes) -> None:
        """Any bytes at all."""
        self.transport.write(data)


async def dial(port: int, *, answers_pings: bool = True) -> Stranger:
    """Connected, and silent so far."""
    loop = asyncio.get_running_loop()
    make = Stranger if answers_pings else lambda: Stranger(answers_pings=False)
    _, stranger = await loop.create_connection(make, "127.0.0.1", port)
    return stranger


async def greeted(port: int, *, answers_pings: bool = True) -> Stranger:
    """A client that said hello and heard the answer, or a refusal."""
    stranger = await dial(port, answers_pings=answers_pings)
    stranger.say(hello())
    await stranger.came.wait()
    return stranger


async def crowd(port: int, count: int) -> list[Stranger]:
    """So many of them."""
    found: list[Stranger] = []
    while len(found) < count:
        some = min(AT_ONCE, count - len(found))
        found += await asyncio.gather(*(greeted(port) for _ in range(some)))
    return found


def rss_bytes(pid: int) -> int:
    """Memory that a process has."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096
