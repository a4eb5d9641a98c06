"""Writing the log: one batch, one fdatasync; a marker ends a file; a cut deletes newer files first.

Called by one thread at a time. It decides nothing about entries: indexes, terms and commits are the
caller's. It never retries: the disk under it stops at the first failure.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate

from rollmq.core.segment_digest import MARKER_START, SegmentDigest, header_line, is_marker_line
from rollmq.limits import DISK_BLOCK_BYTES, SPARSE_EVERY_BYTES, WAL_BATCH_BYTES_MAX
from rollmq.store.disk import Disk, DiskFile
from rollmq.store.layout import HISTORY, WAL, SegmentName, open_name, sealed_name
from rollmq.store.mark import Mark, MarkFile
from rollmq.store.segment import Blocks, SparseOffsets


class OpenSegment:
    """A segment in wal/.

    Invariant: the file's first `size_bytes` are synced lines, the header and the entries from
    `first_index` to `next_index` - 1. Once complete, its last line is a marker and it takes no more.
    """

    def __init__(
        self,
        *,
        file: DiskFile,
        first_index: int,
        next_index: int,
        size_bytes: int,
        is_complete: bool,
        offsets: SparseOffsets,
    ) -> None:
        self.file = file
        self.first_index = first_index
        self.next_index = next_index
        self.size_bytes = size_bytes
        self.is_complete = is_complete
        self.offsets = offsets

    @property
    def name(self) -> str:
        return self.file.name

    @property
    def marker_index(self) -> int:
        """Where its marker is, or is to come at the earliest."""
        return self.next_index - self.is_complete

    def mark(self) -> Mark:
        """The mark that says: all of this segment is synced."""
        return Mark(self.first_index, self.size_bytes, self.next_index - 1)

    def offset_of(self, index: int) -> int:
        """Where the line of this entry begins; the segment's end for the entry after its last."""
        if index == self.next_index:
            return self.size_bytes
        at, offset = self.offsets.before(index)
        if at == index:
            return offset
        for pieces in Blocks(self.file, offset=offset, end=self.size_bytes, block_bytes=SPARSE_EVERY_BYTES):
            for piece in pieces:
                offset += len(piece) + 1
                at += 1
                if at == index:
                    return offset
        raise AssertionError(f"entry {index} is not in {self.name}")


class Wal:
    """The open segments.

    Invariant: they follow each other without a gap; all but the last are complete; entries before the
    first of them are sealed, dropped or in a snapshot.
    """

    def __init__(
        self,
        disk: Disk,
        *,
        group: str,
        mark_file: MarkFile,
        segments: list[OpenSegment],
        sealed: list[SegmentName],
        floor: Mark,
        next_index: int,
    ) -> None:
        self._disk = disk
        self._group = group
        self._mark_file = mark_file
        self.segments = segments
        self.sealed = sealed
        self._floor = floor
        """The mark that stands at the end of what is sealed: no cut goes below it."""
        self.next_index = next_index

    def set_group(self, group: str) -> None:
        """The group has formed: from now on segments can be written."""
        assert not self.segments
        assert self._group in ("", group)
        self._group = group

    def write(self, lines: Sequence[bytes], first_index: int) -> None:
        """Append these lines, the first of which is entry `first_index`; all are durable on return.

        Nothing behind a marker goes into its file: the batch is split there, and the next file exists
        durably before a line of it does.
        """
        assert first_index == self.next_index, f"{first_index} handed in where {self.next_index} belongs"
        assert self._group, "no segment can be written before the group has formed"
        data = b"".join(lines)
        if len(data) <= WAL_BATCH_BYTES_MAX and MARKER_START not in data:
            if data:
                self._append(lines, data)
            return
        for part in _parts(lines):
            self._append(part, b"".join(part))

    def cut(self, from_index: int) -> None:
        """Forget the entries from this one on; durable on return.

        The mark is lowered first: until the cut is done, the lines behind it may be old or gone. Newer
        files go first, each durably, so that a crash never leaves a gap.
        """
        assert self._floor.index < from_index, "what is sealed is committed and is never cut"
        assert from_index <= self.next_index
        if from_index == self.next_index:
            return
        doomed = [segment for segment in self.segments if segment.first_index >= from_index]
        kept = self.segments[: len(self.segments) - len(doomed)]
        offset = kept[-1].offset_of(from_index) if kept else 0
        lowered = Mark(kept[-1].first_index, offset, from_index - 1) if kept else self._floor
        self._mark_file.set_durably(lowered)
        for segment in reversed(doomed):
            segment.file.close()
            self._disk.unlink(segment.name)
            self._disk.sync_folder(WAL)
        self.segments = kept
        if kept and kept[-1].next_index != from_index:
            self._truncate(kept[-1], from_index, offset)
        self.next_index = from_index

    def close_segments(self) -> None:
        """The open files go: a snapshot takes the place of all that is in them."""
        for segment in self.segments:
            segment.file.close()
        self.segments = []

    def begin_after(self, index: int) -> None:
        """A snapshot as of this entry is durable in place of the whole log, which goes on behind it."""
        assert not self.segments
        assert index >= self.next_index or index > self._floor.index
        self.sealed = []
        self._floor = Mark(0, 0, index)
        self.next_index = index + 1

    def set_mark(self, mark: Mark) -> None:
        """Durable on return."""
        self._mark_file.set_durably(mark)

    def seal(self, commit_index: int) -> list[SegmentName]:
        """Rename every segment whose marker is committed into history/; durable on return.

        One file at a time, and the folder that receives is fsynced before the one that gives: a crash in
        between may show a file in both, never in none.
        """
        sealed: list[SegmentName] = []
        while self.segments and self._is_sealable(self.segments[0], commit_index):
            segment = self.segments[0]
            last_index = segment.next_index - 1
            name = SegmentName(segment.first_index, last_index, sealed_name(segment.first_index, last_index))
            segment.file.close()
            self._disk.rename(segment.name, name.name)
            self._disk.sync_folder(HISTORY)
            self._disk.sync_folder(WAL)
            self._floor = segment.mark()
            # In this order, so that a reader in another thread finds it in one of the two.
            self.sealed.append(name)
            del self.segments[0]
            sealed.append(name)
        return sealed

    def close(self) -> None:
        """Close the files. Everything was durable before."""
        for segment in self.segments:
            segment.file.close()
        self._mark_file.close()

    @staticmethod
    def _is_sealable(segment: OpenSegment, commit_index: int) -> bool:
        return segment.is_complete and segment.next_index - 1 <= commit_index

    def _append(self, lines: Sequence[bytes], data: bytes) -> None:
        segment = self.segments[-1] if self.segments else None
        if segment is None or segment.is_complete:
            segment = self._begin_segment()
        segment.file.write_at(segment.size_bytes, data)
        segment.file.sync()
        self._note(segment, lines, data)
        self._mark_file.raise_to(segment.mark())

    def _note(self, segment: OpenSegment, lines: Sequence[bytes], data: bytes) -> None:
        """Remember what was just made durable."""
        offset = segment.size_bytes
        if len(data) < SPARSE_EVERY_BYTES:
            segment.offsets.add(segment.next_index, offset)
        else:
            ends = list(accumulate(map(len, lines), initial=offset))
            segment.offsets.add_all(segment.next_index, ends[:-1])
        segment.size_bytes += len(data)
        segment.next_index += len(lines)
        segment.is_complete = is_marker_line(lines[-1])
        self.next_index = segment.next_index

    def _begin_segment(self) -> OpenSegment:
        """Create the next file with its header. Durable, and named by the durable mark, before it gets a
        line: so a file without a sound header that no mark names never held an entry."""
        header = header_line(group=self._group, first_index=self.next_index)
        file = self._disk.open(open_name(self.next_index), "create")
        file.write_at(0, header)
        file.sync()
        self._disk.sync_folder(WAL)
        segment = OpenSegment(
            file=file,
            first_index=self.next_index,
            next_index=self.next_index,
            size_bytes=len(header),
            is_complete=False,
            offsets=SparseOffsets(),
        )
        self._mark_file.set_durably(segment.mark())
        self.segments.append(segment)
        return segment

    def _truncate(self, segment: OpenSegment, from_index: int, offset: int) -> None:
        segment.file.truncate(offset)
        segment.file.sync()
        segment.offsets.cut(from_index)
        segment.size_bytes = offset
        segment.next_index = from_index
        segment.is_complete = False

    def segment_digest(self, next_index: int) -> SegmentDigest:
        """The digest over the lines before this entry in its segment, read back: it is wanted at start and
        after a cut, and taking it along would cost every line a second hash. Behind a marker, and for any
        entry that is not sealed and begins a segment, it is that of an empty one."""
        assert self._group, "there is no digest before the group has formed"
        assert self._floor.index < next_index <= self.next_index
        around = [each for each in self.segments if each.first_index < next_index <= each.marker_index]
        if not around:
            return SegmentDigest(group=self._group, first_index=next_index)
        segment = around[0]
        digest = SegmentDigest(group=self._group, first_index=segment.first_index)
        offset = len(header_line(group=self._group, first_index=segment.first_index))
        end = segment.offset_of(next_index)
        while offset < end:
            block = segment.file.read_at(offset, min(DISK_BLOCK_BYTES, end - offset))
            assert block, "the file is shorter than what was written"
            digest.add_block(block, lines_count=0)
            offset += len(block)
        digest.add_block(b"", lines_count=next_index - segment.first_index)
        return digest


def _parts(lines: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """What goes to disk at once: never more than a torn tail may be, never anything behind a marker."""
    start = 0
    size_bytes = 0
    for at, line in enumerate(lines):
        assert len(line) <= WAL_BATCH_BYTES_MAX
        if size_bytes + len(line) > WAL_BATCH_BYTES_MAX:
            yield lines[start:at]
            start, size_bytes = at, 0
        size_bytes += len(line)
        if is_marker_line(line):
            yield lines[start : at + 1]
            start, size_bytes = at + 1, 0
    if start < len(lines):
        yield lines[start:]
