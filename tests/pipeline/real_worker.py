"""A worker for real histories: its handlers succeed, fail, give up, put off and run over their time.

    python -m tests.pipeline.real_worker SERVERS WORKER_ID

It says "ready" once it has a connection; it ends by a signal.
"""

import asyncio
import sys

from rollmq import Reject, Snooze, Worker
from rollmq.library.job import Job

EXECS = ("good", "flaky", "bad", "wrong", "later", "slow")


def make_worker(servers: str, worker_id: str) -> Worker:
    worker = Worker(servers, worker_id=worker_id, hands=4, credit=8)

    @worker.handler("good")
    async def good(job: Job) -> bytes:
        return job.payload[:10]

    @worker.handler("flaky")
    async def flaky(job: Job) -> bytes:
        if job.tries == 0:
            raise ConnectionError("the first try never works")
        return b"then it does"

    @worker.handler("bad")
    async def bad(_job: Job) -> bytes:
        raise RuntimeError("it never works")

    @worker.handler("wrong")
    async def wrong(_job: Job) -> bytes:
        raise Reject("no such address")

    @worker.handler("later")
    async def later(job: Job) -> bytes:
        if job.attempt == 1:
            raise Snooze(after=0.1)
        return b"now"

    @worker.handler("slow")
    async def slow(job: Job) -> bytes:
        if job.tries == 0:
            await asyncio.Event().wait()  # until its time is over, or its process is
        return b"faster"

    return worker


if __name__ == "__main__":
    asyncio.run(make_worker(sys.argv[1], sys.argv[2]).run())
