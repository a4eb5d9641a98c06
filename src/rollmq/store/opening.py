"""From a folder to a store that is ready: lock, identity, vote, log and snapshot, in this order.

Everything is read and judged before anything is changed. It knows no queue: the state and the entries are
handed out as they are in the files.
"""

import errno
from collections.abc import Iterator
from dataclasses import dataclass

from rollmq import limits
from rollmq.core.line import LineDamaged
from rollmq.core.raft_ready import HardState
from rollmq.errors import (
    DirectoryInUse,
    NotAStateDirectory,
    StateDamaged,
    StateNotAccessible,
    StoreFailed,
    WalCorrupt,
)
from rollmq.store import layout
from rollmq.store.disk import Disk, DiskFile, GuardedDisk
from rollmq.store.history import finish_drop
from rollmq.store.install import finish_install
from rollmq.store.layout import SegmentName
from rollmq.store.mark import Mark, MarkFile, read_mark
from rollmq.store.node_file import Identity, read_identity, write_identity
from rollmq.store.recovery import Findings, TornTail, inspect, raise_damage, repair
from rollmq.store.segment import Damage, Entry, SegmentScan, read_entries
from rollmq.store.snapshot import StateFile, read_state_lines
from rollmq.store.vote import read_vote, write_vote
from rollmq.store.wal import OpenSegment, Wal


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """What an operator may set. Tests make the sizes small."""

    disk_free_bytes_min: int = limits.DISK_FREE_BYTES_MIN
    ballast_bytes: int = limits.BALLAST_BYTES
    snapshot_every_entries: int = limits.SNAPSHOT_EVERY_ENTRIES
    keep_history_bytes: int | None = None
    """None: a share of the disk."""
    keep_history_us: int = limits.HISTORY_KEEP_US


@dataclass(frozen=True, slots=True)
class Recovered:
    """What the directory held: the state to load, then the entries after it to apply."""

    disk: Disk
    identity: Identity
    hard_state: HardState
    state: StateFile | None
    """The newest sound snapshot (or base); None: begin with the empty state."""
    last_index: int
    last_term: int
    last_at_us: int
    scans: tuple[SegmentScan, ...]
    torn: TornTail | None
    """The unfinished tail that was cut, with its copy."""
    notes: tuple[Damage, ...]
    """Damage that did not stop the node, to be shown to an operator."""
    is_ballast_spent: bool
    """The disk was full: the ballast was given back, and submits must wait for room."""

    @property
    def state_index(self) -> int:
        """The entry as of which `state_lines` is; entries follow from the next one."""
        return self.state.last_index if self.state else 0

    @property
    def sealed_index(self) -> int:
        """The last entry that is known to be committed: that of the newest sealed segment, or the state's."""
        sealed = [scan.last_index for scan in self.scans if scan.name.startswith(f"{layout.HISTORY}/")]
        return max(sealed, default=self.state_index)

    def state_lines(self) -> Iterator[bytes]:
        """The lines of the snapshot for `load_state`; none without one."""
        if self.state is not None:
            yield from read_state_lines(self.disk, self.state.name)

    def entries(self) -> Iterator[Entry]:
        """The entries after the snapshot, in order, each checked once more. Raises WalCorrupt.

        Read them before anything is written or sealed: they come from the files as they were found.
        """
        for scan in self.scans:
            try:
                yield from read_entries(
                    self.disk, scan.name, from_index=self.state_index + 1, end=scan.good_bytes
                )
            except (LineDamaged, OSError) as error:
                raise WalCorrupt(path=self.disk.path_of(scan.name), line=0, reason=str(error)) from error


@dataclass(frozen=True, slots=True)
class Opened:
    """The parts of a Store."""

    disk: GuardedDisk
    wal: Wal
    recovered: Recovered


def open_directory(disk: Disk, *, fresh_node_id: str, holder: str, options: StoreOptions) -> Opened:
    """Open or begin a state directory. Raises StateError; then the directory is given back, unchanged."""
    guarded = GuardedDisk(disk)
    try:
        _check_folder(guarded)
        found = guarded.lock(layout.LOCK_FILE, holder)
        if found is not None:
            raise DirectoryInUse(path=guarded.path_of(layout.ROOT), holder=found)
    except (OSError, StoreFailed) as error:
        raise _no_access(guarded, error) from error
    try:
        return _open_locked(guarded, fresh_node_id, options)
    except (OSError, StoreFailed) as error:
        guarded.unlock()
        raise _no_access(guarded, error) from error
    except BaseException:
        guarded.unlock()
        raise


def _no_access(disk: GuardedDisk, error: OSError | StoreFailed) -> StateNotAccessible | StoreFailed:
    """Tell a missing right from a failing disk."""
    cause = error if isinstance(error, OSError) else error.__cause__
    number = cause.errno if isinstance(cause, OSError) else None
    path = error.path if isinstance(error, StoreFailed) else disk.path_of(layout.ROOT)
    if isinstance(error, StoreFailed) and number not in (errno.EACCES, errno.EPERM, errno.EROFS):
        return error
    name = getattr(cause, "filename", None)
    reason = getattr(cause, "strerror", None) or str(cause)
    return StateNotAccessible(path=path, reason=f"{reason}{f' ({name})' if name else ''}")


def _check_folder(disk: GuardedDisk) -> None:
    """Refuse a folder of something else before a file is put into it."""
    root = disk.path_of(layout.ROOT)
    if not disk.exists(layout.ROOT):
        disk.make_folder(layout.ROOT)
    try:
        names = disk.names_in(layout.ROOT)
    except NotADirectoryError as error:
        raise NotAStateDirectory(path=root, reason="it is a file") from error
    foreign = [
        name for name in names if name not in layout.KNOWN_NAMES and not name.endswith(layout.TEMPORARY)
    ]
    if foreign and layout.NODE_FILE not in names:
        raise NotAStateDirectory(path=root, reason=f"it holds {foreign[0]} and no {layout.NODE_FILE}")


def _open_locked(disk: GuardedDisk, fresh_node_id: str, options: StoreOptions) -> Opened:
    identity = read_identity(disk) or _begin(disk, fresh_node_id)
    if disk.exists(layout.INSTALLING_FILE):
        finish_install(disk)
    if disk.exists(layout.CHECKUP_FILE):
        reason = "damage was found while the node ran, and is to be repaired from the other nodes first"
        raise StateDamaged(path=disk.path_of(layout.CHECKUP_FILE), reason=reason)
    if disk.exists(layout.REPAIRING_FILE):
        reason = "a repair from the other nodes was begun and did not end"
        raise StateDamaged(path=disk.path_of(layout.REPAIRING_FILE), reason=reason)
    hard_state, mark = read_vote(disk), read_mark(disk)
    if hard_state is None or mark is None:
        missing = layout.VOTE_FILE if hard_state is None else layout.SYNCED_FILE
        raise StateDamaged(path=disk.path_of(missing), reason="the file is missing")
    for folder in layout.FOLDERS:
        if not disk.exists(folder):
            raise StateDamaged(path=disk.path_of(folder), reason="the folder is missing")
    findings = inspect(disk, group=identity.group, mark=mark)
    raise_damage(disk, findings.damages)
    last_term, last_at_us = _log_end(findings)
    if last_term > hard_state.term:
        raise StateDamaged(
            path=disk.path_of(layout.VOTE_FILE),
            reason=f"it says term {hard_state.term}, but the log has reached {last_term}: it is an old copy",
        )
    is_ballast_spent = _spend_ballast(disk, options)
    repair(disk, findings)
    dropped = set(finish_drop(disk))
    sealed = [segment for segment in findings.sealed if segment not in dropped]
    wal = _open_wal(disk, identity.group, findings, sealed, mark)
    _lay_ballast(disk, options)
    recovered = Recovered(
        disk=disk,
        identity=identity,
        hard_state=hard_state,
        state=findings.state,
        last_index=findings.last_index,
        last_term=last_term,
        last_at_us=last_at_us,
        scans=tuple(findings.kept_scans()),
        torn=findings.torn,
        notes=tuple(findings.notes),
        is_ballast_spent=is_ballast_spent,
    )
    return Opened(disk, wal, recovered)


def _log_end(findings: Findings) -> tuple[int, int]:
    """(term, at_us) of the last entry, in the log or in the state."""
    state = findings.state
    term, at_us = (state.last_term, state.last_at_us) if state else (0, 0)
    for scan in findings.scans:
        if scan.last_index >= scan.first_index:
            term, at_us = scan.last_term, scan.last_at_us
    return term, at_us


def _begin(disk: GuardedDisk, fresh_node_id: str) -> Identity:
    """A new node. Its identity is written last: until then the directory is a beginning, and begun again."""
    for folder in layout.FOLDERS:
        disk.make_folder(folder)
    holds = [*layout.open_segments(disk), *layout.sealed_segments(disk), *layout.snapshots(disk)]
    vote = read_vote(disk)
    if holds or (vote is not None and vote.term > 0):
        raise StateDamaged(
            path=disk.path_of(layout.NODE_FILE), reason="the file is missing, and the directory is in use"
        )
    MarkFile.make(disk)
    write_vote(disk, HardState())
    identity = Identity(node_id=fresh_node_id)
    write_identity(disk, identity)
    return identity


def _open_wal(
    disk: GuardedDisk, group: str, findings: Findings, sealed: list[SegmentName], mark: Mark
) -> Wal:
    """Open what is to be written, sync what was only seen, and set the mark where the log ends."""
    segments: list[OpenSegment] = []
    for scan in findings.kept_scans():
        if not scan.name.startswith(f"{layout.WAL}/"):
            continue
        file = disk.open(scan.name, "edit")
        make_durable(file, _synced_bytes(scan, mark), scan.good_bytes)
        segments.append(
            OpenSegment(
                file=file,
                first_index=scan.first_index,
                next_index=scan.last_index + 1,
                size_bytes=scan.good_bytes,
                is_complete=scan.marker is not None,
                offsets=scan.offsets,
            )
        )
    floor = _floor(disk, sealed, findings)
    mark_file = MarkFile(disk)
    mark_file.set_durably(segments[-1].mark() if segments else floor)
    return Wal(
        disk,
        group=group,
        mark_file=mark_file,
        segments=segments,
        sealed=sealed,
        floor=floor,
        next_index=findings.last_index + 1,
    )


def _synced_bytes(scan: SegmentScan, mark: Mark) -> int:
    """How much of the file was known to be synced. A mark in a newer file vouches for all of this one."""
    if mark.first > scan.first_index:
        return scan.good_bytes
    return mark.bytes if mark.first == scan.first_index else 0


def make_durable(file: DiskFile, synced_bytes: int, end: int) -> None:
    """The last process may have died between a write and its fsync: seen is not yet durable.

    Or its fsync failed. Then the kernel may hold these pages as clean although the disk never got them, and
    an fsync alone would succeed over nothing (docs/rules.md, pitfall 5). So they are written once more.
    """
    offset = synced_bytes
    while offset < end:
        block = file.read_at(offset, min(limits.DISK_BLOCK_BYTES, end - offset))
        assert block, "the file is as long as it was when it was read"
        file.write_at(offset, block)
        offset += len(block)
    file.sync()


def _floor(disk: GuardedDisk, sealed: list[SegmentName], findings: Findings) -> Mark:
    """The mark at the end of what is sealed: below it nothing is ever cut."""
    if not sealed or sealed[-1].last_index is None:
        return Mark(0, 0, findings.state.last_index if findings.state else 0)
    file = disk.open(sealed[-1].name, "read")
    try:
        return Mark(sealed[-1].first_index, file.size_bytes(), sealed[-1].last_index)
    finally:
        file.close()


def _spend_ballast(disk: GuardedDisk, options: StoreOptions) -> bool:
    """On a full disk give the ballast back, so that the node can start, say so and make room."""
    is_full = disk.free_bytes() < options.ballast_bytes
    if is_full and disk.exists(layout.BALLAST_FILE):
        disk.unlink(layout.BALLAST_FILE)
        disk.sync_folder(layout.ROOT)
        return True
    return False


def _lay_ballast(disk: GuardedDisk, options: StoreOptions) -> None:
    """Take the ballast once there is room for it, and more."""
    has_room = disk.free_bytes() > options.ballast_bytes + options.disk_free_bytes_min
    if options.ballast_bytes and has_room and not disk.exists(layout.BALLAST_FILE):
        disk.allocate(layout.BALLAST_FILE, options.ballast_bytes)
        disk.sync_folder(layout.ROOT)
