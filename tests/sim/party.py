"""What clients and workers have in common: a connection that they make again, pings, frames.

It speaks only through the wire's codec and session table, as any library will.
"""

from typing import Final

from rollmq.errors import ProtocolError
from rollmq.limits import FRAME_BYTES_MAX, HANDSHAKE_US_MAX, IDLE_US_MAX, PING_EVERY_US
from rollmq.wire.codec import FrameDecoder
from rollmq.wire.message import Frame, MsgType
from rollmq.wire.session import Session, Side
from tests.sim.net import Link
from tests.sim.node import SimNode
from tests.sim.swarm import Swarm
from tests.sim.world import SECOND_US, Violation, World

REDIAL_US: Final = (20_000, 2 * SECOND_US)


class Party:
    """A process that talks to the node."""

    def __init__(self, world: World, node: SimNode, swarm: Swarm, name: str) -> None:
        self.world = world
        self.node = node
        self.swarm = swarm
        self.name = name
        self.is_alive = True
        self.link: Link | None = None
        self.session = Session(Side.LIBRARY)
        self.heard_us = 0
        self._decoder = FrameDecoder(FRAME_BYTES_MAX)
        self._number = 0

    # -- what each of them is

    def hello(self) -> Frame:
        """How it introduces itself."""
        raise NotImplementedError

    def on_ready(self, answer: Frame) -> None:
        """The hello was answered."""

    def on_frame(self, frame: Frame) -> None:
        """Something came."""

    def on_lost(self) -> None:
        """The connection is gone; another one will be made."""

    # -- the connection

    def next_id(self) -> bytes:
        """For a request that is no job."""
        self._number += 1
        return self._number.to_bytes(16, "big")

    def dial(self) -> None:
        """Connect, or try again later."""
        if not self.is_alive or self.link is not None:
            return
        link = Link(self.world, self.swarm.net)
        if not self.node.dial(link):
            self._redial()
            return
        self.link = link
        self.session = Session(Side.LIBRARY)
        self._decoder = FrameDecoder(FRAME_BYTES_MAX)
        self.heard_us = self.world.now_us
        link.a.on_data = lambda data: self._on_data(link, data)
        link.a.on_closed = lambda: self._lost(link)
        self.send(self.hello())
        self.world.after(PING_EVERY_US, lambda: self._ping(link))

    def send(self, frame: Frame) -> bool:
        """Say it if it may be said now; whether it was."""
        if self.link is None or not self.session.may_send(MsgType(frame.type)):
            return False
        self.link.a.send(self.session.send(frame))
        return True

    def hang_up(self) -> None:
        """Give the connection up and make another."""
        if self.link is not None:
            self.link.a.close()
            self._lost(self.link)

    def _redial(self) -> None:
        delay_us = self.world.between(REDIAL_US)
        self.world.after(delay_us, self.dial)

    def _lost(self, link: Link) -> None:
        if self.link is link:
            self.link = None
            self.session.close()
            if self.is_alive:
                self.on_lost()
                self._redial()

    def _ping(self, link: Link) -> None:
        if self.link is not link or not self.is_alive:
            return
        silent_us = self.world.now_us - self.heard_us
        if silent_us >= (IDLE_US_MAX if self.session.is_ready else HANDSHAKE_US_MAX):
            self.hang_up()
            return
        self.send(Frame(MsgType.PING, self.next_id()))
        self.world.after(PING_EVERY_US, lambda: self._ping(link))

    def _on_data(self, link: Link, data: bytes) -> None:
        if self.link is not link or not self.is_alive:
            return
        self.heard_us = self.world.now_us
        for item in self._decoder.feed(data):
            if self.link is not link:
                return
            if isinstance(item, ProtocolError):
                raise Violation(f"{self.name} cannot read what the node says: {item}")
            was_ready = self.session.is_ready
            try:
                self.session.receive(item)
            except ProtocolError as error:
                if self.swarm.net.is_orderly:
                    raise Violation(f"the node says to {self.name} what it may not: {error}") from error
                continue
            if not was_ready and self.session.is_ready:
                self.on_ready(item)
            else:
                self.on_frame(item)
        if self.session.is_closed and self.link is link:
            self.hang_up()
