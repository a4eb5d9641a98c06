"""What happens to the processes of a storm: kills, stops, cuts, full disks; to whom, in which order.

Every fault has a beginning and an end, and is drawn from one seed. It knows nothing of jobs.
"""

import contextlib
import os
import random
import resource
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from pathlib import Path

from rollmq.limits import SNAPSHOTS_KEPT
from tests.group.real_group import LOOK_S, wait_for
from tests.system.crew import SETTLE_S, Crew, Member
from tests.system.network import OTHERS, Network, Way
from tests.system.nodes import Gated, GatedNode

PAUSE_S_MAX = 0.6
"""How long a fault lasts at most: longer than an election, shorter than anybody is given up for silent."""
FOLD_S = 1.5
"""How soon after a seal a node looks whether there is something to fold."""
SNAPSHOT_TOLD_BYTES = 120_000
"""What clients are told of some four hundred jobs: more entries than nodes keep without a snapshot."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that may happen."""

    weight: int
    name: str
    happen: Callable[[], None]


class Weather:
    """Faults for one group, its network, its clients and workers."""

    def __init__(self, group: Gated, network: Network, crew: Crew, chance: random.Random) -> None:
        self.group = group
        self.network = network
        self.crew = crew
        self.chance = chance
        self.counts: Counter[str] = Counter()
        self._clock = threading.Event()
        self._faults = [*self._of_all(), *(self._of_groups() if len(group.nodes) > 1 else [])]
        self._unseen = list(self._faults)
        chance.shuffle(self._unseen)

    def _of_all(self) -> list[Fault]:
        return [
            Fault(4, "kill leader", partial(self.kill_nodes, "leader")),
            Fault(2, "kill worker", self.kill_worker),
            Fault(2, "kill client", self.kill_client),
            Fault(1, "stop worker", self.stop_worker),
            Fault(1, "stop client", self.stop_client),
            Fault(1, "stop leader", partial(self.stop_nodes, "leader")),
            Fault(1, "cut leader from others", partial(self.cut_off_others, "leader")),
            Fault(1, "reset others", self.reset_others),
            Fault(1, "fill disk of leader", partial(self.fill_disk, "leader")),
            Fault(1, "restart leader", partial(self.restart, "leader")),
            Fault(1, "seal", self.seal),
        ]

    def _of_groups(self) -> list[Fault]:
        whom = ("follower", "followers", "all")
        return [
            *(Fault(1, f"kill {who}", partial(self.kill_nodes, who)) for who in whom),
            *(Fault(1, f"stop {who}", partial(self.stop_nodes, who)) for who in whom),
            Fault(2, "cut leader off", partial(self.cut_off, "leader")),
            Fault(1, "cut follower off", partial(self.cut_off, "follower")),
            Fault(2, "leader not heard", partial(self.cut_one_way, "leader", is_deaf=False)),
            Fault(1, "leader deaf", partial(self.cut_one_way, "leader", is_deaf=True)),
            Fault(1, "follower not heard", partial(self.cut_one_way, "follower", is_deaf=False)),
            Fault(1, "follower deaf", partial(self.cut_one_way, "follower", is_deaf=True)),
            Fault(1, "cut everybody off", self.cut_everybody_off),
            Fault(1, "cut some ways", self.cut_some_ways),
            Fault(1, "fill disk of follower", partial(self.fill_disk, "follower")),
            Fault(1, "restart follower", partial(self.restart, "follower")),
            Fault(1, "leave follower behind", self.leave_behind),
        ]

    @property
    def has_unseen(self) -> bool:
        """Some kind of fault has not happened yet."""
        return bool(self._unseen)

    def draw(self) -> Fault:
        """The next fault: first one of each kind, then by weight."""
        if self._unseen:
            return self._unseen.pop()
        return self.chance.choices(self._faults, [fault.weight for fault in self._faults])[0]

    def pause(self, most_s: float = PAUSE_S_MAX) -> None:
        """For a moment, by chance. What comes of it depends on no length."""
        self._clock.wait(self.chance.uniform(0, most_s))

    def nodes_of(self, who: str) -> list[GatedNode]:
        """The nodes that are meant, in any order. Without a leader anybody is taken for it."""
        nodes = self.group.nodes
        leader = next((node for node in nodes if _leads(node)), self.chance.choice(nodes))
        others = [node for node in nodes if node is not leader]
        self.chance.shuffle(others)
        found = {"leader": [leader], "follower": others[:1], "followers": others, "all": list(nodes)}[who]
        self.chance.shuffle(found)
        return found

    # -- nodes

    def kill_nodes(self, who: str) -> None:
        """SIGKILL, and back."""
        victims = self.nodes_of(who)
        for node in victims:
            node.kill()
            self.counts["kills of nodes"] += 1
            if self.chance.random() < 0.3:
                self.pause(0.2)
        self.pause()
        for node in self.chance.sample(victims, k=len(victims)):
            node.start()
            if self.chance.random() < 0.2:  # again, while it comes up
                self.pause(0.4)
                node.kill()
                self.counts["kills of nodes"] += 1
                node.start()

    def stop_nodes(self, who: str) -> None:
        """SIGSTOP, and back."""
        victims = self.nodes_of(who)
        with stopped(victims):
            self.counts["stops of nodes"] += len(victims)
            self.pause(3 * PAUSE_S_MAX)

    def restart(self, who: str) -> None:
        """SIGTERM: it hands over if it leads, stops, and comes back."""
        (node,) = self.nodes_of(who)
        wait_for(node.status, "it has begun, and takes signals")
        assert node.stop() == 0, node.log_text()[-2000:]
        self.counts["polite restarts"] += 1
        self.pause()
        node.start()

    def leave_behind(self) -> None:
        """One node is away until the others have folded snapshots without it: it gets one of theirs."""
        (away,) = self.nodes_of("follower")
        away.kill()
        rest = [node for node in self.group.nodes if node is not away]
        for _ in range(SNAPSHOTS_KEPT + 1):
            goal = self.crew.told_bytes() + SNAPSHOT_TOLD_BYTES
            while self.crew.told_bytes() < goal:
                self._goes_on()
            wait_for(lambda: any(node.seal() for node in rest), "a leader seals")
            self._clock.wait(FOLD_S)
        self.counts["long absences"] += 1
        away.keep_history(self.counts["long absences"])
        away.start()

    def _goes_on(self) -> None:
        before = self.crew.told_bytes()
        wait_for(lambda: self.crew.told_bytes() > before, "clients are told more", limit_s=SETTLE_S)

    def fill_disk(self, who: str) -> None:
        """Its files cannot grow: the next write fails, it stops and says why. Then there is room again."""
        (node,) = self.nodes_of(who)
        process = node.process
        assert process is not None
        logs = (node.state / "wal").glob("events-*.log")
        size_bytes = max((path.stat().st_size for path in logs), default=0)
        # Its own log must be able to grow: it says why it stops.
        limit_bytes = max(size_bytes, 4 * node.log_path.stat().st_size) + self.chance.randrange(4096)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (limit_bytes, resource.RLIM_INFINITY))
        wait_for(lambda: process.poll() is not None, f"it stops, {node.log_path}", limit_s=SETTLE_S)
        assert process.returncode == 1, node.log_text()[-2000:]
        assert "The node stops" in node.log_text()
        assert "Traceback" not in node.log_text()
        self.counts["full disks"] += 1
        node.start()

    def seal(self) -> None:
        """An operator ends the segment, as it ends by itself every minute; the process that may fold a
        snapshot then dies."""
        if not any(node.seal() for node in self.group.nodes):
            return
        self.counts["seals"] += 1
        for _ in range(int(FOLD_S / LOOK_S)):
            pids = [pid for node in self.group.nodes for pid in children_of(node)]
            if pids:
                self.pause(0.05)
                for pid in pids:
                    with contextlib.suppress(ProcessLookupError):  # it was quick
                        os.kill(pid, signal.SIGKILL)
                        self.counts["kills of fold helpers"] += 1
                return
            self._clock.wait(LOOK_S)

    # -- clients and workers

    def kill_worker(self) -> None:
        """SIGKILL, and another process in its place."""
        self._kill(self.chance.choice(self.crew.workers))
        self.counts["kills of workers"] += 1

    def kill_client(self) -> None:
        """SIGKILL, and another process that goes on where it was."""
        self._kill(self.chance.choice(self.crew.clients))
        self.counts["kills of clients"] += 1

    def _kill(self, member: Member) -> None:
        member.kill()
        self.pause(0.2)
        member.start()

    def stop_worker(self) -> None:
        """SIGSTOP, and back."""
        self._stop(self.chance.choice(self.crew.workers))
        self.counts["stops of workers"] += 1

    def stop_client(self) -> None:
        """SIGSTOP, and back."""
        self._stop(self.chance.choice(self.crew.clients))
        self.counts["stops of clients"] += 1

    def _stop(self, member: Member) -> None:
        member.signal(signal.SIGSTOP)
        self.pause(3 * PAUSE_S_MAX)
        member.signal(signal.SIGCONT)

    # -- the network

    def cut_off(self, who: str) -> None:
        """One node from all others, and perhaps from clients too."""
        node = self.nodes_of(who)[0].address
        rest = [other for other in self._addresses() if other != node]
        rest += [OTHERS] * (self.chance.random() < 0.3)
        self._cut([way for other in rest for way in ((node, other), (other, node))], "cuts between nodes")

    def cut_one_way(self, who: str, *, is_deaf: bool) -> None:
        """One node hears nobody, or is heard by nobody."""
        node = self.nodes_of(who)[0].address
        rest = [other for other in self._addresses() if other != node]
        self._cut([(other, node) if is_deaf else (node, other) for other in rest], "cuts between nodes")

    def cut_everybody_off(self) -> None:
        """Everybody from everybody: no majority anywhere."""
        self._cut(list(permutations(self._addresses(), 2)), "cuts between nodes")

    def cut_some_ways(self) -> None:
        """Any ways at all."""
        ways = [way for way in permutations(self._addresses(), 2) if self.chance.random() < 0.4]
        self._cut(ways, "cuts between nodes")

    def cut_off_others(self, who: str) -> None:
        """A node does not hear clients and workers, or they do not hear it, or both."""
        address = self.nodes_of(who)[0].address
        both = [(OTHERS, address), (address, OTHERS)]
        self._cut(self.chance.choice([both, both[:1], both[1:]]), "cuts to clients and workers")

    def reset_others(self) -> None:
        """All connections to the leader break, in the middle of frames."""
        self.network.reset(self.nodes_of("leader")[0].address)
        self.counts["resets"] += 1

    def _cut(self, ways: Sequence[Way], name: str) -> None:
        self.network.cut(ways)
        self.counts[name] += 1
        self.pause(4 * PAUSE_S_MAX)
        self.network.heal(resets=self.chance.random() < 0.5)

    def _addresses(self) -> list[str]:
        return [node.address for node in self.group.nodes]


@contextlib.contextmanager
def stopped(nodes: Sequence[GatedNode]) -> Iterator[None]:
    """They stand still meanwhile."""
    for node in nodes:
        node.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for node in nodes:
            node.signal(signal.SIGCONT)


def _leads(node: GatedNode) -> bool:
    status = node.status()
    return status is not None and status["role"] == "leader"


def children_of(node: GatedNode) -> list[int]:
    """The processes that it has started and that have not ended."""
    assert node.process is not None
    tasks = Path(f"/proc/{node.process.pid}/task")
    with contextlib.suppress(FileNotFoundError):  # a thread, or the node, has just ended
        return [int(pid) for task in tasks.iterdir() for pid in (task / "children").read_text().split()]
    return []
