"""The store beside the raw disk's own limit: durable appends, reading back, folding, starting again."""

import gc
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.machine_limits import Row
from rollmq.core.events import Ack, AnyEvent, Assign, Enqueue, SnapshotMarker
from rollmq.core.line import encode_line
from rollmq.core.machine import Machine
from rollmq.core.raft_ready import HardState
from rollmq.core.segment_digest import SegmentDigest
from rollmq.core.state import load_state
from rollmq.store.disk import OsDisk
from rollmq.store.fold import fold_snapshot
from rollmq.store.opening import StoreOptions
from rollmq.store.store import Store

GROUP = "aa" * 16
NODE = "bb" * 16
OPTIONS = StoreOptions(ballast_bytes=0)
SEGMENT_ENTRIES = 262_144
START_US = 1_763_490_000_000_000


def finished_jobs(count: int) -> Iterator[AnyEvent]:
    """Three events per job: submitted, assigned, done."""
    for number in range(count):
        index = 3 * number + 1
        at_us = START_US + index
        job_id = f"{number:032x}"
        yield Enqueue(
            index,
            1,
            at_us,
            job_id=job_id,
            client_id=f"client{number % 10}",
            exec="image.resize",
            payload=b"p" * 100,
            payload_bytes=100,
        )
        yield Assign(
            index + 1, 1, at_us, job_id=job_id, worker_id="w1", attempt=1, ready_us=at_us, credit_left=1
        )
        yield Ack(
            index + 2,
            1,
            at_us,
            job_id=job_id,
            fence=(1, index + 1),
            attempt=1,
            worker_id="w1",
            started=True,
            tries=1,
            held_us=10,
            run_us=9,
            result=b"r" * 16,
            result_bytes=16,
        )


def queued_jobs(count: int) -> Iterator[AnyEvent]:
    """Jobs that nobody takes."""
    for number in range(count):
        yield Enqueue(
            number + 1,
            1,
            START_US + number,
            job_id=f"{number:032x}",
            client_id=f"client{number % 10}",
            exec="image.resize",
            payload=b"p" * 100,
            payload_bytes=100,
        )


def with_markers(events: Iterator[AnyEvent]) -> Iterator[bytes]:
    """Lines, with a marker wherever a leader would put one; behind it indexes go on one higher."""
    digest = SegmentDigest(group=GROUP, first_index=1)
    shift = 0
    for event in events:
        assert shift == 0, "one marker, at the end"
        line = encode_line(event)
        digest.add(line)
        yield line
        last = event
    marker = SnapshotMarker(index=last.index + 1, term=1, at_us=last.at_us, segment_digest=digest.hexdigest())
    yield encode_line(marker)


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


def fold_rows(jobs_count: int) -> Iterator[Row]:
    with folder() as root:
        store = new_store(root)
        lines = list(with_markers(finished_jobs(jobs_count)))
        store.write(lines, 1)
        store.seal(len(lines))
        store.close()
        begin = time.perf_counter()
        result = fold_snapshot(OsDisk(root))
        spent = time.perf_counter() - begin
        assert result is not None
        yield "fold: log to snapshot, all jobs finished", len(lines) / spent, "events/s"


def start_rows(jobs_count: int) -> Iterator[Row]:
    with folder() as root:
        store = new_store(root)
        lines = list(with_markers(queued_jobs(jobs_count)))
        store.write(lines, 1)
        store.seal(len(lines))
        store.close()
        yield f"start from the log alone, {jobs_count:,} queued", start(root), "s"
        assert fold_snapshot(OsDisk(root)) is not None
        yield f"start from a snapshot, {jobs_count:,} queued", start(root), "s"


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
    lines = [encode_line(event) for event in finished_jobs(SEGMENT_ENTRIES // 3)]
    rows = [*write_rows(lines), *read_rows(lines)]
    del lines
    return [*rows, *fold_rows(SEGMENT_ENTRIES // 3), *start_rows(1_000_000)]
