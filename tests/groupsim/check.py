"""One run of a group: a storm from a seed, then a calm in which it must elect, end every job, and agree."""

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Final

from rollmq.core.state import dump_state
from rollmq.store import layout
from rollmq.store.verify import verify_directory
from tests.groupsim.group import Group
from tests.groupsim.node import GroupNode
from tests.groupsim.operator import members_of, voters_of
from tests.groupsim.swarm import GroupSwarm, draw_group
from tests.groupsim.weather import GroupWeather
from tests.sim.check import CALM_MAX_US, CALM_STEP_US, Report, Run, judged
from tests.sim.client import SimClient
from tests.sim.oracle import audit_node
from tests.sim.worker import SimWorker
from tests.sim.world import SECOND_US, Violation, World

ELECTED_WITHIN: Final = 12
"""Longest election timeouts after which a group without faults has a leader: pre-votes may collide."""
STALL_US_MAX: Final = 35 * SECOND_US
"""A disk that began to stall in the storm may do so for a while in the calm."""


class GroupRun(Run):
    """All parties of one run."""

    swarm: GroupSwarm

    def __init__(self, seed: int | str, swarm: GroupSwarm, *, echo: Callable[[str], None] | None) -> None:
        self.swarm = swarm
        self.world = World(seed, echo=echo)
        self.group = Group(self.world, swarm)
        self.oracle = self.group.oracle
        traffic = swarm.traffic
        sessions = [(c, s) for c in range(traffic.clients) for s in range(traffic.sessions)]
        share = -(-traffic.jobs_max // len(sessions))
        self.clients = [
            SimClient(self.world, self.group, swarm, f"client{c}.{s}", f"client{c}", share)
            for c, s in sessions
        ]
        self.workers = [
            SimWorker(self.world, self.group, swarm, f"worker{n}") for n in range(traffic.workers)
        ]
        self.group_weather = GroupWeather(self.group)

    def storm(self, until_us: int | None = None) -> None:
        """Faults, until the storm is over."""
        for node in self.group.nodes:
            self.world.after(self.world.between((0, SECOND_US)), node.boot)
        self.world.run(self.swarm.storm_us if until_us is None else until_us)

    def calm(self) -> None:
        """No new faults: a leader within bounded time, and every job's end in bounded time (P7)."""
        world = self.world
        world.say("world", "the storm is over")
        world.is_calm = True
        self.group_weather.calm_down()
        self._let_the_operator_finish()
        self._let_some_stay_away()
        for party in (*self.clients, *self.workers):
            party.hang_up()
        for worker in self.workers:
            worker.calm_down()
        for client in self.clients:
            client.submits_left = min(client.submits_left, 20)
        self._expect_a_leader()
        is_resumed = world.happens(0.8)
        begin_us = world.now_us
        while True:
            if is_resumed and (leader := self.group.leader_node) is not None:
                self.group_weather.nodes_weather[self.group.nodes.index(leader)].resume_all()
            world.run(world.now_us + CALM_STEP_US)
            if self._is_over():
                return
            if world.now_us > begin_us + CALM_MAX_US:
                raise Violation(f"P7: after an hour of calm {self._what_is_open()}")

    def _let_the_operator_finish(self) -> None:
        """What was begun is ended: an emptied node that still had a vote would be one of a minority."""
        operator, world = self.group.operator, self.world
        until_us = world.now_us + CALM_MAX_US
        while self.swarm.group.members_every_us:
            operator.act()
            if operator.is_content:
                return
            if world.now_us > until_us:
                raise Violation(
                    f"P7: the members do not come to rest: {self.oracle.members}, {operator.wish}"
                )
            world.run(world.now_us + SECOND_US)

    def _let_some_stay_away(self) -> None:
        """A majority is enough: in some runs a minority stays down, or behind a cut, until the accounts."""
        is_somebody_ill = any(node.is_ill for node in self.group.nodes)
        if not self.world.happens(self.swarm.minority_dead) or is_somebody_ill:
            return
        voters = voters_of(self.group)
        away = self.world.random.sample(voters, (len(voters) - 1) // 2)
        self.world.say("world", f"{' '.join(node.name for node in away)} stay away")
        ids = {node.node_id for node in away}
        self.group.peers.cut_between(ids, set(self.group.by_id))
        for node in away:
            self.group.cut_clients(node)

    def _expect_a_leader(self) -> None:
        world = self.world
        slack_us = STALL_US_MAX + self.swarm.node.down_us[1]
        until_us = world.now_us + slack_us + ELECTED_WITHIN * self.swarm.raft.election_us_max
        begin_us = world.now_us
        while world.now_us < until_us:
            world.run(world.now_us + SECOND_US // 10)
            if self.group.leader_node is not None and self._is_serving(self.group.leader_node):
                self.oracle.counts["ms to a leader"] += (world.now_us - begin_us) // 1000
                return
        raise Violation(f"P7: no leader {(until_us - begin_us) / 1e6:.1f} s after the storm")

    @staticmethod
    def _is_serving(node: GroupNode) -> bool:
        """Its first entry is committed."""
        log = node.replica.raft.log
        return log.term_at(log.commit_index) == node.replica.raft.term

    def _is_over(self) -> bool:
        return self.group.leader_node is not None and not self._what_is_open()

    def accounts(self) -> Report:
        """The final comparison of everything with everything."""
        self.group_weather.calm_down()
        self._converge()
        leader = self.group.leader_node
        assert leader is not None
        assert leader.leader is not None
        audit_node(self.oracle, leader.leader)
        members = members_of(self.group)
        states = {node.name: b"".join(dump_state(node.replica.machine)) for node in members}
        if len(set(states.values())) != 1:
            raise Violation("P6: the replicas' states differ at the end")
        self.oracle.same_state(leader.replica.machine, "leader's")
        self.oracle.final_check()
        for node in members:
            self._check_disk(node)
            if self.swarm.group.rot_every_us:
                self._check_files(node)
        self.check_clients()
        counts = self.oracle.counts + Counter(
            {f"event {name}": count for name, count in self.oracle.ledger.counts.items()}
        )
        counts["messages between nodes"] = self.group.peers.sent_count
        world = self.world
        return Report(world.seed, world.digest(), counts, world.now_us, world.events_count)

    def _converge(self) -> None:
        """All nodes come back, and all have the same log, applied to its end."""
        world = self.world
        until_us = world.now_us + 4 * STALL_US_MAX
        while world.now_us < until_us:
            world.run(world.now_us + 20_000)
            members = members_of(self.group)
            ends = {
                (node.replica.machine.last_index, node.replica.raft.commit_index, node.store.next_index - 1)
                for node in members
                if node.is_at_rest
            }
            is_all = all(node.is_at_rest for node in members)
            if is_all and ends == {(len(self.oracle.lines),) * 3} and self.group.leader_node is not None:
                return
        raise Violation(f"P7: the replicas do not converge: {ends}, {len(self.oracle.lines)} are committed")

    def _check_disk(self, node: GroupNode) -> None:
        """P1, P6: what is on the disk, read back, is what was committed."""
        found: list[bytes] = []
        at = node.store.first_index
        while at < node.store.next_index:
            lines = node.store.read_lines(at, 1 << 20)
            found += lines
            at += len(lines)
        if found != self.oracle.lines[node.store.first_index - 1 :]:
            raise Violation(f"P1: the log on the disk of {node.name} is not what was committed")

    @staticmethod
    def _check_files(node: GroupNode) -> None:
        """P8: what was damaged is repaired; nothing is left of it."""
        for segment in layout.sealed_segments(node.disk):
            node.law.has_file(node, segment.name, node.disk.content(segment.name))
        verdict = verify_directory(node.disk)
        if not verdict.is_clean:
            raise Violation(f"P8: {node.name} is still damaged: {verdict.damages[0]}")

    def dispose(self) -> None:
        """Let the memory go."""
        for node in self.group.nodes:
            if node.is_up:
                node.dispose()
        self.oracle.dispose()


def run_seed(
    seed: int | str, *, echo: Callable[[str], None] | None = None, swarm: GroupSwarm | None = None
) -> Report:
    """One whole run. Raises SeedFailed."""
    run = GroupRun(seed, swarm or draw_group(Random(f"group swarm/{seed}")), echo=echo)
    return judged(run, f"tests.groupsim seed {seed}")
