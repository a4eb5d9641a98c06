"""A worker for the tests of clients, and the ways to begin one."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from rollmq import Reject, Worker
from rollmq.library.job import Job

SOON_S = 60.0
"""Longer than anything here takes on a busy machine."""


def make_worker(server: str) -> Worker:
    worker = Worker(server, hands=64)

    @worker.handler("echo")
    async def echo(job: Job) -> bytes:
        return job.payload

    @worker.handler("fail")
    async def fail(job: Job) -> bytes:
        raise Reject(job.payload.decode())

    @worker.handler("count")
    async def count(job: Job) -> bytes:
        for number in range(int(job.payload)):
            await job.progress(str(number).encode())
        return b"counted"

    @worker.handler("hang")
    async def hang(job: Job) -> bytes:
        await asyncio.sleep(SOON_S)
        return job.payload

    @worker.handler("labels")
    async def labels(job: Job) -> bytes:
        return f"{dict(job.headers)} {job.content_type} {job.client_id} {job.tries_max}".encode()

    return worker


@contextlib.asynccontextmanager
async def working(server: str) -> AsyncIterator[Worker]:
    """A worker that runs meanwhile."""
    worker = make_worker(server)
    running = asyncio.ensure_future(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        await running
