"""Reading a segment: its lines in blocks, checked one by one, with every damaged place listed.

It only reads and says what it found. Whether a bad line is torn or corrupt is decided in recovery,
which knows the mark; nothing here changes a file.
"""

import bisect
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from rollmq.core.events import FORMAT_VERSION, AnyEvent, SnapshotMarker
from rollmq.core.line import BODY_AT, LineDamaged, decode_line, decode_part
from rollmq.core.segment_digest import SegmentHeader
from rollmq.errors import WrongFormatVersion
from rollmq.limits import DAMAGES_LISTED_MAX, DISK_BLOCK_BYTES, SPARSE_EVERY_BYTES
from rollmq.store.disk import Disk, DiskFile

_header_decoder = msgspec.json.Decoder(SegmentHeader)
_decode_event = msgspec.json.Decoder(AnyEvent).decode
_NOT_DECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


@dataclass(frozen=True, slots=True)
class Damage:
    """A place where a file is not what was written."""

    name: str
    line: int
    """From 1, as editors count; 0 where the whole file is meant."""
    offset: int
    reason: str
    could_be_torn: bool
    """Whether lost pages can look like this: no newline, or a crc that does not match. A sound line
    that says the wrong thing cannot."""


class SparseOffsets:
    """Where some of a segment's lines begin: enough to find any line by reading a little."""

    __slots__ = ("_indexes", "_next_at", "_offsets")

    def __init__(self) -> None:
        self._indexes: list[int] = []
        self._offsets: list[int] = []
        self._next_at = 0

    def add(self, index: int, offset: int) -> None:
        """Take note of a line; most are not remembered."""
        if offset >= self._next_at:
            self._indexes.append(index)
            self._offsets.append(offset)
            self._next_at = offset + SPARSE_EVERY_BYTES

    def add_all(self, first_index: int, offsets: list[int]) -> None:
        """The same for lines that follow each other, without looking at each."""
        at = bisect.bisect_left(offsets, self._next_at)
        while at < len(offsets):
            self.add(first_index + at, offsets[at])
            at = bisect.bisect_left(offsets, self._next_at, at)

    def before(self, index: int) -> tuple[int, int]:
        """(index, offset) of the nearest remembered line at or before this one."""
        at = bisect.bisect_right(self._indexes, index) - 1
        assert at >= 0
        return self._indexes[at], self._offsets[at]

    def cut(self, from_index: int) -> None:
        """Forget the lines from this one on."""
        keep = bisect.bisect_left(self._indexes, from_index)
        del self._indexes[keep:], self._offsets[keep:]
        self._next_at = self._offsets[-1] + SPARSE_EVERY_BYTES if self._offsets else 0


@dataclass(slots=True)
class SegmentScan:
    """What reading a whole segment found.

    Invariant: everything before `good_bytes` is sound, and `last_index` is the last entry in there.
    """

    name: str
    first_index: int
    last_index: int
    last_term: int
    last_at_us: int
    size_bytes: int = 0
    good_bytes: int = 0
    sound_end: int = 0
    """Where the last sound line behind the first damage ends; 0 if there is none."""
    lines_read: int = 0
    marker: SnapshotMarker | None = None
    """Its last line, if that is a marker: the segment is complete."""
    damages: list[Damage] = field(default_factory=list)
    damages_count: int = 0
    offsets: SparseOffsets = field(default_factory=SparseOffsets)


class Blocks:
    """A file's whole lines without their newlines, a list per block read; then `tail` is the rest."""

    def __init__(
        self,
        file: DiskFile,
        *,
        offset: int = 0,
        end: int | None = None,
        block_bytes: int = DISK_BLOCK_BYTES,
    ) -> None:
        self._file = file
        self._block_bytes = block_bytes
        self._offset = offset
        self._end = file.size_bytes() if end is None else end
        self.tail = b""
        """What follows the last newline, once all lines were taken: nothing, in a sound file."""

    def __iter__(self) -> Iterator[list[bytes]]:
        carried: list[bytes] = []
        while block := self._next_block():
            pieces = block.split(b"\n")
            last = pieces.pop()
            if pieces:
                pieces[0] = b"".join([*carried, pieces[0]])
                carried = []
                yield pieces
            carried.append(last)
        self.tail = b"".join(carried)

    def _next_block(self) -> bytes:
        wanted = min(self._block_bytes, self._end - self._offset)
        block = self._file.read_at(self._offset, wanted) if wanted > 0 else b""
        self._offset += len(block)
        return block


def read_header(line: bytes, *, path: Path, group: str | None, first_index: int) -> str | None:
    """What is wrong with a header that is whole, if anything. Raises LineDamaged if it is not, and
    WrongFormatVersion: another release's log is no damage."""
    header: SegmentHeader = decode_part(line, _header_decoder)
    if header.format_version != FORMAT_VERSION:
        raise WrongFormatVersion(path=path, found=header.format_version, expected=FORMAT_VERSION)
    if group is not None and header.group != group:
        return f"the header names the group {header.group or 'none'}, this node is of {group or 'none'}"
    if header.first_index != first_index:
        return f"the header names {header.first_index} as its first entry, the file's name {first_index}"
    return None


class _Scanner:
    """Checks one line after the other; keeps what must not fall or jump."""

    def __init__(self, scan: SegmentScan, path: Path, group: str | None) -> None:
        self.scan = scan
        self._path = path
        self._group = group
        self._offset = 0
        self._number = 0
        self._expected = scan.first_index
        self._after_bad = False

    def damage(self, reason: str, *, could_be_torn: bool = False) -> None:
        scan = self.scan
        if not scan.damages_count:
            scan.good_bytes = self._offset
        scan.damages_count += 1
        if len(scan.damages) < DAMAGES_LISTED_MAX:
            scan.damages.append(Damage(scan.name, self._number, self._offset, reason, could_be_torn))

    def header(self, piece: bytes) -> None:
        self._number = 1
        try:
            wrong = read_header(
                piece + b"\n", path=self._path, group=self._group, first_index=self.scan.first_index
            )
        except LineDamaged as error:
            self.damage(f"the header is damaged: {error}", could_be_torn=True)
        else:
            if wrong:
                self.damage(wrong)
        self._offset += len(piece) + 1

    def take(self, pieces: list[bytes], visit: Callable[[AnyEvent, bytes], None] | None) -> None:
        scan = self.scan
        offset = self._offset
        crc32 = zlib.crc32
        for piece in pieces:
            self._number += 1
            rest = piece[BODY_AT:]
            if piece[:BODY_AT] != b'{"crc":"%08x",' % crc32(rest):
                self.damage("the crc does not match the line", could_be_torn=True)
                self._after_bad = True
            else:
                try:
                    event = _decode_event(b"{" + rest)
                except _NOT_DECODABLE as error:
                    self.damage(f"the line is no event of this version: {error}")
                    self._after_bad = True
                else:
                    self._follow(event)
                    if visit is not None:
                        visit(event, piece + b"\n")
                    if not scan.damages_count:
                        scan.offsets.add(event.index, offset)
                    else:
                        scan.sound_end = offset + len(piece) + 1
            offset += len(piece) + 1
            self._offset = offset

    def _follow(self, event: AnyEvent) -> None:
        """Check a sound line against those before it."""
        scan = self.scan
        if event.index != self._expected and not (self._after_bad and event.index > self._expected):
            self.damage(f"entry {event.index} follows where {self._expected} belongs")
        if scan.marker is not None:
            self.damage(f"entry {event.index} follows the marker, which is a segment's last line")
        if event.term < scan.last_term:
            self.damage(f"the term falls from {scan.last_term} to {event.term}")
        if event.at_us < scan.last_at_us:
            self.damage(f"log time falls from {scan.last_at_us} to {event.at_us}")
        self._expected = event.index + 1
        self._after_bad = False
        scan.last_at_us = event.at_us
        scan.lines_read += 1
        if not scan.damages_count:
            scan.last_index = event.index
            scan.last_term = event.term
            scan.marker = event if type(event) is SnapshotMarker else None

    def tail(self, piece: bytes) -> None:
        if piece:
            self._number += 1
            self.damage("the line has no newline", could_be_torn=True)
        if not self.scan.damages_count:
            self.scan.good_bytes = self._offset


def scan_segment(
    disk: Disk,
    name: str,
    *,
    group: str | None,
    first_index: int,
    last_term: int = 0,
    last_at_us: int = 0,
    visit: Callable[[AnyEvent, bytes], None] | None = None,
) -> SegmentScan:
    """Read and check every line of a segment. `visit` gets each sound line, also behind damage. Without a
    `group` the header's is not compared.

    A file that the disk does not give is damaged where reading failed. One that this user may not read is
    not: PermissionError passes.
    """
    scan = SegmentScan(name, first_index, first_index - 1, last_term, last_at_us)
    scanner = _Scanner(scan, disk.path_of(name), group)
    try:
        file = disk.open(name, "read")
    except PermissionError:
        raise
    except OSError as error:
        scanner.damage(f"the file cannot be opened: {error.strerror or error}")
        return scan
    try:
        scan.size_bytes = file.size_bytes()
        _scan_lines(Blocks(file, end=scan.size_bytes), scanner, visit)
    except OSError as error:
        scanner.damage(f"the disk does not give the line: {error.strerror or error}")
    finally:
        file.close()
    return scan


def _scan_lines(blocks: Blocks, scanner: _Scanner, visit: Callable[[AnyEvent, bytes], None] | None) -> None:
    has_header = False
    for pieces in blocks:
        if not has_header:
            scanner.header(pieces[0])
            has_header = True
            del pieces[0]
        scanner.take(pieces, visit)
    if has_header:
        scanner.tail(blocks.tail)
    else:
        scanner.damage("the file has no whole header", could_be_torn=True)


class Entry(msgspec.Struct, frozen=True, gc=False):
    """An entry of the log: its very bytes, and what they say."""

    index: int
    term: int
    line: bytes
    event: AnyEvent


def read_entries(disk: Disk, name: str, *, from_index: int, end: int | None = None) -> Iterator[Entry]:
    """The entries of a segment from this index on, each checked again. Raises LineDamaged and OSError."""
    file = disk.open(name, "read")
    try:
        blocks = Blocks(file, end=end)
        is_header = True
        for pieces in blocks:
            for piece in pieces[1:] if is_header else pieces:
                line = piece + b"\n"
                event = decode_line(line)
                if event.index >= from_index:
                    yield Entry(event.index, event.term, line, event)
            is_header = False
        if blocks.tail:
            raise LineDamaged("the line has no newline")
    finally:
        file.close()
