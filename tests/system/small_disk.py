"""A file system of the test's own that can be filled: tmpfs, mounted by whoever may (see `namespaces`)."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

MIB = 1024 * 1024


class SmallDisk:
    """A mounted file system with a file in it that takes what room there is."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._filler = path / "filler"

    def fill(self, *, leave_bytes: int = 0) -> None:
        """Take all room but so much, whatever else is being written meanwhile."""
        with contextlib.suppress(OSError), self._filler.open("ab", buffering=0) as file:  # full is full
            while (free := self.free_bytes() - leave_bytes) > 0:
                file.write(bytes(min(free, MIB)))

    def free(self) -> None:
        """Give it back."""
        self._filler.unlink()

    def grow(self, size: str) -> None:
        """Somebody gave it more room."""
        subprocess.run(["mount", "-o", f"remount,size={size}", self.path], check=True)

    def free_bytes(self) -> int:
        """What there is."""
        stats = os.statvfs(self.path)
        return stats.f_bavail * stats.f_frsize


@contextlib.contextmanager
def small_disk(path: Path, *, size: str) -> Iterator[SmallDisk]:
    """Mounted for as long as the block lasts. The processes that use it must have ended by then."""
    path.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=755", "rollmq-test", path], check=True)
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", path], check=True)
