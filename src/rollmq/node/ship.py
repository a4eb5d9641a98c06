"""The helper process that ships: `python -m rollmq.node.ship`, one request on stdin, answers on stdout.

It copies sealed segments, which never change, into an archive, and proves each with its marker's digest on
the way. It takes no lock, changes nothing in the state directory, and replaces nothing in the archive. What
the archive's library raises ends it: the last line of its stderr is the reason, and the node asks again.
"""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Literal

import msgspec

from rollmq.core.segment_digest import SegmentProof
from rollmq.errors import RollmqError
from rollmq.limits import ARCHIVE_COMPARED_MAX, DISK_BLOCK_BYTES
from rollmq.node.archive_place import TEMPORARY, ArchivePlace, open_place
from rollmq.store.layout import sealed_range

NICE: Final = 10
"""Behind the node and its workers: an archive may take its time."""
MARKER_READ_BYTES: Final = 64 * 1024
"""Of a segment's end, to compare its marker; more is read when the marker is longer."""

Outcome = Literal["moving", "shipped", "present", "gone", "conflict", "damaged", "ahead"]


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a node asks its helper for."""

    folder: str
    """Where the sealed segments are."""
    archive: str
    """A directory or a URL."""
    group: str
    """The group's uuid."""
    node: str
    """The node's id: what it leaves half-done bears it."""
    names: tuple[str, ...]
    """Segments to ship, oldest first."""
    from_index: int
    """The node has sealed segments from this entry on: what the archive has before it is of no interest."""
    lists: bool
    """Look at all that the archive has, and clear away what an earlier helper left half-done."""
    ahead: tuple[str, ...]
    """What an earlier look around has found in the archive and not here."""
    parent: int
    """The node's process: without it the helper ends."""


class Told(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One line of the answer: what is with a segment."""

    name: str
    outcome: Outcome
    """moving: some of it has been copied. shipped: it is there now. present: it was there. gone: the node
    has it no longer. conflict: another file is in its place. damaged: it is not what was sealed. ahead: the
    archive has it, and the node does not."""
    reason: str = ""
    size_bytes: int = 0
    """Of what was shipped."""


Tell = Callable[[Told], None]


class Orphaned(RollmqError):
    """The node that started this helper is gone. Nothing was changed; the next node ships again."""


class SegmentDamaged(RollmqError):
    """A sealed segment is not what was sealed. It was not shipped, nothing was changed."""


def ship(place: ArchivePlace, request: Request, tell: Tell) -> None:
    """Bring the segments into the archive, and say of each what became of it."""
    sizes = place.sizes() if request.lists else {}
    ahead = _look_around(place, request, sizes, tell) if request.lists else list(request.ahead)
    known_until = len(request.names) - ARCHIVE_COMPARED_MAX
    for number, name in enumerate(request.names):
        path = Path(request.folder) / name
        there = sizes.get(name) if request.lists else place.size_of(name)
        other = _overlapping(name, ahead)
        try:
            if other is not None:
                reason = f"the archive has {other}: another history, perhaps of a directory put back since"
                told = Told(name, "conflict", reason=reason)
            elif there is None:
                told = _copied(place, request, path, tell)
            elif request.lists and number < known_until and there == path.stat().st_size:
                told = Told(name, "present")  # an old one: reading the end of each would take an hour
            else:
                told = _compared(place, path)
        except FileNotFoundError:
            if path.exists():
                raise  # of the archive
            told = Told(name, "gone", reason="the node has it no longer")
        tell(told)
        if told.outcome == "conflict":
            return  # what follows in one history does not follow in another


def _look_around(place: ArchivePlace, request: Request, sizes: dict[str, int], tell: Tell) -> list[str]:
    """Tell what the archive has and the node has not; remove what this node left half-done."""
    ahead, asked = [], set(request.names)
    for name in sorted(sizes):
        reach = sealed_range(name)
        if name.endswith(f".{request.node}{TEMPORARY}"):
            place.remove(name)
        elif reach is not None and reach[1] >= request.from_index and name not in asked:
            ahead.append(name)
            tell(Told(name, "ahead"))
    return ahead


def _overlapping(name: str, ahead: list[str]) -> str | None:
    """Another segment that shares entries with this one: in one history they are equal or apart."""
    ours = sealed_range(name)
    assert ours is not None
    for each in ahead:
        theirs = sealed_range(each)
        if each != name and theirs is not None and theirs[0] <= ours[1] and ours[0] <= theirs[1]:
            return each
    return None


def _copied(place: ArchivePlace, request: Request, path: Path, tell: Tell) -> Told:
    """Copy one segment. Another node may be faster: then the two are compared."""
    size_bytes = path.stat().st_size
    try:
        place.put(
            path.name,
            _proved_blocks(path, request.parent, tell),
            beside=f"{path.name}.{request.node}{TEMPORARY}",
        )
    except SegmentDamaged as error:
        return Told(path.name, "damaged", reason=str(error))
    except FileExistsError:
        return _compared(place, path)
    # Where a library replaces what appeared meanwhile, the last one counts: it must be what was copied.
    found = _compared(place, path)
    return found if found.outcome == "conflict" else Told(path.name, "shipped", size_bytes=size_bytes)


def _proved_blocks(path: Path, parent: int, tell: Tell) -> Iterator[bytes]:
    """A segment's bytes. Raises SegmentDamaged at their end, when they are not what was sealed."""
    proof = SegmentProof()
    with path.open("rb") as file:
        while block := file.read(DISK_BLOCK_BYTES):
            if os.getppid() != parent:
                raise Orphaned("The node that asked for this has ended. Nothing was changed.")
            tell(Told(path.name, "moving"))
            proof.add(block)
            yield block
    problem = proof.problem()
    if problem is not None:
        raise SegmentDamaged(f"{path}: {problem}")


def _compared(place: ArchivePlace, path: Path) -> Told:
    """Whether what is in the archive is this segment: as long, and with the same marker, which has the digest
    of all the rest."""
    size_bytes, there = path.stat().st_size, place.size_of(path.name)
    if there != size_bytes:
        reason = f"the archive's has {there or 0:,} bytes, this node's {size_bytes:,}"
        return Told(path.name, "conflict", reason=reason)
    wanted = MARKER_READ_BYTES
    while True:
        with path.open("rb") as file:
            file.seek(max(0, size_bytes - wanted))
            ours = file.read()
        if b"\n" in ours[:-1] or wanted >= size_bytes:
            break
        wanted *= 4
    if place.tail(path.name, wanted) != ours:
        return Told(path.name, "conflict", reason="the archive's has another marker: other bytes, same name")
    return Told(path.name, "present")


def main() -> int:
    """Do what stdin asks for, once."""
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=Request)
    os.nice(NICE)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints is no answer

    def tell(told: Told) -> None:
        answers.write(msgspec.json.encode(told) + b"\n")

    ship(open_place(request.archive, request.group), request, tell)
    return 0


if __name__ == "__main__":
    sys.exit(main())
