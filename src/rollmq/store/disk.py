"""The one door to the disk: every byte that a node keeps goes through a `Disk`.

Tests and the simulator put their own disk behind this door, to lose pages, to fail and to fill up.
It may not interpret anything: names are relative to the state directory, contents are bytes, and an
OSError passes through. `GuardedDisk` adds the one rule that all users share: the first failed change
is the last one.
"""

import contextlib
import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, Protocol

from rollmq.errors import StoreFailed

Mode = Literal["read", "edit", "create"]
"""`edit` opens an existing file for reading and writing; `create` makes it, or empties it."""

FILE_MODE = 0o600  # payloads are the users' own; only the node's user may read them
FOLDER_MODE = 0o700


class DiskFile(Protocol):
    """An open file. Nothing is durable before `sync` has returned."""

    @property
    def name(self) -> str: ...
    def read_at(self, offset: int, bytes_max: int) -> bytes: ...
    def write_at(self, offset: int, data: bytes) -> None: ...
    def truncate(self, size_bytes: int) -> None: ...
    def sync(self) -> None: ...
    def size_bytes(self) -> int: ...
    def close(self) -> None: ...


class Disk(Protocol):
    """A state directory. Names like `wal/synced`; the directory itself is the name `.`."""

    def path_of(self, name: str) -> Path: ...
    def open(self, name: str, mode: Mode) -> DiskFile: ...
    def exists(self, name: str) -> bool: ...
    def names_in(self, folder: str) -> list[str]: ...
    def make_folder(self, name: str) -> None: ...
    def rename(self, old: str, new: str) -> None: ...
    def unlink(self, name: str) -> None: ...
    def sync_folder(self, name: str) -> None: ...
    def allocate(self, name: str, size_bytes: int) -> None: ...
    def free_bytes(self) -> int: ...
    def total_bytes(self) -> int: ...
    def lock(self, name: str, holder: str) -> str | None: ...
    def unlock(self) -> None: ...


class OsFile:
    """A file of the operating system."""

    def __init__(self, name: str, descriptor: int) -> None:
        self._name = name
        self._descriptor = descriptor

    @property
    def name(self) -> str:
        return self._name

    def read_at(self, offset: int, bytes_max: int) -> bytes:
        return os.pread(self._descriptor, bytes_max, offset)

    def write_at(self, offset: int, data: bytes) -> None:
        left = memoryview(data)
        while left:
            written = os.pwrite(self._descriptor, left, offset)
            if written == 0:
                raise OSError(errno.EIO, "the disk took no bytes")
            left = left[written:]
            offset += written

    def truncate(self, size_bytes: int) -> None:
        os.ftruncate(self._descriptor, size_bytes)

    def sync(self) -> None:
        # fdatasync includes a changed size: what it leaves out is only times and modes.
        os.fdatasync(self._descriptor)

    def size_bytes(self) -> int:
        return os.fstat(self._descriptor).st_size

    def close(self) -> None:
        os.close(self._descriptor)


class OsDisk:
    """A state directory of the operating system."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock_descriptor = -1

    def path_of(self, name: str) -> Path:
        return self._root if name == "." else self._root / name

    def open(self, name: str, mode: Mode) -> OsFile:
        flags = {"read": os.O_RDONLY, "edit": os.O_RDWR, "create": os.O_RDWR | os.O_CREAT | os.O_TRUNC}[mode]
        return OsFile(name, os.open(self.path_of(name), flags | os.O_CLOEXEC, FILE_MODE))

    def exists(self, name: str) -> bool:
        try:
            self.path_of(name).stat()
        except FileNotFoundError:
            return False
        return True

    def names_in(self, folder: str) -> list[str]:
        return sorted(os.listdir(self.path_of(folder)))

    def make_folder(self, name: str) -> None:
        path = self.path_of(name)
        made = [folder for folder in (path, *path.absolute().parents) if not folder.exists()]
        path.mkdir(mode=FOLDER_MODE, parents=name == ".", exist_ok=True)
        for folder in made if name == "." else ():
            # The state directory must not be gone after a power cut: its name is in its parent. A parent
            # that this user may not read cannot be synced, and that is no reason not to start.
            with contextlib.suppress(PermissionError):
                _sync_folder(folder.parent)

    def rename(self, old: str, new: str) -> None:
        self.path_of(old).rename(self.path_of(new))

    def unlink(self, name: str) -> None:
        self.path_of(name).unlink()

    def sync_folder(self, name: str) -> None:
        _sync_folder(self.path_of(name))

    def allocate(self, name: str, size_bytes: int) -> None:
        file = self.open(name, "create")
        try:
            if size_bytes:
                os.posix_fallocate(file._descriptor, 0, size_bytes)
            file.sync()
        finally:
            file.close()

    def free_bytes(self) -> int:
        stats = os.statvfs(self._root)
        return stats.f_bavail * stats.f_frsize

    def total_bytes(self) -> int:
        stats = os.statvfs(self._root)
        return stats.f_blocks * stats.f_frsize

    def lock(self, name: str, holder: str) -> str | None:
        """Take the directory for this process. Returns who has it if somebody else does."""
        descriptor = os.open(self.path_of(name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            found = os.pread(descriptor, 64, 0).decode("utf-8", "replace").strip()
            os.close(descriptor)
            return found or "unknown"
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{holder}\n".encode(), 0)
        self._lock_descriptor = descriptor
        return None

    def unlock(self) -> None:
        if self._lock_descriptor >= 0:
            os.close(self._lock_descriptor)
            self._lock_descriptor = -1


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class GuardedDisk:
    """A disk on which the first failed change is the last.

    After a failed fsync the kernel may have dropped the pages and may report success the next time, so
    a retry would believe what is not there (pitfall 5). Whoever uses it afterwards, in
    whatever call, gets the same StoreFailed. A failed read changes nothing and passes as an OSError.
    """

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.failure: StoreFailed | None = None

    def path_of(self, name: str) -> Path:
        return self._disk.path_of(name)

    def open(self, name: str, mode: Mode) -> "GuardedFile":
        self.assert_alive()
        if mode == "read":
            return GuardedFile(self, self._disk.open(name, mode))
        with self.changing(name, "open"):
            return GuardedFile(self, self._disk.open(name, mode))

    def exists(self, name: str) -> bool:
        self.assert_alive()
        return self._disk.exists(name)

    def names_in(self, folder: str) -> list[str]:
        self.assert_alive()
        return self._disk.names_in(folder)

    def make_folder(self, name: str) -> None:
        with self.changing(name, "mkdir"):
            self._disk.make_folder(name)

    def rename(self, old: str, new: str) -> None:
        with self.changing(new, "rename"):
            self._disk.rename(old, new)

    def unlink(self, name: str) -> None:
        with self.changing(name, "unlink"):
            self._disk.unlink(name)

    def sync_folder(self, name: str) -> None:
        with self.changing(name, "fsync of the folder"):
            self._disk.sync_folder(name)

    def allocate(self, name: str, size_bytes: int) -> None:
        with self.changing(name, "allocate"):
            self._disk.allocate(name, size_bytes)

    def free_bytes(self) -> int:
        return self._disk.free_bytes()

    def total_bytes(self) -> int:
        return self._disk.total_bytes()

    def lock(self, name: str, holder: str) -> str | None:
        with self.changing(name, "lock"):
            return self._disk.lock(name, holder)

    def unlock(self) -> None:
        self._disk.unlock()

    def assert_alive(self) -> None:
        """Raise the failure that ended this store, if one did."""
        if self.failure is not None:
            raise self.failure

    @contextlib.contextmanager
    def changing(self, name: str, operation: str) -> Iterator[None]:
        """Around every change: refuse after a failure, remember the first."""
        self.assert_alive()
        try:
            yield
        except OSError as error:
            self.failure = StoreFailed(
                path=self._disk.path_of(name),
                operation=operation,
                reason=error.strerror or str(error),
                is_full=error.errno in (errno.ENOSPC, errno.EDQUOT),
            )
            raise self.failure from error


class GuardedFile:
    """A file of a GuardedDisk: its failures are the disk's."""

    def __init__(self, disk: GuardedDisk, file: DiskFile) -> None:
        self._disk = disk
        self._file = file

    @property
    def name(self) -> str:
        return self._file.name

    def read_at(self, offset: int, bytes_max: int) -> bytes:
        self._disk.assert_alive()
        return self._file.read_at(offset, bytes_max)

    def write_at(self, offset: int, data: bytes) -> None:
        self._change("write", lambda: self._file.write_at(offset, data))

    def truncate(self, size_bytes: int) -> None:
        self._change("truncate", lambda: self._file.truncate(size_bytes))

    def sync(self) -> None:
        self._change("fdatasync", self._file.sync)

    def size_bytes(self) -> int:
        return self._file.size_bytes()

    def close(self) -> None:
        if self._disk.failure is not None:
            # Known already, and told by whoever met it first: this only gives the file back.
            with contextlib.suppress(OSError):
                self._file.close()
            return
        # On a network file system a failed write may show only here.
        self._change("close", self._file.close)

    def _change(self, operation: str, change: Callable[[], None]) -> None:
        with self._disk.changing(self.name, operation):
            change()
