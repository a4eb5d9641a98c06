"""Which file of a state directory is what, by its name.

Names only: it lists folders, and neither opens nor changes a file.
"""

import re
from typing import NamedTuple

from rollmq.errors import NotAStateDirectory
from rollmq.store.disk import Disk

WAL = "wal"
HISTORY = "history"
SNAPSHOTS = "snapshots"
ROOT = "."
FOLDERS = (WAL, HISTORY, SNAPSHOTS)

NODE_FILE = "node.json"
VOTE_FILE = "vote.json"
SYNCED_FILE = "synced"
LOCK_FILE = "lock"
BALLAST_FILE = "ballast"
GAPS_FILE = "history/gaps.json"

INSTALLING_FILE = "installing"
"""Names a snapshot of another node that is taking the place of everything before it; gone when it is done."""
INCOMING_FILE = "snapshots/incoming.tmp"
"""A snapshot of another node, while it comes in."""
REPAIRING_FILE = "repairing"
"""Says that the end of the log is lost until a repair has made it sure: what is in wal/ may look whole."""
CHECKUP_FILE = "checkup"
"""Damage was found while the node ran: the next start reads everything, and repairs what is damaged."""
PATCH_FILE = "wal/patch.tmp"
"""A segment that is being put together from what is sound of it and lines of other nodes."""

KNOWN_NAMES = frozenset(
    {
        *FOLDERS,
        NODE_FILE,
        VOTE_FILE,
        SYNCED_FILE,
        LOCK_FILE,
        BALLAST_FILE,
        INSTALLING_FILE,
        REPAIRING_FILE,
        CHECKUP_FILE,
        "lost+found",
    }
)
"""What may lie in a state directory. `lost+found`: it may be the root of a file system of its own."""

TEMPORARY = ".tmp"
"""Ends the name of a file that is being written beside its place. Leftovers are removed at start."""

DAMAGED = ".damaged"
"""Ends the name of a snapshot or base that was found damaged and set aside."""

_OPEN = re.compile(r"events-(\d+)\.log")
_SEALED = re.compile(r"events-(\d+)-(\d+)\.jsonl")
_SNAPSHOT = re.compile(r"state-(\d+)\.jsonl")
_BASE = re.compile(r"base-(\d+)\.jsonl")
_TORN = re.compile(r"torn-(\d+)-(\d+)\.bin")


class SegmentName(NamedTuple):
    """A segment's file. Sorts by its first entry; `last_index` is None while it is open."""

    first_index: int
    last_index: int | None
    name: str


class StateName(NamedTuple):
    """A file that holds the whole state as of an entry: a snapshot or a base."""

    last_index: int
    name: str


# Numbers are padded so that `ls` and every other tool lists segments in the order of the log.


def open_name(first_index: int) -> str:
    """The file of a segment that is being written."""
    return f"{WAL}/events-{first_index:016}.log"


def sealed_name(first_index: int, last_index: int) -> str:
    """The file of a sealed segment."""
    return f"{HISTORY}/events-{first_index:016}-{last_index:016}.jsonl"


def sealed_range(file_name: str) -> tuple[int, int] | None:
    """(first entry, last entry) of a sealed segment's file, by its name without the folder; else None."""
    found = _SEALED.fullmatch(file_name)
    return (int(found[1]), int(found[2])) if found else None


def snapshot_name(index: int) -> str:
    """The file of the state as of this index."""
    return f"{SNAPSHOTS}/state-{index:016}.jsonl"


def base_name(index: int) -> str:
    """The file of the state from which the kept history goes on."""
    return f"{HISTORY}/base-{index:016}.jsonl"


def torn_name(index: int, number: int) -> str:
    """The copy of a tail that was cut before this index; the number grows with every cut."""
    return f"{WAL}/torn-{number:06}-{index:016}.bin"


def open_segments(disk: Disk) -> list[SegmentName]:
    """The segments in wal/, in order."""
    found = [
        SegmentName(int(match[1]), None, f"{WAL}/{name}")
        for name in _names_in(disk, WAL)
        if (match := _OPEN.fullmatch(name))
    ]
    return sorted(found)


def sealed_segments(disk: Disk) -> list[SegmentName]:
    """The segments in history/, in order."""
    found = [
        SegmentName(int(match[1]), int(match[2]), f"{HISTORY}/{name}")
        for name in _names_in(disk, HISTORY)
        if (match := _SEALED.fullmatch(name))
    ]
    return sorted(found)


def all_segments(disk: Disk) -> list[SegmentName]:
    """Every segment once, in order, also while a node seals: what moves meanwhile is seen in history/."""
    found = {segment.first_index: segment for segment in open_segments(disk)}
    found |= {segment.first_index: segment for segment in sealed_segments(disk)}
    return sorted(found.values())


def torn_copies(disk: Disk) -> list[tuple[int, str]]:
    """(number, name) of the kept copies of torn tails, oldest first."""
    found = [
        (int(match[1]), f"{WAL}/{name}") for name in _names_in(disk, WAL) if (match := _TORN.fullmatch(name))
    ]
    return sorted(found)


def snapshots(disk: Disk) -> list[StateName]:
    """The snapshots, newest first."""
    return _states(disk, SNAPSHOTS, _SNAPSHOT)


def bases(disk: Disk) -> list[StateName]:
    """The bases of the history, newest first; more than one only after a crash."""
    return _states(disk, HISTORY, _BASE)


def _states(disk: Disk, folder: str, pattern: re.Pattern[str]) -> list[StateName]:
    found = [
        StateName(int(match[1]), f"{folder}/{name}")
        for name in _names_in(disk, folder)
        if (match := pattern.fullmatch(name))
    ]
    return sorted(found, reverse=True)


def _names_in(disk: Disk, folder: str) -> list[str]:
    """The names in a folder; none when it is missing, which is damage that others look for and tell."""
    return disk.names_in(folder) if disk.exists(folder) else []


def check_is_state(disk: Disk) -> None:
    """Raise NotAStateDirectory unless the folder has something of ours. For those who only read it."""
    root = disk.path_of(ROOT)
    if not disk.exists(ROOT):
        raise NotAStateDirectory(path=root, reason="there is no such folder")
    try:
        names = set(disk.names_in(ROOT))
    except NotADirectoryError as error:
        raise NotAStateDirectory(path=root, reason="it is a file") from error
    if not {NODE_FILE, WAL} & names:
        raise NotAStateDirectory(path=root, reason=f"it holds neither {NODE_FILE} nor {WAL}/")
