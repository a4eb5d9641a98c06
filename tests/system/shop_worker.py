"""The worker of a storm: `rollmq worker --app tests.system.shop_worker:worker`, as a user runs one.

Each handler says in a file that it runs, before it does anything: what ran twice, or was never assigned, is
found there.
"""

import asyncio
import os
import time
from pathlib import Path

from rollmq import Reject, Retry, Worker
from rollmq.library.job import Job
from tests.system.orders import result_of
from tests.system.receipts import Receipts

SLOW_S = 0.2
worker = Worker("127.0.0.1:1")
_receipts = Receipts(Path(os.environ["STORM_RUNS"]))


def _says(job: Job) -> None:
    _receipts.note(job_id=job.id, attempt=job.attempt, worker=os.environ["STORM_WORKER"])


@worker.handler("shop.echo")
async def echo(job: Job) -> bytes:
    """The usual one."""
    _says(job)
    return result_of(job.payload)


@worker.handler("shop.plain")
def plain(job: Job) -> bytes:
    """In a thread."""
    _says(job)
    return result_of(job.payload)


@worker.handler("shop.flaky")
async def flaky(job: Job) -> bytes:
    """Fails once."""
    _says(job)
    if job.tries == 0:
        raise Retry("not today", after=0.01)
    return result_of(job.payload)


@worker.handler("shop.reject")
async def reject(job: Job) -> bytes:
    """Never works."""
    _says(job)
    raise Reject("not for sale")


@worker.handler("shop.slow")
async def slow(job: Job) -> bytes:
    """Is usually running when somebody dies."""
    _says(job)
    until = time.monotonic() + SLOW_S
    while time.monotonic() < until:
        await job.progress(b"on it")
        await asyncio.sleep(SLOW_S / 4)
    return result_of(job.payload)
