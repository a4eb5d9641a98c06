"""A node that a test plays towards one worker: gives it jobs, reads what it says of them, confirms.

async with Boss() as boss, running(worker):
    desk = await boss.desk()                 # the worker said hello and was answered
    job = desk.assign("image.resize", b"cat")
    ack = await desk.ack_of(job)
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from rollmq.wire.codec import encode_header, header_of, payload_of
from rollmq.wire.headers import HeldList, HelloAnswerHeader, HelloWorkerHeader
from rollmq.wire.job_headers import (
    AckDoneHeader,
    AckJobHeader,
    AssignJobHeader,
    CancelHeader,
    ResultHeader,
    StartedHeader,
)
from rollmq.wire.message import Frame, MsgType
from rollmq.worker import Worker
from tests.library.played_node import GROUP, SOON_S, PlayedNode, Visit
from tests.wire.unfold import unfold

FOREVER_US = 3_600_000_000


@dataclass(frozen=True)
class Assigned:
    """A job as the test gave it."""

    job_id: bytes
    fence: tuple[int, int]


class Desk:
    """One connection of a worker."""

    def __init__(self, boss: "Boss", visit: Visit) -> None:
        self.boss = boss
        self.visit = visit
        self.hello = header_of(visit.frames[0], HelloWorkerHeader)
        self.listed = payload_of(visit.frames[0], HeldList)
        self._seq = 0

    def assign(
        self,
        exec_name: str,
        payload: bytes = b"",
        *,
        timeout_us: int = FOREVER_US,
        tries: int = 0,
        key_id: str = "",
    ) -> Assigned:
        """Give it a job."""
        self._seq += 1
        self.boss.assigned_count += 1
        number = self.boss.assigned_count
        job = Assigned(number.to_bytes(16, "big"), (1, number))
        header = AssignJobHeader(
            attempt=tries + 1,
            fence=job.fence,
            seq=self._seq,
            tries=tries,
            timeout_us=timeout_us,
            client_id="webshop",
            key_id=key_id,
            headers={"trace": "7d1c"},
        )
        subject = f"job.assign.{exec_name}.{self.hello.worker_id}"
        self.visit.say(
            Frame(MsgType.ASSIGN_JOB, job.job_id, bytes(16), subject, encode_header(header), payload)
        )
        return job

    def cancel(self, job: Assigned, what: str = "stop") -> None:
        """Void it, or ask for it back."""
        header = CancelHeader(what=what, fence=job.fence)  # type: ignore[arg-type]
        self.visit.say(Frame(MsgType.CANCEL, corr_id=job.job_id, header=encode_header(header)))

    def confirm(self, seq: int) -> None:
        """Acks up to this one are committed."""
        self.visit.say(Frame(MsgType.ACK_DONE, header=encode_header(AckDoneHeader(seq=seq))))

    def acks(self) -> list[tuple[bytes, AckJobHeader, bytes]]:
        """(job id, header, payload) of every ack so far."""
        return [
            (frame.corr_id, header_of(frame, AckJobHeader), frame.payload)
            for said in self.visit.frames
            for frame in unfold(said)
            if frame.type == MsgType.ACK_JOB
        ]

    def started(self) -> list[str]:
        """Ids of the jobs that were told as started, in order."""
        return [
            job.job_id
            for frame in self.visit.frames
            if frame.type == MsgType.STARTED
            for job in header_of(frame, StartedHeader).jobs
        ]

    def said(self, job: Assigned) -> list[tuple[ResultHeader, bytes]]:
        """Progress and extensions of a job."""
        return [
            (header_of(frame, ResultHeader), frame.payload)
            for frame in self.visit.frames
            if frame.type == MsgType.RESULT and frame.corr_id == job.job_id
        ]

    async def ack_of(self, job: Assigned) -> tuple[AckJobHeader, bytes]:
        """How it ended; all acks so far are confirmed."""
        await self.boss.until(lambda: any(job_id == job.job_id for job_id, _, _ in self.acks()))
        self.confirm(max(header.seq for _, header, _ in self.acks()))
        return next((header, payload) for job_id, header, payload in self.acks() if job_id == job.job_id)

    async def start_of(self, job: Assigned) -> None:
        """Until its handler is about to run."""
        await self.boss.until(lambda: job.job_id.hex() in self.started())


class Boss(PlayedNode):
    """A played node for workers."""

    def __init__(self) -> None:
        super().__init__(_answers_pings)
        self.assigned_count = 0

    async def desk(self, *, ping_every_us: int = 5_000_000) -> Desk:
        """The next connection of a worker, its hello answered."""
        visit = await self.visit()
        header = HelloAnswerHeader(
            version=1, group=GROUP, term=1, log_at_us=1_000_000_000_000, ping_every_us=ping_every_us
        )
        hello = visit.frames[0]
        visit.say(Frame(hello.type, corr_id=hello.msg_id, header=encode_header(header)))
        return Desk(self, visit)


def _answers_pings(visit: Visit, frame: Frame) -> None:
    if frame.type == MsgType.PING:
        visit.say(Frame(MsgType.PONG, corr_id=frame.msg_id))
    elif frame.type == MsgType.GOODBYE:
        visit.say(Frame(MsgType.GOODBYE))


@contextlib.asynccontextmanager
async def running(worker: Worker, boss: Boss) -> AsyncIterator["asyncio.Task[None]"]:
    """A worker that runs beside the test, and is stopped at once behind it."""
    worker.servers = boss.address
    task = asyncio.ensure_future(worker.run())
    try:
        yield task
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=SOON_S)
        assert task.done()
        if not task.cancelled():
            task.result()
