"""What clients and workers have in common: the library's dialog, and a connection that is made again.

It does in virtual time what the library's link does on an event loop: write what stands in `out`, then see
what follows; tick when it is time; go where the route says. Every message is the library's own.
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from rollmq.errors import ProtocolError
from rollmq.library.dialog import NEVER_US, Dialog, Watch
from rollmq.library.operator import Address, parse_servers
from rollmq.library.route import Route, Step, name_of
from tests.sim.net import Link, frames_of
from tests.sim.oracle import Oracle
from tests.sim.swarm import NetFaults, Swarm
from tests.sim.tap import WorkerTap
from tests.sim.world import SECOND_US, Timer, Violation, World
from tests.wire.unfold import as_the_simplest

WATCH_PAUSE_US = (SECOND_US, 2 * SECOND_US)


class Town(Protocol):
    """Where the nodes live."""

    oracle: Oracle

    @property
    def servers(self) -> str:
        """What a client is given: host:port,host:port."""

    def dial(self, address: Address, link: Link) -> bool:
        """Connect to this address; False: nobody listens."""


SIMPLE: Final = 0.25
"""How many parties are as simple as a client in another language may be."""


class Tie:
    """One dialog and the connection that it has now."""

    def __init__(
        self,
        world: World,
        town: Town,
        net: NetFaults,
        dialog: Dialog,
        *,
        turned: Callable[[], None],
        ended: Callable[[], None],
    ) -> None:
        self.dialog = dialog
        self.address: Address = ("", 0)
        self.link: Link | None = None
        self.drops = frozenset[int]()
        """Types of messages that are never written: a fault of this process."""
        self.tap: WorkerTap | None = None
        self._world = world
        self._town = town
        self._net = net
        self._turned = turned
        self._ended = ended
        self._timer: Timer | None = None
        self.is_simple = False
        """It neither says nor takes many jobs in one frame."""
        if net.is_orderly:
            dialog.watch_violation = self._on_violation

    def _on_violation(self, error: ProtocolError) -> None:
        raise Violation(f"{self.address} says what it may not: {error}") from error

    def connect(self, address: Address) -> None:
        """Connect, or hear at once that nobody listens."""
        assert self.link is None
        self.address = address
        link = Link(self._world, self._net)
        if not self._town.dial(address, link):
            self._ended()
            return
        self.link = link
        link.a.on_data = lambda data: self._on_data(link, data)
        link.a.on_closed = lambda: self._on_closed(link)
        if self.tap is not None:
            self.tap.opened()
        self.dialog.opened(self._world.now_us, name_of(address))
        self.turn()

    def turn(self) -> None:
        """The dialog was called: write, let its owner look, write what that brought, see if it is over."""
        self.write()
        self._turned()
        self.write()
        if self.link is None:
            return
        if self.dialog.is_over:
            self.hang_up()
        else:
            self._set_timer()

    def hang_up(self) -> None:
        """Close behind what was said."""
        link = self.link
        if link is not None:
            link.a.close()
            self._on_closed(link)

    def forget(self) -> Link | None:
        """This process is gone: the connection as it was left."""
        link, self.link = self.link, None
        if self._timer is not None:
            self._timer.cancel()
        return link

    def write(self) -> None:
        """Send what the dialog has said."""
        link = self.link
        if link is None:
            return
        data = self.dialog.take_out()
        if not data:
            return
        said: Sequence[bytes] = frames_of(as_the_simplest(data) if self.is_simple else data)
        if self.drops and not self._world.is_calm:
            said = [frame for frame in said if frame[4] not in self.drops]
        if self.tap is not None:
            self.tap.said(b"".join(said))
        for piece in [b"".join(said)] if self._net.is_orderly else said:
            link.a.send(piece)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        next_us = self.dialog.next_us
        if next_us < NEVER_US:
            self._timer = self._world.after(next_us - self._world.now_us, self._ring)

    def _ring(self) -> None:
        self.dialog.tick(self._world.now_us)
        self.turn()

    def _on_data(self, link: Link, data: bytes) -> None:
        if self.link is link:
            if self.tap is not None and self._net.is_orderly:
                self.tap.heard(data)
            self.dialog.feed(data, self._world.now_us)
            self.turn()

    def _on_closed(self, link: Link) -> None:
        if self.link is link:
            self.forget()
            self.dialog.lost(self._world.now_us)
            self._ended()


class Party:
    """A process that talks to whichever node leads."""

    dialog: Dialog

    def __init__(self, world: World, town: Town, swarm: Swarm, name: str) -> None:
        self.world = world
        self.town = town
        self.swarm = swarm
        self.name = name
        self.is_alive = False
        self.is_simple = world.happens(SIMPLE)
        self.oracle = town.oracle
        self._main: Tie
        self._watch: Tie
        self._route: Route
        self._was_ready = False
        self._followed_term = 0

    # -- what each of them is

    def turned(self) -> None:
        """The dialog was called, and what it had to say is written: take what it wants done."""

    # -- this process

    def begin(self, dialog: Dialog) -> None:
        """The process starts, and looks for a node."""
        self.is_alive = True
        self.dialog = dialog
        self._route = Route(self.town.servers, self.world.random.random)
        net = self.swarm.net
        self._main = Tie(self.world, self.town, net, dialog, turned=self._main_turned, ended=self._main_ended)
        self._main.is_simple = self.is_simple
        self._watch = Tie(
            self.world, self.town, net, Watch(dialog), turned=self._look_out, ended=self._watch_ended
        )
        self._was_ready = False
        self._followed_term = 0
        self._go(self._route.first())

    def turn(self) -> None:
        """Something was done to the dialog by its user."""
        if self.is_alive:
            self._main.turn()

    def hang_up(self) -> None:
        """Give the connection up and make another."""
        if self.is_alive:
            self._main.hang_up()

    def vanish(self, *, is_silent: bool) -> None:
        """The process is gone; the other end is told so, or not."""
        self.is_alive = False
        for tie in (self._main, self._watch):
            link = tie.forget()
            if link is not None and is_silent:
                link.a.vanish()
            elif link is not None:
                link.snap()
                link.a.is_open = False

    def leave(self) -> None:
        """The process ends politely."""
        self.is_alive = False
        for tie in (self._main, self._watch):
            link = tie.forget()
            if link is not None:
                link.a.close()

    # -- where to

    def _go(self, step: Step) -> None:
        main = self._main
        # Something always takes its time, or two nodes that send it back and forth would stop the world.
        self.world.after(step.pause_us + 1 + self.world.between((0, 2_000)), lambda: self._dial(main, step))

    def _dial(self, tie: Tie, step: Step) -> None:
        if self.is_alive and tie is self._main and tie.link is None:
            tie.connect(step.address)

    def _main_turned(self) -> None:
        if self.dialog.is_ready and not self._was_ready:
            self._was_ready = True
            self._route.succeeded()
            self._watch_elsewhere()
        self.turned()

    def _main_ended(self) -> None:
        self._was_ready = False
        if not self.is_alive:
            return
        dialog, address = self.dialog, self._main.address
        if dialog.fatal is not None:
            raise Violation(f"{self.name} is told to give up: {dialog.fatal}")
        self.turned()
        if not self.is_alive or self._follow_announcement():
            return
        hint, dialog.redirect = dialog.redirect, None
        route = self._route
        self._go(route.redirected(address, hint) if hint else route.failed(address, dialog.trouble))

    # -- the second connection, which hears of new leaders

    def _watch_elsewhere(self) -> None:
        if not self.is_alive or self._watch.link is not None or self.dialog.make_watch_hello() is None:
            return
        other = self._route.other_than(self._main.address)
        if other is not None:
            self._watch.connect(other)

    def _watch_ended(self) -> None:
        if self.is_alive:
            self.world.after(self.world.between(WATCH_PAUSE_US), self._watch_elsewhere)

    def _look_out(self) -> None:
        self._follow_announcement()

    def _follow_announcement(self) -> bool:
        """Go to the leader that was announced, if it is news. Whether we went."""
        watch, dialog, main = self._watch.dialog, self.dialog, self._main
        assert isinstance(watch, Watch)
        if watch.leader is None or watch.leader_term <= self._followed_term:
            return False
        is_news = watch.leader_term > dialog.redirect_term
        is_help = watch.leader_term == dialog.redirect_term and main.link is None
        if not (is_news or is_help):
            return False
        self._followed_term = watch.leader_term
        target = parse_servers(watch.leader)[0]
        if main.link is not None and main.address == target:
            return False
        link = main.forget()
        if link is not None:
            link.a.close()
            dialog.lost(self.world.now_us)
        self._was_ready = False
        self.turned()
        self._go(Step(target, 0))
        return True
