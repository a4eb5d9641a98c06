"""The network between the nodes of a group: messages lost, repeated, late, overtaken, held up, cut off.

Wider than any connection: what a TCP link with bounded queues may do to frames, and more. A cut has a
direction. It looks at nothing but who sends to whom; some messages go through the real codec on the way.
"""

from collections.abc import Callable
from dataclasses import dataclass

from rollmq.wire.codec import FrameDecoder, encode
from rollmq.wire.message import Frame
from rollmq.wire.peer import NodeMessage, frame_of, message_of
from tests.sim.world import World

Pair = tuple[str, str]
FRAME_BYTES_MAX = 1 << 26


@dataclass(slots=True)
class PeerFaults:
    """What messages between nodes suffer while the storm lasts."""

    latency_us: tuple[int, int] = (50, 1_000)
    lose: float = 0.0
    repeat: float = 0.0
    repeat_us: int = 1_000_000
    overtake: float = 0.0
    """That a message is late, and later ones arrive before it."""
    overtake_us: int = 100_000
    clog_every_us: int = 0
    """How often one direction of one link holds everything back for a while, then lets it all through."""
    clog_us: tuple[int, int] = (10_000, 5_000_000)
    coded: float = 0.1
    """Share of the messages that travel as bytes."""


class PeerNet:
    """All links of one group."""

    def __init__(self, world: World, faults: PeerFaults, deliver: Callable[[NodeMessage], None]) -> None:
        self.world = world
        self.faults = faults
        self.cut: set[Pair] = set()
        """(from, to): nothing gets through."""
        self.sent_count = 0
        self.life_of: Callable[[str], int] = lambda _source: 0
        """Which of its processes a node is in."""
        self.is_by_connection = False
        """Nothing of an earlier process arrives behind something of a later one."""
        self._heard: dict[Pair, int] = {}
        self._deliver = deliver
        self._arrives_us: dict[Pair, int] = {}
        self._clogged_until_us: dict[Pair, int] = {}

    def send(self, message: NodeMessage) -> None:
        """Hand a message to the network, which may do with it what it likes."""
        world, faults = self.world, self.faults
        self.sent_count += 1
        pair = (message.source, message.target)
        if pair in self.cut:
            return
        life = self.life_of(message.source)
        if world.is_calm:
            self._in_order(pair, life, message, faults.latency_us[0])
            return
        if world.happens(faults.lose):
            return
        if world.happens(faults.repeat):
            world.after(world.between((0, faults.repeat_us)), lambda: self._arrive(pair, life, message))
        latency_us = world.between(faults.latency_us)
        if world.happens(faults.overtake):
            world.after(
                latency_us + world.between((0, faults.overtake_us)), lambda: self._arrive(pair, life, message)
            )
            return
        self._in_order(pair, life, message, latency_us)

    def _in_order(self, pair: Pair, life: int, message: NodeMessage, latency_us: int) -> None:
        world = self.world
        soonest_us = max(self._arrives_us.get(pair, 0), self._clogged_until_us.get(pair, 0))
        at_us = self._arrives_us[pair] = max(soonest_us, world.now_us + latency_us)
        world.after(at_us - world.now_us, lambda: self._arrive(pair, life, message))

    def _arrive(self, pair: Pair, life: int, message: NodeMessage) -> None:
        if pair in self.cut:
            return
        if life < self._heard.get(pair, 0):
            return  # what is left of a connection of an earlier process, once a later one said hello
        if self.is_by_connection:
            self._heard[pair] = life
        if self.world.happens(self.faults.coded):
            message = through_the_codec(message)
        self._deliver(message)

    # -- what goes wrong

    def cut_between(self, one: set[str], other: set[str], *, back: bool = True) -> None:
        """Nothing gets from these to those, and (with `back`) neither from those to these."""
        for source in one:
            for target in other - {source}:
                self.cut.add((source, target))
                if back:
                    self.cut.add((target, source))

    def heal(self) -> None:
        """Everything gets through again."""
        self.cut.clear()
        self._clogged_until_us.clear()

    def clog(self, pair: Pair) -> None:
        """What is sent there from now on comes all at once, later."""
        self._clogged_until_us[pair] = self.world.now_us + self.world.between(self.faults.clog_us)


def through_the_codec(message: NodeMessage) -> NodeMessage:
    """The same message after a journey as bytes."""
    data = encode(frame_of(message, group="sim"))
    frames = FrameDecoder(FRAME_BYTES_MAX).feed(data)
    assert len(frames) == 1
    frame = frames[0]
    assert isinstance(frame, Frame), frame
    found = message_of(frame)
    assert found == message, "a message survives its journey"
    return found
