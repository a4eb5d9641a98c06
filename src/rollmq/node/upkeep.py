"""Housekeeping beside the work: seal what is committed, fold snapshots, drop old history, watch the disk.

All of it runs in the store thread, a step at a time, and stops nobody: a failed helper is retried, counted
and shown (rule 6).
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from rollmq.core.raft_ready import SnapshotFacts
from rollmq.core.replica import Replica
from rollmq.errors import DamageFound
from rollmq.node.archive import Shipper
from rollmq.node.logs import EventLog
from rollmq.node.store_thread import StoreThread
from rollmq.store.fold_helper import FoldDone, FoldHelper
from rollmq.store.layout import SegmentName
from rollmq.store.store import Store

LOOK_EVERY_US: Final = 1_000_000
"""How often the disk and the helper are looked at."""


class Look(NamedTuple):
    """What a look found."""

    free_bytes: int
    is_low: bool
    done: FoldDone | None


class Upkeep:
    """One node's housekeeping."""

    def __init__(
        self,
        store: Store,
        thread: StoreThread,
        directory: Path,
        *,
        log: EventLog,
        free_bytes: Callable[[], int],
        archive: Shipper | None = None,
    ) -> None:
        self._store = store
        self._thread = thread
        self._helper = FoldHelper(directory)
        self._log = log
        self._free_bytes = free_bytes
        self._is_looking = False
        self._look_again_us = 0
        self._failures_told = 0
        self._is_stopping = False
        self.archive = archive
        self.disk_free_bytes: int | None = None
        """As the last look found it."""

    @property
    def fold_failures_in_row(self) -> int:
        """How often in a row folding failed."""
        return self._helper.failures_in_row

    @property
    def fold_failure(self) -> str:
        """Why it failed last."""
        return self._helper.last_error

    def look(self, replica: Replica, *, now_us: int) -> None:
        """Now and then: is the disk low, is there anything to fold or to drop; and was damage found."""
        self._stop_if_damaged(replica)
        if self._is_looking or now_us < self._look_again_us or self._store.failure is not None:
            return
        self._is_looking, self._look_again_us = True, now_us + LOOK_EVERY_US
        taken = [*replica.machine.pipelines.values()]
        if self.archive is not None:
            members = [member.node_id for member in replica.members]
            self.archive.look(members=members, leader_id=replica.raft.leader_id, now_us=now_us)
            if self.archive.confirmed_index is not None:
                taken.append(self.archive.confirmed_index)
        confirmed = min(taken, default=None)
        log_us = replica.machine.last_at_us

        def step() -> Look:
            free_bytes, is_low = self._free_bytes(), self._store.is_disk_low()
            return Look(free_bytes, is_low, self._step(now_us, log_us, confirmed))

        self._thread.do(step, lambda look: self._looked(replica, look))

    def _stop_if_damaged(self, replica: Replica) -> None:
        """In a group what was found damaged is repaired at the next start. Alone there is nobody to help:
        then it is said, and not served."""
        damage, self._store.found_damage = self._store.found_damage, None
        place = damage.places[0] if damage is not None else ""
        if self._helper.found_damage:
            place, self._helper.found_damage = self._helper.last_error, False
        if not place or self._is_stopping:
            return
        self._log("damage_found", place=place)
        if replica.raft.log.membership.current.voters - {replica.raft.node_id}:
            self._is_stopping = True
            self._thread.do(self._store.ask_checkup, lambda _: _stop(DamageFound(place=place)))

    def seal(self, commit_index: int) -> None:
        """A marker is committed: seal up to it."""
        self._thread.do(lambda: self._store.seal(commit_index), self._sealed)

    def _sealed(self, names: list[SegmentName]) -> None:
        for name in names:
            self._log("segment_sealed", segment=name.name)
        if self.archive is not None:
            self.archive.add(names)

    def stop(self) -> None:
        """End the helpers: what they have written is removed at the next start."""
        self._helper.stop()
        if self.archive is not None:
            self.archive.close()

    # -- in the store thread

    def _step(self, now_us: int, log_us: int, confirmed_index: int | None) -> FoldDone | None:
        done = self._helper.poll(now_us)
        if done is not None:
            if done.base_index is not None:
                self._store.drop_history(done.base_index)
            elif done.result is not None:
                self._store.adopt_snapshot(done.result)
        if self._helper.can_start(now_us):
            if self._store.is_fold_due():
                self._helper.start(now_us=now_us)
            else:
                base_index = self._store.base_index_due(now_us=log_us, confirmed_index=confirmed_index)
                if base_index is not None:
                    self._helper.start(now_us=now_us, base_index=base_index)
        return done

    # -- back on the loop

    def _looked(self, replica: Replica, look: Look) -> None:
        self._is_looking = False
        self.disk_free_bytes, done = look.free_bytes, look.done
        replica.tell_disk(is_low=look.is_low)
        if self._helper.failures_count > self._failures_told:
            self._failures_told = self._helper.failures_count
            self._log("fold_failed", count=self._failures_told, reason=self._helper.last_error)
        if done is None:
            return
        if done.base_index is not None:
            self._log("history_dropped", until_index=done.base_index)
        elif done.result is not None:
            self._log("snapshot_folded", index=done.result.last_index, bytes=done.result.size_bytes)
            if done.result.doubt:
                replica.doubt = done.result.doubt
                self._log("counts_differ", reason=replica.doubt)
        name_snapshot(self._store, replica)


def _stop(error: DamageFound) -> None:
    """Raised in the loop, it stops the node."""
    raise error


def name_snapshot(store: Store, replica: Replica) -> None:
    """Markers name the newest snapshot, and followers get it; pitfall 31: the log that they can get line by
    line begins with the one before."""
    snapshot = store.snapshot
    if snapshot is None:
        return
    replica.snapshot = (snapshot.last_index, snapshot.digest)
    log = replica.raft.log
    term = log.term_at(snapshot.last_index)
    if term is not None:
        replica.raft.snapshot = SnapshotFacts(snapshot.last_index, term, snapshot.digest, snapshot.size_bytes)
    trailing_index = store.trailing_index()
    if log.snapshot_index < trailing_index <= min(log.applied_index, log.persisted_index):
        log.compact_to(trailing_index)
