"""Puts segments together anew, from what is sound of them and lines of other nodes.

    lines -> a file beside, synced -> its digest compared with its marker's -> renamed over the damaged one

Other files are not touched, and the damaged one is there until the whole one is: a crash anywhere changes
nothing that counts. It decides nothing about where lines come from.
"""

from collections.abc import Sequence

from rollmq.core.events import SnapshotMarker
from rollmq.core.line import decode_line
from rollmq.core.segment_digest import SegmentDigest, header_line, is_marker_line
from rollmq.store import layout
from rollmq.store.disk import Disk, DiskFile
from rollmq.store.sealed_file import folder_of


class PatchRefused(ValueError):
    """The lines of a segment are whole, and make another file than its marker says. Nothing was changed."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name = name


class Patch:
    """One segment, or several in a row, written anew entry by entry."""

    def __init__(
        self, disk: Disk, *, group: str, first_index: int, until_index: int, sealed_index: int
    ) -> None:
        """`sealed_index`: files that begin at or before this entry are sealed ones."""
        self._disk = disk
        self._group = group
        self._sealed_index = sealed_index
        self._file: DiskFile | None = None
        self._size_bytes = 0
        self._first_index = first_index
        self._digest = SegmentDigest(group=group, first_index=first_index)
        self.next_index = first_index
        self.until_index = until_index
        """The last entry that is meant to be written."""
        self.written: list[str] = []
        """The files that are in their places."""

    def add(self, lines: Sequence[bytes]) -> None:
        """The next lines. Raises PatchRefused when they do not make the file that its marker says."""
        held: list[bytes] = []
        for line in lines:
            held.append(line)
            self.next_index += 1
            if is_marker_line(line):
                self._write(held)
                held = []
                self._check(line)
                self._digest.add(line)
                self._put_in_place()
                self._first_index = self.next_index
            else:
                self._digest.add(line)
        self._write(held)

    def finish(self) -> None:
        """All is added: the last file comes to its place, also without a marker. Durable on return."""
        if self._file is not None:
            self._put_in_place()

    def abandon(self) -> None:
        """Leave the rest; what is in its place stays there."""
        if self._file is not None:
            self._file.close()
            self._file = None
            self._disk.unlink(layout.PATCH_FILE)

    @property
    def _name(self) -> str:
        if self._first_index <= self._sealed_index:
            return layout.sealed_name(self._first_index, self.next_index - 1)
        return layout.open_name(self._first_index)

    def _write(self, lines: Sequence[bytes]) -> None:
        if not lines:
            return
        if self._file is None:
            self._file = self._disk.open(layout.PATCH_FILE, "create")
            header = header_line(group=self._group, first_index=self._first_index)
            self._file.write_at(0, header)
            self._size_bytes = len(header)
        data = b"".join(lines)
        self._file.write_at(self._size_bytes, data)
        self._size_bytes += len(data)

    def _check(self, line: bytes) -> None:
        event, found = decode_line(line), self._digest.hexdigest()
        assert isinstance(event, SnapshotMarker)
        if event.segment_digest and event.segment_digest != found:
            reason = f"the digest of its lines is {found}, its marker says {event.segment_digest}"
            raise PatchRefused(self._name, reason)

    def _put_in_place(self) -> None:
        assert self._file is not None
        self._file.sync()
        self._file.close()
        self._file = None
        name = self._name
        self._disk.rename(layout.PATCH_FILE, name)
        self._disk.sync_folder(folder_of(name))
        self._disk.sync_folder(layout.WAL)
        self.written.append(name)
