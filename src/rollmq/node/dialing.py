"""Connecting to peers on the event loop: the asyncio side of `peer_link`."""

import asyncio
import socket
from typing import Final, cast

from rollmq.node.peer_link import PeerLink

CONNECT_S: Final = 2.0
"""How long connecting may take: a peer whose machine is off does not answer at all."""


def split_address(address: str) -> tuple[str, int]:
    """Host and port of `host:port`; an IPv6 host may stand in brackets. Raises ValueError."""
    host, _, port = address.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


class LinkConnection(asyncio.Protocol):
    """The connection of one link. It is its `LinkPipe`."""

    def __init__(self, link: PeerLink) -> None:
        self._link = link
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are none of asyncio's classes.
        self._transport = stream = cast(asyncio.Transport, transport)
        sock = stream.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._link.opened(self)

    def data_received(self, data: bytes) -> None:
        if self._transport is not None:
            self._link.received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self._transport = None
            self._link.lost(str(exc) if exc is not None else "the other side closed the connection")

    def write_parts(self, parts: list[bytes]) -> None:
        if self._transport is not None:
            self._transport.writelines(parts)

    def abort(self) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()

    def unsent_bytes(self) -> int:
        return self._transport.get_write_buffer_size() if self._transport is not None else 0


class Dialer:
    """Connects links, each in a task of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()

    def dial(self, link: PeerLink) -> None:
        """Begin to connect; the link is told what comes of it."""
        task = self._loop.create_task(self._connect(link))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """Begin nothing more."""
        for task in self._tasks:
            task.cancel()

    async def _connect(self, link: PeerLink) -> None:
        host, port = split_address(link.address)
        try:
            async with asyncio.timeout(CONNECT_S):
                await self._loop.create_connection(lambda: LinkConnection(link), host, port)
        except (OSError, TimeoutError) as error:
            link.lost(getattr(error, "strerror", None) or str(error) or "it does not answer")
