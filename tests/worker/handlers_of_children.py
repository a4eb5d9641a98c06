"""Handlers that tests run in child processes: a child finds them here, by name."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

from rollmq.library.job import Job
from rollmq.library.verdicts import Reject

CHILD_CODE = "import sys, time; sys.stdout.write('up'); sys.stdout.flush(); time.sleep(600)"


def pid_of(_job: Job) -> bytes:
    """Which process runs this."""
    return b"%d" % os.getpid()


async def pid_of_async(_job: Job) -> bytes:
    """The same in a loop of the child."""
    await asyncio.sleep(0)
    return b"%d" % os.getpid()


def report(job: Job) -> bytes:
    """Says something and asks for time."""
    job.progress(b"half")
    job.extend(60)
    return f"{job.id} {job.exec} {job.attempt} {job.client_id}".encode() + job.payload


def fail(_job: Job) -> None:
    """A bug."""
    raise ValueError("in a child")


def reject(_job: Job) -> None:
    """A verdict."""
    raise Reject("never")


def die(_job: Job) -> None:
    """Ends the process without a word."""
    os._exit(7)


def killed(_job: Job) -> None:
    """As a system does that has no memory left."""
    os.kill(os.getpid(), signal.SIGKILL)


def hang(job: Job) -> None:
    """Runs for ever, with a process of its own; writes who they are to the file that the payload names."""
    inner = subprocess.Popen([sys.executable, "-c", CHILD_CODE], stdout=subprocess.PIPE)
    assert inner.stdout is not None
    inner.stdout.read(2)
    path = Path(job.payload.decode())
    path.with_suffix(".part").write_text(f"{os.getpid()} {inner.pid}")
    path.with_suffix(".part").rename(path)
    while True:
        signal.pause()
