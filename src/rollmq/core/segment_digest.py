"""The running digest of the segment that is being filled.

A marker carries the sha256 of its segment's bytes before it, the header included, so replicas can prove
that they hold the same file before they seal it. Pure: bytes in, hex out; it reads no file.
"""

import hashlib
import re
from collections.abc import Iterable

import msgspec

from rollmq.core.events import FORMAT_VERSION
from rollmq.core.line import LineDamaged, open_line, seal

_encode = msgspec.json.Encoder().encode
_DIGEST_SAID = re.compile(rb'"segment_digest":"([0-9a-f]{64})"')

MARKER_START = b'"type":"snapshot_marker",'
"""What follows the crc in a marker's line: cheaper to look at than decoding every line."""
MARKER_AT = 18


class SegmentHeader(
    msgspec.Struct,
    frozen=True,
    gc=False,
    forbid_unknown_fields=True,
    tag_field="type",
    tag="segment",
):
    """A segment's first line. The same bytes on every replica."""

    format_version: int
    group: str
    first_index: int


def header_line(*, group: str, first_index: int) -> bytes:
    """The header of the segment that begins with this entry."""
    return seal(_encode(SegmentHeader(FORMAT_VERSION, group, first_index)))


def is_marker_line(line: bytes) -> bool:
    """Whether a line holds a snapshot_marker: the last line of its segment."""
    return line.startswith(MARKER_START, MARKER_AT)


class SegmentDigest:
    """sha256 over a segment's bytes, from its header to the last line added.

    Invariant: covers the header and every line from `first_index` to `next_index` - 1. Whoever proposes or
    stores lines adds each once, in order; a marker ends the segment and begins the next one.
    """

    def __init__(self, *, group: str, first_index: int) -> None:
        self._group = group
        self._begin(first_index)

    def add(self, line: bytes) -> None:
        """Take the next line; behind a marker the digest is that of a new, empty segment."""
        if is_marker_line(line):
            self._begin(self.next_index + 1)
            return
        self._sha.update(line)
        self.byte_count += len(line)
        self.next_index += 1

    def add_block(self, block: bytes, *, lines_count: int) -> None:
        """Take whole lines at once, none of which is a marker."""
        self._sha.update(block)
        self.byte_count += len(block)
        self.next_index += lines_count

    def add_all(self, lines: Iterable[bytes]) -> None:
        """Take the next lines in order."""
        for line in lines:
            self.add(line)

    def hexdigest(self) -> str:
        """What a marker proposed as the next line has to say."""
        return self._sha.hexdigest()

    def copy(self) -> "SegmentDigest":
        """An independent digest that goes on from here."""
        twin = SegmentDigest(group=self._group, first_index=self.first_index)
        twin.next_index = self.next_index
        twin.byte_count = self.byte_count
        twin._sha = self._sha.copy()
        return twin

    def _begin(self, first_index: int) -> None:
        self.first_index = first_index
        self.next_index = first_index
        header = header_line(group=self._group, first_index=first_index)
        self.byte_count = len(header)
        self._sha = hashlib.sha256(header)


class SegmentProof:
    """Whether a sealed segment's bytes are those that its marker's digest was taken of.

    Fed with the file block by block, from its beginning; `problem` judges when all of it was fed.
    """

    def __init__(self) -> None:
        self._sha = hashlib.sha256()
        self._held = b""

    def add(self, block: bytes) -> None:
        """Take the next bytes, cut anywhere."""
        if self._held.endswith(b"\n"):
            self._take_held()
        cut = block.rfind(b"\n", 0, -1) + 1  # the last line may be the marker
        if cut:
            self._take_held()
            self._sha.update(memoryview(block)[:cut])
        self._held += block[cut:]

    def _take_held(self) -> None:
        self._sha.update(self._held)
        self._held = b""

    def problem(self) -> str | None:
        """Why it is not what was sealed; None when it is."""
        said = _DIGEST_SAID.search(self._held)
        if not self._held.endswith(b"\n") or not is_marker_line(self._held) or said is None:
            return "it does not end with a marker"
        try:
            open_line(self._held)  # the digest covers what is before the marker, not the marker
        except LineDamaged as error:
            return f"its marker is damaged: {error}"
        if said[1].decode() != self._sha.hexdigest():
            return "its bytes are not those that its marker's digest was taken of"
        return None
