"""The store: everything that a node keeps, behind one object.

    store, recovered = Store.open(OsDisk(path), fresh_node_id=…)
    store.persist(write) … store.seal(commit_index) … store.close()

Synchronous, for one thread that is not the event loop; only `read_lines` may run beside it. It decides
nothing about the queue or the group. After its first failed write it takes nothing more (StoreFailed).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from rollmq import limits
from rollmq.core.raft_ready import HardState, SnapshotFacts, Write, WriteChunk
from rollmq.core.segment_digest import SegmentDigest
from rollmq.errors import StateDamaged, StoreFailed, WalCorrupt
from rollmq.store import layout
from rollmq.store.disk import Disk, GuardedDisk
from rollmq.store.fold import FoldResult, LogSince, is_fold_due
from rollmq.store.history import Retention, SealedSegment, describe_segment, drop_until, droppable
from rollmq.store.install import Incoming, SnapshotSource, put_in_place
from rollmq.store.layout import SegmentName
from rollmq.store.node_file import Identity, write_identity
from rollmq.store.opening import Opened, Recovered, StoreOptions, open_directory
from rollmq.store.reader import LogReader
from rollmq.store.sealed_file import set_aside
from rollmq.store.snapshot import read_state_lines
from rollmq.store.vote import write_vote


@dataclass(frozen=True, slots=True)
class SnapshotRef:
    """The newest snapshot, as a marker names it."""

    last_index: int
    digest: str
    size_bytes: int


class Store:
    """A state directory in use."""

    def __init__(self, opened: Opened, options: StoreOptions) -> None:
        self._disk: GuardedDisk = opened.disk
        self._options = options
        self._wal = opened.wal
        self._reader = LogReader(opened.disk, opened.wal)
        self._described: dict[str, SealedSegment] = {}
        self._incoming = Incoming(opened.disk)
        self._source = SnapshotSource(opened.disk)
        recovered = opened.recovered
        self.identity = recovered.identity
        self.hard_state = recovered.hard_state
        self.found_damage: StateDamaged | None = None
        """What was found damaged since the start, the last of it. It was not given to anybody."""
        self.snapshot: SnapshotRef | None = None
        state = recovered.state
        if state is not None and state.name.startswith(layout.SNAPSHOTS):
            self.snapshot = SnapshotRef(state.last_index, state.digest, state.size_bytes)

    @staticmethod
    def open(
        disk: Disk, *, fresh_node_id: str, holder: str = "", options: StoreOptions | None = None
    ) -> "tuple[Store, Recovered]":
        """Open a state directory, or begin one in an empty or missing folder under `fresh_node_id`.

        `holder` is who shall be named while the directory is in use: the process id. Raises a StateError
        that says what to do: damage, in use, no access, another format, not a state directory, disk full.
        Unless it was damage of the unfinished tail, nothing that was written is changed.
        """
        chosen = options or StoreOptions()
        opened = open_directory(disk, fresh_node_id=fresh_node_id, holder=holder, options=chosen)
        return Store(opened, chosen), opened.recovered

    # -- writing

    @property
    def failure(self) -> StoreFailed | None:
        """Why the store takes nothing more, if it does not."""
        return self._disk.failure

    @property
    def next_index(self) -> int:
        """The entry that `write` takes next. All before it are durable."""
        return self._wal.next_index

    def persist(self, write: Write) -> None:
        """Do what the Raft core asks to be durable, in its order: term and vote, cut, lines."""
        if write.hard_state is not None:
            self.save_vote(write.hard_state)
        if write.truncate_from is not None and write.truncate_from < self.next_index:
            self.cut(write.truncate_from)
        if write.lines:
            self.write(write.lines, write.first_index)

    @property
    def sealed(self) -> list[SegmentName]:
        """The sealed segments, oldest first."""
        return list(self._wal.sealed)

    def save_vote(self, hard_state: HardState) -> None:
        """Save term and vote; durable on return. A term never falls, a vote never changes in its term."""
        self._disk.assert_alive()
        assert hard_state.term >= self.hard_state.term
        if hard_state.term == self.hard_state.term:
            assert self.hard_state.voted_for in (None, hard_state.voted_for)
        write_vote(self._disk, hard_state)
        self.hard_state = hard_state

    def set_group(self, group: str, founders: Sequence[str] = ()) -> None:
        """The group has formed, by these nodes; before that no entry can be written. Durable on return."""
        self._disk.assert_alive()
        if self.identity.group == group:
            return
        assert not self.identity.group, "a node belongs to one group"
        identity = Identity(node_id=self.identity.node_id, group=group, founders=tuple(founders))
        write_identity(self._disk, identity)
        self._wal.set_group(group)
        self.identity = identity

    def write(self, lines: Sequence[bytes], first_index: int) -> None:
        """Append lines; all are durable on return. The term of each was saved before (Raft, figure 2)."""
        self._disk.assert_alive()
        self._wal.write(lines, first_index)

    def cut(self, from_index: int) -> None:
        """Forget the entries from this one on; durable on return. What is sealed is never cut."""
        self._disk.assert_alive()
        self._wal.cut(from_index)

    def seal(self, commit_index: int) -> list[SegmentName]:
        """Move every segment whose marker is committed into the history. Returns those that moved."""
        self._disk.assert_alive()
        return self._wal.seal(commit_index)

    def segment_digest(self, next_index: int | None = None) -> SegmentDigest:
        """The digest to go on with for a machine whose next entry is this one; by default that behind all
        lines written. A machine that is rebuilt ends with what is committed, the log may go further."""
        self._disk.assert_alive()
        return self._wal.segment_digest(self.next_index if next_index is None else next_index)

    def close(self) -> None:
        """Give the directory back. Everything was durable before; after a failure nothing more is tried."""
        try:
            if self.failure is None:
                self._wal.close()
        finally:
            self._disk.unlock()

    # -- snapshots of other nodes

    def write_chunk(self, chunk: WriteChunk) -> None:
        """A piece of a snapshot that another node sends, beside everything else."""
        self._disk.assert_alive()
        self._incoming.write(chunk)

    def install(self, facts: SnapshotFacts) -> None:
        """What was received takes the place of log and state; durable on return. Raises SnapshotRefused, and
        then nothing is changed."""
        self._disk.assert_alive()
        self._incoming.take(facts)
        self._wal.close_segments()
        put_in_place(self._disk, facts, self._wal.set_mark)
        self._wal.begin_after(facts.last_index)
        self._described.clear()
        self.snapshot = SnapshotRef(facts.last_index, facts.digest, facts.total_bytes)

    def read_chunk(self, index: int, offset: int, bytes_max: int) -> bytes | None:
        """A piece of a snapshot for another node; None when it is no longer kept, or is damaged: each is read
        as a whole before its first piece is given. For one thread."""
        try:
            return self._source.read(index, offset, bytes_max)
        except StateDamaged as error:
            self.found_damage = error
            return None

    def ask_checkup(self) -> None:
        """Damage was found: let the next start read everything and repair it. Durable on return."""
        self._disk.assert_alive()
        file = self._disk.open(layout.CHECKUP_FILE, "create")
        file.sync()
        file.close()
        self._disk.sync_folder(layout.ROOT)

    # -- reading

    @property
    def first_index(self) -> int:
        """The oldest entry that can be read."""
        return self._reader.first_index

    def ranges(self) -> list[tuple[int, int]]:
        """The entries that can be read, as (first, last), in order."""
        return self._reader.ranges()

    def read_lines(self, first: int, bytes_max: int) -> list[bytes]:
        """Lines from entry `first` on, at least one unless it is the next to be written; see LogReader."""
        self._disk.assert_alive()
        try:
            return self._reader.read_lines(first, bytes_max)
        except WalCorrupt as error:
            self.found_damage = error
            raise

    def state_lines(self, until_index: int) -> Iterator[bytes] | None:
        """The lines of the newest snapshot or base that is not ahead of this entry; None without one."""
        kept = [*layout.snapshots(self._disk), *layout.bases(self._disk)]
        state = next((each for each in kept if each.last_index <= until_index), None)
        return read_state_lines(self._disk, state.name) if state is not None else None

    def is_disk_low(self) -> bool:
        """Whether submits are to be refused; acks go on."""
        return self._disk.free_bytes() < self._options.disk_free_bytes_min

    # -- snapshots and history

    def trailing_index(self) -> int:
        """The older of the kept snapshots, or 0: the log after it is kept for followers that were away."""
        kept = layout.snapshots(self._disk)
        return kept[limits.SNAPSHOTS_KEPT - 1].last_index if len(kept) >= limits.SNAPSHOTS_KEPT else 0

    def is_fold_due(self) -> bool:
        """Whether the helper should fold a snapshot now."""
        covered = self.snapshot.last_index if self.snapshot else 0
        # From the newest back: a long history costs nothing here, and damage in it stops nobody.
        newer = takewhile(lambda name: (name.last_index or 0) > covered, reversed(self._wal.sealed))
        since = [self._described_segment(name) for name in newer]
        return bool(since) and is_fold_due(
            snapshot_bytes=self.snapshot.size_bytes if self.snapshot else 0,
            since=LogSince(
                size_bytes=sum(each.size_bytes for each in since),
                entries_count=since[0].last_index - covered,
            ),
            snapshot_every_entries=self._options.snapshot_every_entries,
        )

    def adopt_snapshot(self, result: FoldResult) -> None:
        """The helper has written a snapshot, durably: name it in markers, keep the newest two.

        One that the helper could not go on from is damaged: it is set aside, or it would count as kept.
        """
        self._disk.assert_alive()
        if self.snapshot is not None and result.last_index < self.snapshot.last_index:
            return  # one was installed meanwhile
        assert self._disk.exists(layout.snapshot_name(result.last_index))
        self.snapshot = SnapshotRef(result.last_index, result.digest, result.size_bytes)
        for state in layout.snapshots(self._disk):
            if result.start_index < state.last_index < result.last_index:
                set_aside(self._disk, state)
        for old in layout.snapshots(self._disk)[limits.SNAPSHOTS_KEPT :]:
            self._disk.unlink(old.name)
        self._disk.sync_folder(layout.SNAPSHOTS)

    def base_index_due(self, *, now_us: int, confirmed_index: int | None) -> int | None:
        """Up to which entry history is to go now: the helper folds that base, then `drop_history`."""
        kept = layout.snapshots(self._disk)
        if len(kept) < limits.SNAPSHOTS_KEPT:
            return None
        doomed = droppable(
            self._sealed(),
            self._retention(),
            older_snapshot_index=kept[limits.SNAPSHOTS_KEPT - 1].last_index,
            confirmed_index=confirmed_index,
            now_us=now_us,
        )
        return doomed[-1].last_index if doomed else None

    def drop_history(self, base_index: int) -> None:
        """The base at this index is durable: declare the gap and remove what it holds."""
        self._disk.assert_alive()
        for segment in drop_until(self._disk, base_index):
            self._described.pop(segment.name, None)
            self._wal.sealed.remove(segment)

    def _retention(self) -> Retention:
        keep_bytes = self._options.keep_history_bytes
        if keep_bytes is None:
            keep_bytes = int(self._disk.total_bytes() * limits.HISTORY_KEEP_SHARE)
        return Retention(keep_bytes=keep_bytes, keep_us=self._options.keep_history_us)

    def _sealed(self) -> list[SealedSegment]:
        """The sealed segments with size and age, oldest first."""
        return [self._described_segment(name) for name in self._wal.sealed]

    def _described_segment(self, name: SegmentName) -> SealedSegment:
        """Size and age of a sealed segment, looked at once."""
        described = self._described.get(name.name)
        if described is None:
            described = self._described[name.name] = describe_segment(self._disk, name)
        return described
