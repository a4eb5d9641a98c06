"""How a new node comes into a group (rule 8): it founds one with all its peers, or joins one that is there.

    every peer is empty, and all have found the same nodes  ->  founded: these are its voters
    it finds no peer in the list but itself                 ->  founded, alone
    a peer is of a group whose founders or members name us  ->  admitted
    anything else                                           ->  wait, and say for whom or for what

Until then this node votes for nobody and serves nobody. Pure: answers of peers go in, the state comes out.
That a peer formed first is no danger: a founder that is admitted has never voted under this id, because its
group is on its disk before its first vote; and the uuid proves who the founders are.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rollmq.node.assembling import group_uuid
from rollmq.wire.peer_headers import LeaderHelloHeader


@dataclass(frozen=True, slots=True)
class Formed:
    """What is to be written down before this node votes."""

    group: str
    founders: tuple[str, ...]
    """Empty: this node joined a group that was there."""


class Forming:
    """A node whose directory is new, and what its peers have said so far."""

    def __init__(self, *, node_id: str, address: str, peers: Sequence[str]) -> None:
        self.node_id = node_id
        self._address = address
        self._missing = {peer for peer in peers if peer != address}
        """Addresses that have not answered yet."""
        self._ids: dict[str, str] = {}
        self._said: dict[str, LeaderHelloHeader] = {}
        """The newest answer at each address."""
        self.formed: Formed | None = self._founded()

    @property
    def founders(self) -> tuple[str, ...]:
        """All whom this node would found a group with; empty while somebody is missing."""
        if self._missing or any(not hello.is_empty for hello in self._said.values()):
            return ()
        return tuple(sorted({self.node_id, *(hello.node_id for hello in self._said.values())}))

    def heard(self, address: str, hello: LeaderHelloHeader) -> None:
        """The node at this address of our list answered."""
        self._missing.discard(address)
        self._said[address] = hello
        if self.formed is None:
            self.formed = self._admitted(hello) or self._founded()

    def itself(self, address: str) -> None:
        """This address of the list is our own: nobody to wait for."""
        self._missing.discard(address)
        self.formed = self.formed or self._founded()

    def _admitted(self, hello: LeaderHelloHeader) -> Formed | None:
        if not hello.group:
            return None
        if self.node_id in hello.founders and group_uuid(hello.founders) == hello.group:
            return Formed(hello.group, tuple(sorted(hello.founders)))
        return Formed(hello.group, ()) if self.node_id in hello.members else None

    def _founded(self) -> Formed | None:
        founders = self.founders
        if not founders or any(tuple(sorted(said.founders)) != founders for said in self._said.values()):
            return None
        return Formed(group_uuid(founders), founders)

    def waits_for(self) -> str:
        """What a person reads who wonders why this node does not serve."""
        strange = [hello for hello in self._said.values() if hello.group]
        if strange:
            group = strange[0]
            return (
                f"the group {group.group} at {group.address} exists and does not know this node "
                f"({self.node_id} at {self._address}): `rollmq members add {self._address}` brings it in, "
                f"`rollmq members replace OLD {self._address}` in place of one that is gone"
            )
        if self._missing:
            return f"no answer yet from {', '.join(sorted(self._missing))}"
        founders = self.founders
        others = [
            f"{said.address} has found {len(said.founders)}"
            for said in self._said.values()
            if said.founders and tuple(sorted(said.founders)) != founders
        ]
        if others:
            return f"--peers differ: {self._address} has found {len(founders)} nodes, {', '.join(others)}"
        waiting = [said.address for said in self._said.values() if not said.founders]
        return f"{', '.join(sorted(waiting))} still wait for others" if waiting else "nothing"
