"""The host of a node that serves nobody yet: it listens, dials its peers, and says what it waits for.

What is said between the peers, and when it ends, is for its two kinds to decide: `forming_host` and
`repairing_host`. There is no Raft here: a message of it is dropped, and its sender sends it again.
"""

import asyncio
import random
import secrets
from collections.abc import Callable
from typing import Final

from rollmq.core.leader import Leader
from rollmq.core.raft_messages import PeerMessage
from rollmq.core.repair_messages import RepairMessage
from rollmq.node.conn import Conn
from rollmq.node.dialing import Dialer
from rollmq.node.door import Door
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
TELL_EVERY_US: Final = 10_000_000
"""How often the log says for whom or what this node still waits."""


class WaitingNode:
    """What both kinds do alike."""

    role = "waiting"
    """As `status` calls it."""
    event = "waiting_for_group"
    """Under which the log says what it waits for."""

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
        self.group = me.group
        self.leader: Leader | None = None
        self.term = 0
        self.log = log
        self._on_stop = on_stop
        self._began_us = mono_us()
        self._told = ("", 0)
        self._refused: dict[str, str] = {}
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

    # -- what the kinds say

    def waits_for(self) -> str:
        """Whom, or for what; refusals of peers among it."""
        return "; ".join(f"{address}: {text}" for address, text in self._refused.items())

    def why_no_leader(self) -> str:
        """For clients: why this node serves nobody."""
        raise NotImplementedError

    def look(self, now_us: int) -> None:
        """Time has passed."""
        raise NotImplementedError

    # -- what the door asks

    def leader_address(self) -> str | None:
        """Nobody leads, as far as this node knows."""
        return None

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
            self.loop.call_soon(self.flush)

    def read_log(self, conn: Conn, frame: Frame) -> None:
        """None is given."""
        put_error(conn, frame.msg_id, ErrorCode.HISTORY_GONE, self.why_no_leader())

    def facts(self) -> NodeFacts:
        """What `status` says."""
        return NodeFacts(
            node_id=self.node_id,
            group=self.group,
            role=self.role,
            leader=self.leader_address(),
            term=self.term,
            last_index=self.last_index,
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

    @property
    def last_index(self) -> int:
        """The end of its log."""
        return 0

    # -- peers

    def step(self, _message: PeerMessage) -> None:
        """It has no Raft: what is of use is sent again."""

    def repair(self, _message: RepairMessage) -> None:
        """A message of a repair."""

    def peer_broken(self, _node_id: str) -> None:
        """It is dialed again."""

    def peer_facts(self) -> PeerFacts:
        """What hellos tell."""
        return PeerFacts(term=self.term, last_index=self.last_index, wall_us=wall_us())

    def peer_said_hello(self, hello: LeaderHelloHeader, *, dialed: str) -> None:
        """An answer."""
        del hello
        if dialed:
            self._refused.pop(dialed, None)

    def peer_refused(self, address: str, code: str, text: str) -> None:
        """It is said until it is mended."""
        self._refused[address] = f"{code}: {text}"

    # -- time

    def tick(self) -> None:
        """From the first call on, again and again."""
        self._ticker = self.loop.call_later(TICK_S, self.tick)
        now_us = mono_us()
        self.look(now_us)
        text, told_us = self._told
        waits_for = self.waits_for()
        if waits_for and (waits_for != text or now_us - told_us > TELL_EVERY_US):
            self._told = (waits_for, now_us)
            self.log(self.event, node=self.node_id, waits_for=waits_for)
        self.door.check(list(self.door.conns))
        self.flush()

    def flush(self) -> None:
        """Send what was said."""
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
