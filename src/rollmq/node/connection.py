"""A TCP connection on the event loop: bytes to the door, and back with bounds.

Who does not read is not read from either: at PAUSE_AT_BYTES of unsent bytes its requests are left unread.
"""

import asyncio
import socket
from collections import deque
from typing import Final, cast

from rollmq.node.conn import Conn
from rollmq.node.door import Door

PAUSE_AT_BYTES: Final = 4 * 1024 * 1024
"""Unsent bytes at which nothing more is read from a connection until it has taken most of them."""
SLICE_BYTES: Final = 64 * 1024
"""Bytes of one connection that are dealt with in one go: some hundred jobs, a few milliseconds."""
CLOSE_S: Final = 5.0
"""How long a connection that is closed may take to read what was said last."""


class Connection(asyncio.Protocol):
    """One accepted connection. It is the `Pipe` of its `Conn`."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._transport: asyncio.Transport | None = None
        self._conn: Conn | None = None
        self._unread: deque[bytes] = deque()
        """Slices that came and were not handed to the door yet. Nothing more is read meanwhile."""
        self._is_full = False
        """The other side does not take what is written."""

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
        """A little at once: who sends much must not keep all others waiting, and what its first jobs bring
        is on its way to disk and workers while the next are read. Other nodes send few, large messages."""
        conn = self._conn
        if conn is None:
            return
        if not self._unread and (len(data) <= SLICE_BYTES or conn.peer_id):
            self._door.receive(conn, data)
            return
        is_first = not self._unread
        self._unread.extend(data[at : at + SLICE_BYTES] for at in range(0, len(data), SLICE_BYTES))
        if is_first:
            self._set_reading()
            self._read_on()

    def _read_on(self) -> None:
        """The next slice."""
        if self._conn is None or not self._unread:
            return  # it was lost meanwhile
        self._door.receive(self._conn, self._unread.popleft())
        if self._unread:
            asyncio.get_running_loop().call_soon(self._read_on)
        else:
            self._set_reading()

    def pause_writing(self) -> None:
        self._is_full = True
        self._set_reading()

    def resume_writing(self) -> None:
        self._is_full = False
        self._set_reading()

    def _set_reading(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._is_full or self._unread:
            transport.pause_reading()
        else:
            transport.resume_reading()

    def connection_lost(self, _exc: Exception | None) -> None:
        while self._conn is not None and self._unread:
            self._door.receive(self._conn, self._unread.popleft())
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
