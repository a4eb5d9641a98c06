"""A connection without a network: bytes handed over in memory, in order, at once.

The library's dialog stands at one end and the node's door at the other; both speak as they do over TCP.
"""

from rollmq.library.dialog import Dialog
from rollmq.node.conn import Conn
from rollmq.testing.virtual_node import ADDRESS, VirtualNode


class MemoryPipe:
    """Keeps what the node says until it is fetched."""

    def __init__(self) -> None:
        self.unread: list[bytes] = []
        self.is_closed = False

    def write(self, data: bytes) -> None:
        """The node says something."""
        self.unread.append(data)

    def close(self) -> None:
        """The node says nothing more."""
        self.is_closed = True

    def abort(self) -> None:
        """The same."""
        self.is_closed = True

    def unsent_bytes(self) -> int:
        """Who listens here listens at once."""
        return 0


class Line:
    """One dialog and its connection; it is made again whenever it ends, until it is cut for good."""

    def __init__(self, node: VirtualNode, dialog: Dialog) -> None:
        self.dialog = dialog
        self._node = node
        self._pipe = MemoryPipe()
        self._conn: Conn | None = None
        self._is_cut = False
        self._connect()

    def move(self) -> bool:
        """Carry over what either side has said. Whether there was anything."""
        conn, dialog, pipe, node = self._conn, self.dialog, self._pipe, self._node
        if conn is None:
            return False
        said = dialog.take_out()
        is_moved = bool(said or pipe.unread)
        if said:
            node.door.receive(conn, said)
        if pipe.unread:
            heard = b"".join(pipe.unread)
            pipe.unread.clear()
            dialog.feed(heard, node.now_us)
        if (dialog.is_over or pipe.is_closed) and not pipe.unread and not dialog.out:
            self._lost()
            is_moved = True
        return is_moved

    def pass_time(self) -> None:
        """The clock has moved. Nobody is silent on a connection that has no silence."""
        self.dialog.feed(b"", self._node.now_us)
        self.dialog.tick(self._node.now_us)

    def cut(self) -> None:
        """The process behind the dialog is gone: the node sees a broken connection."""
        self._is_cut = True
        conn, self._conn = self._conn, None
        if conn is not None:
            self._node.door.drop(conn)

    def _connect(self) -> None:
        self._pipe = MemoryPipe()
        self._conn = self._node.door.accept(self._pipe)
        self.dialog.opened(self._node.now_us, ADDRESS)

    def _lost(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            self._node.door.drop(conn)
        self.dialog.lost(self._node.now_us)
        if self.dialog.fatal is None and not self._is_cut:
            self._connect()
