"""What each node of a group does beside its work: leaders end segments; all seal, fold and drop."""

from typing import TYPE_CHECKING

from rollmq.node.upkeep import name_snapshot
from rollmq.store.layout import snapshot_name
from tests.sim.upkeep import Upkeep

if TYPE_CHECKING:
    from tests.groupsim.node import GroupNode


class GroupUpkeep(Upkeep):
    """One process' housekeeping."""

    node: "GroupNode"

    def tick(self) -> None:
        """Look what is due."""
        node, now_us = self.node, self.node.world.now_us
        leader = node.leader
        if node.is_drained or node.is_rebuilding:
            return
        if leader is not None:
            is_time = now_us - self._marked_us >= node.swarm.mark_every_us
            if is_time and leader.desk.news_index > self._newest_marker():
                self._marked_us = now_us
                node.replica.mark()
        if not self._is_folding and node.store.failure is None:
            log_us = leader.desk.now_us if leader is not None else node.replica.machine.last_at_us
            self._fold_what_is_due(log_us)

    def _tell_snapshot(self) -> None:
        name_snapshot(self.node.store, self.node.replica)

    def _adopted(self) -> None:
        super()._adopted()
        snapshot = self.node.store.snapshot
        assert snapshot is not None
        content = self.node.disk.content(snapshot_name(snapshot.last_index))
        self.node.law.has_file(self.node, f"snapshot {snapshot.last_index}", content)

    def _seal(self) -> None:
        self._is_sealing = False
        node = self.node
        names = node.store.seal(node.replica.raft.commit_index)
        node.oracle.counts["sealed segments"] += len(names)
        for name in names:
            node.law.has_file(node, name.name, node.disk.content(name.name))
