"""A worker of the demo, as a process of its own: python -m rollmq.cli.demo.handlers SERVERS ID HANDS EXEC…

It is what a user would write: handlers, and a Worker that runs them. The demo kills some of these processes.
"""

import asyncio
import hashlib
import os
import signal
import sys

import uvloop

from rollmq.library.job import Job
from rollmq.library.verdicts import Reject
from rollmq.worker import Worker

FLAKY, WRONG, BROKEN, POISON = b"flaky", b"wrong address", b"broken", b"poison"
"""Payloads that begin so make trouble."""
RESIZE_S, SEND_S, CONVERT_S = 0.15, 0.03, 0.02
ROUNDS = 300


async def resize(job: Job) -> bytes:
    """Waits, as for a disk or a network."""
    await asyncio.sleep(RESIZE_S)
    return b"resized " + job.payload


async def send(job: Job) -> bytes:
    """Its mail server is sometimes busy, and some addresses are wrong."""
    await asyncio.sleep(SEND_S)
    if job.payload.startswith(FLAKY) and job.tries == 0:
        raise ConnectionError("the mail server is busy")
    if job.payload.startswith(WRONG):
        raise Reject("there is no such address")
    return b"sent"


def report(job: Job) -> bytes:
    """A plain function, so it runs in a thread."""
    if job.payload.startswith(BROKEN):
        raise ValueError("the report has no columns")
    digest = job.payload
    for _ in range(ROUNDS):
        digest = hashlib.sha256(digest).digest()
    return digest.hex().encode()


async def convert(job: Job) -> bytes:
    """One of its jobs brings down the whole process, as a bug in a C library might."""
    if job.payload.startswith(POISON):
        os.kill(os.getpid(), signal.SIGKILL)
    await asyncio.sleep(CONVERT_S)
    return b"converted"


def main() -> None:
    """Runs until it is told to stop, or killed."""
    servers, worker_id, hands, *execs = sys.argv[1:]
    functions = {"image.resize": resize, "mail.send": send, "report.daily": report, "video.convert": convert}
    worker = Worker(servers, worker_id=worker_id, hands=int(hands))
    for name in execs:
        worker.handler(name)(functions[name])
    uvloop.run(_run(worker))


async def _run(worker: Worker) -> None:
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    await worker.run()


if __name__ == "__main__":
    main()
