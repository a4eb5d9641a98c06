"""Files that hold the whole state: snapshots, and the base that a shortened history goes on from.

    write beside, fsync, rename, fsync the folder; only then may anything older go (pitfall 28)

The lines are the machine's own (`core.state`); this module moves them to and from disk and finds damage.
"""

import hashlib
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

from rollmq.core.events import FORMAT_VERSION
from rollmq.core.line import BODY_AT, CRC_AT, CRC_END, LineDamaged, decode_part
from rollmq.core.state import StateEnd, StateHeader
from rollmq.errors import WrongFormatVersion
from rollmq.store.disk import Disk
from rollmq.store.layout import TEMPORARY, StateName
from rollmq.store.sealed_file import replace_file
from rollmq.store.segment import Blocks

_header_decoder = msgspec.json.Decoder(StateHeader)
_end_decoder = msgspec.json.Decoder(StateEnd)

WRITE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class StateFile:
    """A sound snapshot or base."""

    name: str
    last_index: int
    last_term: int
    last_at_us: int
    digest: str
    """sha256 of the file, hex: equal on every replica."""
    size_bytes: int
    lines_count: int


def write_state(disk: Disk, name: str, lines: Iterable[bytes], *, writer: str = "") -> tuple[str, int, int]:
    """Write the state durably. Returns (digest, bytes, lines).

    `writer` keeps two processes that write the same state from writing the same temporary file.
    """
    sha = hashlib.sha256()
    totals = [0, 0]

    def blocks() -> Iterator[bytes]:
        for block, lines_count in _in_blocks(lines):
            sha.update(block)
            totals[0] += len(block)
            totals[1] += lines_count
            yield block

    replace_file(disk, name, blocks(), temporary=f"{name}{'.' if writer else ''}{writer}{TEMPORARY}")
    return sha.hexdigest(), totals[0], totals[1]


def check_state(disk: Disk, state: StateName) -> StateFile:
    """Read the whole file and check every line, their order, the first and the last.

    Raises LineDamaged (with the line's number), OSError, WrongFormatVersion.
    """
    sha = hashlib.sha256()
    crc32 = zlib.crc32
    lines_count = 0
    size_bytes = 0
    header: StateHeader | None = None
    last = b""
    crc_before = b""
    chain = 0  # over the crcs of all lines but the last, which says what it must be
    file = disk.open(state.name, "read")
    try:
        blocks = Blocks(file)
        for pieces in blocks:
            for piece in pieces:
                lines_count += 1
                rest = piece[BODY_AT:]
                if piece[:BODY_AT] != b'{"crc":"%08x",' % crc32(rest):
                    raise LineDamaged(f"line {lines_count}: the crc does not match the line")
                chain = crc32(crc_before, chain)
                crc_before = piece[CRC_AT:CRC_END]
            if header is None:
                header = _header_of(disk, state, pieces[0] + b"\n")
            last = pieces[-1]
            block = b"\n".join([*pieces, b""])
            sha.update(block)
            size_bytes += len(block)
    finally:
        file.close()
    if blocks.tail:
        raise LineDamaged(f"line {lines_count + 1}: the line has no newline")
    if header is None:
        raise LineDamaged("line 1: the file is empty")
    end: StateEnd = decode_part(last + b"\n", _end_decoder)
    if end.lines != lines_count:
        raise LineDamaged(f"line {lines_count}: the last line counts {end.lines} lines")
    if end.chain != chain:
        raise LineDamaged(f"line {lines_count}: the lines are not in the order in which they were written")
    return StateFile(
        state.name, header.index, header.term, header.at_us, sha.hexdigest(), size_bytes, lines_count
    )


def read_state_lines(disk: Disk, name: str) -> Iterator[bytes]:
    """The lines of a state file, as `load_state` takes them (and checks them). Raises OSError."""
    file = disk.open(name, "read")
    try:
        blocks = Blocks(file)
        for pieces in blocks:
            yield from [piece + b"\n" for piece in pieces]
        if blocks.tail:
            yield blocks.tail
    finally:
        file.close()


def _header_of(disk: Disk, state: StateName, line: bytes) -> StateHeader:
    header: StateHeader = decode_part(line, _header_decoder)
    if header.format != FORMAT_VERSION:
        raise WrongFormatVersion(path=disk.path_of(state.name), found=header.format, expected=FORMAT_VERSION)
    if header.index != state.last_index:
        raise LineDamaged(
            f"line 1: it holds the state as of {header.index}, its name says {state.last_index}"
        )
    return header


def _in_blocks(lines: Iterable[bytes]) -> Iterator[tuple[bytes, int]]:
    """Gather lines, so that Python's work per write vanishes."""
    gathered: list[bytes] = []
    size_bytes = 0
    for line in lines:
        gathered.append(line)
        size_bytes += len(line)
        if size_bytes >= WRITE_BYTES:
            yield b"".join(gathered), len(gathered)
            gathered, size_bytes = [], 0
    if gathered:
        yield b"".join(gathered), len(gathered)
