"""A group whose faults are chosen by hand: the bench for stories that seeds have told."""

from random import Random

from tests.groupsim.check import GroupRun
from tests.groupsim.node import GroupNode
from tests.groupsim.swarm import GroupFaults, GroupSwarm, draw_group
from tests.sim.swarm import MS, NetFaults, NodeFaults, Traffic, WorkerFaults
from tests.sim.world import SECOND_US


def quiet_swarm(*, size: int = 3, jobs_max: int = 20) -> GroupSwarm:
    """Nothing goes wrong by itself."""
    swarm = draw_group(Random("a quiet one"))
    swarm.size = size
    swarm.storm_us = 3_600 * SECOND_US
    swarm.net, swarm.node, swarm.workers = NetFaults(), NodeFaults(), WorkerFaults(run_us=(MS, 50 * MS))
    swarm.traffic = Traffic(jobs_max=jobs_max, short_timeout=0.0, resend=0.0)
    swarm.group = GroupFaults()
    swarm.peers.lose = swarm.peers.repeat = swarm.peers.overtake = 0.0
    swarm.peers.clog_every_us = 0
    swarm.peers.latency_us = (100, 1 * MS)
    swarm.reset_told, swarm.minority_dead = 1.0, 0.0
    return swarm


class Story(GroupRun):
    """A run in which the test decides what befalls whom."""

    def __init__(self, name: str, *, size: int = 3, jobs_max: int = 20, is_eager: bool = False) -> None:
        swarm = quiet_swarm(size=size, jobs_max=jobs_max)
        swarm.is_eager = is_eager
        super().__init__(name, swarm, echo=None)
        for node in self.group.nodes:
            node.boot()

    def run(self, milliseconds: int) -> None:
        """Let time pass."""
        self.world.run(self.world.now_us + milliseconds * MS)

    def leader(self) -> GroupNode:
        """Whoever leads and has committed its first entry, waited for."""
        for _ in range(200):
            node = self.group.leader_node
            if node is not None and self._is_serving(node):
                return node
            self.run(50)
        raise AssertionError("no leader within ten seconds")

    def followers(self) -> list[GroupNode]:
        """The others."""
        leader = self.leader()
        return [node for node in self.group.nodes if node is not leader]

    def end(self) -> None:
        """Nothing goes wrong any more, and everything must end well."""
        self.calm()
        self.accounts()
