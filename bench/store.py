"""The store beside the raw disk's own limit: durable appends, reading back, folding, starting again."""

import gc
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.history import GROUP, marked_log
from bench.machine_limits import Row
from rollmq.core.machine import Machine
from rollmq.core.raft_ready import HardState
from rollmq.core.segment_digest import is_marker_line
from rollmq.core.state import load_state
from rollmq.store.disk import OsDisk
from rollmq.store.fold import fold_snapshot
from rollmq.store.opening import StoreOptions
from rollmq.store.store import Store

NODE = "bb" * 16
OPTIONS = StoreOptions(ballast_bytes=0)
SEGMENT_ENTRIES = 262_144
BACKLOG_JOBS = 1_000_000
FOLDED_JOBS = 500_000


@contextmanager
def folder() -> Iterator[Path]:
    """A folder on the disk of the working directory: the usual temporary one may be memory."""
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as name:
        yield Path(name)


def new_store(root: Path) -> Store:
    store, _ = Store.open(OsDisk(root), fresh_node_id=NODE, options=OPTIONS)
    store.set_group(GROUP)
    store.save_vote(HardState(term=1))
    return store


def appends(lines: list[bytes], batch: int) -> tuple[float, float, float, float]:
    """(store entries/s, store MB/s, raw MB/s, raw syncs/s) for batches of this many lines, taking turns."""
    with folder() as root:
        store = new_store(root / "state")
        raw = os.open(root / "raw", os.O_RDWR | os.O_CREAT)
        store_s = raw_s = 0.0
        offset = 0
        for at in range(0, len(lines), batch):
            part = lines[at : at + batch]
            begin = time.perf_counter()
            store.write(part, at + 1)
            middle = time.perf_counter()
            offset += os.pwrite(raw, b"".join(part), offset)
            os.fdatasync(raw)
            store_s += middle - begin
            raw_s += time.perf_counter() - middle
        os.close(raw)
        store.close()
    syncs = len(lines) / batch
    return len(lines) / store_s, offset / 1e6 / store_s, offset / 1e6 / raw_s, syncs / raw_s


def write_rows(lines: list[bytes]) -> Iterator[Row]:
    for batch, count in ((1, 300), (100, 30_000), (4096, len(lines))):
        entries, store_mb, raw_mb, syncs = appends(lines[:count], batch)
        name = f"write + fdatasync, batches of {batch}"
        yield f"{name}: entries", entries, "/s"
        yield f"{name}: bytes", store_mb, "MB/s"
        yield "  the disk alone, same batches", raw_mb, "MB/s"
        yield "  the disk alone, same batches", syncs, "syncs/s"


def read_rows(lines: list[bytes]) -> Iterator[Row]:
    with folder() as root:
        store = new_store(root)
        store.write(lines, 1)
        store.close()
        begin = time.perf_counter()
        store, recovered = Store.open(OsDisk(root), fresh_node_id=NODE, options=OPTIONS)
        checked = time.perf_counter()
        count = sum(1 for _ in recovered.entries())
        done = time.perf_counter()
        yield "start: read back, crc, decode, order checked", count / (checked - begin), "lines/s"
        yield "start: entries handed out, checked once more", count / (done - checked), "lines/s"
        at, begin = 1, time.perf_counter()
        while more := store.read_lines(at, 1_000_000):
            at += len(more)
        yield "read_lines in chunks of 1 MB, crc checked", (at - 1) / (time.perf_counter() - begin), "lines/s"
        store.close()


def written(root: Path, lines: list[bytes]) -> None:
    """A state directory with this log, sealed as far as its markers allow."""
    store = new_store(root)
    store.write(lines, 1)
    store.seal(len(lines))
    store.close()


def fold_rows(lines: list[bytes]) -> Iterator[Row]:
    """Folding: in this process, and by the helper process on top of the snapshot before."""
    half = len(lines) // 2
    while not is_marker_line(lines[half - 1]):
        half += 1
    with folder() as root:
        written(root, lines[:half])
        begin = time.perf_counter()
        assert fold_snapshot(OsDisk(root)) is not None
        yield "fold in this process, no snapshot before", half / (time.perf_counter() - begin), "events/s"
        store, recovered = Store.open(OsDisk(root), fresh_node_id=NODE, options=OPTIONS)
        list(recovered.entries())
        store.write(lines[half:], half + 1)
        store.seal(len(lines))
        store.close()
        begin = time.perf_counter()
        helper = [sys.executable, "-m", "rollmq.store.compact", str(root), "--nice", "0"]
        done = subprocess.run(helper, capture_output=True, check=True, timeout=300)
        spent = time.perf_counter() - begin
        assert str(len(lines)) in done.stdout.decode()
        name = "fold by the helper process, start-up and old snapshot included (150,000 wanted)"
        yield name, (len(lines) - half) / spent, "events/s"


def start_rows(lines: list[bytes], jobs_count: int) -> Iterator[Row]:
    """Recovery of a backlog."""
    with folder() as root:
        written(root, lines)
        yield f"start from the log alone, {jobs_count:,} queued (under 10 wanted)", start(root), "s"
        assert fold_snapshot(OsDisk(root)) is not None
        yield f"start from a snapshot, {jobs_count:,} queued (under 10 wanted)", start(root), "s"


def start(root: Path) -> float:
    """Seconds until the machine is as it was."""
    gc.collect()
    gc.disable()  # as on a node: collecting among a million jobs takes longer than loading them
    begin = time.perf_counter()
    store, recovered = Store.open(OsDisk(root), fresh_node_id=NODE, options=OPTIONS)
    machine = load_state(recovered.state_lines()) if recovered.state else Machine()
    for entry in recovered.entries():
        machine.apply(entry.event)
    spent = time.perf_counter() - begin
    gc.enable()
    assert machine.last_index == recovered.last_index
    store.close()
    return spent


def run() -> list[Row]:
    """All rows."""
    lines = list(marked_log(FOLDED_JOBS, is_worked=True))
    rows = [*write_rows(lines[:SEGMENT_ENTRIES]), *read_rows(lines[:SEGMENT_ENTRIES]), *fold_rows(lines)]
    del lines
    backlog = list(marked_log(BACKLOG_JOBS, is_worked=False))
    return [*rows, *start_rows(backlog, BACKLOG_JOBS)]
