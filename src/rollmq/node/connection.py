"""A TCP connection on the event loop: bytes to the door, and back with bounds.

Who does not read is not read from either: at PAUSE_AT_BYTES of unsent bytes its requests are left unread.
"""

import asyncio
import socket
from typing import Final, cast

from rollmq.node.conn import Conn
from rollmq.node.door import Door

PAUSE_AT_BYTES: Final = 4 * 1024 * 1024
"""Unsent bytes at which nothing more is read from a connection until it has taken most of them."""
CLOSE_S: Final = 5.0
"""How long a connection that is closed may take to read what was said last."""


class Connection(asyncio.Protocol):
    """One accepted connection. It is the `Pipe` of its `Conn`."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._transport: asyncio.Transport | None = None
        self._conn: Conn | None = None

    # -- called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are none of asyncio's classes, so this cannot be asserted.
        self._transport = stream = cast(asyncio.Transport, transport)
        stream.set_write_buffer_limits(high=PAUSE_AT_BYTES)
        sock = stream.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._conn = self._door.accept(self)

    def data_received(self, data: bytes) -> None:
        if self._conn is not None:
            self._door.receive(self._conn, data)

    def pause_writing(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def connection_lost(self, _exc: Exception | None) -> None:
        # Both ends of every reference go: nothing collects cycles on a node.
        conn, self._conn = self._conn, None
        self._transport = None
        if conn is not None:
            self._door.drop(conn)

    # -- called by the door

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def close(self) -> None:
        transport = self._transport
        if transport is not None:
            transport.close()
            if transport.get_write_buffer_size():
                # Who does not take the rest in time has no use for it.
                asyncio.get_running_loop().call_later(CLOSE_S, transport.abort)

    def abort(self) -> None:
        """Close at once: what is unsent is lost."""
        if self._transport is not None:
            self._transport.abort()

    def unsent_bytes(self) -> int:
        return self._transport.get_write_buffer_size() if self._transport is not None else 0
