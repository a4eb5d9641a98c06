"""A history of real nodes: three of them with an archive, real workers, a client, and kills of all kinds.

    with real_history(folder) as real: …      its nodes run for as long as the block does

The client writes down what it was told; that is the only witness that knows nothing of the log.
"""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from rollmq import Backoff, Client, Job, SubmitRefused
from rollmq.library.operator import OperatorConnection
from tests.group.real_group import RealGroup, running_group, sealed_of, wait_for

JOBS = {"good": 120, "flaky": 20, "bad": 12, "wrong": 6, "later": 10, "slow": 8}
"""How many of each exec in a round."""
WORKERS = ("w1", "w2")
RESULT_S = 120.0


@dataclass
class RealHistory:
    """What is there when the story has been told."""

    group: RealGroup
    archive: Path
    receipts: Path
    told: list[dict[str, Any]] = field(default_factory=list)

    @property
    def uuid(self) -> str:
        (folder,) = self.archive.iterdir()
        return folder.name

    def lines(self) -> list[bytes]:
        """All lines that the archive has, in order."""
        files = sorted(self.archive.glob("*/events-*.jsonl"))
        return [line for path in files for line in path.read_bytes().splitlines(keepends=True)[1:]]

    def tell(self, job_id: str, told: str) -> None:
        """The client was told this."""
        self.told.append({"job_id": job_id, "told": told})


@contextlib.contextmanager
def real_history(folder: Path) -> Iterator[RealHistory]:
    archive = folder / "archive"
    with running_group(folder, options=["--archive", str(archive)]) as group:
        real = RealHistory(group, archive, folder / "receipts.jsonl")
        with contextlib.ExitStack() as crew:
            workers = [crew.enter_context(worker(group, name)) for name in WORKERS]
            for number in range(3):
                jobs = _Round(real)
                with jobs.going_on():
                    wait_for(lambda jobs=jobs: jobs.accepted_count > 60, "a part was accepted")
                    if number == 1:
                        workers[0].kill()  # what it holds is requeued after its grace
                        crew.enter_context(worker(group, "w3"))
                    _kill_somebody(group, number)
                seal(real)
        real.receipts.write_text("".join(json.dumps(each) + "\n" for each in real.told))
        seal(real)
        yield real


def _kill_somebody(group: RealGroup, number: int) -> None:
    """The leader, then a follower, then the leader again; each comes back at once."""
    leader = group.leader()
    node = leader if number % 2 == 0 else group.others(leader)[0]
    node.kill()
    node.start()


def seal(real: RealHistory) -> None:
    """End the segment; wait until every node has sealed it and the archive has it."""

    def is_done() -> bool:
        with OperatorConnection(real.group.leader().address, by="test") as node:
            node.ask("marker", {}, is_command=True)
        sealed = [sealed_of(node.state) for node in real.group.nodes]
        there = {path.name for path in real.archive.glob("*/events-*.jsonl")}
        return (
            bool(sealed[0])
            and all(set(each) == set(sealed[0]) for each in sealed)
            and there == set(sealed[0])
        )

    wait_for(is_done, "all nodes have sealed the same, and it is archived")


@contextlib.contextmanager
def worker(group: RealGroup, name: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A worker's process."""
    log = (group.folder / f"{name}.log").open("wb")
    command = [sys.executable, "-m", "tests.pipeline.real_worker", group.servers, name]
    root = Path(__file__).resolve().parents[2]
    environ = os.environ | {"PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])}
    process = subprocess.Popen(command, stdout=log, stderr=log, env=environ, cwd=root)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        log.close()


class _Round:
    """One client's round of submits; all of its jobs have come to an end when it is over."""

    def __init__(self, real: RealHistory) -> None:
        self._real = real
        self.accepted_count = 0
        self._failures: list[BaseException] = []

    @contextlib.contextmanager
    def going_on(self) -> Iterator[None]:
        thread = threading.Thread(target=self._work, daemon=True)
        thread.start()
        yield
        thread.join(timeout=RESULT_S + 60)
        assert not thread.is_alive()
        assert not self._failures, self._failures

    def _work(self) -> None:
        try:
            asyncio.run(self._run())
        except BaseException as error:
            self._failures.append(error)
            raise

    async def _run(self) -> None:
        async with Client(self._real.group.servers, client_id="tester", cap=40) as client:
            names = [name for name, count in JOBS.items() for _ in range(count)]
            Random(7).shuffle(names)
            await asyncio.gather(*(self._one(client, name, number) for number, name in enumerate(names)))
            await self._odd_ones(client)

    async def _submit(self, client: Client, name: str, **options: Any) -> Job:
        backoff = Backoff(first=0.05, longest=0.2)
        job = await client.submit(name, name.encode() * 20, backoff=backoff, **options)
        self._real.tell(job.id, "accepted")
        self.accepted_count += 1
        return job

    async def _one(self, client: Client, name: str, number: int) -> None:
        tries = 2 if name == "bad" else 5
        timeout = 0.3 if name == "slow" else 600
        priority = number % 3
        job = await self._submit(client, name, tries_max=tries, timeout=timeout, priority=priority)
        await self._end(job)

    async def _end(self, job: Job) -> None:
        outcome = await job.result(timeout=RESULT_S)
        self._real.tell(job.id, outcome.state)

    async def _odd_ones(self, client: Client) -> None:
        """One cancelled, one that nobody runs and that stays, one refused; dead ones redriven and dropped."""
        cancelled = await self._submit(client, "good", delay=3600)
        await cancelled.cancel("order withdrawn")
        await self._end(cancelled)
        await self._submit(client, "nobody.takes.this")
        dead = [each["job_id"] for each in self._real.told if each["told"] == "dead"]
        with OperatorConnection(self._real.group.servers, by="ops") as node:
            node.ask("dlq_redrive", {"job_ids": dead[:3], "why": "mended"}, is_command=True)
            node.ask("dlq_drop", {"job_ids": dead[3:5], "why": "too old"}, is_command=True)
            node.ask("pause", {"exec": "good", "submits": True, "why": "rest"}, is_command=True)
        refused = None
        try:
            await client.submit("good", b"while it rests")
        except SubmitRefused as error:
            refused = error
        assert refused is not None
        with OperatorConnection(self._real.group.servers, by="ops") as node:
            node.ask("resume", {"exec": "good"}, is_command=True)
