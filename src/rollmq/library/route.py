"""Which server to try next, and when: the list that the user gave, hints of nodes, backoff with jitter.

Pure: chance is handed in. It opens nothing and knows no time but durations.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from rollmq.errors import BadServerList
from rollmq.library.operator import Address, parse_servers

BACKOFF_FIRST_US: Final = 50_000
"""The pause after every server of the list has failed once: an election is over in a few of them."""
BACKOFF_MAX_US: Final = 2_000_000
"""The longest pause: so late at most is a group noticed that is back."""
HOPS_MAX: Final = 5
"""Hints followed one after the other without a pause: two nodes that name each other cost no more."""


class Step(NamedTuple):
    """Where to go, after which pause."""

    address: Address
    pause_us: int


class Route:
    """The way from one connection to the next. Call one of the three when a connection has ended."""

    def __init__(self, servers: str, chance: Callable[[], float]) -> None:
        try:
            self.servers = parse_servers(servers)
        except ValueError as error:
            raise BadServerList(text=servers, reason=str(error)) from error
        self._chance = chance
        """Draws from 0 to 1: many clients that lost the same node shall not come back in step."""
        self._next = int(chance() * len(self.servers)) % len(self.servers)
        self._failed_count = 0
        self._hops_count = 0
        self._is_hinted = False
        """The step under way follows a hint, and is none of the list's."""
        self.problems: dict[str, str] = {}
        """What went wrong at each server since the last success."""

    def succeeded(self) -> None:
        """A node answered the hello."""
        self._failed_count = self._hops_count = 0
        self._is_hinted = False
        self.problems.clear()

    def first(self) -> Step:
        """Where to begin: anywhere, so that clients spread."""
        return Step(self.servers[self._next], 0)

    def failed(self, address: Address, why: str) -> Step:
        """The connection could not be made, or was lost."""
        self.problems[name_of(address)] = why
        self._failed_count += 1
        if self._is_hinted:
            # On from whoever gave the hint: behind the hinted one may stand another that names it again.
            self._is_hinted, at = False, self._next
        else:
            at = self.servers.index(address) if address in self.servers else self._next - 1
        self._next = (at + 1) % len(self.servers)
        return Step(self.servers[self._next], self._pause_us())

    def told(self) -> str:
        """What went wrong where, for people."""
        return "; ".join(f"{server}: {problem}" for server, problem in self.problems.items())

    def redirected(self, address: Address, hint: str | None) -> Step:
        """The node does not lead; perhaps it says who does."""
        self.problems[name_of(address)] = f"does not lead, names {hint or 'nobody'}"
        target = _address_of(hint)
        if target is None or target == address or self._hops_count >= HOPS_MAX:
            self._hops_count = 0
            return self.failed(address, self.problems[name_of(address)])
        self._hops_count += 1
        self._is_hinted = True
        return Step(target, 0)

    def other_than(self, address: Address) -> Address | None:
        """A server for the watching connection: another one than this."""
        others = [server for server in self.servers if server != address]
        return others[int(self._chance() * len(others)) % len(others)] if others else None

    def _pause_us(self) -> int:
        rounds = self._failed_count // len(self.servers)
        if not rounds:
            return 0  # The first round through the list: one of the others may lead already.
        longest = min(BACKOFF_FIRST_US * 2 ** min(rounds - 1, 20), BACKOFF_MAX_US)
        return int(longest * (0.5 + 0.5 * self._chance()))


def name_of(address: Address) -> str:
    """host:port."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _address_of(hint: str | None) -> Address | None:
    if not hint:
        return None
    try:
        return parse_servers(hint)[0]
    except ValueError:
        return None
