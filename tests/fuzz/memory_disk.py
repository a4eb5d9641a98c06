"""Files in memory for reading: as much of a `Disk` as the readers under fire use, and quick to make."""

from collections.abc import Mapping
from pathlib import Path
from typing import cast

from rollmq.store.disk import Disk, DiskFile, Mode


class MemoryFile:
    """Bytes that can be read."""

    def __init__(self, name: str, content: bytes) -> None:
        self.name = name
        self._content = content

    def read_at(self, offset: int, bytes_max: int) -> bytes:
        return self._content[offset : offset + bytes_max]

    def size_bytes(self) -> int:
        return len(self._content)

    def close(self) -> None:
        """There is nothing to give back."""

    def write_at(self, offset: int, data: bytes) -> None:
        raise AssertionError(f"a reader wrote {len(data)} bytes at {offset} of {self.name}")

    def truncate(self, size_bytes: int) -> None:
        raise AssertionError(f"a reader cut {self.name} to {size_bytes} bytes")

    def sync(self) -> None:
        raise AssertionError(f"a reader synced {self.name}")


class MemoryDisk:
    """Some files. Whoever does more than read them is found out."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._files = files

    def path_of(self, name: str) -> Path:
        return Path("memory") / name

    def open(self, name: str, mode: Mode) -> DiskFile:
        assert mode == "read"
        if name not in self._files:
            raise FileNotFoundError(2, "no such file", name)
        return MemoryFile(name, self._files[name])

    def exists(self, name: str) -> bool:
        return name in self._files

    def names_in(self, folder: str) -> list[str]:
        return sorted(name.rpartition("/")[2] for name in self._files if name.rpartition("/")[0] == folder)


def disk_of(files: Mapping[str, bytes]) -> Disk:
    """These files as a disk; what a reader has no business to call is not there at all."""
    return cast(Disk, MemoryDisk(files))
