"""Workers at a real node: everything ends, whoever is killed on the way, and nothing untrue is told."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

from rollmq.client import Client
from rollmq.library.job import Job
from rollmq.library.verdicts import Reject, Retry
from rollmq.worker import Worker
from tests.cli.running import RunningNode, clean_env, running_node
from tests.house_rules import ROOT
from tests.worker import handlers_of_children as given

SOON_S = 60.0
JOBS = 2_000


@contextlib.asynccontextmanager
async def at_work(worker: Worker) -> AsyncIterator["asyncio.Task[None]"]:
    """A worker that is stopped politely behind the block."""
    run = asyncio.ensure_future(worker.run())
    try:
        yield run
    finally:
        worker.stop()
        async with asyncio.timeout(SOON_S):
            await run


def test_thousands_of_jobs_of_every_kind_end_with_their_own_results(tmp_path: Path) -> None:
    seen: Counter[str] = Counter()

    async def main(server: str) -> None:
        worker = Worker(server, hands=64)

        @worker.handler("shout")
        async def shout(job: Job) -> bytes:
            seen[job.id] += 1
            if job.payload.endswith(b"7"):
                await asyncio.sleep(0)
            return job.payload.upper()

        @worker.handler("plain")
        def plain(job: Job) -> bytes:
            seen[job.id] += 1
            return b"plain " + job.payload

        worker.handler("child", processes=True)(given.pid_of)
        async with Client(server) as client, at_work(worker):
            payloads = [b"job %d" % number for number in range(JOBS)]
            got = {}
            async for outcome in client.map("shout", payloads):
                got[outcome.position] = outcome.result
            assert got == {number: payload.upper() for number, payload in enumerate(payloads)}
            async for outcome in client.map("plain", payloads):
                assert outcome.result == b"plain " + payloads[outcome.position]
            children = {outcome.result async for outcome in client.map("child", payloads[:40])}
            assert 1 <= len(children) <= 40
        assert set(seen.values()) == {1}, "nothing failed, so nothing ran twice"

    with running_node(tmp_path / "state") as node:
        asyncio.run(main(node.server))


def test_failures_are_retried_and_told_as_they_were(tmp_path: Path) -> None:
    async def main(server: str) -> None:
        worker = Worker(server)

        @worker.handler("second")
        async def second(job: Job) -> bytes:
            if job.tries == 0:
                raise Retry(after=0)
            return b"%d" % job.attempt

        @worker.handler("never")
        async def never(_job: Job) -> None:
            raise Reject("no such cat")

        async with Client(server) as client, at_work(worker):
            outcome = await (await client.submit("second")).result(SOON_S)
            assert (outcome.ok, outcome.result, outcome.tries) == (True, b"2", 2)
            outcome = await (await client.submit("never")).result(SOON_S)
            assert (outcome.state, outcome.error_type) == ("dead", "Reject")
            assert "no such cat" in outcome.error

    with running_node(tmp_path / "state") as node:
        asyncio.run(main(node.server))


def test_a_killed_node_loses_neither_jobs_nor_outcomes(tmp_path: Path) -> None:
    """It is killed while jobs are queued, prefetched, running and acked, and comes back on the same port."""

    async def main(node: RunningNode) -> None:
        worker, count = Worker(node.server, hands=16), 400
        seen: Counter[str] = Counter()

        @worker.handler("work")
        async def work(job: Job) -> bytes:
            seen[job.id] += 1
            await asyncio.sleep(0.005)
            return job.payload

        async with Client(node.server) as client, at_work(worker):
            payloads = [b"%d" % number for number in range(count)]
            jobs = [job async for job in client.submit_many(("work", payload) for payload in payloads)]
            while sum(seen.values()) < count // 4:
                await asyncio.sleep(0.001)
            await asyncio.to_thread(node.stop, signal.SIGKILL)
            again = await asyncio.to_thread(lambda: RunningNode(node.state, port=node.port))
            try:
                outcomes = [await job.result(SOON_S) for job in jobs]
            finally:
                worker.stop()
                again.process.terminate()
                await asyncio.to_thread(again.wait)
            assert [outcome.result for outcome in outcomes] == [payloads[job.position] for job in jobs]
            # The worker came back with what it held: only what it had not yet been told to keep ran again.
            assert len(seen) == count
            assert max(seen.values()) <= 2

    with running_node(tmp_path / "state") as node:
        asyncio.run(main(node))


WORKER = """
import asyncio, os, sys
from rollmq.worker import Worker
worker = Worker(hands=4, worker_id=sys.argv[1])

@worker.handler("work")
async def work(job):
    with open(sys.argv[2], "a") as file:
        file.write(f"{os.getpid()} {job.id}\\n")
    await asyncio.sleep(0.01)
    return str(os.getpid()).encode()

asyncio.run(worker.run())
"""


def test_a_killed_workers_jobs_run_elsewhere(tmp_path: Path) -> None:
    script, diary = tmp_path / "script.py", tmp_path / "diary"
    script.write_text(WORKER)
    diary.touch()

    def start(name: str, server: str) -> "subprocess.Popen[bytes]":
        words = [sys.executable, os.fspath(script), name, os.fspath(diary)]
        return subprocess.Popen(words, cwd=ROOT, env=clean_env(ROLLMQ_SERVER=server))

    async def main(server: str) -> None:
        first, second = start("w1", server), start("w2", server)
        try:
            async with Client(server) as client:
                jobs = [job async for job in client.submit_many(("work", b"") for _ in range(300))]
                while f"{first.pid} " not in diary.read_text():
                    await asyncio.sleep(0.001)
                first.kill()
                outcomes = [await job.result(SOON_S) for job in jobs]
                assert all(outcome.ok for outcome in outcomes)
                assert {outcome.result for outcome in outcomes} <= {b"%d" % first.pid, b"%d" % second.pid}
                tries = Counter(outcome.tries for outcome in outcomes)
                # What ran in it costs a try, at most its hands; what was prefetched beside costs nothing.
                assert 1 <= tries[2] <= 4
                assert tries[1] + tries[2] == 300
        finally:
            for process in (first, second):
                process.kill()
                process.wait()

    with running_node(tmp_path / "state") as node:
        asyncio.run(main(node.server))
