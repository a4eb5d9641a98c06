"""The helper process that folds: `python -m rollmq.store.compact STATE_DIR [--base INDEX]`.

Runs beside a node at low priority, so that a snapshot stops nobody. It reads sealed segments, which never
change, and writes one new file; it takes no lock, and deletes only what helpers that died have left. One
JSON line on stdout is its answer; a failure is one line on stderr and exit code 1, or 3 for damaged files.
"""

import argparse
import gc
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from rollmq.errors import RollmqError, StateDamaged
from rollmq.store.disk import GuardedDisk, OsDisk
from rollmq.store.fold import FoldResult, fold_base, fold_snapshot

DAMAGED = 3
"""Exit code: what it was to read is damaged, so trying again is of no use."""
NICE = 10
"""Behind the node and its workers: a fold may take its time."""


class Orphaned(RollmqError):
    """The node that started this helper is gone. Nothing was changed; the next node folds again."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Fold once and answer."""
    parser = argparse.ArgumentParser(prog="python -m rollmq.store.compact", description=__doc__)
    parser.add_argument("directory", type=Path, metavar="STATE_DIR")
    parser.add_argument("--base", type=int, metavar="INDEX", help="fold the history's base up to this entry")
    parser.add_argument("--nice", type=int, default=NICE, help="how far to stand back (default: %(default)s)")
    parser.add_argument(
        "--parent", type=int, metavar="PID", help="give up once this is not the parent process"
    )
    chosen = parser.parse_args(arguments)
    if chosen.nice:
        os.nice(chosen.nice)
    gc.disable()  # it makes no cycles and ends after one fold; collecting among a million jobs costs a third
    try:
        result = _fold(chosen.directory, base_index=chosen.base, parent=chosen.parent)
    except StateDamaged as error:
        print(str(error), file=sys.stderr)
        return DAMAGED
    except (RollmqError, OSError) as error:
        print(str(error), file=sys.stderr)
        return 1
    print(msgspec.json.encode(result).decode())
    return 0


def _fold(directory: Path, *, base_index: int | None, parent: int | None) -> FoldResult | None:
    def on_segment() -> None:
        if parent is not None and os.getppid() != parent:
            raise Orphaned("The node that asked for this fold has ended. Nothing was changed.")

    disk = GuardedDisk(OsDisk(directory))
    # An orphan of the last node may still be writing the same state: each has a temporary file of its own.
    writer = str(os.getpid())
    if base_index is not None:
        return fold_base(disk, until_index=base_index, writer=writer, on_segment=on_segment)
    return fold_snapshot(disk, writer=writer, on_segment=on_segment)


if __name__ == "__main__":
    sys.exit(main())
