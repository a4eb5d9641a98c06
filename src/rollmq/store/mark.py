"""The mark: how far the newest segment is known to be synced.

It is what tells damage from a torn write: a bad line before it had been synced. Raising it is not
synced, so after a power cut it may be stale, never ahead; lowering it, before a cut, is. The record is
of one length and lies in one sector, which a drive writes whole or not at all.
"""

import msgspec

from rollmq.core.line import seal
from rollmq.store.disk import Disk
from rollmq.store.layout import ROOT, SYNCED_FILE
from rollmq.store.sealed_file import read_value


class Mark(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """Synced: all up to entry `index`, which ends at `bytes` of the segment that begins with `first`."""

    first: int = 0
    """0: nothing is known to be synced."""
    bytes: int = 0
    index: int = 0


_decoder = msgspec.json.Decoder(Mark)


def _encoded(mark: Mark) -> bytes:
    # Spaces before a number are JSON too: so every record overwrites all of the one before.
    return seal(b'{"first":%20d,"bytes":%20d,"index":%20d}' % (mark.first, mark.bytes, mark.index))


def read_mark(disk: Disk) -> Mark | None:
    """The mark; None if there is no such file. Raises StateDamaged."""
    return read_value(disk, SYNCED_FILE, _decoder)


class MarkFile:
    """The open `synced` file."""

    def __init__(self, disk: Disk) -> None:
        self._file = disk.open(SYNCED_FILE, "edit")

    @staticmethod
    def make(disk: Disk) -> None:
        """Create it with nothing known, durably."""
        file = disk.open(SYNCED_FILE, "create")
        file.write_at(0, _encoded(Mark()))
        file.sync()
        file.close()
        disk.sync_folder(ROOT)

    def raise_to(self, mark: Mark) -> None:
        """After an fsync: cheap, and not durable by itself."""
        self._file.write_at(0, _encoded(mark))

    def set_durably(self, mark: Mark) -> None:
        """Before a cut, and when a new segment begins: durable on return."""
        self._file.write_at(0, _encoded(mark))
        self._file.sync()

    def close(self) -> None:
        self._file.close()
