"""The host of a node whose group has not formed: it asks its peers, answers theirs, and serves nobody.

What is to be done with the answers is `forming`'s.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from rollmq.node.forming import Formed, Forming
from rollmq.node.logs import EventLog
from rollmq.node.peer_hello import PeerFacts, PeerIdentity
from rollmq.node.starting import wall_us
from rollmq.node.waiting_host import WaitingNode
from rollmq.wire.peer_headers import LeaderHelloHeader

ASK_EVERY_US: Final = 200_000
"""How often a peer is asked again: what it has found changes with every node that comes up."""


class FormingNode(WaitingNode):
    """A node that waits for its group."""

    def __init__(
        self,
        me: PeerIdentity,
        peers: tuple[str, ...],
        *,
        log: EventLog,
        on_stop: Callable[[str], None],
    ) -> None:
        super().__init__(me, peers, log=log, on_stop=on_stop)
        self.forming = Forming(node_id=me.node_id, address=me.address, peers=peers)
        self.formed: asyncio.Future[Formed] = self.loop.create_future()
        self._ask_us = 0
        self.tick()

    def why_no_leader(self) -> str:
        """For clients: whom this node waits for."""
        return f"the group has not formed: {self.waits_for()}"

    def waits_for(self) -> str:
        """Whom, or for what."""
        refusals = super().waits_for()
        return "; ".join([self.forming.waits_for(), *([refusals] if refusals else [])])

    def look(self, now_us: int) -> None:
        """Ask again."""
        for address in self.peers.own_addresses():
            self.forming.itself(address)
        self._tell_what_is_found()
        self._look_whether_formed()
        if now_us >= self._ask_us:
            self._ask_us = now_us + ASK_EVERY_US
            self.peers.ask_again()
        self.peers.tick()

    # -- peers

    def peer_facts(self) -> PeerFacts:
        """It has nothing to tell but whom it has found."""
        return PeerFacts(wall_us=wall_us())

    def peer_said_hello(self, hello: LeaderHelloHeader, *, dialed: str) -> None:
        """An answer."""
        super().peer_said_hello(hello, dialed=dialed)
        if dialed:
            self.forming.heard(dialed, hello)
            self._tell_what_is_found()
        self._look_whether_formed()

    def _look_whether_formed(self) -> None:
        if self.forming.formed is not None and not self.formed.done():
            self.formed.set_result(self.forming.formed)

    def _tell_what_is_found(self) -> None:
        self.peers.me = replace(self.peers.me, founders=self.forming.founders)
