"""Keeps a dialog talking over TCP: one connection after another, on whatever event loop runs it.

    link = Link(core, Route(servers, chance), chance=chance, after_turn=look)
    link.start()                 # on a running loop; returns at once, and reconnects until it is stopped
    core.say(…); link.flush_soon()
    await link.close()           # says goodbye; `stop()` does not wait

After every call of the dialog `out` is written at once and then `after_turn` called, so whatever that takes
from the dialog was said before. It knows no message: what is said and what it means are the dialog's, where
to go next is the route's. All of it belongs to the thread of its loop.
"""

import asyncio
import os
import socket
import time
from collections.abc import Callable
from typing import Final, cast

from rollmq.library.dialog import NEVER_US, Dialog, Watch
from rollmq.library.operator import Address, parse_servers
from rollmq.library.route import Route, Step, name_of

CONNECT_S: Final = 3.0
"""For one server to take the connection: the next one may be alive. The hello has its own bound."""
CLOSE_S: Final = 5.0
"""How long a closed connection may take to send what was said last, and a goodbye to be answered."""
WATCH_PAUSE_S: Final = 1.0
"""Before the watching connection is made again; with chance it is up to twice that."""
CONGESTED_BYTES: Final = 4 * 1024 * 1024
"""Unsent bytes at which `is_congested`: the node, or the way to it, is slower than we are."""


def monotonic_us() -> int:
    """The clock of all dialogs of this process."""
    return time.monotonic_ns() // 1000


class Link:
    """One dialog, the connection it has now, and the second one that hears of new leaders."""

    def __init__(
        self,
        dialog: Dialog,
        route: Route,
        *,
        chance: Callable[[], float],
        after_turn: Callable[[], None] = lambda: None,
    ) -> None:
        self.dialog = dialog
        self.route = route
        self.is_stopped = False
        """For good: there is no connection and there will be none."""
        self._chance = chance
        self._after_turn = after_turn
        self._main = _Tie(dialog, self._main_turned, self._main_ended)
        self._watch = Watch(dialog)
        self._watching = _Tie(self._watch, self._watch_turned, self._watch_ended)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._watch_retry: asyncio.TimerHandle | None = None
        self._closed: asyncio.Future[None] | None = None
        self._is_flushing = False
        self._was_ready = False
        """The hello of this connection was answered, and that was noticed."""
        self._followed_term = 0
        """Of the announcement that was followed last: each is followed once."""

    @property
    def is_congested(self) -> bool:
        """The other side takes less than is said: what may be lost should be left out."""
        return self._main.is_congested

    def start(self) -> None:
        """Begin to connect. Call it on the running loop that is to carry this link."""
        self._loop = asyncio.get_running_loop()
        self._go(self.route.first())

    def flush_soon(self) -> None:
        """Something stands in `out`: it is written, with whatever else comes, at the end of this turn."""
        if not self._is_flushing and self._loop is not None:
            self._is_flushing = True
            self._loop.call_soon(self._flush)

    def flush(self) -> None:
        """The same at once: for a callback of the loop that is through with the dialog."""
        if not self.is_stopped:
            self._main.turn()

    async def close(self, timeout_s: float = CLOSE_S) -> None:
        """Say goodbye, wait for the answer to what was said before it, stop, and let the sockets close.
        A node that does not answer is not waited for longer than this."""
        if self._main.is_open and not self.is_stopped:
            assert self._loop is not None
            self._closed = self._loop.create_future()
            self.dialog.say_goodbye()
            self._main.turn()
            if not self.is_stopped:
                await asyncio.wait((self._closed,), timeout=timeout_s)
        self.stop()
        closing = [*self._main.closing, *self._watching.closing]
        if closing:
            await asyncio.wait(closing, timeout=timeout_s)

    def stop(self) -> None:
        """Close at once; what was written is still sent. The dialog hears `lost`."""
        if self.is_stopped:
            return
        self.is_stopped = True
        for timer in (self._retry, self._watch_retry):
            if timer is not None:
                timer.cancel()
        self._watching.stop()
        self._main.stop()
        if self._closed is not None and not self._closed.done():
            self._closed.set_result(None)

    # -- the connection that talks

    def _go(self, step: Step) -> None:
        assert self._loop is not None
        if self._retry is not None:
            self._retry.cancel()
        self._retry = self._loop.call_later(step.pause_us / 1e6, self._main.connect, step.address)

    def _flush(self) -> None:
        self._is_flushing = False
        if not self.is_stopped:
            self._main.turn()

    def _main_turned(self) -> None:
        if self.dialog.is_ready and not self._was_ready:
            self._was_ready = True
            self.route.succeeded()
            self._watch_elsewhere()
        self._after_turn()

    def _main_ended(self, why: str) -> None:
        self._was_ready = False
        self._after_turn()
        if self.is_stopped:
            return
        if self.dialog.fatal is not None or self._closed is not None:
            self.stop()
        elif not self._follow_announcement():
            # A hint is followed once: when no connection can be made there, that server gave none.
            address, hint, self.dialog.redirect = self._main.address, self.dialog.redirect, None
            self._go(self.route.redirected(address, hint) if hint else self.route.failed(address, why))
            self.dialog.trouble = self.route.told()

    # -- the connection that watches

    def _watch_elsewhere(self) -> None:
        """Watch a server that is not the one which leads: it will know who comes next."""
        if self.is_stopped or self._watch.fatal is not None or self.dialog.make_watch_hello() is None:
            return
        here = self._main.address
        other = self.route.other_than(here)
        if other is not None and not (self._watching.is_open and self._watching.address != here):
            self._watching.drop("the server that it watched leads now")
            self._watching.connect(other)

    def _watch_turned(self) -> None:
        self._follow_announcement()

    def _watch_ended(self, _why: str) -> None:
        if self.is_stopped or self._watch.fatal is not None:
            return
        assert self._loop is not None
        if self._watch_retry is not None:
            self._watch_retry.cancel()
        pause_s = WATCH_PAUSE_S * (1 + self._chance())
        self._watch_retry = self._loop.call_later(pause_s, self._watch_elsewhere)

    def _follow_announcement(self) -> bool:
        """Go to the leader that was announced, if it is news. Whether we went."""
        watch, dialog = self._watch, self.dialog
        if watch.leader is None or watch.leader_term <= self._followed_term or self._closed is not None:
            return False
        is_news = watch.leader_term > dialog.redirect_term
        is_help = watch.leader_term == dialog.redirect_term and not self._main.is_open
        target = _address_of(watch.leader)
        if target is None or not (is_news or is_help) or watch.group not in (dialog.group, ""):
            return False
        self._followed_term = watch.leader_term
        if self._main.is_open and self._main.address == target:
            return False  # We are there, or about to be.
        self._main.drop("another node leads now", is_told=False)
        self._was_ready = False
        self._after_turn()
        self._go(Step(target, 0))
        return True


class _Tie:
    """One dialog and the connection that it has now, from connecting on. Ends are told once each."""

    def __init__(self, dialog: Dialog, turned: Callable[[], None], ended: Callable[[str], None]) -> None:
        self.address: Address = ("", 0)
        self.is_congested = False
        self.closing: set[asyncio.Future[None]] = set()
        """Connections that were let go and whose sockets are not closed yet."""
        self._dialog = dialog
        self._turned = turned
        self._ended = ended
        self._line: _Line | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._wake_us = NEVER_US
        """When the timer rings."""
        self._is_stopped = False

    @property
    def is_open(self) -> bool:
        """There is a connection."""
        return self._line is not None

    def connect(self, address: Address) -> None:
        """Begin; `turned` or `ended` follows."""
        assert self._line is None, "one connection at a time"
        if self._connecting is not None:
            self._connecting.cancel()
        self.address = address
        self._connecting = asyncio.get_running_loop().create_task(self._connect(address))

    async def _connect(self, address: Address) -> None:
        why, line = "", _Line(self)
        try:
            async with asyncio.timeout(CONNECT_S):
                await asyncio.get_running_loop().create_connection(lambda: line, *address)
        except TimeoutError:
            why = f"no connection within {CONNECT_S:g} s"
        except (OSError, UnicodeError) as error:
            why = _plain(error)
        if self._connecting is asyncio.current_task():
            self._connecting = None
            if why:
                self._ended(why)
        elif why and self._line is line:
            self.lost(why)

    def opened(self, line: "_Line") -> None:
        """The connection is made."""
        # The task that made it may still be on its way back. To cancel it now would close the socket without
        # a word to the line, which then would be waited for.
        self._connecting = None
        self._line = line
        self.is_congested = False
        self._dialog.opened(monotonic_us(), name_of(self.address))
        self.turn()

    def fed(self, data: bytes) -> None:
        """Bytes came."""
        self._dialog.feed(data, monotonic_us())
        self.turn()

    def turn(self) -> None:
        """The dialog was called: say what it says, let the user look, see whether it is over."""
        dialog = self._dialog
        self._write()
        self._turned()
        self._write()
        if self._line is not None and dialog.is_over:
            self.drop(dialog.trouble, is_told=True)
        else:
            self._arm()

    def lost(self, why: str) -> None:
        """The other side closed, or the network did."""
        self._dialog.trouble = self._dialog.trouble or why
        self.drop(self._dialog.trouble, is_told=True)

    def drop(self, why: str, *, is_told: bool = False) -> None:
        """Give up whatever there is. `is_told`: the one who holds this tie hears of it by `ended`."""
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        line, self._line = self._line, None
        if line is None:
            return
        if not line.gone.done():
            self.closing.add(line.gone)
            line.gone.add_done_callback(self.closing.discard)
            line.close()
        self._dialog.lost(monotonic_us())
        self._arm()
        if is_told:
            self._ended(why)

    def stop(self) -> None:
        """For good."""
        self._is_stopped = True
        self.drop("stopped")
        if self._timer is not None:
            self._timer.cancel()

    def _write(self) -> None:
        line = self._line
        if line is not None:
            data = self._dialog.take_out()
            if data:
                line.write(data)

    def _arm(self) -> None:
        """Have the dialog ticked in time, connected or not: patience ends also when nobody is there."""
        at_us = self._dialog.next_us
        if at_us >= self._wake_us or self._is_stopped:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._wake_us = at_us
        # Some loops count in milliseconds and ring early.
        delay_s = max(at_us - monotonic_us(), 1_000) / 1e6
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._ring)

    def _ring(self) -> None:
        self._timer, self._wake_us = None, NEVER_US
        now_us = monotonic_us()
        if self._dialog.next_us <= now_us:
            self._dialog.tick(now_us)
        self.turn()


class _Line(asyncio.Protocol):
    """One TCP connection. What it still says after its tie has let it go concerns nobody."""

    def __init__(self, tie: _Tie) -> None:
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Set when the socket is closed."""
        self._tie: _Tie | None = tie
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, for the transports of uvloop are none of asyncio's classes.
        self._transport = transport = cast(asyncio.Transport, transport)
        transport.set_write_buffer_limits(high=CONGESTED_BYTES)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._tie is not None:
            self._tie.opened(self)

    def data_received(self, data: bytes) -> None:
        if self._tie is not None:
            self._tie.fed(data)

    def pause_writing(self) -> None:
        if self._tie is not None:
            self._tie.is_congested = True

    def resume_writing(self) -> None:
        if self._tie is not None:
            self._tie.is_congested = False

    def connection_lost(self, exc: Exception | None) -> None:
        tie, self._tie, self._transport = self._tie, None, None
        self.gone.set_result(None)
        if tie is not None:
            tie.lost("the node closed the connection" if exc is None else _plain(exc))

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def close(self) -> None:
        """What was written is still sent, if the other side takes it in time."""
        self._tie = None
        transport = self._transport
        if transport is not None:
            transport.close()
            if transport.get_write_buffer_size():
                asyncio.get_running_loop().call_later(CLOSE_S, transport.abort)


def _address_of(leader: str) -> Address | None:
    try:
        return parse_servers(leader)[0]
    except ValueError:
        return None


def _plain(error: Exception) -> str:
    """What the system says, the same on every loop."""
    is_numbered = isinstance(error, OSError) and error.errno is not None and error.errno > 0
    text = os.strerror(error.errno) if is_numbered else str(error)  # type: ignore[attr-defined]
    return text[:1].lower() + text[1:] if text else type(error).__name__
