"""The part of a simulated node that falls ill: damaged on purpose, it must be found so, and be repaired."""

from rollmq.errors import StateDamaged, StateError
from tests.groupsim.oracle import Witness
from tests.groupsim.swarm import GroupSwarm
from tests.groupsim.ward import Ward, enter_ward
from tests.sim.node import SimNode
from tests.sim.world import World


class Patient(SimNode):
    """A machine whose files may be damaged while it is down."""

    oracle: Witness

    def __init__(self, world: World, oracle: Witness, swarm: GroupSwarm) -> None:
        super().__init__(world, oracle, swarm)
        self.ward: Ward | None = None
        """The process that repairs its directory, while it does."""
        self.healed: Ward | None = None
        """Whose work is to be judged at the next start."""
        self.is_ill = False
        """It was damaged on purpose, and is not known to be repaired."""

    @property
    def was_repaired(self) -> bool:
        """What it starts with is what a repair has left, which may have come to its end or not."""
        if self.healed is not None:
            self.oracle.interrupted(self.healed.was_end_sure, self.healed.had_vote)
        return self.healed is not None or not self.oracle.was_end_sure or not self.oracle.had_vote

    def _refused(self, error: StateError) -> None:
        """Its own repair is another process' work."""
        if not self.is_ill or not isinstance(error, StateDamaged):
            super()._refused(error)
        self.oracle.counts["damage found"] += 1
        self.world.say(self.name, f"is damaged: {error.places[0]}")
        self._boot_number += 1
        self.ward = enter_ward(self)

    def leave_ward(self, *, is_power_cut: bool) -> None:
        """The process that repairs ends before it is done."""
        if self.ward is not None and self.healed is None:
            self.oracle.interrupted(self.ward.was_end_sure, self.ward.had_vote)
        self.ward = None
        self._boot_number += 1
        if is_power_cut:
            self._lose_power()
        else:
            self.disk.kill()
        self.world.after(self.world.between(self.faults.down_us), self.boot)

    def crash(self, *, is_power_cut: bool) -> None:
        if self.ward is not None:
            self.leave_ward(is_power_cut=is_power_cut)
        else:
            super().crash(is_power_cut=is_power_cut)
