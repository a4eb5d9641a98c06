"""A connection that this node dials to another of its group: hello, then messages, until it breaks.

Sans-IO: a `Pipe` takes the bytes, the host dials and tells what came of it. It never blocks and never keeps
what cannot be sent: Raft sends again.
"""

from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

from rollmq import limits
from rollmq.errors import ProtocolError
from rollmq.wire.codec import FrameDecoder, header_of
from rollmq.wire.headers import ErrorHeader
from rollmq.wire.liveness import Due, Liveness
from rollmq.wire.message import Frame, MsgType
from rollmq.wire.peer_headers import LeaderHelloHeader
from rollmq.wire.session import Session, Side

if TYPE_CHECKING:
    from rollmq.node.peers import Peers

REDIAL_FIRST_US: Final = 50_000
REDIAL_MAX_US: Final = 1_000_000
"""Pauses between two attempts to reach a peer: soon at first, and at most the time in which a node that
comes back should be heard."""
DIAL_US_MAX: Final = 3_000_000
"""How long connecting and the hello may take."""


class LinkPipe(Protocol):
    """Where a link's bytes go."""

    def write_parts(self, parts: list[bytes]) -> None: ...
    def abort(self) -> None:
        """Close at once: what is unsent is lost."""

    def unsent_bytes(self) -> int:
        """What the other side has not taken yet."""


class LinkState(Enum):
    """How far the connection is."""

    IDLE = "idle"
    DIALING = "dialing"
    GREETING = "greeting"
    READY = "ready"
    ITSELF = "itself"
    """The address is this node's own: it is never dialed again."""


class PeerLink:
    """The connection to one address."""

    def __init__(self, peers: "Peers", address: str, now_us: int) -> None:
        self.address = address
        self.node_id = ""
        """Who answered there last."""
        self._life = ""
        self.state = LinkState.IDLE
        self.redial_us = now_us
        self.reason = "not reached yet"
        """Why it is not ready."""
        self._pause_us = REDIAL_FIRST_US
        self._peers = peers
        self._pipe: LinkPipe | None = None
        self._session = Session(Side.LIBRARY)
        self._decoder = FrameDecoder(limits.FRAME_BYTES_MAX)
        self._liveness = Liveness(now_us)
        self._began_us = now_us
        self.out: list[bytes] = []

    @property
    def is_ready(self) -> bool:
        """Messages may be sent."""
        return self.state is LinkState.READY

    # -- the host's side

    def dialing(self, now_us: int) -> None:
        """The host dials now; it calls `opened` or `lost`."""
        self.state = LinkState.DIALING
        self._began_us = now_us

    def opened(self, pipe: LinkPipe) -> None:
        """Connected: say who this node is."""
        self._pipe = pipe
        self.state = LinkState.GREETING
        self._session = Session(Side.LIBRARY)
        self._decoder = FrameDecoder(limits.FRAME_BYTES_MAX)
        header = self._peers.hello()
        pipe.write_parts(
            [self._session.send(Frame(MsgType.LEADER_HELLO, self._peers.new_id(), header=header))]
        )

    def received(self, data: bytes) -> None:
        """Bytes came."""
        self._peers.host.begin_turn()
        self._liveness.heard(self._peers.host.mono_us())
        for item in self._decoder.feed(data):
            if self._session.is_closed:
                return
            if isinstance(item, ProtocolError):
                self.hang_up(item.text)
                return
            try:
                self._session.receive(item)
                self._take(item)
            except ProtocolError as error:
                self.hang_up(error.text)
                return

    def lost(self, reason: str) -> None:
        """The connection is gone, or was never made."""
        was_ready, self._pipe = self.is_ready, None
        self._session.close()
        self.out.clear()
        if self.state is not LinkState.ITSELF:
            self.state = LinkState.IDLE
            self.reason = reason
            self._again_later()
        if was_ready:
            self._peers.broken(self.node_id)

    def hang_up(self, reason: str) -> None:
        """Give it up, and say why."""
        pipe = self._pipe
        self.lost(reason)
        if pipe is not None:
            pipe.abort()

    # -- messages

    def put(self, head: bytes, payload: bytes = b"") -> None:
        """Take a message along; it is dropped when the other side does not read, or is not there."""
        if self._pipe is None or not self.is_ready:
            return
        if self._pipe.unsent_bytes() > limits.PEER_UNSENT_BYTES_MAX:
            return
        if not self.out:
            self._peers.unflushed.append(self)
        self.out.append(head)
        if payload:
            self.out.append(payload)

    def flush(self) -> None:
        """Send what was put."""
        out, self.out = self.out, []
        if self._pipe is not None and out:
            self._pipe.write_parts(out)

    def tick(self, now_us: int) -> None:
        """Look at the time: pings, silence, an answer that does not come."""
        if self.state in (LinkState.DIALING, LinkState.GREETING):
            if now_us > self._began_us + DIAL_US_MAX:
                self.hang_up("no answer in time")
        elif self.is_ready:
            due = self._liveness.due(now_us)
            if due is Due.PING:
                self.put(self._session.send(Frame(MsgType.PING)))
            elif due is not Due.NOTHING:
                self.hang_up("nothing was heard for too long")

    # -- inside

    def _take(self, frame: Frame) -> None:
        if frame.type == MsgType.LEADER_HELLO:
            self._greeted(frame)
        elif frame.type == MsgType.PING:
            self.put(self._session.send(Frame(MsgType.PONG, corr_id=frame.msg_id)))
        elif frame.type == MsgType.ERROR:
            error = header_of(frame, ErrorHeader)
            self._peers.refused(self, error.code, error.text)
            if error.closes:
                self.hang_up(error.text)
        elif frame.type in (MsgType.GOODBYE, MsgType.NOT_LEADER):
            self.hang_up("the node stops")
        elif frame.type != MsgType.PONG:
            self._peers.take(self.node_id, frame, life=self._life)

    def _greeted(self, frame: Frame) -> None:
        hello = header_of(frame, LeaderHelloHeader)
        now_us = self._peers.host.mono_us()
        self.node_id, self._life = hello.node_id, hello.life
        if self._peers.is_itself(hello):
            self.state = LinkState.ITSELF
            self.hang_up("it is this node")
            return
        self._peers.check(hello, frame)
        self.state = LinkState.READY
        self.reason = ""
        self._pause_us = REDIAL_FIRST_US
        self._liveness = Liveness(now_us)
        self._liveness.ready(now_us)
        self._peers.greeted(self, hello)

    def _again_later(self) -> None:
        now_us = self._peers.host.mono_us()
        self.redial_us = now_us + int(self._pause_us * (0.5 + self._peers.chance() / 2))
        self._pause_us = min(2 * self._pause_us, REDIAL_MAX_US)
