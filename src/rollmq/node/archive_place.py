"""Where sealed segments are shipped to: one group's folder in a directory, or at any URL that fsspec knows.

    ARCHIVE/<group uuid>/events-<first>-<last>.jsonl

A file appears there whole or not at all, and nothing that is there is ever replaced. Bytes and names only: it
does not know what a segment is. It is used by the helper process alone, never by the node's own.
"""

import errno
import os
import posixpath
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlsplit, urlunsplit

TEMPORARY: Final = ".tmp"
"""Ends the name of a file on its way. Readers of an archive look for whole names only."""
NO_LINKS: Final = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV)
"""What file systems without hard links say."""


class ArchivePlace(Protocol):
    """One group's folder."""

    def sizes(self) -> dict[str, int]:
        """All names in there with their sizes; none when there is no such folder yet."""
        ...

    def size_of(self, name: str) -> int | None:
        """The size of one file; None when it is not there."""
        ...

    def tail(self, name: str, bytes_max: int) -> bytes:
        """The end of a file."""
        ...

    def put(self, name: str, blocks: Iterator[bytes], *, beside: str) -> None:
        """Make a file of these blocks, written `beside` first; durable on return. Raises FileExistsError, and
        whatever `blocks` raises: then there is no such file."""
        ...

    def remove(self, name: str) -> None:
        """Delete a file that was left beside; it may be gone already."""
        ...


def is_url(archive: str) -> bool:
    """Whether fsspec opens it; everything else is a directory."""
    return "://" in archive and not archive.startswith("file://")


def open_place(archive: str, group: str) -> ArchivePlace:
    """The group's folder in an archive. Raises ImportError and ValueError for a URL that nobody knows."""
    if is_url(archive):
        return UrlPlace(archive, group)
    return FolderPlace(Path(archive.removeprefix("file://")), group)


def without_secrets(archive: str) -> str:
    """The archive as it may be shown: a URL's user and password are left out, and so are its parameters."""
    if "://" not in archive:
        return archive
    parts = urlsplit(archive)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


class FolderPlace:
    """A folder of a file system."""

    def __init__(self, archive: Path, group: str) -> None:
        self._archive = archive
        self._folder = archive / group

    def sizes(self) -> dict[str, int]:
        found = {}
        with suppress(FileNotFoundError), os.scandir(self._folder) as entries:
            for each in entries:
                with suppress(FileNotFoundError):  # another node renames what it had beside
                    found[each.name] = each.stat().st_size
        return found

    def size_of(self, name: str) -> int | None:
        try:
            return (self._folder / name).stat().st_size
        except FileNotFoundError:
            return None

    def tail(self, name: str, bytes_max: int) -> bytes:
        with (self._folder / name).open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - bytes_max))
            return file.read()

    def put(self, name: str, blocks: Iterator[bytes], *, beside: str) -> None:
        self._make()
        temporary, target = self._folder / beside, self._folder / name
        try:
            with temporary.open("wb") as file:
                for block in blocks:
                    file.write(block)
                file.flush()
                os.fsync(file.fileno())
            _give_name(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
        _sync_folder(self._folder)

    def remove(self, name: str) -> None:
        (self._folder / name).unlink(missing_ok=True)

    def _make(self) -> None:
        """The archive's folder, and the group's in it. What the archive's lies in must be there: a disk that
        is not mounted should be missed, and not be filled up under its mount point."""
        for folder in (self._archive, self._folder):
            if not folder.is_dir():
                folder.mkdir(exist_ok=True)
                _sync_folder(folder.absolute().parent)


def _give_name(temporary: Path, target: Path) -> None:
    """Let the file appear. A link refuses to take another's place, which a rename would not."""
    try:
        os.link(temporary, target)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        if target.exists():
            raise FileExistsError(errno.EEXIST, "it is there already", str(target)) from error
        temporary.rename(target)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class UrlPlace:
    """A folder at a URL. What the library behind it raises is passed on."""

    def __init__(self, archive: str, group: str) -> None:
        import fsspec

        self._files: Any
        self._files, path = fsspec.core.url_to_fs(archive.rstrip("/"))
        self._folder = posixpath.join(path, group)

    def sizes(self) -> dict[str, int]:
        self._files.invalidate_cache()
        try:
            found = self._files.ls(self._folder, detail=True)
        except FileNotFoundError:
            return {}
        return {posixpath.basename(each["name"].rstrip("/")): each.get("size") or 0 for each in found}

    def size_of(self, name: str) -> int | None:
        self._files.invalidate_cache()
        try:
            return int(self._files.info(self._path(name))["size"])
        except FileNotFoundError:
            return None

    def tail(self, name: str, bytes_max: int) -> bytes:
        size = self._files.info(self._path(name))["size"]
        with self._files.open(self._path(name), "rb") as file:
            file.seek(max(0, size - bytes_max))
            return bytes(file.read())

    def put(self, name: str, blocks: Iterator[bytes], *, beside: str) -> None:
        self._files.makedirs(self._folder, exist_ok=True)
        try:
            with self._files.open(self._path(beside), "wb") as file:
                for block in blocks:
                    file.write(block)
            if self.size_of(name) is not None:
                raise FileExistsError(errno.EEXIST, "it is there already", name)
            self._files.mv(self._path(beside), self._path(name))
        finally:
            self.remove(beside)

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._files.rm_file(self._path(name))

    def _path(self, name: str) -> str:
        return posixpath.join(self._folder, name)
