"""A static follower (`--role follower --leader H:P`): it sends everybody to the leader.

It stores nothing and decides nothing. Switching by hand means moving the state directory and starting a
leader on it (docs/operations.md).
"""

import asyncio
from collections.abc import Callable
from typing import Final

from rollmq.core.leader import Leader
from rollmq.node.conn import Conn
from rollmq.node.door import Door
from rollmq.node.query_status import NodeFacts
from rollmq.node.starting import mono_us, wall_us
from rollmq.node.telling import put_error
from rollmq.wire.error_codes import ErrorCode
from rollmq.wire.message import Frame

TICK_S: Final = 1.0
"""Nothing is due here but pings."""


class StaticFollower:
    """The host of a door that leads elsewhere."""

    peers = None

    def __init__(self, leader_address: str, *, token: str, on_stop: Callable[[str], None]) -> None:
        self.loop = asyncio.get_running_loop()
        self.token = token
        self.node_id = ""
        self.group = ""
        self.leader: Leader | None = None
        self.term = 0
        self._leader_address = leader_address
        self._on_stop = on_stop
        self._began_us = mono_us()
        self.door = Door(self)
        self._ticker: asyncio.TimerHandle | None = None
        self._is_flush_due = False
        self._tick()

    def leader_address(self) -> str | None:
        """As the operator said."""
        return self._leader_address

    def mono_us(self) -> int:
        """The monotonic clock."""
        return mono_us()

    def log_us(self) -> int:
        """The best guess of a node that knows no log."""
        return wall_us()

    def begin_turn(self) -> None:
        """What is said is sent at the turn's end."""
        if not self._is_flush_due:
            self._is_flush_due = True
            self.loop.call_soon(self._flush)

    def read_log(self, conn: Conn, frame: Frame) -> None:
        """It keeps no log."""
        text = f"a static follower keeps no log; read it from the leader at {self._leader_address}"
        put_error(conn, frame.msg_id, ErrorCode.HISTORY_GONE, text)

    def why_no_leader(self) -> str:
        """The operator said who leads."""
        return ""

    def close(self) -> None:
        """Drop everybody."""
        if self._ticker is not None:
            self._ticker.cancel()
        for conn in list(self.door.conns):
            self.door.drop(conn)

    def facts(self) -> NodeFacts:
        """Its own status; everything else is the leader's to answer."""
        return NodeFacts(
            node_id="",
            group="",
            role="follower",
            leader=self._leader_address,
            term=0,
            last_index=0,
            commit_index=0,
            applied_index=0,
            machine=None,
            uptime_us=mono_us() - self._began_us,
            connections_count=len(self.door.conns),
            drain_worker=lambda _worker_id: False,
            stop=self._on_stop,
            mark=lambda: False,
        )

    def _flush(self) -> None:
        self._is_flush_due = False
        self.door.flush()

    def _tick(self) -> None:
        self._ticker = self.loop.call_later(TICK_S, self._tick)
        self.door.check(list(self.door.conns))
        self.door.flush()
