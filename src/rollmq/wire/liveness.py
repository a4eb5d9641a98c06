"""When to ping, and when to give a connection up, as functions of a time that is handed in.

It sends nothing and reads no clock: times are microseconds of the host's monotonic clock.
"""

from enum import Enum

from rollmq import limits
from rollmq.errors import ProtocolError
from rollmq.wire.error_codes import ErrorCode, violation


class Due(Enum):
    """What the host has to do now."""

    NOTHING = "nothing"
    PING = "ping"
    HANDSHAKE_TIMEOUT = "handshake_timeout"
    IDLE_TIMEOUT = "idle_timeout"


class Liveness:
    """One connection's silence. Only what is heard proves life: what is sent may fall into a void.

    The host feeds what has arrived before it asks what is due; else a node that was itself stopped for a
    while would blame everybody who had gone on talking to it.
    """

    __slots__ = ("_began_us", "_heard_us", "_idle_us_max", "_is_ready", "_ping_every_us", "_pinged_us")

    def __init__(
        self,
        now_us: int,
        *,
        ping_every_us: int = limits.PING_EVERY_US,
        idle_us_max: int = limits.IDLE_US_MAX,
    ) -> None:
        assert 0 < ping_every_us < idle_us_max
        self._began_us = self._heard_us = self._pinged_us = now_us
        self._ping_every_us = ping_every_us
        self._idle_us_max = idle_us_max
        self._is_ready = False

    def heard(self, now_us: int) -> None:
        """Bytes came, of whatever kind."""
        self._heard_us = max(self._heard_us, now_us)

    def ready(self, now_us: int) -> None:
        """The hello was answered."""
        self._is_ready = True
        self.heard(now_us)

    def due(self, now_us: int) -> Due:
        """What is to be done now; a ping that it asks for counts as sent."""
        if not self._is_ready:
            # Bytes prove nothing here: a stranger who dribbles is as unwelcome as a silent one.
            late = now_us >= self._began_us + limits.HANDSHAKE_US_MAX
            return Due.HANDSHAKE_TIMEOUT if late else Due.NOTHING
        if now_us >= self._heard_us + self._idle_us_max:
            return Due.IDLE_TIMEOUT
        if now_us >= max(self._heard_us, self._pinged_us) + self._ping_every_us:
            self._pinged_us = now_us
            return Due.PING
        return Due.NOTHING

    @property
    def next_us(self) -> int:
        """When to ask again, if nothing is heard before."""
        if not self._is_ready:
            return self._began_us + limits.HANDSHAKE_US_MAX
        ping_us = max(self._heard_us, self._pinged_us) + self._ping_every_us
        return min(ping_us, self._heard_us + self._idle_us_max)


def timeout_error(due: Due) -> ProtocolError:
    """What the other side is told before the connection is closed."""
    if due is Due.HANDSHAKE_TIMEOUT:
        seconds = limits.HANDSHAKE_US_MAX / 1e6
        return violation(ErrorCode.HANDSHAKE_TIMEOUT, f"no complete hello within {seconds:g} s")
    assert due is Due.IDLE_TIMEOUT
    return violation(ErrorCode.IDLE_TIMEOUT, "nothing was heard for too long, pings were not answered")
