"""A snapshot that another node sent, in place of this node's log and state (section 7 of the Raft paper).

    chunks beside -> checked, synced -> intent -> renamed -> base, mark, old log away -> intent away

Every step is durable before the next, and a start finishes what the intent names: a crash anywhere leaves the
old state with the old log, or the new state with none. What came before is gone from this node's history: the
gap is declared, and a base stands at its end (docs/decisions/0013-what-an-install-leaves.md).
"""

from collections.abc import Callable, Iterator

import msgspec

from rollmq.core.line import LineDamaged
from rollmq.core.raft_ready import SnapshotFacts, WriteChunk
from rollmq.errors import SnapshotRefused, StateDamaged
from rollmq.limits import DISK_BLOCK_BYTES
from rollmq.store import layout
from rollmq.store.disk import Disk, DiskFile
from rollmq.store.gaps import Gap, declare_gap
from rollmq.store.history import drop_until
from rollmq.store.layout import StateName
from rollmq.store.mark import Mark, MarkFile
from rollmq.store.sealed_file import read_value, replace_file, write_value
from rollmq.store.snapshot import check_state

KEPT_OPEN = 2
"""Snapshots that are being sent: an old one to the end, while the newest goes to somebody else."""


class Intent(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """This snapshot is to take the place of everything before it."""

    index: int
    digest: str


_decoder = msgspec.json.Decoder(Intent)


class Incoming:
    """The file that chunks are put into, beside its place."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._file: DiskFile | None = None

    def write(self, chunk: WriteChunk) -> None:
        """Put a chunk where it belongs. Offset 0 begins anew. Not durable before `take`."""
        if chunk.offset == 0 or self._file is None:
            self.close()
            self._file = self._disk.open(layout.INCOMING_FILE, "create")
        self._file.write_at(chunk.offset, chunk.data)

    def take(self, facts: SnapshotFacts) -> None:
        """All is here: make it durable and prove that it is what its sender has. Raises SnapshotRefused."""
        if self._file is None:
            raise SnapshotRefused(index=facts.last_index, reason="nothing was received")
        self._file.sync()
        size_bytes = self._file.size_bytes()
        self.close()
        if size_bytes != facts.total_bytes:
            reason = f"it has {size_bytes:,} bytes, its sender's {facts.total_bytes:,}"
            raise SnapshotRefused(index=facts.last_index, reason=reason)
        try:
            found = check_state(self._disk, StateName(facts.last_index, layout.INCOMING_FILE))
        except LineDamaged as error:
            raise SnapshotRefused(index=facts.last_index, reason=str(error)) from error
        if (found.digest, found.last_term) != (facts.digest, facts.last_term):
            raise SnapshotRefused(index=facts.last_index, reason="its digest is not that of its sender's")

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def put_in_place(disk: Disk, facts: SnapshotFacts, set_mark: Callable[[Mark], None]) -> None:
    """A file that was taken becomes the state; the log before it goes. Durable on return.

    The caller has closed the open segments, and writes none before this returns.
    """
    write_value(disk, layout.INSTALLING_FILE, Intent(facts.last_index, facts.digest))
    disk.rename(layout.INCOMING_FILE, layout.snapshot_name(facts.last_index))
    disk.sync_folder(layout.SNAPSHOTS)
    _finish(disk, facts.last_index, set_mark)


def finish_install(disk: Disk) -> None:
    """At start: finish an install that a crash interrupted, or forget one that had not begun to count."""
    intent = read_value(disk, layout.INSTALLING_FILE, _decoder)
    if intent is None:
        return
    state = StateName(intent.index, layout.snapshot_name(intent.index))
    if not disk.exists(state.name):
        _forget_intent(disk)
        return
    try:
        found = check_state(disk, state)
    except LineDamaged as error:
        raise StateDamaged(path=disk.path_of(state.name), reason=str(error)) from error
    if found.digest != intent.digest:
        raise StateDamaged(path=disk.path_of(state.name), reason="it is not the snapshot that was received")
    disk.sync_folder(layout.SNAPSHOTS)
    mark_file = MarkFile(disk)
    _finish(disk, intent.index, mark_file.set_durably)
    mark_file.close()


def _finish(disk: Disk, index: int, set_mark: Callable[[Mark], None]) -> None:
    """Each step may be repeated."""
    base = layout.base_name(index)
    if not disk.exists(base):
        replace_file(disk, base, copied(disk, layout.snapshot_name(index)))
    set_mark(Mark(0, 0, index))
    for segment in reversed(layout.open_segments(disk)):
        disk.unlink(segment.name)
    disk.sync_folder(layout.WAL)
    declare_gap(disk, Gap(1, index, "install_snapshot"))
    drop_until(disk, index)
    for state in layout.snapshots(disk):
        if state.last_index != index:
            disk.unlink(state.name)
    disk.sync_folder(layout.SNAPSHOTS)
    _forget_intent(disk)


def _forget_intent(disk: Disk) -> None:
    disk.unlink(layout.INSTALLING_FILE)
    disk.sync_folder(layout.ROOT)


def copied(disk: Disk, name: str) -> Iterator[bytes]:
    file = disk.open(name, "read")
    try:
        offset = 0
        while block := file.read_at(offset, DISK_BLOCK_BYTES):
            yield block
            offset += len(block)
    finally:
        file.close()


class SnapshotSource:
    """Reads pieces of snapshots for followers. A file that is being sent stays readable when it goes."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._files: dict[int, DiskFile] = {}

    def read(self, index: int, offset: int, bytes_max: int) -> bytes | None:
        """A piece of the snapshot as of this entry; None when it is no longer kept. Raises StateDamaged."""
        file = self._files.pop(index, None)
        if file is None:
            name = layout.snapshot_name(index)
            try:
                check_state(self._disk, StateName(index, name))
                file = self._disk.open(name, "read")
            except FileNotFoundError:
                return None
            except (LineDamaged, OSError) as error:
                raise StateDamaged(path=self._disk.path_of(name), reason=str(error)) from error
        self._files[index] = file
        while len(self._files) > KEPT_OPEN:
            self._files.pop(next(iter(self._files))).close()
        return file.read_at(offset, bytes_max)
