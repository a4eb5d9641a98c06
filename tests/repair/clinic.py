"""Nodes with one log on disks in memory, some damaged; messages go by hand, in virtual time.

Sound nodes answer as a running one does, damaged ones are `Repairing`; nobody leads and nobody has a network.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from rollmq.core.raft import RaftCore
from rollmq.core.raft_ready import HardState, RaftSettings
from rollmq.core.repair_messages import RepairAsk, RepairFetch, RepairHas, RepairMessage, RepairPiece
from rollmq.errors import StateDamaged
from rollmq.node.assembling import assemble
from rollmq.node.repair_source import RepairSource
from rollmq.node.repairing import Repairing
from rollmq.node.upkeep import name_snapshot
from rollmq.store.fold import fold_snapshot
from rollmq.store.node_file import Identity, read_identity
from rollmq.store.opening import Recovered
from rollmq.store.store import Store
from tests.sim.sim_disk import SimDisk
from tests.store.making import GROUP, SMALL, LogMaker

IDS = tuple(f"{number:032x}" for number in (1, 2, 3))
TICK_US = 50_000
QUIET: dict[str, Any] = {
    "settings": RaftSettings(),
    "chance": lambda: 0.5,
    "jitter": lambda: 0.5,
    "now_us": 0,
}


def write_log(
    disk: SimDisk, node_id: str, log: LogMaker, *, until_index: int, is_folded: bool = True
) -> None:
    """A node that has the first lines of this log; all but the last complete segment sealed and folded."""
    store, _ = Store.open(disk, fresh_node_id=node_id, options=SMALL)
    store.set_group(GROUP, IDS)
    store.save_vote(HardState(term=log.term, voted_for=IDS[0]))
    markers = [index for index, line in enumerate(log.lines[:until_index], 1) if b'snapshot_marker"' in line]
    for index in markers:
        store.write(log.lines[store.next_index - 1 : index], store.next_index)
        if index == markers[-1]:
            break
        store.seal(index)
        if is_folded:
            result = fold_snapshot(disk)
            assert result is not None
            store.adopt_snapshot(result)
    if store.next_index <= until_index:
        store.write(log.lines[store.next_index - 1 : until_index], store.next_index)
    store.close()


@cache
def usual_log() -> LogMaker:
    """Sixteen entries: two sealed segments, a complete open one, and the newest with four entries."""
    log = LogMaker()
    for _ in range(3):
        log.enqueues(3)
        log.marker()
    log.enqueues(4)
    return log


@cache
def _usual_disk(node_id: str) -> SimDisk:
    disk = SimDisk()
    write_log(disk, node_id, usual_log(), until_index=16)
    return disk


def usual_disks() -> list[SimDisk]:
    """Three nodes that all have it, byte for byte."""
    return [_usual_disk(node_id).copy() for node_id in IDS]


class Sound:
    """A node that runs: it answers, and does nothing else."""

    def __init__(self, recovered: Recovered, store: Store) -> None:
        replica = assemble(store, recovered, **QUIET)
        self.store = store
        self.raft: RaftCore = replica.raft
        name_snapshot(store, replica)
        self._source = RepairSource(self.raft, store)
        self.node_id = store.identity.node_id

    def take(self, message: RepairMessage) -> list[RepairMessage]:
        if isinstance(message, RepairAsk):
            return [self._source.has(message)]
        assert isinstance(message, RepairFetch)
        return [
            self._source.piece(
                message, self._source.read(message) if self._source.may_send(message) else None
            )
        ]


class Clinic:
    """Three nodes. `run` lets time pass and messages go until no damaged one is left, or for so long."""

    def __init__(self, disks: Sequence[SimDisk], *, away: Sequence[str] = ()) -> None:
        self.disks = dict(zip(IDS, disks, strict=True))
        self.away = set(away)
        """Nodes that are down."""
        self.nodes: dict[str, Sound | Repairing] = {}
        self.told: list[tuple[str, dict[str, object]]] = []
        self.refused: dict[str, StateDamaged] = {}
        """How those that are damaged would not start."""
        self.now_us = 0
        self.on_message: Callable[[RepairMessage], RepairMessage | None] = lambda message: message
        for node_id in IDS:
            if node_id not in self.away:
                self.start(node_id)

    def start(self, node_id: str) -> None:
        """Start a node as a process does: sound ones run, damaged ones repair themselves."""
        disk = self.disks[node_id]
        try:
            store, recovered = Store.open(disk, fresh_node_id="ff" * 16, options=SMALL)
        except StateDamaged as error:
            self.refused[node_id] = error
            self.nodes[node_id] = Repairing(
                disk, self.identity(disk), first_round=0, now_us=self.now_us, log=self._tell
            )
            for other in IDS:
                self.nodes[node_id].plan.met(other)  # type: ignore[union-attr]
        else:
            self.nodes[node_id] = Sound(recovered, store)

    @staticmethod
    def identity(disk: SimDisk) -> Identity:
        identity = read_identity(disk)
        assert identity is not None
        return identity

    def _tell(self, event: str, **fields: object) -> None:
        self.told.append((event, fields))

    def events(self) -> list[str]:
        """What was told, names only."""
        return [event for event, _ in self.told]

    @property
    def ill(self) -> list[Repairing]:
        """Who still repairs itself."""
        return [node for node in self.nodes.values() if isinstance(node, Repairing)]

    def run(self, *, seconds: float = 120.0) -> None:
        """Until all are well, or for so long."""
        until_us = self.now_us + int(seconds * 1e6)
        while self.ill and self.now_us < until_us:
            self.now_us += TICK_US
            for node in self.ill:
                node.tick(self.now_us)
            self._deliver()
            for node in self.ill:
                if node.is_done:
                    self.start(node.node_id)

    def _deliver(self) -> None:
        while any(node.outbox for node in self.ill):
            for node in self.ill:
                messages, node.outbox = node.outbox, []
                for message in messages:
                    self._one(message)

    def _one(self, message: RepairMessage) -> None:
        passed = self.on_message(message)
        target = self.nodes.get(message.target)
        if passed is None or target is None:
            return
        if isinstance(target, Repairing):
            target.take(passed)
        elif not isinstance(passed, RepairHas | RepairPiece):
            for answer in target.take(passed):
                self._one(answer)

    def store(self, node_id: str) -> Store:
        """The store of one that is well."""
        node = self.nodes[node_id]
        assert isinstance(node, Sound), node.plan.wait
        return node.store

    def lines(self, node_id: str) -> list[bytes]:
        """All lines that one has, as it would serve them."""
        store = self.store(node_id)
        found: list[bytes] = []
        while (at := store.first_index + len(found)) < store.next_index:
            found += store.read_lines(at, 1 << 20)
        return found
