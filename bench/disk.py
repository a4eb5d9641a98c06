"""What jobs cost on a node's disk: bytes of log, with and without compression, for a million of them.

A real node, client and worker; each job is enqueued, assigned and acked, which are three lines. The size is
what counts here, so nothing is timed, and any machine gives the same figures.
"""

import asyncio
import gzip
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import uvloop

from bench.machine_limits import Row
from bench.processes import free_ports, process, python
from rollmq import Client, Worker
from rollmq.library.job import Job

JOBS: Final = 20_000
PAYLOADS: Final = (0, 100, 1_000, 10_000)
ZIPPED: Final = 100
RESULT_BYTES: Final = 16


def run() -> Iterator[Row]:
    """Rows of the table."""
    for size in PAYLOADS:
        log_bytes, zipped_bytes = measured(size)
        what = f"a million jobs, payload {size:,} B, result {min(size, RESULT_BYTES)} B"
        yield f"{what}: log", log_bytes / JOBS, "MB"
        if size == ZIPPED:  # larger ones say more of the payload than of the log
            yield f"{what}: the same, gzipped", zipped_bytes / JOBS, "MB"


def measured(payload_bytes: int) -> tuple[int, int]:
    """Bytes of the log, and of a compressed copy of it, for so many jobs."""
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as folder:
        (port,), state = free_ports(1), Path(folder, "state")
        serve = python("-m", "rollmq", "serve", port, "--state", state)
        with process(serve):  # client and worker wait for it
            uvloop.run(_play(port, payload_bytes))
        logs = [path.read_bytes() for path in sorted(state.rglob("events-*"))]
    return sum(map(len, logs)), sum(len(gzip.compress(log, 6)) for log in logs)


async def _play(port: int, payload_bytes: int) -> None:
    worker = Worker(f"127.0.0.1:{port}", worker_id="w1", hands=64, credit=512)

    @worker.handler("resize")
    async def resize(job: Job) -> bytes:
        return job.payload[:RESULT_BYTES]

    running = asyncio.create_task(worker.run())
    async with Client(f"127.0.0.1:{port}", client_id="webshop") as client:
        payloads = (_payload(number, payload_bytes) for number in range(JOBS))
        count = 0
        async for outcome in client.map("resize", payloads):
            assert outcome.ok, outcome
            count += 1
        assert count == JOBS
    worker.stop()
    await running


def _payload(number: int, size: int) -> bytes:
    """JSON-like text, different in each job, as payloads are."""
    text = b'{"order":%d,"url":"https://example.org/pictures/%d.png","width":300,"tags":["cat","%x"]}' % (
        number,
        number * 7919,
        number * 2654435761 % 2**32,
    )
    return (text * (size // len(text) + 1))[:size]
