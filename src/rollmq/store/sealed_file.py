"""A small file of one sealed JSON line, replaced as a whole or not at all.

    write beside, fsync, rename, fsync the folder (pitfall 2)

It knows nothing of what the line says.
"""

from collections.abc import Iterable
from typing import TypeVar

import msgspec

from rollmq.core.line import LineDamaged, decode_part, seal
from rollmq.errors import StateDamaged
from rollmq.limits import DISK_BLOCK_BYTES
from rollmq.store.disk import Disk
from rollmq.store.layout import DAMAGED, ROOT, TEMPORARY, StateName

Value = TypeVar("Value", bound=msgspec.Struct)

_encode = msgspec.json.Encoder().encode


def folder_of(name: str) -> str:
    """The folder that holds a name: the one to fsync when the name comes, goes or changes."""
    return name.rpartition("/")[0] or ROOT


def replace_file(disk: Disk, name: str, lines: Iterable[bytes], *, temporary: str = "") -> None:
    """Put these lines in the place of the file. After a crash it holds the old ones or the new ones."""
    beside = temporary or name + TEMPORARY
    file = disk.open(beside, "create")
    offset = 0
    for line in lines:
        file.write_at(offset, line)
        offset += len(line)
    file.sync()
    file.close()
    disk.rename(beside, name)
    disk.sync_folder(folder_of(name))


def set_aside(disk: Disk, state: StateName) -> None:
    """Take a damaged state out of the count of kept ones. Not deleted: somebody may want to look."""
    disk.rename(state.name, f"{state.name}{DAMAGED}")
    disk.sync_folder(folder_of(state.name))


def write_value(disk: Disk, name: str, value: msgspec.Struct) -> None:
    """Replace the file by one sealed line with this value; durable on return."""
    replace_file(disk, name, [seal(_encode(value))])


def read_value(disk: Disk, name: str, decoder: "msgspec.json.Decoder[Value]") -> Value | None:
    """The value in the file; None if there is no such file. Raises StateDamaged."""
    try:
        file = disk.open(name, "read")
    except FileNotFoundError:
        return None
    try:
        content = file.read_at(0, DISK_BLOCK_BYTES)
    except OSError as error:
        raise StateDamaged(path=disk.path_of(name), reason=f"the disk does not give it: {error}") from error
    finally:
        file.close()
    try:
        if content.count(b"\n") != 1:
            raise LineDamaged("it is not one whole line")
        value: Value = decode_part(content, decoder)
    except LineDamaged as error:
        raise StateDamaged(path=disk.path_of(name), reason=str(error)) from error
    return value
