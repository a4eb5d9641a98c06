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
Fault = Callable[[], None]


class Weather:
    """Faults for one group, its network, its clients and workers."""

    def __init__(self, group: Gated, network: Network, crew: Crew, chance: random.Random) -> None:
        self.group = group
        self.network = network
        self.crew = crew
        self.chance = chance
        self.counts: Counter[str] = Counter()
        self._clock = threading.Event()
        alone: list[tuple[int, Fault]] = [
            (4, self.kill_nodes),
            (2, self.kill_worker),
            (2, self.kill_client),
            (1, self.stop_worker),
            (1, self.stop_nodes),
            (2, self.cut_off_others),
            (1, self.reset_others),
            (1, self.fill_disk),
            (1, self.seal),
        ]
        together: list[tuple[int, Fault]] = [
            (4, self.stop_nodes),
            (6, self.cut_nodes),
            (2, self.restart),
            (1, self.leave_behind),
        ]
        faults = alone + (together if len(group.nodes) > 1 else [])
        self._faults = [fault for _, fault in faults]
        self._weights = [weight for weight, _ in faults]

    def draw(self) -> Fault:
        """The next fault."""
        return self.chance.choices(self._faults, self._weights)[0]

    def pause(self, most_s: float = PAUSE_S_MAX) -> None:
        """For a moment, by chance. What comes of it depends on no length."""
        self._clock.wait(self.chance.uniform(0, most_s))

    # -- whom

    def victims(self) -> list[GatedNode]:
        """Leader, a follower, all followers, everybody, or anybody, in any order."""
        nodes = self.group.nodes
        leader = next((node for node in nodes if _leads(node)), self.chance.choice(nodes))
        others = [node for node in nodes if node is not leader]
        choices: list[list[GatedNode]] = [
            [leader],
            [leader],
            others[:1],
            others,
            nodes,
            self.chance.sample(nodes, k=1),
        ]
        chosen = self.chance.choice([choice for choice in choices if choice])
        return list(self.chance.choice(list(permutations(chosen))))

    # -- nodes

    def kill_nodes(self) -> None:
        """SIGKILL, and back."""
        victims = self.victims()
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

    def stop_nodes(self) -> None:
        """SIGSTOP, and back."""
        victims = self.victims()
        with stopped(victims):
            self.counts["stops of nodes"] += len(victims)
            self.pause(3 * PAUSE_S_MAX)

    def restart(self) -> None:
        """SIGTERM: it hands over, stops, and comes back."""
        node = self.victims()[0]
        wait_for(node.status, "it has begun, and takes signals")
        assert node.stop() == 0, node.log_text()[-2000:]
        self.counts["polite restarts"] += 1
        self.pause()
        node.start()

    def leave_behind(self) -> None:
        """One node is away until the others have folded snapshots without it: it gets one of theirs."""
        away = self.victims()[0]
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

    def fill_disk(self) -> None:
        """Its files cannot grow: the next write fails, it stops and says why. Then there is room again."""
        node = self.chance.choice(self.group.nodes)
        assert node.process is not None
        logs = (node.state / "wal").glob("events-*.log")
        size_bytes = max((path.stat().st_size for path in logs), default=0)
        if size_bytes < 2 * node.log_path.stat().st_size:  # its own log must be able to grow
            return
        limit_bytes = size_bytes + self.chance.randrange(4096)
        resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE, (limit_bytes, resource.RLIM_INFINITY))
        process = node.process
        wait_for(lambda: process.poll() is not None, f"a node whose disk is full stops, {node.log_path}")
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
        member = self.chance.choice(self.crew.workers)
        member.signal(signal.SIGSTOP)
        self.pause(3 * PAUSE_S_MAX)
        member.signal(signal.SIGCONT)
        self.counts["stops of workers"] += 1

    # -- the network

    def cut_nodes(self) -> None:
        """Some ways between nodes, and perhaps to the others, pass nothing."""
        ways = self.chance.choice([self._isolated, self._one_way, self._halves, self._some])()
        self._cut(ways, "cuts between nodes")

    def cut_off_others(self) -> None:
        """One node does not hear clients and workers, or they do not hear it, or both."""
        address = self.victims()[0].address
        both = [(OTHERS, address), (address, OTHERS)]
        self._cut(self.chance.choice([both, both[:1], both[1:]]), "cuts to clients and workers")

    def reset_others(self) -> None:
        """All connections to one node break, in the middle of frames."""
        self.network.reset(self.victims()[0].address)
        self.counts["resets"] += 1

    def _cut(self, ways: Sequence[Way], name: str) -> None:
        self.network.cut(ways)
        self.counts[name] += 1
        self.pause(4 * PAUSE_S_MAX)
        self.network.heal(resets=self.chance.random() < 0.5)

    def _isolated(self) -> list[Way]:
        """One node from all others, and perhaps from clients too."""
        node = self.victims()[0].address
        rest = [other.address for other in self.group.nodes if other.address != node]
        rest += [OTHERS] * (self.chance.random() < 0.3)
        return [way for other in rest for way in ((node, other), (other, node))]

    def _one_way(self) -> list[Way]:
        """One node is heard by nobody, or hears nobody."""
        node = self.victims()[0].address
        ways = [(node, other.address) for other in self.group.nodes if other.address != node]
        return ways if self.chance.random() < 0.5 else [(other, node) for node, other in ways]

    def _halves(self) -> list[Way]:
        """Everybody from everybody: no majority anywhere."""
        return [(one, other) for one, other in permutations(self._addresses(), 2)]

    def _some(self) -> list[Way]:
        """Any ways at all."""
        return [way for way in permutations(self._addresses(), 2) if self.chance.random() < 0.4]

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
