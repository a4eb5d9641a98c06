"""A node whose memory may change behind its back, so that it is another replica than the others (rule 5)."""

from collections.abc import Callable

from rollmq.core.leader import Leader
from rollmq.errors import ReplicaDiverged
from tests.sim.node import SimNode
from tests.sim.world import Violation


class OddNode(SimNode):
    """It stops in the end, and nobody else does."""

    odd = ""
    """What a flipped bit of its memory has changed, until it starts or loads its state anew: its state, or
    what it takes for the bytes of its segment."""

    def committed_count(self) -> int:
        """How many entries the group has committed."""
        raise NotImplementedError

    def flip(self, what: str) -> None:
        """A bit of its memory changes: from now on it is another replica than the others."""
        self.world.say(self.name, f"is odd: a bit of its {what} flips")
        self.oracle.counts[f"odd {what}"] += 1
        self.odd = what
        if what == "state":
            self.replica.machine.no_ops += 1
        else:
            self.replica._segment.add_block(b"x", lines_count=0)

    def _audit(self, leader: Leader) -> None:
        if not self.odd:
            super()._audit(leader)

    def _guard(self, call: Callable[[], object]) -> None:
        """Rule 5: whoever is odd stops in the end, and nobody else.

        But one that wrote a marker while it was odd cannot lead with it when it has become whole again.
        """
        try:
            super()._guard(call)
        except ReplicaDiverged as error:
            if not self.odd and error.index <= self.committed_count():
                raise Violation(f"P6: {self.name} stops, and is no other than the group: {error}") from error
            self.world.say(self.name, f"stops: {error}")
            self.oracle.counts["odd ones found"] += 1
            self._busy = None
            self.crash(is_power_cut=False)
