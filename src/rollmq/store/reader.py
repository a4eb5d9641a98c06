"""Reading the log back: the very bytes, for followers, pipelines and whoever asks.

May run beside the writer, in another thread: it opens files by name for each call, and reads only what
was durable when it looked. It checks every line and never serves a damaged one.
"""

import contextlib

from rollmq.core.line import LineDamaged, decode_line, open_line
from rollmq.errors import EntriesGone, WalCorrupt
from rollmq.limits import DISK_BLOCK_BYTES, SEALED_READERS_MAX, SPARSE_EVERY_BYTES
from rollmq.store.disk import Disk
from rollmq.store.layout import SegmentName
from rollmq.store.segment import Blocks, SparseOffsets
from rollmq.store.wal import Wal


class LogReader:
    """Finds and reads lines in open and sealed segments."""

    def __init__(self, disk: Disk, wal: Wal) -> None:
        self._disk = disk
        self._wal = wal
        self._offsets: dict[str, SparseOffsets] = {}
        """Of the sealed segments read lately, newest use last."""

    @property
    def first_index(self) -> int:
        """The oldest entry that is here. Gaps in the middle are declared ones."""
        sealed = self._wal.sealed
        if sealed:
            return sealed[0].first_index
        segments = self._wal.segments
        return segments[0].first_index if segments else self._wal.next_index

    def ranges(self) -> list[tuple[int, int]]:
        """The entries that are here, as (first, last), in order and joined."""
        files = [(each.first_index, each.last_index or 0) for each in tuple(self._wal.sealed)]
        files += [(each.first_index, each.next_index - 1) for each in tuple(self._wal.segments)]
        found: list[tuple[int, int]] = []
        for first, last in files:
            if found and found[-1][1] + 1 == first:
                found[-1] = (found[-1][0], last)
            else:
                found.append((first, last))
        return found

    def read_lines(self, first: int, bytes_max: int) -> list[bytes]:
        """Lines from entry `first` on: at least one, no more than `bytes_max` after that, none beyond the
        segment's end; none at all when `first` is the next entry to be written.

        Raises EntriesGone when they are not here, WalCorrupt when they are damaged.
        """
        next_index = self._wal.next_index
        if first == next_index:
            return []
        for _ in range(2):
            # A segment may be sealed between the look and the open: then its name is found the second time.
            with contextlib.suppress(FileNotFoundError):
                if (lines := self._find_lines(first, bytes_max)) is not None:
                    return lines
        raise EntriesGone(index=first, first_index=self.first_index, next_index=next_index)

    def _find_lines(self, first: int, bytes_max: int) -> list[bytes] | None:
        for segment in reversed(tuple(self._wal.segments)):
            if segment.first_index <= first < segment.next_index:
                at, offset = segment.offsets.before(first)
                return self._read(segment.name, first, at, offset, segment.size_bytes, bytes_max)
        for name in reversed(tuple(self._wal.sealed)):
            if name.first_index <= first <= (name.last_index or 0):
                return self._read_sealed(name, first, bytes_max)
        return None

    def _read_sealed(self, name: SegmentName, first: int, bytes_max: int) -> list[bytes]:
        offsets = self._offsets.pop(name.name, None) or self._build_offsets(name)
        self._offsets[name.name] = offsets
        if len(self._offsets) > SEALED_READERS_MAX:
            del self._offsets[next(iter(self._offsets))]
        at, offset = offsets.before(first)
        return self._read(name.name, first, at, offset, None, bytes_max)

    def _build_offsets(self, name: SegmentName) -> SparseOffsets:
        """A line is an entry, so counting newlines is enough."""
        offsets = SparseOffsets()
        file = self._disk.open(name.name, "read")
        try:
            offset, index = 0, name.first_index - 1  # the header counts as the line before the first
            while block := file.read_at(offset, SPARSE_EVERY_BYTES):
                newline = block.find(b"\n")
                if newline >= 0 and offset + newline + 1 < file.size_bytes():
                    offsets.add(index + 1, offset + newline + 1)
                index += block.count(b"\n")
                offset += len(block)
        except OSError as error:
            raise self._not_given(name.name, error) from error
        finally:
            file.close()
        return offsets

    def _read(
        self, name: str, first: int, at: int, offset: int, end: int | None, bytes_max: int
    ) -> list[bytes]:
        lines: list[bytes] = []
        size_bytes = 0
        file = self._disk.open(name, "read")
        try:
            block_bytes = min(DISK_BLOCK_BYTES, bytes_max + SPARSE_EVERY_BYTES)
            for pieces in Blocks(file, offset=offset, end=end, block_bytes=block_bytes):
                skipped = min(first - at, len(pieces)) if at < first else 0
                at += skipped
                for piece in pieces[skipped:]:
                    size_bytes += len(piece) + 1
                    if lines and size_bytes > bytes_max:
                        return self._checked(name, lines, first)
                    lines.append(piece + b"\n")
        except OSError as error:
            raise self._not_given(name, error) from error
        finally:
            file.close()
        return self._checked(name, lines, first)

    def _not_given(self, name: str, error: OSError) -> WalCorrupt:
        reason = f"the disk does not give it: {error.strerror or error}"
        return WalCorrupt(path=self._disk.path_of(name), line=0, reason=reason)

    def _checked(self, name: str, lines: list[bytes], first: int) -> list[bytes]:
        at = first
        try:
            if not lines:
                raise LineDamaged("the line is missing")
            found = decode_line(lines[0]).index
            if found != first:
                raise LineDamaged(f"entry {found} stands where {first} belongs")
            for line in lines:
                open_line(line)
                at += 1
        except LineDamaged as error:
            raise WalCorrupt(path=self._disk.path_of(name), line=0, reason=f"entry {at}: {error}") from error
        return lines
