"""What a repair changes in a state directory beside whole segments: the end, snapshots, the small files.

Each step is durable before the next, and leaves a directory that a start either takes as it is or finds
damaged in fewer places. Only a lost end could look whole before it is: so the file `repairing` stands there
from before the first change until after the last. It decides nothing.
"""

from typing import Final

import msgspec

from rollmq.core.line import LineDamaged
from rollmq.core.raft_ready import HardState, SnapshotFacts, WriteChunk
from rollmq.errors import StateDamaged
from rollmq.store import layout
from rollmq.store.disk import Disk
from rollmq.store.gaps import Gap, Gaps, declare_gap, read_gaps
from rollmq.store.history import drop_until
from rollmq.store.install import Incoming, copied, finish_install, put_in_place
from rollmq.store.layout import StateName
from rollmq.store.mark import Mark, MarkFile, read_mark
from rollmq.store.opening import make_durable
from rollmq.store.sealed_file import replace_file, set_aside, write_value
from rollmq.store.snapshot import check_state
from rollmq.store.survey import Extent, Surveyed
from rollmq.store.vote import write_vote

REASON: Final = "repair"
"""Of the gaps that a repair declares."""


class Repairing(msgspec.Struct, frozen=True, gc=False):
    """What `repairing` says: that it is there is all that counts."""

    why: str = "the end of the log is lost until a repair has made it sure"


class Surgeon:
    """Changes one directory, which nobody else uses meanwhile."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._incoming = Incoming(disk)

    def prepare(self) -> None:
        """Finish what a crash interrupted; make missing folders; remove what never came to its place."""
        disk = self._disk
        for folder in layout.FOLDERS:
            if not disk.exists(folder):
                disk.make_folder(folder)
        if disk.exists(layout.INSTALLING_FILE):
            self._finish_install()
        for folder in layout.FOLDERS:
            for name in disk.names_in(folder):
                if name.endswith(layout.TEMPORARY):
                    disk.unlink(f"{folder}/{name}")
            disk.sync_folder(folder)
        sealed = {segment.first_index for segment in layout.sealed_segments(disk)}
        for segment in layout.open_segments(disk):
            if segment.first_index in sealed:
                disk.unlink(segment.name)
        disk.sync_folder(layout.WAL)

    def _finish_install(self) -> None:
        """One whose intent or snapshot is damaged cannot be: then the log is whatever is left of it."""
        try:
            finish_install(self._disk)
        except StateDamaged:
            self.end_is_lost()
            self._disk.unlink(layout.INSTALLING_FILE)
            self._disk.sync_folder(layout.ROOT)

    def mend_gaps(self) -> None:
        """The declared gaps are damaged: a base says that everything before it is gone."""
        try:
            read_gaps(self._disk)
        except StateDamaged:
            bases = layout.bases(self._disk)
            gaps = Gaps((Gap(1, bases[0].last_index, REASON),)) if bases else Gaps()
            write_value(self._disk, layout.GAPS_FILE, gaps)

    def end_is_lost(self) -> None:
        """From now on the log's end counts for nothing, also after a crash, until `complete`."""
        if not self._disk.exists(layout.REPAIRING_FILE):
            write_value(self._disk, layout.REPAIRING_FILE, Repairing())

    def save_vote(self, hard_state: HardState) -> None:
        """Durable on return."""
        write_vote(self._disk, hard_state)

    # -- the end

    def remove_behind(self, surveyed: Surveyed, index: int) -> Extent | None:
        """Files that begin behind this entry go, the newest first. Returns the open one that holds it, to be
        written anew up to there; None if nothing of it would stay."""
        assert self._disk.exists(layout.REPAIRING_FILE), "what is cut may have been confirmed"
        for extent in reversed(surveyed.extents):
            if extent.first_index <= index:
                return None if extent.is_sealed else extent
            assert not extent.is_sealed, "what is sealed is committed"
            self._disk.unlink(extent.name)
            self._disk.sync_folder(layout.WAL)
        return None

    def remove(self, extent: Extent) -> None:
        """A file in which nothing is sound, and behind which nothing is."""
        assert not extent.is_sealed, "what is sealed is committed"
        self._disk.unlink(extent.name)
        self._disk.sync_folder(layout.WAL)

    # -- snapshots

    def write_chunk(self, facts: SnapshotFacts, offset: int, data: bytes) -> None:
        """A piece of a peer's snapshot, beside everything else."""
        self._incoming.write(WriteChunk(facts, offset, data))

    def take_beside(self, facts: SnapshotFacts) -> None:
        """All pieces are here, and the log goes on behind it. Durable on return. Raises SnapshotRefused."""
        self._incoming.take(facts)
        self._disk.rename(layout.INCOMING_FILE, layout.snapshot_name(facts.last_index))
        self._disk.sync_folder(layout.SNAPSHOTS)

    def take_instead(self, facts: SnapshotFacts) -> None:
        """All pieces are here: it takes the place of the whole log. Raises SnapshotRefused."""
        self._incoming.take(facts)
        self.mend_gaps()
        put_in_place(self._disk, facts, self._set_mark)

    def leave_history(self, surveyed: Surveyed) -> None:
        """What the state holds leaves the history: a base stands at its end, and the gap is declared."""
        state = surveyed.state
        assert state is not None
        base = layout.base_name(state.last_index)
        self.mend_gaps()
        if not self._disk.exists(base):
            replace_file(self._disk, base, copied(self._disk, state.name))
        declare_gap(self._disk, Gap(1, state.last_index, REASON))
        for extent in surveyed.extents:
            ends_before = extent.last_index is not None and extent.last_index <= state.last_index
            if ends_before and not extent.is_sealed:
                self._disk.unlink(extent.name)
        self._disk.sync_folder(layout.WAL)
        drop_until(self._disk, state.last_index)

    # -- the last step

    def complete(self, surveyed: Surveyed) -> None:
        """All entries are sound and nothing is missing: the mark says so, and from then on it counts."""
        survey = surveyed.survey
        assert not survey.needs_state, "the log begins where a state ends"
        assert not list(survey.holes()), "nothing is missing"
        assert survey.hard_state is not None, "term and vote are known"
        self.mend_gaps()
        newest = surveyed.extents[-1] if surveyed.extents else None
        if newest is not None and not newest.is_sealed:
            file = self._disk.open(newest.name, "edit")
            make_durable(file, 0, newest.scan.good_bytes)
            file.close()
        self._mend_states(surveyed)
        is_left = newest is not None and self._disk.exists(newest.name)
        self._set_mark(_mark_of(surveyed) if is_left else Mark(0, 0, survey.last_index))
        for name in (layout.REPAIRING_FILE, layout.CHECKUP_FILE):
            if self._disk.exists(name):
                self._disk.unlink(name)
                self._disk.sync_folder(layout.ROOT)

    def _mend_states(self, surveyed: Surveyed) -> None:
        """An older snapshot that is damaged is set aside: the next fold makes up for it. A base is read when
        the next one is folded, and by audits: where none is left the history begins anew behind the state,
        which may be the log's end."""
        for snapshot in layout.snapshots(self._disk):
            if not self._is_sound(snapshot):
                set_aside(self._disk, snapshot)
        for base in layout.bases(self._disk):
            if not self._is_sound(base):
                self._disk.unlink(base.name)
                self._disk.sync_folder(layout.HISTORY)
        if surveyed.survey.gone_index and not layout.bases(self._disk):
            self.leave_history(surveyed)

    def _is_sound(self, state: StateName) -> bool:
        try:
            check_state(self._disk, state)
        except (LineDamaged, OSError):
            return False
        return True

    def _set_mark(self, mark: Mark) -> None:
        try:
            is_there = read_mark(self._disk) is not None
        except StateDamaged:
            is_there = False
        if not is_there:
            MarkFile.make(self._disk)
        mark_file = MarkFile(self._disk)
        mark_file.set_durably(mark)
        mark_file.close()


def _mark_of(surveyed: Surveyed) -> Mark:
    """At the end of the newest file: all of it was synced when it was put together."""
    newest = surveyed.extents[-1] if surveyed.extents else None
    if newest is None or not newest.ranges:
        return Mark(0, 0, surveyed.survey.last_index)
    return Mark(newest.first_index, newest.scan.good_bytes, newest.ranges[-1].last_index)


def extent_with(extents: list[Extent], index: int) -> Extent | None:
    """The file to which an entry belongs; None if it is none that is there."""
    found = [each for each in extents if each.first_index <= index]
    last = found[-1] if found else None
    if last is None or (last.last_index is not None and last.last_index < index):
        return None
    return last
