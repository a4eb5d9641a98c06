"""The host of a node whose group has not formed: it asks its peers, answers theirs, and serves nobody.

What is to be done with the answers is `forming`'s; this dials, listens and says in the log whom it waits for.
"""

import asyncio
import random
import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from rollmq.core.leader import Leader
from rollmq.core.raft_messages import PeerMessage
from rollmq.node.conn import Conn
from rollmq.node.dialing import Dialer
from rollmq.node.door import Door
from rollmq.node.forming import Formed, Forming
from rollmq.node.logs import EventLog
from rollmq.node.peer_hello import PeerFacts, PeerIdentity
from rollmq.node.peers import Peers
from rollmq.node.query_status import NodeFacts
from rollmq.node.starting import mono_us, wall_us
from rollmq.node.telling import put_error
from rollmq.wire.error_codes import ErrorCode
from rollmq.wire.message import Frame
from rollmq.wire.peer_headers import LeaderHelloHeader

TICK_S: Final = 0.05
ASK_EVERY_US: Final = 200_000
"""How often a peer is asked again: what it has found changes with every node that comes up."""
TELL_EVERY_US: Final = 10_000_000
"""How often the log says whom this node still waits for."""


class FormingNode:
    """A node that waits for its group."""

    def __init__(
        self,
        me: PeerIdentity,
        peers: tuple[str, ...],
        *,
        log: EventLog,
        on_stop: Callable[[str], None],
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.token = me.token
        self.node_id = me.node_id
        self.group = ""
        self.leader: Leader | None = None
        self.term = 0
        self.forming = Forming(node_id=me.node_id, address=me.address, peers=peers)
        self.formed: asyncio.Future[Formed] = self.loop.create_future()
        self._log = log
        self._on_stop = on_stop
        self._began_us = mono_us()
        self._told = ("", 0)
        self._refused: dict[str, str] = {}
        self._ask_us = 0
        self._is_turn_due = False
        self._dialer = Dialer()
        self.door = Door(self)
        self.peers = Peers(
            self,
            me,
            addresses=peers,
            dial=self._dialer.dial,
            chance=random.random,
            new_id=lambda: secrets.token_bytes(16),
        )
        self._ticker: asyncio.TimerHandle | None = None
        self._tick()

    # -- what the door asks

    def leader_address(self) -> str | None:
        """Nobody leads a group that is not there."""
        return None

    def why_no_leader(self) -> str:
        """For clients: whom this node waits for."""
        return f"the group has not formed: {self.waits_for()}"

    def waits_for(self) -> str:
        """Whom, or for what."""
        refusals = [f"{address}: {text}" for address, text in self._refused.items()]
        return "; ".join([self.forming.waits_for(), *refusals])

    def mono_us(self) -> int:
        """The monotonic clock."""
        return mono_us()

    def log_us(self) -> int:
        """The best guess of a node without a log."""
        return wall_us()

    def begin_turn(self) -> None:
        """What is said is sent at the turn's end."""
        if not self._is_turn_due:
            self._is_turn_due = True
            self.loop.call_soon(self._flush)

    def read_log(self, conn: Conn, frame: Frame) -> None:
        """There is none."""
        put_error(conn, frame.msg_id, ErrorCode.HISTORY_GONE, self.why_no_leader())

    def facts(self) -> NodeFacts:
        """What `status` says."""
        return NodeFacts(
            node_id=self.node_id,
            group="",
            role="waiting",
            leader=None,
            term=0,
            last_index=0,
            commit_index=0,
            applied_index=0,
            machine=None,
            uptime_us=mono_us() - self._began_us,
            connections_count=len(self.door.conns),
            problems=(self.why_no_leader(),),
            drain_worker=lambda _worker_id: False,
            stop=self._on_stop,
            mark=lambda: False,
        )

    # -- peers

    def peer_hello(self, conn: Conn, frame: Frame) -> None:
        """Another node asks."""
        self._tell_what_is_found()
        self.peers.answer_hello(conn, frame)

    def peer_frame(self, _conn: Conn, _frame: Frame) -> None:
        """A message of a group that this node is no member of yet: it is sent again."""

    def peer_lost(self, conn: Conn) -> None:
        """A node that asked has gone."""
        self.peers.dropped(conn)

    def step(self, _message: PeerMessage) -> None:
        """Likewise."""

    def peer_broken(self, _node_id: str) -> None:
        """It is asked again."""

    def peer_facts(self) -> PeerFacts:
        """It has nothing to tell but whom it has found."""
        return PeerFacts(wall_us=wall_us())

    def peer_said_hello(self, hello: LeaderHelloHeader, *, dialed: str) -> None:
        """An answer."""
        if dialed:
            self._refused.pop(dialed, None)
            self.forming.heard(dialed, hello)
            self._tell_what_is_found()
        self._look_whether_formed()

    def peer_refused(self, address: str, code: str, text: str) -> None:
        """It is said until it is mended."""
        self._refused[address] = f"{code}: {text}"

    def _look_whether_formed(self) -> None:
        if self.forming.formed is not None and not self.formed.done():
            self.formed.set_result(self.forming.formed)

    def _tell_what_is_found(self) -> None:
        self.peers.me = replace(self.peers.me, founders=self.forming.founders)

    # -- time

    def _tick(self) -> None:
        self._ticker = self.loop.call_later(TICK_S, self._tick)
        now_us = mono_us()
        for address in self.peers.own_addresses():
            self.forming.itself(address)
        self._look_whether_formed()
        if now_us >= self._ask_us:
            self._ask_us = now_us + ASK_EVERY_US
            self.peers.ask_again()
        self.peers.tick()
        text, told_us = self._told
        if self.waits_for() != text or now_us - told_us > TELL_EVERY_US:
            self._told = (self.waits_for(), now_us)
            self._log("waiting_for_group", node=self.node_id, waits_for=self.waits_for())
        self.door.check(list(self.door.conns))
        self._flush()

    def _flush(self) -> None:
        self._is_turn_due = False
        self.peers.flush()
        self.door.flush()

    def close(self) -> None:
        """Drop everybody: they come back, and find a member."""
        if self._ticker is not None:
            self._ticker.cancel()
        self._dialer.close()
        self.peers.close()
        for conn in list(self.door.conns):
            self.door.drop(conn)
