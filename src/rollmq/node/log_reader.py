"""ReadLog: committed lines for followers, pipelines and whoever asks, read beside the writer.

A thread of its own reads the files, so that neither the loop nor the writes wait. Only what is committed is
given, and only what this node has on its own disk.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from rollmq.core.line import decode_line
from rollmq.core.raft_ready import ReadLines
from rollmq.errors import EntriesGone, StateError, WalCorrupt
from rollmq.limits import READS_PER_CONNECTION_MAX
from rollmq.node.conn import Conn
from rollmq.node.telling import put_error
from rollmq.store.store import Store
from rollmq.wire import headers as h
from rollmq.wire.codec import encode_header, header_of
from rollmq.wire.error_codes import ErrorCode, violation
from rollmq.wire.message import NO_ID, Frame, MsgType


class LogServer:
    """Answers ReadLog."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        store: Store,
        *,
        commit_index: Callable[[], int],
        flush: Callable[[], None],
        group: str,
    ) -> None:
        self._loop = loop
        self._store = store
        self._commit_index = commit_index
        self._flush = flush
        self._group = group
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="rollmq-read")
        self._raft_pool = ThreadPoolExecutor(1, thread_name_prefix="rollmq-read-raft")
        """Apart, so that a pipeline which reads everything does not hold up a follower."""
        self._waiting: dict[tuple[Conn, bytes], tuple[h.ReadLogHeader, asyncio.TimerHandle]] = {}

    def read(self, conn: Conn, frame: Frame) -> None:
        """One ReadLog. Raises ProtocolError for what no reader may ask."""
        header = header_of(frame, h.ReadLogHeader)
        if conn.reads >= READS_PER_CONNECTION_MAX:
            text = f"{conn.reads} ReadLogs of this connection wait already; nothing was read"
            raise violation(ErrorCode.OVERLOADED, text, frame)
        conn.reads += 1
        if header.from_index <= self._commit_index() or not header.wait_us:
            self._begin(conn, frame.msg_id, header)
            return
        key = (conn, frame.msg_id)
        timer = self._loop.call_later(header.wait_us / 1e6, self._stop_waiting, key)
        self._waiting[key] = (header, timer)

    def read_lines(
        self,
        request: ReadLines,
        then: Callable[[ReadLines, list[bytes]], None],
        begin_turn: Callable[[], None],
    ) -> None:
        """Raft's own question: lines for a follower that is behind, or for this node's machine."""
        asked = self._loop.run_in_executor(self._raft_pool, self._lines_for, request)

        def answer(done: "asyncio.Future[list[bytes]]") -> None:
            if not done.cancelled():
                begin_turn()
                then(request, done.result())

        asked.add_done_callback(answer)

    def _lines_for(self, request: ReadLines) -> list[bytes]:
        """In the reading thread. None are there when they were dropped: then a snapshot is sent."""
        count = request.last_index + 1 - request.first_index
        try:
            return self._store.read_lines(request.first_index, request.bytes_max)[:count]
        except EntriesGone:
            return []
        except WalCorrupt:
            return []  # The store remembers it, and the node stops: upkeep looks.

    def committed(self) -> None:
        """The commit index moved: those who waited may get something."""
        if not self._waiting:
            return
        commit_index = self._commit_index()
        for key, (header, _timer) in list(self._waiting.items()):
            if header.from_index <= commit_index:
                self._stop_waiting(key)

    def close(self) -> None:
        """No more reads."""
        self._raft_pool.shutdown(wait=True, cancel_futures=True)
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _stop_waiting(self, key: tuple[Conn, bytes]) -> None:
        header, timer = self._waiting.pop(key)
        timer.cancel()
        self._begin(*key, header)

    def _begin(self, conn: Conn, msg_id: bytes, header: h.ReadLogHeader) -> None:
        commit_index = self._commit_index()
        if conn.is_closed:
            conn.reads -= 1
        elif header.from_index > commit_index:
            self._answer(conn, msg_id, header, commit_index, [])
        else:
            read = partial(self._read, header, commit_index)
            asked = self._loop.run_in_executor(self._pool, read)
            asked.add_done_callback(partial(self._done, conn, msg_id, header, commit_index))

    def _read(self, header: h.ReadLogHeader, commit_index: int) -> list[bytes] | StateError:
        """In the reading thread."""
        try:
            lines = self._store.read_lines(header.from_index, header.bytes_max)
        except StateError as error:
            return error
        beyond = header.from_index + len(lines) - 1 - commit_index
        return lines[:-beyond] if beyond > 0 else lines

    def _done(
        self,
        conn: Conn,
        msg_id: bytes,
        header: h.ReadLogHeader,
        commit_index: int,
        asked: "asyncio.Future[list[bytes] | StateError]",
    ) -> None:
        if asked.cancelled():
            return
        found = asked.result()
        if isinstance(found, list):
            self._answer(conn, msg_id, header, commit_index, found)
            return
        conn.reads -= 1
        code = ErrorCode.HISTORY_GONE if isinstance(found, EntriesGone) else ErrorCode.INTERNAL
        put_error(conn, msg_id, code, str(found))
        self._flush()

    def _answer(
        self, conn: Conn, msg_id: bytes, asked: h.ReadLogHeader, commit_index: int, lines: list[bytes]
    ) -> None:
        conn.reads -= 1
        if lines:
            assert decode_line(lines[0]).index == asked.from_index
        header = h.LogChunkHeader(
            first_index=asked.from_index if lines else 0,
            last_index=asked.from_index + len(lines) - 1 if lines else 0,
            commit_index=commit_index,
            group=self._group,
        )
        conn.put_frame(MsgType.LOG_CHUNK, NO_ID, msg_id, encode_header(header), b"".join(lines))
        self._flush()
