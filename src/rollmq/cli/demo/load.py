"""The demo's clients: what they submit, and the receipts that they keep.

A receipt holds only what a client was told. The proof compares it with the log.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rollmq.cli.demo.handlers import BROKEN, FLAKY, POISON, WRONG
from rollmq.client import Client
from rollmq.errors import SubmitRefused, SubmitUnknown

POISON_AT: Final = 20
"""Which job is the poison."""
PACE_S: Final = 0.05
AGAIN_S: Final = 0.2
ASKED_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True)
class Part:
    """One job of the plan."""

    client_id: str
    exec: str
    payload: bytes
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Receipt:
    """What a client knows of one job."""

    part: Part
    job_id: str = ""
    """Once it was accepted."""
    told: list[str] = field(default_factory=list)
    """Every final state that it was told of, first by the job and again by asking for it."""


def plan(count: int) -> list[Part]:
    """So many jobs of four execs and three clients, some of them with trouble in them."""
    return [_part(number) for number in range(count)]


def _part(number: int) -> Part:
    kind = number % 100
    if number == POISON_AT:
        return Part("studio", "video.convert", POISON)
    if kind < 2:
        return Part("studio", "video.convert", b"clip %d" % number)
    if kind < 55:
        return Part("webshop", "image.resize", b"picture %d" % number)
    if kind < 85:
        payload = b"mail %d" % number
        if kind % 8 == 0:
            payload = FLAKY + b" " + payload
        elif number % 300 == 75:
            payload = WRONG + b" " + payload
        return Part("newsletter", "mail.send", payload, {"backoff": 0.3})
    broken = number % 200 == 90
    options = {"tries_max": 2, "backoff": 0.3} if broken else {}
    return Part("webshop", "report.daily", (BROKEN if broken else b"report") + b" %d" % number, options)


class Load:
    """Submits the plan, and sees every job through to its end.

    The first `paced_count` jobs are spread over `spread_s`; the rest waits for `let_go`, and then goes out at
    once.
    """

    def __init__(self, servers: str, parts: list[Part], *, paced_count: int, spread_s: float) -> None:
        self.receipts = [Receipt(part) for part in parts]
        self.accepted_count = 0
        self.ended_count = 0
        self.resubmitted_count = 0
        self.let_go = asyncio.Event()
        self._paced_count = paced_count
        self._spread_s = spread_s
        self._clients = {part.client_id: Client(servers, client_id=part.client_id) for part in parts}

    @property
    def unanswered_count(self) -> int:
        """Submits that were made and not confirmed."""
        return sum(client.session.core.unanswered_count for client in self._clients.values())

    def ends_of(self, payload: bytes) -> list[str]:
        """What was told of the jobs with this payload."""
        found = [receipt for receipt in self.receipts if receipt.part.payload == payload]
        return [state for receipt in found for state in receipt.told]

    async def run(self) -> None:
        """Until all have ended."""
        for client in self._clients.values():
            await client.__aenter__()
        jobs: list[asyncio.Task[None]] = []
        begin_s = time.monotonic()
        try:
            for number, receipt in enumerate(self.receipts):
                if number < self._paced_count:
                    await _until(begin_s + self._spread_s * number / self._paced_count)
                else:
                    await self.let_go.wait()
                jobs.append(asyncio.create_task(self._see_through(number, receipt)))
            await asyncio.gather(*jobs)
        finally:
            for job in jobs:
                job.cancel()
            await asyncio.gather(*(client.close() for client in self._clients.values()))

    async def _see_through(self, number: int, receipt: Receipt) -> None:
        part = receipt.part
        client = self._clients[part.client_id]
        while not receipt.job_id:
            try:
                job = await client.submit(part.exec, part.payload, key=f"demo {number}", **part.options)
                receipt.job_id = job.id
            except SubmitUnknown:  # repeating it is safe: it has a key
                self.resubmitted_count += 1
            except SubmitRefused as refusal:
                if not refusal.retryable:
                    raise
                await asyncio.sleep(AGAIN_S)
        self.accepted_count += 1
        receipt.told.append((await job.result()).state)
        self.ended_count += 1


async def ask_again(servers: str, receipts: list[Receipt]) -> None:
    """Every client asks once more how its jobs ended, in a new session."""
    room = asyncio.Semaphore(ASKED_AT_ONCE)

    async def ask(receipt: Receipt) -> None:
        async with room:
            receipt.told.append((await client.result(receipt.job_id)).state)

    async with Client(servers, client_id="auditor") as client:
        await asyncio.gather(*(ask(receipt) for receipt in receipts if receipt.job_id))


async def _until(at_s: float) -> None:
    """Not exactly: what is due within a moment may go together."""
    if (wait_s := at_s - time.monotonic()) > PACE_S:
        await asyncio.sleep(wait_s)
