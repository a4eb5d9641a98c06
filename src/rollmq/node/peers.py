"""The other nodes of the group: who is reached where, and messages to and from them.

Every node dials every other and sends there; what the other dialed is used while that fails. Sans-IO: the
host dials, hands in bytes and time, and flushes. Queues are bounded: what does not fit is dropped, never
waited for (pitfall 26), and one slow peer holds up nobody.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from rollmq.core.raft_messages import AppendEntries, PeerMessage
from rollmq.core.repair_messages import RepairAsk, RepairFetch, RepairHas, RepairMessage, RepairPiece
from rollmq.node.conn import Conn
from rollmq.node.peer_hello import PeerFacts, PeerIdentity, check_hello, hello_of, problem_with
from rollmq.node.peer_link import LinkState, PeerLink
from rollmq.wire.codec import header_of
from rollmq.wire.error_codes import ErrorCode, violation
from rollmq.wire.message import Frame, MsgType
from rollmq.wire.peer import NodeMessage, message_of, parts_of
from rollmq.wire.peer_headers import LeaderHelloHeader

STRANGERS_MAX = 64
"""Nodes that ask to be members and are remembered."""


class PeersHost(Protocol):
    """What this needs of the process around it."""

    def mono_us(self) -> int: ...
    def begin_turn(self) -> None: ...
    def step(self, message: PeerMessage) -> None:
        """A message for Raft."""

    def repair(self, message: RepairMessage) -> None:
        """A node repairs itself, or this one does."""

    def peer_broken(self, node_id: str) -> None:
        """The connection to this node was reset."""

    def peer_facts(self) -> PeerFacts:
        """What hellos tell."""

    def peer_said_hello(self, hello: LeaderHelloHeader, *, dialed: str) -> None:
        """A node that may talk to this one said who it is; `dialed` is where, empty if it came by itself."""

    def peer_refused(self, address: str, code: str, text: str) -> None:
        """This node may not talk to that one: an operator should know."""


class Peers:
    """Connections of one run of a node to the others."""

    def __init__(
        self,
        host: PeersHost,
        me: PeerIdentity,
        *,
        addresses: Sequence[str],
        dial: Callable[[PeerLink], None],
        chance: Callable[[], float],
        new_id: Callable[[], bytes],
    ) -> None:
        """`dial` connects a link; it must call `opened` or `lost` later, not at once."""
        self.host = host
        self.me = me
        self.chance = chance
        self.new_id = new_id
        self.unflushed: list[PeerLink] = []
        self.asking: dict[str, str] = {}
        """Nodes without a group that said hello, and where they are."""
        self._dial = dial
        self._links: dict[str, PeerLink] = {}
        self._by_id: dict[str, PeerLink] = {}
        self._incoming: dict[str, Conn] = {}
        self._addresses: dict[str, str] = {}
        """Where each node says it is."""
        self._lives: dict[str, str] = {}
        """Which of its processes said hello last. A damaged one takes back what those before had confirmed:
        nothing of theirs may come behind it."""
        for address in addresses:
            if address != me.address:
                self._links[address] = PeerLink(self, address, host.mono_us())

    # -- who is where

    def address_of(self, node_id: str) -> str | None:
        """Where a node is reached, as it says itself."""
        return self._addresses.get(node_id)

    def addresses(self) -> dict[str, str]:
        """Where each node is that was met, and this one."""
        return {**self._addresses, self.me.node_id: self.me.address}

    def find(self, text: str) -> str:
        """The id of the node that an operator means by an id or an address; the text itself if none is met
        there. A new node at an address beats an old one that was there."""
        where = [*self.asking.items(), *self.addresses().items()]
        return next((node_id for node_id, address in where if address == text), text)

    def unreached(self) -> list[tuple[str, str]]:
        """(address, why) of the peers to which there is no connection."""
        ready = {link.address for link in self._links.values() if link.is_ready}
        missing = [link for link in self._links.values() if link.address not in ready]
        return [(link.address, link.reason) for link in missing if link.state is not LinkState.ITSELF]

    def own_addresses(self) -> list[str]:
        """Addresses of the list at which this node found itself."""
        return [link.address for link in self._links.values() if link.state is LinkState.ITSELF]

    def hello(self) -> bytes:
        """The header of this node's LeaderHello."""
        return hello_of(self.me, self.host.peer_facts())

    def is_itself(self, hello: LeaderHelloHeader) -> bool:
        """Whether the other end is this very node."""
        return hello.node_id == self.me.node_id and hello.address == self.me.address

    def check(self, hello: LeaderHelloHeader, frame: Frame) -> None:
        """Raise the ProtocolError that answers a hello of somebody who does not belong here."""
        problem = problem_with(self.me, hello)
        if problem is not None:
            self.host.peer_refused(hello.address, *problem)
        check_hello(self.me, hello, frame)

    # -- connections that others dialed

    def answer_hello(self, conn: Conn, frame: Frame) -> None:
        """A LeaderHello came. Raises ProtocolError."""
        hello = header_of(frame, LeaderHelloHeader)
        if not self.is_itself(hello):
            self.check(hello, frame)
            self._check_single(hello, frame)
        conn.send(Frame(MsgType.LEADER_HELLO, corr_id=frame.msg_id, header=self.hello()))
        conn.door.welcome(conn)
        if self.is_itself(hello):
            return
        self._met(hello)
        if hello.group:
            conn.peer_id, conn.peer_life = hello.node_id, hello.life
            self._incoming[hello.node_id] = conn
            link = self._links.get(hello.address)
            if link is not None and link.state is LinkState.IDLE:
                link.redial_us = self.host.mono_us()
        self.host.peer_said_hello(hello, dialed="")

    def _check_single(self, hello: LeaderHelloHeader, frame: Frame) -> None:
        """Pitfall 37: one node, one place. One id at two addresses, both alive, is a copied directory."""
        known = self._addresses.get(hello.node_id)
        link = self._by_id.get(hello.node_id)
        if known is not None and known != hello.address and link is not None and link.is_ready:
            text = (
                f"the node {hello.node_id} is at {known} already; its directory was copied to {hello.address}"
            )
            self.host.peer_refused(hello.address, ErrorCode.NODE_EXISTS, text)
            raise violation(ErrorCode.NODE_EXISTS, text, frame)

    def take_frame(self, conn: Conn, frame: Frame) -> None:
        """A message on a connection that another node dialed."""
        if conn.peer_id:
            self.take(conn.peer_id, frame, life=conn.peer_life)

    def dropped(self, conn: Conn) -> None:
        """Such a connection is gone."""
        if conn.peer_id and self._incoming.get(conn.peer_id) is conn:
            del self._incoming[conn.peer_id]
            self.broken(conn.peer_id)

    # -- what links tell

    def greeted(self, link: PeerLink, hello: LeaderHelloHeader) -> None:
        """The node at the other end answered."""
        self._by_id[hello.node_id] = link
        self._met(hello)
        self.host.peer_said_hello(hello, dialed=link.address)

    def refused(self, link: PeerLink, code: str, text: str) -> None:
        """The node at the other end does not want this one."""
        self.host.peer_refused(link.address, code, text)

    def broken(self, node_id: str) -> None:
        """A connection to this node was reset."""
        self.host.begin_turn()
        self.host.peer_broken(node_id)

    def _met(self, hello: LeaderHelloHeader) -> None:
        self._lives[hello.node_id] = hello.life
        if hello.address:
            self._addresses[hello.node_id] = hello.address
        if not hello.group and len(self.asking) < STRANGERS_MAX:
            self.asking[hello.node_id] = hello.address
        elif hello.group:
            self.asking.pop(hello.node_id, None)

    # -- messages

    def take(self, node_id: str, frame: Frame, *, life: str) -> None:
        """A message of this node. What is not between nodes, or not its own, raises ProtocolError."""
        if life != self._lives.get(node_id, life):
            # Said by a process that is no more. One that lives, overtaken by an old hello, dials again: so
            # this must be an error that closes.
            text = f"another process of the node {node_id} has said hello since"
            raise violation(ErrorCode.ILLEGAL_MESSAGE, text, frame)
        message = message_of(frame)
        if message.source != node_id:
            text = f"a message of {message.source} on the connection of {node_id}"
            raise violation(ErrorCode.BAD_HEADER, text, frame)
        if isinstance(message, RepairAsk | RepairHas | RepairFetch | RepairPiece):
            self.host.repair(message)
        else:
            self.host.step(message)

    def send(self, messages: Iterable[NodeMessage]) -> None:
        """Put messages on their way, each to its target. They leave with `flush`."""
        lines: list[bytes] | None = None
        joined = b""
        for message in messages:
            if isinstance(message, AppendEntries) and message.lines:
                if message.lines is not lines:
                    lines, joined = message.lines, b"".join(message.lines)
                head, payload = parts_of(message, group=self.me.group_name, lines=joined)
            else:
                head, payload = parts_of(message, group=self.me.group_name)
            self._put(message.target, head, payload)

    def _put(self, target: str, head: bytes, payload: bytes) -> None:
        """Where there is neither room nor a connection it is dropped: Raft says it again, and `status` shows
        how far behind that leaves a member."""
        link, conn = self._by_id.get(target), self._incoming.get(target)
        if link is not None and link.is_ready:
            link.put(head, payload)
        elif conn is not None and not conn.is_closed:
            conn.put(head + payload)

    def flush(self) -> None:
        """Send what was put in this turn."""
        unflushed, self.unflushed = self.unflushed, []
        for link in unflushed:
            link.flush()

    # -- time

    def tick(self, members: Iterable[str] = ()) -> None:
        """Dial what is to be dialed; ping; give up the silent. `members` are dialed where they say."""
        now_us = self.host.mono_us()
        for node_id in members:
            self._know(node_id, now_us)
        for link in self._links.values():
            if link.state is LinkState.IDLE and now_us >= link.redial_us:
                link.dialing(now_us)
                self._dial(link)
            else:
                link.tick(now_us)

    def _know(self, node_id: str, now_us: int) -> None:
        link, address = self._by_id.get(node_id), self._addresses.get(node_id)
        is_dialed = link is not None and link.is_ready
        if not is_dialed and address and address != self.me.address and address not in self._links:
            self._links[address] = PeerLink(self, address, now_us)

    def ask_again(self) -> None:
        """Hang up where there was an answer, and dial again soon: a hello is said once per connection."""
        for link in self._links.values():
            if link.is_ready:
                link.node_id = ""
                link.hang_up("")

    def close(self) -> None:
        """Hang up."""
        for link in self._links.values():
            if link.state in (LinkState.READY, LinkState.GREETING):
                link.state = LinkState.ITSELF
                link.hang_up("this node stops")
