"""Reading a whole state directory to say whether it is what was written: every segment, every state.

Only reads, takes no lock, and may run beside the node that writes: what a start would do, cut or refuse, is
told and not done.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from rollmq.core.events import AnyEvent, SnapshotMarker
from rollmq.core.line import LineDamaged
from rollmq.core.raft_ready import HardState
from rollmq.errors import StateDamaged
from rollmq.limits import DISK_BLOCK_BYTES
from rollmq.store import layout
from rollmq.store.disk import Disk
from rollmq.store.gaps import Gaps, read_gaps, undeclared
from rollmq.store.layout import SegmentName, StateName
from rollmq.store.mark import Mark, read_mark
from rollmq.store.node_file import Identity, read_identity
from rollmq.store.recovery import is_torn_tail
from rollmq.store.segment import Damage, SegmentScan, scan_segment
from rollmq.store.snapshot import check_state
from rollmq.store.vote import read_vote

UNDER_REPAIR: Final = (
    (layout.REPAIRING_FILE, "a repair was begun and did not end: the end of the log does not count"),
    (layout.CHECKUP_FILE, "damage was found while the node ran: its next start repairs it"),
)


@dataclass(slots=True)
class Verdict:
    """What a directory holds and what is wrong with it."""

    identity: Identity | None = None
    hard_state: HardState | None = None
    gaps: Gaps = field(default_factory=Gaps)
    damages: list[Damage] = field(default_factory=list)
    damages_count: int = 0
    """Of all, also where only the first of a file are listed."""
    unfinished: Damage | None = None
    """An unfinished tail: torn, or being written right now. A start cuts it; it is no damage."""
    segments_count: int = 0
    states_count: int = 0
    entries_count: int = 0
    size_bytes: int = 0
    first_index: int = 0
    last_index: int = 0
    last_term: int = 0
    digests_count: int = 0
    """Segments whose bytes were compared with the digest in their marker."""

    @property
    def is_clean(self) -> bool:
        return self.damages_count == 0

    def damage(self, name: str, reason: str, line: int = 0) -> None:
        self.damages.append(Damage(name, line, 0, reason, could_be_torn=False))
        self.damages_count += 1


def bytes_to_verify(disk: Disk) -> int:
    """How much there is to read, for a progress bar. Raises NotAStateDirectory, OSError."""
    layout.check_is_state(disk)
    names = [segment.name for segment in layout.all_segments(disk)]
    names += [state.name for state in [*layout.snapshots(disk), *layout.bases(disk)]]
    return sum(_size_of(disk, name) for name in names)


def verify_directory(disk: Disk, *, on_bytes: Callable[[int], None] | None = None) -> Verdict:
    """Read everything. Raises NotAStateDirectory, WrongFormatVersion and OSError, never for damage."""
    layout.check_is_state(disk)
    verdict = Verdict()
    mark = _small_files(disk, verdict)
    segments = layout.all_segments(disk)
    for first, last in undeclared(segments, verdict.gaps):
        verdict.damage(layout.WAL, f"entries {first} to {last} are missing: no segment holds them")
    if mark.first and not any(segment.first_index == mark.first for segment in segments):
        verdict.damage(
            layout.open_name(mark.first), f"the file is missing; it was synced up to entry {mark.index}"
        )
    digests = _segments(disk, verdict, segments, mark, on_bytes)
    for state in [*layout.snapshots(disk), *layout.bases(disk)]:
        _state(disk, verdict, state, digests)
        verdict.states_count += 1
        if on_bytes is not None:
            on_bytes(_size_of(disk, state.name))
    if verdict.hard_state is not None and verdict.hard_state.term < verdict.last_term:
        verdict.damage(
            layout.VOTE_FILE, f"term {verdict.hard_state.term}, but the log has reached {verdict.last_term}"
        )
    return verdict


def _small_files(disk: Disk, verdict: Verdict) -> Mark:
    """Identity, vote, mark and gaps. The mark is read before the log, so it is never ahead of it."""
    mark: Mark | None = None
    for name, reason in UNDER_REPAIR:
        if disk.exists(name):
            verdict.damage(name, reason)
    for read, name in (
        (read_identity, layout.NODE_FILE),
        (read_vote, layout.VOTE_FILE),
        (read_mark, layout.SYNCED_FILE),
        (read_gaps, layout.GAPS_FILE),
    ):
        try:
            value = read(disk)
        except StateDamaged as error:
            verdict.damage(name, error.reason)
            continue
        except PermissionError:
            raise  # it may be sound: this user may not look
        except OSError as error:
            verdict.damage(name, f"the file cannot be read: {error.strerror or error}")
            continue
        if isinstance(value, Identity):
            verdict.identity = value
        elif isinstance(value, HardState):
            verdict.hard_state = value
        elif isinstance(value, Mark):
            mark = value
        elif isinstance(value, Gaps):
            verdict.gaps = value
        else:
            verdict.damage(name, "the file is missing")
    for folder in layout.FOLDERS:
        if not disk.exists(folder):
            verdict.damage(folder, "the folder is missing")
    return mark or Mark()


def _segments(
    disk: Disk,
    verdict: Verdict,
    segments: list[SegmentName],
    mark: Mark,
    on_bytes: Callable[[int], None] | None,
) -> dict[int, str]:
    """Every segment, each checked against the one before. Returns the digests of snapshots by index."""
    digests: dict[int, str] = {}
    before: SegmentScan | None = None
    for number, listed in enumerate(segments):
        segment = _present(disk, verdict, listed)
        if segment is None:
            continue
        scan = _scan(disk, verdict, segment, before, digests)
        verdict.segments_count += 1
        verdict.entries_count += scan.lines_read
        verdict.size_bytes += scan.size_bytes
        verdict.first_index = verdict.first_index or segment.first_index
        verdict.last_index, verdict.last_term = scan.last_index, max(verdict.last_term, scan.last_term)
        is_newest = number == len(segments) - 1
        _check_segment(disk, verdict, segment, scan, mark, is_newest=is_newest)
        before = scan
        if on_bytes is not None:
            on_bytes(scan.size_bytes)
    return digests


def _present(disk: Disk, verdict: Verdict, segment: SegmentName) -> SegmentName | None:
    """The segment under the name it has now: the running node may have sealed or dropped it meanwhile."""
    if disk.exists(segment.name):
        return segment
    for each in layout.sealed_segments(disk):
        if each.first_index == segment.first_index:
            return each
    verdict.gaps = read_gaps(disk)
    is_dropped = verdict.gaps.covers(segment.first_index, segment.last_index or segment.first_index)
    return None if is_dropped else segment


def _scan(
    disk: Disk,
    verdict: Verdict,
    segment: SegmentName,
    before: SegmentScan | None,
    digests: dict[int, str],
) -> SegmentScan:
    def visit(event: AnyEvent, _line: bytes) -> None:
        if type(event) is SnapshotMarker and event.snapshot_digest:
            digests[event.snapshot_index] = event.snapshot_digest

    scan = scan_segment(
        disk,
        segment.name,
        group=verdict.identity.group if verdict.identity else None,
        first_index=segment.first_index,
        last_term=before.last_term if before else 0,
        last_at_us=before.last_at_us if before else 0,
        visit=visit,
    )
    if before is not None and not before.damages and segment.first_index != before.last_index + 1:
        is_declared = verdict.gaps.covers(before.last_index + 1, segment.first_index - 1)
        if not is_declared:
            reason = f"it begins with {segment.first_index}, the log before it ends with {before.last_index}"
            verdict.damage(segment.name, reason)
    return scan


def _check_segment(
    disk: Disk, verdict: Verdict, segment: SegmentName, scan: SegmentScan, mark: Mark, *, is_newest: bool
) -> None:
    is_open = scan.name.startswith(f"{layout.WAL}/")
    if mark.first == segment.first_index and scan.size_bytes < mark.bytes:
        verdict.damage(
            scan.name, f"the file ends at byte {scan.size_bytes}, it was synced up to {mark.bytes}"
        )
    elif scan.damages and is_open and is_newest and is_torn_tail(scan, mark):
        verdict.unfinished = scan.damages[0]
    elif scan.damages:
        verdict.damages += scan.damages
        verdict.damages_count += scan.damages_count
    elif scan.marker is not None:
        _check_digest(disk, verdict, scan, scan.marker)
    elif not is_newest:
        verdict.damage(scan.name, "the marker that ends a segment is missing, and a newer one follows")
    elif not is_open:
        verdict.damage(scan.name, "a sealed segment without the marker that ends it")
    if segment.last_index is not None and not scan.damages and scan.last_index != segment.last_index:
        verdict.damage(scan.name, f"it ends with entry {scan.last_index}, its name says {segment.last_index}")


def _check_digest(disk: Disk, verdict: Verdict, scan: SegmentScan, marker: SnapshotMarker) -> None:
    """sha256 of the file up to the marker's line against what the marker says."""
    if not marker.segment_digest:
        return
    sha = hashlib.sha256()
    held = b""
    file = disk.open(scan.name, "read")
    try:
        offset = 0
        while block := file.read_at(offset, min(DISK_BLOCK_BYTES, scan.good_bytes - offset)):
            offset += len(block)
            held += block
            # Hold back the last line seen whole: it may be the marker's.
            cut = held.rfind(b"\n", 0, -1) + 1
            sha.update(held[:cut])
            held = held[cut:]
    finally:
        file.close()
    verdict.digests_count += 1
    if sha.hexdigest() != marker.segment_digest:
        verdict.damage(
            scan.name, f"the segment's digest is {sha.hexdigest()}, its marker says {marker.segment_digest}"
        )


def _state(disk: Disk, verdict: Verdict, state: StateName, digests: dict[int, str]) -> None:
    try:
        found = check_state(disk, state)
    except PermissionError:
        raise
    except (LineDamaged, OSError) as error:
        if disk.exists(state.name):  # else the running node has replaced it by a newer one
            verdict.damage(state.name, str(error))
        return
    expected = digests.get(state.last_index)
    if expected is not None and expected != found.digest:
        verdict.damage(state.name, f"its digest is {found.digest}, a marker says {expected}")


def _size_of(disk: Disk, name: str) -> int:
    try:
        file = disk.open(name, "read")
    except OSError:
        return 0
    try:
        return file.size_bytes()
    finally:
        file.close()
