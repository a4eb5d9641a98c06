"""A disk in memory that loses what a real one may lose.

Writes are seen at once but are durable only after `sync` of the file; names come, go and change at once
but are durable only after `sync_folder`. `crash` takes the power away: of what was not durable any subset
survives, pages whole or torn between sectors, names in the order in which each was changed. Faults are
planted by the fields and methods under "what goes wrong". One random generator, handed in, decides all.
"""

import errno
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from rollmq.store.disk import Mode

SECTOR_BYTES = 512
"""A drive writes a sector whole or not at all."""
PAGE_BYTES = 4096
"""The kernel writes pages back, in any order."""


class PowerCut(BaseException):
    """The process ends here, in the middle of a call. No handler of errors may stop it."""


@dataclass(slots=True, eq=False)
class Inode:
    """A file's content: as seen, and as it would be after a power cut."""

    seen: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    dirty: set[int] = field(default_factory=set)
    """Sectors that differ, or may differ, between the two."""

    def write(self, offset: int, data: bytes) -> None:
        end = offset + len(data)
        if len(self.seen) < end:
            old = len(self.seen)
            self.seen.extend(bytes(end - old))
            offset_dirty = min(offset, old)
        else:
            offset_dirty = offset
        self.seen[offset:end] = data
        self.dirty.update(range(offset_dirty // SECTOR_BYTES, -(-end // SECTOR_BYTES)))

    def truncate(self, size_bytes: int) -> None:
        if size_bytes > len(self.seen):
            self.write(len(self.seen), bytes(size_bytes - len(self.seen)))
            return
        old = len(self.seen)
        del self.seen[size_bytes:]
        self.dirty.update(range(size_bytes // SECTOR_BYTES, -(-old // SECTOR_BYTES)))

    def sync(self) -> None:
        self.copy_to_durable(self.dirty, len(self.seen))
        self.dirty.clear()

    def copy_to_durable(self, sectors: set[int], size_bytes: int) -> None:
        """Make these sectors, and this size, durable; sectors that never were are zeros."""
        if len(self.durable) < size_bytes:
            self.durable.extend(bytes(size_bytes - len(self.durable)))
        for sector in sectors:
            start = sector * SECTOR_BYTES
            piece = self.seen[start : start + SECTOR_BYTES]
            self.durable[start : start + len(piece)] = piece
        del self.durable[size_bytes:]

    def survive(self, random: Random) -> None:
        """Lose any subset of what was not synced."""
        if self.dirty:
            smallest, largest = sorted((len(self.durable), len(self.seen)))
            size_bytes = random.choice((smallest, largest, random.randint(smallest, largest)))
            self.copy_to_durable(self._surviving_sectors(random), size_bytes)
        self.seen = bytearray(self.durable)
        self.dirty.clear()

    def _surviving_sectors(self, random: Random) -> set[int]:
        share = random.choice((0.0, 0.1, 0.5, 0.9, 1.0))
        per_page = PAGE_BYTES // SECTOR_BYTES
        survivors: set[int] = set()
        for page in sorted({sector // per_page for sector in self.dirty}):
            sectors = [s for s in range(page * per_page, (page + 1) * per_page) if s in self.dirty]
            if random.random() < 0.15:  # torn
                survivors.update(sector for sector in sectors if random.random() < 0.5)
            elif random.random() < share:
                survivors.update(sectors)
        return survivors


@dataclass(slots=True, eq=False)
class NameChange:
    """A change of a folder that is not durable: the name now means this inode, or nothing."""

    name: str
    inode: Inode | None
    needs: "NameChange | None" = None
    """A rename takes the old name away only if the new one is there; unless the old one's folder alone is
    synced, which is how a wrong order of fsyncs loses a file."""


class SimFile:
    """An open file of a SimDisk."""

    def __init__(self, disk: "SimDisk", name: str, inode: Inode) -> None:
        self._disk = disk
        self._name = name
        self._inode = inode
        self._is_open = True

    @property
    def name(self) -> str:
        return self._name

    def read_at(self, offset: int, bytes_max: int) -> bytes:
        assert self._is_open, "read of a closed file"
        if self._name in self._disk.unreadable:
            raise OSError(errno.EIO, "Input/output error")
        return bytes(self._inode.seen[offset : offset + bytes_max])

    def write_at(self, offset: int, data: bytes) -> None:
        assert self._is_open, "write to a closed file"
        # A process that is killed leaves whole pages of its last write: a copy within one is not interrupted.
        half_bytes = max(0, (offset + len(data) // 2) // PAGE_BYTES * PAGE_BYTES - offset)
        self._disk.step(f"write {self._name}", lambda: self._inode.write(offset, data[:half_bytes]))
        room = self._disk.free_bytes() + max(0, len(self._inode.seen) - offset)
        self._inode.write(offset, data[:room])
        if room < len(data):
            raise OSError(errno.ENOSPC, "No space left on device")

    def truncate(self, size_bytes: int) -> None:
        self._disk.step(f"truncate {self._name}")
        self._inode.truncate(size_bytes)

    def sync(self) -> None:
        try:
            self._disk.step(f"sync {self._name}")
            is_failed = self._disk.sync_errors > 0
        except OSError:
            self._disk.sync_errors += 1
            is_failed = True
        if is_failed:
            self._disk.sync_errors -= 1
            # As kernels do: the pages are marked clean, or dropped, and the next sync reports success.
            if not self._disk.keeps_pages_after_sync_error:
                self._inode.seen = bytearray(self._inode.durable)
            self._inode.dirty.clear()
            raise OSError(errno.EIO, "Input/output error")
        self._inode.sync()

    def size_bytes(self) -> int:
        return len(self._inode.seen)

    def close(self) -> None:
        self._disk.step(f"close {self._name}")
        self._is_open = False


class SimDisk:
    """A state directory in memory."""

    def __init__(self, *, capacity_bytes: int = 1 << 40) -> None:
        self._names: dict[str, Inode] = {}
        self._durable_names: dict[str, Inode] = {}
        self._changes: list[NameChange] = []
        self._folders: set[str] = {"."}
        self._holder: str | None = None
        # What goes wrong:
        self.capacity_bytes = capacity_bytes
        self.sync_errors = 0
        """So many of the next fsyncs fail; after each the next one says it succeeded."""
        self.keeps_pages_after_sync_error = False
        self.unreadable: set[str] = set()
        """Names whose reads fail."""
        self.stop_at: int | None = None
        """The power is cut in this call, counted from `calls`."""
        self.error_at: int | None = None
        """This call fails."""
        self.calls = 0
        """Changing calls so far."""
        self.on_call: Callable[[str], None] | None = None

    # -- the Disk protocol

    def path_of(self, name: str) -> Path:
        return Path("sim") if name == "." else Path("sim") / name

    def open(self, name: str, mode: Mode) -> SimFile:
        if mode == "create":
            self.step(f"create {name}")
            if name in self._names:
                self._names[name].truncate(0)
            else:
                self._change(name, Inode())
        if name not in self._names:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", name)
        return SimFile(self, name, self._names[name])

    def exists(self, name: str) -> bool:
        return name in self._names or name in self._folders

    def names_in(self, folder: str) -> list[str]:
        if folder not in self._folders:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", folder)
        prefix = "" if folder == "." else f"{folder}/"
        names = [*self._names, *(self._folders - {"."})]
        inside = [name[len(prefix) :] for name in names if name.startswith(prefix)]
        return sorted(name for name in inside if "/" not in name)

    def make_folder(self, name: str) -> None:
        # Folders are made once, at the first start; they are durable at once, to keep the model small.
        self.step(f"mkdir {name}")
        self._folders.add(name)

    def rename(self, old: str, new: str) -> None:
        self.step(f"rename {old}")
        inode = self._names.get(old)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", old)
        self._change(new, inode)
        self._change(old, None, needs=self._changes[-1])

    def unlink(self, name: str) -> None:
        self.step(f"unlink {name}")
        if name not in self._names:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", name)
        self._change(name, None)

    def sync_folder(self, name: str) -> None:
        self.step(f"sync folder {name}")
        if self.sync_errors > 0:
            self.sync_errors -= 1
            raise OSError(errno.EIO, "Input/output error")
        for change in [change for change in self._changes if _folder_of(change.name) == name]:
            self._make_durable(change)

    def allocate(self, name: str, size_bytes: int) -> None:
        if size_bytes > self.free_bytes():
            raise OSError(errno.ENOSPC, "No space left on device")
        file = self.open(name, "create")
        file.truncate(size_bytes)
        file.sync()
        file.close()

    def free_bytes(self) -> int:
        return max(0, self.capacity_bytes - sum(len(inode.seen) for inode in self._names.values()))

    def total_bytes(self) -> int:
        return self.capacity_bytes

    def lock(self, name: str, holder: str) -> str | None:
        if self._holder is not None:
            return self._holder
        if name not in self._names:
            self._change(name, Inode())
        self._holder = holder
        return None

    def unlock(self) -> None:
        self._holder = None

    # -- what goes wrong

    def step(self, what: str, half_done: Callable[[], None] | None = None) -> None:
        """Count a changing call; stop or fail in it if that was asked for."""
        at = self.calls
        self.calls += 1
        if self.on_call is not None:
            self.on_call(what)
        if at == self.stop_at:
            if half_done is not None:
                half_done()
            raise PowerCut(what)
        if at == self.error_at:
            raise OSError(errno.EIO, "Input/output error")

    def crash(self, random: Random) -> None:
        """Cut the power: any subset of what was not durable survives. Open files are gone."""
        decided: dict[int, bool] = {}
        stopped: set[str] = set()
        for change in self._changes:
            survives = change.name not in stopped and random.random() < 0.5
            if change.needs is not None and not decided.get(id(change.needs), True):
                survives = False
            decided[id(change)] = survives
            if survives:
                self._set_durable(change)
            else:
                stopped.add(change.name)
        self._changes.clear()
        self._names = dict(self._durable_names)
        for inode in {id(inode): inode for inode in self._names.values()}.values():
            inode.survive(random)
        self._restart()

    def kill(self) -> None:
        """End the process, not the machine: everything that was written is there, nothing more is durable."""
        self._restart()

    def settle(self) -> None:
        """Time has passed: the kernel has written everything back."""
        for change in list(self._changes):
            self._make_durable(change)
        for inode in self._names.values():
            inode.sync()

    def rot(self, name: str, offset: int, mask: int = 0x01) -> None:
        """Flip bits of one byte, as seen and as durable."""
        inode = self._names[name]
        inode.seen[offset] ^= mask
        if offset < len(inode.durable):
            inode.durable[offset] ^= mask

    def content(self, name: str) -> bytes:
        """What a reader sees."""
        return bytes(self._names[name].seen)

    def replace(self, name: str, content: bytes) -> None:
        """Put other bytes into a file, durably: what a careless hand or a bad drive does."""
        self._names[name].seen = bytearray(content)
        self._names[name].durable = bytearray(content)
        self._names[name].dirty.clear()

    def remove(self, name: str) -> None:
        """Take a file away, durably."""
        self._names.pop(name)
        self._durable_names.pop(name, None)
        self._changes = [change for change in self._changes if change.name != name]

    def copy(self) -> "SimDisk":
        """The same content, as seen, on a disk of its own where all is durable and nothing goes wrong."""
        twin = SimDisk(capacity_bytes=self.capacity_bytes)
        twin._folders = set(self._folders)
        for name, inode in self._names.items():
            twin._names[name] = Inode(seen=bytearray(inode.seen), durable=bytearray(inode.seen))
        twin._durable_names = dict(twin._names)
        return twin

    def files(self) -> dict[str, bytes]:
        """Every file as seen, to compare before and after."""
        return {name: bytes(inode.seen) for name, inode in sorted(self._names.items())}

    # -- inside

    def _restart(self) -> None:
        self._holder = None
        self.stop_at = None
        self.error_at = None
        self.sync_errors = 0

    def _change(self, name: str, inode: Inode | None, needs: NameChange | None = None) -> None:
        if inode is None:
            del self._names[name]
        else:
            self._names[name] = inode
        self._changes.append(NameChange(name, inode, needs))

    def _make_durable(self, change: NameChange) -> None:
        self._changes.remove(change)
        self._set_durable(change)

    def _set_durable(self, change: NameChange) -> None:
        if change.inode is None:
            self._durable_names.pop(change.name, None)
        else:
            self._durable_names[change.name] = change.inode


def _folder_of(name: str) -> str:
    return name.rpartition("/")[0] or "."
