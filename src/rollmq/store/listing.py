"""All events of a state directory in order, for looking at: what is sound is listed, what is not is noted.

It serves no node: a node takes nothing from a damaged log.
"""

from collections.abc import Iterator

from rollmq.core.events import AnyEvent
from rollmq.core.line import LineDamaged, decode_line
from rollmq.limits import DAMAGES_LISTED_MAX
from rollmq.store import layout
from rollmq.store.disk import Disk
from rollmq.store.layout import SegmentName
from rollmq.store.segment import Blocks, Damage, read_header


class LogListing:
    """A walk through the segments, sealed and open."""

    def __init__(self, disk: Disk, *, first: int = 1, last: int | None = None) -> None:
        """Raises NotAStateDirectory, OSError."""
        self._disk = disk
        self._first = first
        self._last = last
        self.damages: list[Damage] = []
        """Lines that were left out because they are damaged. An unfinished end is none."""
        layout.check_is_state(disk)
        self._segments = layout.all_segments(disk)
        self.first_index = self._segments[0].first_index if self._segments else 0
        self.last_index = 0
        """The last entry seen so far."""

    def events(self, *, containing: str | None = None) -> Iterator[tuple[AnyEvent, bytes]]:
        """(event, its line) of the entries in range. `containing` leaves out, without decoding them, lines
        in which these characters do not occur."""
        needle = containing.encode() if containing is not None else None
        for number, segment in enumerate(self._segments):
            following = self._segments[number + 1] if number + 1 < len(self._segments) else None
            if following is not None and following.first_index <= self._first:
                continue
            if self._last is not None and segment.first_index > self._last:
                return
            yield from self._segment(segment, needle, is_newest=following is None)

    def _segment(
        self, segment: SegmentName, needle: bytes | None, *, is_newest: bool
    ) -> Iterator[tuple[AnyEvent, bytes]]:
        number = 0
        file = self._disk.open(self._present_name(segment), "read")
        try:
            blocks = Blocks(file)
            for pieces in blocks:
                for piece in pieces:
                    number += 1
                    index = segment.first_index + number - 2
                    if number == 1:
                        self._header(segment, piece + b"\n")
                        continue
                    if index < self._first or (self._last is not None and index > self._last):
                        continue
                    self.last_index = index
                    if needle is None or needle in piece:
                        yield from self._event(segment, number, piece + b"\n")
            if blocks.tail and not is_newest:
                self._damage(segment, number + 1, "the line has no newline")
        finally:
            file.close()

    def _header(self, segment: SegmentName, line: bytes) -> None:
        """Lines of another file are not what they seem. Raises WrongFormatVersion."""
        try:
            path = self._disk.path_of(segment.name)
            wrong = read_header(line, path=path, group=None, first_index=segment.first_index)
        except LineDamaged as error:
            wrong = f"the header is damaged: {error}"
        if wrong is not None:
            self._damage(segment, 1, wrong)

    def _event(self, segment: SegmentName, number: int, line: bytes) -> Iterator[tuple[AnyEvent, bytes]]:
        try:
            event = decode_line(line)
        except LineDamaged as error:
            self._damage(segment, number, str(error))
        else:
            yield event, line

    def _damage(self, segment: SegmentName, number: int, reason: str) -> None:
        if len(self.damages) < DAMAGES_LISTED_MAX:
            self.damages.append(Damage(segment.name, number, 0, reason, could_be_torn=False))

    def _present_name(self, segment: SegmentName) -> str:
        """A running node may have sealed the segment since the folder was listed."""
        if not self._disk.exists(segment.name):
            for each in layout.sealed_segments(self._disk):
                if each.first_index == segment.first_index:
                    return each.name
        return segment.name
