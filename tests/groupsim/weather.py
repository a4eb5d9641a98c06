"""What befalls a group: partitions of every shape, pauses, blackouts, resets, transfers of the leadership."""

from collections.abc import Callable

from tests.groupsim.group import Group
from tests.groupsim.node import GroupNode
from tests.groupsim.rot import rot_all, rot_one
from tests.sim.weather import Weather
from tests.sim.world import SECOND_US


class GroupWeather:
    """Faults by chance, until the calm. Each node has its own crashes, disks and clocks beside these."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.world = group.world
        self.faults = group.swarm.group
        self.nodes_weather = [Weather(group.world, node, group.swarm) for node in group.nodes]
        self._healings = 0
        for mean_us, call in (
            (self.faults.partition_every_us, self._partition),
            (self.faults.pause_every_us, self._pause),
            (self.faults.blackout_every_us, self._blackout),
            (self.faults.reset_every_us, self._reset),
            (self.faults.transfer_every_us, self._transfer),
            (self.faults.hunt_every_us, self._hunt),
            (self.faults.rot_every_us, self._rot),
            (group.swarm.peers.clog_every_us, self._clog),
            (self.faults.members_every_us, group.operator.act),
            (self.faults.clocks_every_us, self._all_clocks),
            (self.faults.flip_every_us, self._flip),
        ):
            self._every(mean_us, call)
        for node in group.nodes:
            self._set_drift(node)
        group.on_new_node = self._meet

    def _set_drift(self, node: GroupNode) -> None:
        node.drift = 1.0 + self.faults.drift * (2 * self.world.random.random() - 1)

    def _meet(self, node: GroupNode) -> None:
        """A machine that comes later is no better than the others."""
        self.nodes_weather.append(Weather(self.world, node, self.group.swarm))
        self._set_drift(node)

    def _every(self, mean_us: int, call: Callable[[], None]) -> None:
        if not mean_us:
            return

        def again() -> None:
            if not self.world.is_calm:
                call()
                self.world.after(self.world.rarely(mean_us), again)

        self.world.after(self.world.rarely(mean_us), again)

    def calm_down(self) -> None:
        """Nothing more goes wrong; what was broken is mended, who stood still goes on."""
        self._heal()
        for weather in self.nodes_weather:
            weather.calm_down()
        for node in self.group.nodes:
            if node.is_paused:
                node.go_on()
            if node.odd:
                node.crash(is_power_cut=False)

    # -- partitions

    def _partition(self) -> None:
        kind = self.world.random.choice(self.faults.partitions)
        self._heal()
        self._shape(kind)
        self.world.say("net", f"partition: {kind}")
        self.group.oracle.counts[f"partition {kind}"] += 1
        self._healings += 1
        number = self._healings

        def heal() -> None:
            if number == self._healings:
                self._heal()

        self.world.after(self.world.between(self.faults.partition_us), heal)

    def _heal(self) -> None:
        self.group.peers.heal()
        self.group.client_cut.clear()

    def _shape(self, kind: str) -> None:
        random, peers = self.world.random, self.group.peers
        ids = [node.node_id for node in self.group.nodes]
        random.shuffle(ids)
        leader = self.group.leader_node
        chief = leader.node_id if leader is not None else ids[0]
        rest = set(ids) - {chief}
        if kind == "one":
            peers.cut_between({ids[0]}, set(ids[1:]))
        elif kind == "halves":
            at = random.randrange(1, len(ids))
            peers.cut_between(set(ids[:at]), set(ids[at:]))
        elif kind == "one-way":
            others = set(random.sample(ids[1:], random.randint(1, len(ids) - 1)))
            pair = ({ids[0]}, others) if random.random() < 0.5 else (others, {ids[0]})
            peers.cut_between(*pair, back=False)
        elif kind == "ring":
            self._ring(ids)
        elif kind == "bridge":
            middle, sides = ids[0], ids[1:]
            peers.cut_between(set(sides[::2]) - {middle}, set(sides[1::2]))
        elif kind == "flapping":
            self._flap(ids[0], set(ids[1:]))
        elif kind == "leader":
            peers.cut_between({chief}, rest)
        elif kind == "deaf leader":
            peers.cut_between(rest, {chief}, back=False)
        else:
            self.group.cut_clients(self.group.by_id[chief])

    def _ring(self, ids: list[str]) -> None:
        """Everybody reaches a majority, and each another one."""
        reach = len(ids) // 4 + (len(ids) == 3)
        for at, one in enumerate(ids):
            for distance in range(1, len(ids)):
                if distance > reach and len(ids) - distance > reach:
                    self.group.peers.cut_between({one}, {ids[(at + distance) % len(ids)]})
        if len(ids) == 3:
            self.group.peers.cut_between({ids[0]}, {ids[2]})

    def _flap(self, one: str, others: set[str]) -> None:
        """Cut and heal, cut and heal."""
        until_us = self.world.now_us + self.world.between(self.faults.partition_us)
        number = self._healings + 1

        def change() -> None:
            if self.world.is_calm or self.world.now_us > until_us or number != self._healings:
                return
            if self.group.peers.cut:
                self.group.peers.heal()
            else:
                self.group.peers.cut_between({one}, others)
            self.world.after(self.world.between((10_000, 500_000)), change)

        self.world.after(0, change)

    # -- processes and links

    def _some(self) -> GroupNode:
        return self.world.random.choice(self.group.nodes)

    def _pause(self) -> None:
        self._some().pause(self.world.between(self.faults.pause_us))

    def _blackout(self) -> None:
        self.world.say("world", "all nodes lose power")
        self.group.oracle.counts["blackouts"] += 1
        for node in self.group.nodes:
            node.crash(is_power_cut=True)

    def _reset(self) -> None:
        one, other = self.world.random.sample(self.group.nodes, 2)
        one.peer_was_reset(other.node_id)
        if self.world.happens(0.5):
            other.peer_was_reset(one.node_id)

    def _transfer(self) -> None:
        node = self.group.leader_node
        if node is None:
            return
        target = self.world.random.choice([None, *(each.node_id for each in self.group.nodes)])
        node.set_time()  # which may depose it
        problem = node.replica.raft.transfer(target)
        self.world.say("operator", f"asks {node.name} to hand over: {problem or 'it does'}")
        self.group.oracle.counts["transfers"] += problem is None
        node.wake()

    def _hunt(self) -> None:
        """Whoever leads is struck, again and again."""
        node = self.group.leader_node
        if node is None:
            return
        kind = self.world.random.randrange(4)
        if kind == 0:
            node.pause(self.world.between(self.faults.pause_us))
        elif kind == 1:
            self.group.peers.cut_between({node.node_id}, {each.node_id for each in self.group.nodes})
            self.world.after(self.world.between((0, 3 * SECOND_US)), self._heal)
        else:
            node.crash(is_power_cut=kind == 2)

    def _flip(self) -> None:
        nodes = self.group.nodes
        whole = [node for node in nodes if node.is_up and not node.is_paused and not node.is_rebuilding]
        voters = [member for member in self.group.oracle.members if member.voter]
        # Of two nobody can say which is the odd one, and neither goes on without the other.
        left = [member for member in voters if not self.group.by_id[member.node_id].is_gone]
        if whole and len(left) > 2 and len(left) == len(voters) and not any(node.odd for node in nodes):
            node = self.world.random.choice(whole)
            node.flip(self.world.random.choice(("state", "segment")) if node.leader is None else "segment")

    def _all_clocks(self) -> None:
        step_us = self.world.between((SECOND_US, 3_600 * SECOND_US))
        self.world.say("clock", f"all step by {step_us / 1e6:.0f} s")
        for node in self.group.nodes:
            node.wall_offset_us += step_us

    def _rot(self) -> None:
        """Files are damaged; never while another node's still are: two could lack the same."""
        nodes, random = self.group.nodes, self.world.random
        if any(node.is_ill or node.ward is not None for node in nodes):
            return
        victims = nodes if self.world.happens(self.faults.rot_all) else [self._some()]
        if not all(node.is_up for node in victims):
            return  # one that lost power just now may have lost its last batch too
        for node in victims:
            node.crash(is_power_cut=False)
            node.disk.settle()
        if len(victims) == 1:
            told = [f"{victims[0].name} {rot_one(random, victims[0])}"]
        else:
            told = rot_all(random, nodes, len(self.group.oracle.lines))
        for node in victims:
            node.is_ill = True
        self.group.oracle.counts["rot on all" if len(victims) > 1 else "rot on one"] += 1
        self.world.say("rot", ", ".join(told))

    def _clog(self) -> None:
        one, other = self.world.random.sample(self.group.nodes, 2)
        self.group.peers.clog((one.node_id, other.node_id))
