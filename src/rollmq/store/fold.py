"""Folding: the previous snapshot and the sealed segments since make the next snapshot.

It runs the same `apply` as every replica, so the bytes equal those of the full apply. It takes only sealed,
sound segments, each proven by the digest in its marker. When to fold is a pure question of sizes.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from rollmq.core.events import SnapshotMarker
from rollmq.core.line import LineDamaged, decode_line
from rollmq.core.machine import Machine
from rollmq.core.segment_digest import is_marker_line
from rollmq.core.state import StateDamaged as StateLinesDamaged
from rollmq.core.state import counts_doubt, dump_state, load_state
from rollmq.errors import EntriesGone, StateDamaged, WalCorrupt
from rollmq.limits import FOLD_BYTES_MIN, FOLD_SHARE_MIN
from rollmq.store import layout
from rollmq.store.disk import Disk
from rollmq.store.layout import SegmentName, StateName
from rollmq.store.sealed_file import folder_of
from rollmq.store.segment import Blocks
from rollmq.store.snapshot import check_state, read_state_lines, write_state


class FoldResult(msgspec.Struct, frozen=True, gc=False):
    """What a fold made. Also the line with which the helper process answers."""

    start_index: int
    """The state it went on from. A newer one, if there was any, could not be used."""
    last_index: int
    digest: str
    size_bytes: int
    lines_count: int
    doubt: str = ""
    """The last marker that counted otherwise. The log is what counts: the state is written all the same."""


@dataclass(frozen=True, slots=True)
class LogSince:
    """How much sealed log lies behind the newest snapshot."""

    size_bytes: int
    entries_count: int


def is_fold_due(*, snapshot_bytes: int, since: LogSince, snapshot_every_entries: int) -> bool:
    """Whether the log since the newest snapshot is worth folding.

    A small log is quicker to replay than to fold; a large snapshot is rewritten only for a log in
    proportion to it; but the log to replay at a restart is bounded in any case.
    """
    if since.entries_count >= snapshot_every_entries:
        return True
    return since.size_bytes >= max(FOLD_BYTES_MIN, int(snapshot_bytes * FOLD_SHARE_MIN))


def fold_snapshot(
    disk: Disk,
    *,
    until_index: int | None = None,
    writer: str = "",
    on_segment: Callable[[], None] | None = None,
) -> FoldResult | None:
    """Write the snapshot as of the last sealed marker, or of the last one up to `until_index`.

    If that is already there, the result says so: it began and ended there. None: nothing was ever sealed.
    Raises StateError, LineDamaged and OSError.
    """
    starts = [*layout.snapshots(disk), *layout.bases(disk)]
    return _fold(disk, starts, until_index, layout.snapshot_name, writer, on_segment)


def fold_base(
    disk: Disk, *, until_index: int, writer: str = "", on_segment: Callable[[], None] | None = None
) -> FoldResult | None:
    """Write the base from which the history after `until_index` goes on."""
    return _fold(disk, layout.bases(disk), until_index, layout.base_name, writer, on_segment)


def _fold(
    disk: Disk,
    starts: list[StateName],
    until_index: int | None,
    name_of: Callable[[int], str],
    writer: str,
    on_segment: Callable[[], None] | None,
) -> FoldResult | None:
    sealed = [
        segment
        for segment in layout.sealed_segments(disk)
        if until_index is None or (segment.last_index or 0) <= until_index
    ]
    _remove_leftovers(disk)
    machine, start = _newest_sound(disk, starts, sealed)
    start_index, doubt = machine.last_index, ""
    for segment in sealed:
        assert segment.last_index is not None
        if segment.last_index > machine.last_index:
            doubt = _apply_segment(disk, machine, segment) or doubt
            if on_segment is not None:
                on_segment()
    if machine.last_index == start_index:
        return _already_there(disk, start, name_of)
    digest, size_bytes, lines_count = write_state(
        disk, name_of(machine.last_index), dump_state(machine), writer=writer
    )
    return FoldResult(start_index, machine.last_index, digest, size_bytes, lines_count, doubt)


def _remove_leftovers(disk: Disk) -> None:
    """What helpers that died have left, or their tries would fill the disk. One helper runs at a time; one
    of an ended node loses its file here, and with it only work that is done again now."""
    for folder in (layout.SNAPSHOTS, layout.HISTORY):
        for name in disk.names_in(folder):
            if name.endswith(layout.TEMPORARY) and name.startswith(("state-", "base-")):
                disk.unlink(f"{folder}/{name}")


def _already_there(disk: Disk, start: StateName | None, name_of: Callable[[int], str]) -> FoldResult | None:
    """The result of a helper that died, or whose node did, after it had written the file."""
    if start is None or start.name != name_of(start.last_index):
        return None
    # It may have died before its last step; the older state goes once this one is told.
    disk.sync_folder(folder_of(start.name))
    found = check_state(disk, start)
    index = start.last_index
    return FoldResult(index, index, found.digest, found.size_bytes, found.lines_count)


def _newest_sound(
    disk: Disk, starts: list[StateName], sealed: list[SegmentName]
) -> tuple[Machine, StateName | None]:
    """The state to go on from: the newest that loads and is followed by the segments that are there."""
    problem = ""
    for start in starts:
        if not _is_followed(start.last_index, sealed):
            continue
        try:
            return load_state(read_state_lines(disk, start.name), is_indexed=False), start
        except (StateLinesDamaged, OSError) as error:
            problem = f"{start.name}: {error}"
    if _is_followed(0, sealed):
        return Machine(is_indexed=False), None
    raise StateDamaged(
        path=disk.path_of(layout.SNAPSHOTS),
        reason=f"no sound state is left to fold on from{f' ({problem})' if problem else ''}",
    )


def _is_followed(index: int, sealed: list[SegmentName]) -> bool:
    """Whether every sealed entry after this index is there."""
    expected = index + 1
    for segment in sealed:
        if segment.last_index is None or segment.last_index <= index:
            continue
        if segment.first_index != expected:
            return False
        expected = segment.last_index + 1
    return True


def _apply_segment(disk: Disk, machine: Machine, segment: SegmentName) -> str:
    """Apply a sealed segment; returns what its marker counts otherwise. Raises WalCorrupt where the segment
    is not what its marker says."""
    if segment.first_index != machine.last_index + 1:
        raise EntriesGone(
            index=machine.last_index + 1, first_index=segment.first_index, next_index=segment.first_index
        )
    number, doubt = 1, ""
    sha = hashlib.sha256()
    file = disk.open(segment.name, "read")
    try:
        blocks = Blocks(file)
        for pieces in blocks:
            lines = [piece + b"\n" for piece in pieces]
            start = 1 if number == 1 else 0
            for line in lines[start:]:
                number += 1
                event = decode_line(line)
                if event.index != machine.last_index + 1:
                    raise LineDamaged(f"entry {event.index} follows {machine.last_index}")
                machine.apply(event)
            if is_marker_line(lines[-1]) and machine.last_index == segment.last_index:
                sha.update(b"".join(lines[:-1]))
                doubt = _check_marker(lines[-1], sha.hexdigest(), machine)
            else:
                sha.update(b"".join(lines))
        if blocks.tail or machine.last_index != segment.last_index:
            raise LineDamaged(f"it ends with entry {machine.last_index}, its name says {segment.last_index}")
    except (LineDamaged, OSError) as error:
        raise WalCorrupt(path=disk.path_of(segment.name), line=number, reason=str(error)) from error
    finally:
        file.close()
    return doubt


def _check_marker(marker_line: bytes, found: str, machine: Machine) -> str:
    marker = decode_line(marker_line)
    assert isinstance(marker, SnapshotMarker)
    if marker.segment_digest and marker.segment_digest != found:
        raise LineDamaged(f"the segment's digest is {found}, its marker says {marker.segment_digest}")
    return counts_doubt(machine, marker)
