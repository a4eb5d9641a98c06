"""Connections between parties and the node: bytes in order until the connection breaks, at any byte.

In its orderly form it does what TCP does, worse than usual: pieces are split, sides learn of a break at
different times or never. In its disorderly form frames are lost, repeated and overtaken, which no TCP does,
and the connection lives on for some seconds before it breaks; what says hello or goodbye is spared, for
without it nothing would be said at all. It knows of a frame only its type byte.
"""

from collections.abc import Callable

from rollmq.wire.message import MsgType
from tests.sim.swarm import NetFaults
from tests.sim.world import SECOND_US, World

TYPE_AT = 4
DOOM_US = (1_000, 20 * SECOND_US)
SPARED = frozenset(
    {
        int(MsgType.HELLO_CLIENT),
        int(MsgType.HELLO_WORKER),
        int(MsgType.HELLO_OPERATOR),
        int(MsgType.GOODBYE),
        int(MsgType.NOT_LEADER),
        int(MsgType.ERROR),
    }
)


class End:
    """One end of a connection. Its owner sets the two callbacks."""

    __slots__ = ("_arrives_us", "_link", "_under_way", "is_open", "on_closed", "on_data", "peer")

    def __init__(self, link: "Link") -> None:
        self._link = link
        self.peer: End
        self.is_open = True
        """As far as this end knows."""
        self.on_data: Callable[[bytes], None] = _ignore_data
        self.on_closed: Callable[[], None] = _ignore
        self._arrives_us = 0
        self._under_way: list[list[bytes | None]] = []

    def send(self, data: bytes) -> None:
        """One frame, or several that may not be told apart."""
        if self.is_open and data:
            self._link.carry(self, data)

    def close(self) -> None:
        """Say nothing more; the other end hears of it behind what is under way."""
        if self.is_open:
            self.is_open = False
            self._link.closed_by(self)

    def vanish(self) -> None:
        """The process behind this end is gone, and nobody will ever say so to the other one."""
        self.is_open = False
        self._link.is_broken = True
        self.on_data, self.on_closed = _ignore_data, _ignore


class Link:
    """A connection. `a` dialed, `b` was dialed."""

    def __init__(self, world: World, faults: NetFaults) -> None:
        self.world = world
        self.faults = faults
        self.is_broken = self.is_doomed = False
        self.a, self.b = End(self), End(self)
        self.a.peer, self.b.peer = self.b, self.a
        if faults.break_every_us and not world.is_calm:
            world.after(world.rarely(faults.break_every_us), self._break_by_chance)

    # -- carrying

    def carry(self, end: End, data: bytes) -> None:
        world, faults = self.world, self.faults
        if self.is_broken:
            return
        if not world.is_calm and not faults.is_orderly and data[TYPE_AT] not in SPARED:
            if world.happens(faults.lose):
                self._doom()
                return
            if world.happens(faults.repeat):
                self._doom()
                self._deliver_later(end, data, world.between((0, faults.delay_us)))
            if world.happens(faults.delay):
                self._doom()
                self._deliver_later(end, data, world.between((0, faults.delay_us)))
                return
        if world.happens(faults.split) and len(data) > 1:
            at = world.random.randrange(1, len(data))
            self._in_order(end, data[:at])
            data = data[at:]
        self._in_order(end, data)

    def _doom(self) -> None:
        """Nobody repairs a connection that has lost its order: it breaks before long."""
        if not self.is_doomed:
            self.is_doomed = True
            self.world.after(self.world.between(DOOM_US), self.snap)

    def _in_order(self, end: End, data: bytes) -> None:
        world = self.world
        latency_us = world.between(self.faults.latency_us) if not world.is_calm else self.faults.latency_us[0]
        end._arrives_us = max(end._arrives_us, world.now_us + latency_us)
        piece: list[bytes | None] = [data]
        end._under_way.append(piece)
        world.after(end._arrives_us - world.now_us, lambda: self._arrive(end, piece))

    def _arrive(self, end: End, piece: list[bytes | None]) -> None:
        data = piece[0]
        if data is None:
            return
        assert end._under_way[0] is piece
        end._under_way.pop(0)
        if end.peer.is_open:
            end.peer.on_data(data)

    def _deliver_later(self, end: End, data: bytes, delay_us: int) -> None:
        """Out of order: a whole frame of its own, between two others."""

        def arrive() -> None:
            # Between the two halves of another frame it would be noise and not a frame.
            if end._under_way and not self.is_broken:
                self._in_order(end, data)
            elif end.peer.is_open and not self.is_broken:
                end.peer.on_data(data)

        self.world.after(delay_us, arrive)

    # -- ending

    def closed_by(self, end: End) -> None:
        delay_us = max(end._arrives_us - self.world.now_us, 0) + self.world.between(self.faults.latency_us)
        self.world.after(delay_us, lambda: _tell(end.peer))

    def _break_by_chance(self) -> None:
        if self.world.is_calm or self.is_broken or not (self.a.is_open and self.b.is_open):
            return
        self.world.say("net", "a connection breaks")
        self.snap(half_open=self.faults.half_open)

    def snap(self, *, half_open: float = 0.0) -> None:
        """The connection breaks at an arbitrary byte of what is under way, in both directions."""
        if self.is_broken:
            return
        self.is_broken = True
        for end in (self.a, self.b):
            pieces, end._under_way = end._under_way, []
            whole_count = self.world.random.randint(0, len(pieces))
            arrived = b"".join(piece[0] for piece in pieces[:whole_count] if piece[0] is not None)
            for piece in pieces:
                piece[0] = None
            if arrived and self.world.happens(0.5):
                arrived = arrived[: self.world.random.randrange(len(arrived))]
            if arrived and end.peer.is_open:
                end.peer.on_data(arrived)
        deaf = self.world.random.choice((self.a, self.b)) if self.world.happens(half_open) else None
        for end in (self.a, self.b):
            if end is not deaf:
                self.world.after(self.world.between((0, 50_000)), lambda end=end: _tell(end))  # type: ignore[misc]


def frames_of(data: bytes) -> list[bytes]:
    """Whole frames, one by one."""
    found, at = [], 0
    while at < len(data):
        end = at + TYPE_AT + int.from_bytes(data[at : at + TYPE_AT], "big")
        found.append(data[at:end])
        at = end
    return found


def _tell(end: End) -> None:
    """This end learns that the connection is gone."""
    if end.is_open:
        end.is_open = False
        end.on_closed()


def _ignore_data(_data: bytes) -> None:
    """Nobody listens."""


def _ignore() -> None:
    """Nobody listens."""
