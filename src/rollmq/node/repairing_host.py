"""The host of a damaged node: it repairs itself from its peers, and helps those that are damaged elsewhere.

How is `repairing`'s and `core.repair`'s; this dials, listens, and says in the log what it waits for. The disk
is worked on in the loop: nothing else waits for this node.
"""

import asyncio
from collections.abc import Callable

from rollmq.core.raft_messages import AppendEntries, PeerMessage
from rollmq.core.repair_messages import RepairMessage
from rollmq.node.logs import EventLog
from rollmq.node.peer_hello import PeerIdentity
from rollmq.node.repairing import Repairing
from rollmq.node.waiting_host import WaitingNode
from rollmq.wire.peer_headers import LeaderHelloHeader


class RepairingNode(WaitingNode):
    """A node that is repaired before it counts again."""

    role = "repairing"
    event = "repair_waits"

    def __init__(
        self,
        repairing: Repairing,
        me: PeerIdentity,
        peers: tuple[str, ...],
        *,
        log: EventLog,
        on_stop: Callable[[str], None],
    ) -> None:
        super().__init__(me, peers, log=log, on_stop=on_stop)
        self.repairing = repairing
        self.repaired: asyncio.Future[None] = self.loop.create_future()
        self._leader_id = ""
        self.term = repairing.term
        self.tick()

    @property
    def last_index(self) -> int:
        """The end of what is sound."""
        return self.repairing.last_index

    def leader_address(self) -> str | None:
        """Who leads is heard from the leader itself."""
        return self.peers.address_of(self._leader_id)

    def why_no_leader(self) -> str:
        """For clients and operators: what is damaged, and what is missing."""
        places = self.repairing.places
        more = f" and {len(places) - 1} more" if len(places) > 1 else ""
        waits = self.repairing.plan.wait
        text = f"this node repairs itself from its peers and does not count until then: {places[0]}{more}"
        return f"{text}; it waits {waits}" if waits else text

    def waits_for(self) -> str:
        """For whom or what, if for anything."""
        return "; ".join(text for text in (self.repairing.plan.wait, super().waits_for()) if text)

    def look(self, now_us: int) -> None:
        """Ask again, and go on."""
        self.peers.tick(self.repairing.plan.required)
        self.repairing.tick(now_us)
        self._say()

    def step(self, message: PeerMessage) -> None:
        """Not taken, but it tells who leads."""
        if isinstance(message, AppendEntries):
            self._leader_id = message.source

    def repair(self, message: RepairMessage) -> None:
        """An answer, or the question of another damaged node."""
        self.repairing.take(message)
        self._say()

    def peer_said_hello(self, hello: LeaderHelloHeader, *, dialed: str) -> None:
        """A node of the group is there: it is asked what it has."""
        super().peer_said_hello(hello, dialed=dialed)
        if hello.group:
            self.repairing.plan.met(hello.node_id)

    def _say(self) -> None:
        messages, self.repairing.outbox = self.repairing.outbox, []
        self.peers.send(messages)
        self.begin_turn()
        if self.repairing.is_done and not self.repaired.done():
            self.repaired.set_result(None)

    def close(self) -> None:
        """Drop everybody."""
        super().close()
        self.repairing.close()
