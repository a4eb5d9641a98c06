"""What a node does beside its work: ends segments, seals them, folds snapshots, drops old history.

The helper that folds is called in-process here, at one instant of virtual time, and may die half-way.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from rollmq.store.fold import FoldResult, fold_base, fold_snapshot
from tests.sim.sim_disk import PowerCut
from tests.sim.world import SECOND_US

if TYPE_CHECKING:
    from tests.sim.node import SimNode

FOLD_US: Final = (1_000, SECOND_US)


class Upkeep:
    """One process' housekeeping."""

    def __init__(self, node: "SimNode") -> None:
        self.node = node
        self._marked_us = node.world.now_us
        self._is_folding = False
        self._is_sealing = False
        self._tell_snapshot()

    def tick(self) -> None:
        """Look what is due."""
        node, now_us = self.node, self.node.world.now_us
        leader = node.leader
        if leader is None or node.is_drained:
            return
        is_time = now_us - self._marked_us >= node.swarm.mark_every_us
        if is_time and leader.desk.news_index > self._newest_marker():
            self._marked_us = now_us
            node.replica.mark()
        if not self._is_folding and node.store.failure is None:
            self._fold_what_is_due(leader.desk.now_us)

    def _newest_marker(self) -> int:
        return self.node.replica._segment.first_index - 1

    def seal(self) -> None:
        """Let the store seal what is committed."""
        if not self._is_sealing:
            self._is_sealing = True
            self.node.do("seal", self._seal, self._sealed)

    def _seal(self) -> None:
        # The flag falls first: a marker that commits from now on needs another call.
        self._is_sealing = False
        names = self.node.store.seal(self.node.replica.raft.commit_index)
        self.node.oracle.counts["sealed segments"] += len(names)

    def _sealed(self) -> None:
        """Nothing more: it counts from the file names."""

    # -- folding

    def _fold_what_is_due(self, log_us: int) -> None:
        node = self.node
        if node.store.is_fold_due():
            self._help(partial(fold_snapshot, node.disk, writer="helper"), self._folded)
            return
        confirmed = node.replica.machine.pipelines.values()
        base_index = node.store.base_index_due(now_us=log_us, confirmed_index=min(confirmed, default=None))
        if base_index is not None:
            fold = partial(fold_base, node.disk, until_index=base_index, writer="helper")
            self._help(fold, partial(self._based, base_index))

    def _help(self, fold: Callable[[], FoldResult | None], then: Callable[[FoldResult | None], None]) -> None:
        self._is_folding = True
        node = self.node
        node.later(node.world.between(FOLD_US), lambda: self._run_helper(fold, then))

    def _run_helper(
        self, fold: Callable[[], FoldResult | None], then: Callable[[FoldResult | None], None]
    ) -> None:
        node = self.node
        armed = node.disk.stop_at
        if not node.world.is_calm and node.world.happens(node.faults.helper_dies):
            node.disk.stop_at = node.disk.calls + node.world.random.randrange(8)
        try:
            result = fold()
        except PowerCut as cut:
            node.disk.stop_at = None
            if armed is not None and not node.world.is_calm:
                node.crash(is_power_cut=True)
                return
            node.world.say("helper", f"dies at {cut}")
            node.oracle.counts["dead helpers"] += 1
            node.later(SECOND_US, self._again)
            return
        except OSError as error:
            node.world.say("helper", f"fails: {error}")
            node.later(SECOND_US, self._again)
            return
        node.disk.stop_at = armed
        then(result)

    def _again(self) -> None:
        self._is_folding = False

    def _folded(self, result: FoldResult | None) -> None:
        if result is None:
            self._is_folding = False
            return
        self.node.world.say("helper", f"snapshot at {result.last_index}")
        self.node.oracle.counts["snapshots"] += 1
        self.node.do("adopt", partial(self.node.store.adopt_snapshot, result), self._adopted)

    def _adopted(self) -> None:
        self._is_folding = False
        self._tell_snapshot()

    def _based(self, base_index: int, _result: FoldResult | None) -> None:
        self.node.world.say("helper", f"base at {base_index}")
        self.node.oracle.counts["bases"] += 1
        self.node.do("drop", partial(self.node.store.drop_history, base_index), self._again)

    def _tell_snapshot(self) -> None:
        """Markers name the newest snapshot."""
        snapshot, replica = self.node.store.snapshot, self.node.replica
        if snapshot is not None:
            replica.snapshot = (snapshot.last_index, snapshot.digest)
            log = replica.raft.log
            if log.snapshot_index < snapshot.last_index <= log.applied_index:
                log.compact_to(snapshot.last_index)
