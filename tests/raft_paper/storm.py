"""Seeded storms over groups of Raft cores: one seed decides a whole run, then a calm must bring progress.

python -m tests.raft_paper.storm 3 17      # replay: three nodes, seed 17
python -m tests.raft_paper.storm 5         # seeds from 0 on, until one fails
"""

import random
import sys
from itertools import count

from rollmq.core.raft_ready import RaftSettings, Role
from tests.raft_paper.group import MS, Group

SMALL = RaftSettings(
    write_bytes_max=64,
    append_bytes_max=48,
    append_lines_max=5,
    appends_inflight_max=3,
    appends_inflight_bytes_max=120,
    tail_bytes_max=40,
)
"""Bounds so small that every one of them is reached in every run."""


class Storm:
    """One run: steps drawn from a seed, then calm."""

    def __init__(self, size: int, seed: int) -> None:
        self.chance = random.Random(f"{size}/{seed}")
        settings = SMALL if self.chance.random() < 0.7 else RaftSettings()
        self.group = Group(size, settings=settings, chance=self.chance.random)
        self.nodes = self.group.nodes
        self.lines_count = 0
        self.loss = self.chance.choice([0.0, 0.05, 0.3])
        self.repeats = self.chance.choice([0.0, 0.1, 0.5])
        self.is_ordered = self.chance.random() < 0.3
        self.crash_rate = self.chance.choice([0.0, 0.003, 0.02])
        self.cut_rate = self.chance.choice([0.0, 0.005, 0.02])
        self.persist_rate = self.chance.choice([0.3, 0.8, 1.0])

    def run(self, steps_count: int = 400) -> None:
        """Storm, then calm."""
        for step in range(steps_count):
            self._step()
            if step % 50 == 0:
                self.group.check_logs()
        self._calm()

    def _step(self) -> None:
        pick = self.chance.random()
        node_id = self.chance.choice(list(self.nodes))
        if pick < self.crash_rate:
            self._crash(node_id)
        elif pick < self.crash_rate + self.cut_rate:
            self._cut(node_id)
        elif pick < 0.15:
            self._tick()
        elif pick < 0.35:
            self._propose()
        elif pick < 0.55:
            if self.chance.random() < self.persist_rate:
                self.group.persist(node_id)
            if self.nodes[node_id].core is not None:
                self.group.read(node_id)
        else:
            self._deliver()

    def _tick(self) -> None:
        node_ids = [node_id for node_id in self.nodes if self.chance.random() < 0.8]
        self.group.tick(self.chance.choice([1, 10, 40, 200]) * MS, *node_ids or ["n1"])

    def _crash(self, node_id: str) -> None:
        if self.nodes[node_id].core is None:
            self.group.start(node_id, has_vote=True)
        else:
            self.group.crash(node_id, begun=self.chance.random() < 0.5, lines_count=self.chance.randrange(4))

    def _cut(self, node_id: str) -> None:
        pick = self.chance.random()
        if pick < 0.5:
            self.group.heal()
        elif pick < 0.75:
            self.group.isolate(node_id)
        else:
            self.group.cut(node_id, self.chance.choice(list(self.nodes)))

    def _propose(self) -> None:
        for node_id, node in self.nodes.items():
            if node.core is not None and node.core.can_propose:
                lines = []
                for _ in range(self.chance.randrange(1, 4)):
                    self.lines_count += 1
                    lines.append(b"line-%d\n" % self.lines_count)
                self.group.propose(node_id, *lines)

    def _deliver(self) -> None:
        network = self.group.network
        for _ in range(min(len(network), self.chance.randrange(1, 5))):
            position = 0 if self.is_ordered else self.chance.randrange(len(network))
            message = network[position]
            if self.chance.random() >= self.repeats:
                del network[position]
            if self.chance.random() >= self.loss:
                self.group.hand_over(message)
        del network[:-300]

    def _calm(self) -> None:
        """Liveness: with a healed network and all nodes up, one leads soon and commits what it is given."""
        group = self.group
        group.heal()
        for node_id, node in self.nodes.items():
            if node.core is None:
                group.start(node_id)
        group.settle()
        for _ in range(400):
            group.tick(20 * MS)
            group.settle()
        leaders = [node for node in self.nodes.values() if node.raft.role is Role.LEADER]
        assert len(leaders) == 1, f"one leader after the storm, not {len(leaders)}"
        group.propose(leaders[0].node_id, b"after the storm\n")
        group.settle()
        group.tick(group.settings.heartbeat_us)
        group.settle()
        for node in self.nodes.values():
            assert node.released[-1] == b"after the storm\n", f"{node.node_id} has not caught up"
            assert node.entries() == group.committed, f"{node.node_id} has the group's log"
            assert node.raft.ignored_count == 0, "no member sends what makes no sense"


def main(arguments: list[str]) -> None:
    """Replay one seed, or look for a failing one."""
    size = int(arguments[0])
    for seed in [int(arguments[1])] if len(arguments) > 1 else count():
        Storm(size, seed).run()
        print(f"ok: storm {size} {seed}", end="\r", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
