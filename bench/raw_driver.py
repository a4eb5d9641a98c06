"""A client and a worker of bare frames, so that a node can be measured without the library's own cost.

    python -m bench.raw_driver client PORT JOBS OUTSTANDING      prints jobs per second, submit to result
    python -m bench.raw_driver worker PORT [CREDIT]              until it is ended

They say what the library says (a worker: Started, then acks with its credit) and check nothing.
"""

import asyncio
import secrets
import sys
import time
from collections.abc import Callable
from typing import Final

import uvloop

from rollmq.wire import headers as h
from rollmq.wire import job_headers as j
from rollmq.wire.codec import FrameDecoder, encode_frame, encode_header, header_of
from rollmq.wire.message import NO_ID, Frame, MsgType

EXEC: Final = "resize"
PAYLOAD: Final = b"p" * 100
RESULT: Final = b"r" * 16
CREDIT: Final = 1024
FRAME_BYTES_MAX: Final = 1 << 24
STARTED_MAX: Final = 256


class Raw(asyncio.Protocol):
    """Bytes to frames; what a piece of them asks for is written at once."""

    def __init__(self) -> None:
        self.decoder = FrameDecoder(FRAME_BYTES_MAX)
        self.out: list[bytes] = []
        self.transport: asyncio.WriteTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say hello."""
        self.transport = transport  # type: ignore[assignment]
        self.transport.write(self.hello())

    def data_received(self, data: bytes) -> None:
        """Take frames."""
        for frame in self.decoder.feed(data):
            assert isinstance(frame, Frame), frame
            self.take(frame)
        self.settle()
        if self.out:
            self.transport.write(b"".join(self.out))
            self.out.clear()

    def hello(self) -> bytes:
        raise NotImplementedError

    def take(self, frame: Frame) -> None:
        raise NotImplementedError

    def settle(self) -> None:
        """All frames of a piece are taken."""


class RawClient(Raw):
    """Keeps so many jobs between submit and result."""

    def __init__(self, jobs: int, outstanding: int, done: Callable[[float], object], name: str) -> None:
        super().__init__()
        self.jobs, self.outstanding, self.done, self.name = jobs, outstanding, done, name
        self.sent = self.ended = 0
        self.began = 0.0
        self.prefix = b""

    def hello(self) -> bytes:
        header = encode_header(h.HelloClientHeader(version=1, client_id=self.name))
        return encode_frame(MsgType.HELLO_CLIENT, secrets.token_bytes(16), header=header)

    def take(self, frame: Frame) -> None:
        if frame.type == MsgType.RESULT:
            self.ended += 1
            if self.ended == self.jobs:
                self.done(time.perf_counter() - self.began)
        elif frame.type == MsgType.HELLO_CLIENT:
            log_ms = header_of(frame, h.HelloAnswerHeader).log_at_us // 1000
            self.prefix = log_ms.to_bytes(6, "big") + secrets.token_bytes(4)
            self.began = time.perf_counter()
        else:
            assert frame.type == MsgType.ACCEPTED, frame

    def settle(self) -> None:
        while self.prefix and self.sent < self.jobs and self.sent - self.ended < self.outstanding:
            self.sent += 1
            job_id = self.prefix + self.sent.to_bytes(6, "big")
            self.out.append(
                encode_frame(MsgType.SUBMIT_JOB, job_id, subject=f"job.submit.{EXEC}", payload=PAYLOAD)
            )


class RawWorker(Raw):
    """Acks whatever it is assigned."""

    def __init__(self, credit: int) -> None:
        super().__init__()
        self.credit = credit
        self.seen = self.acks = 0
        self.batch: list[tuple[bytes, j.AssignJobHeader]] = []

    def hello(self) -> bytes:
        hello = h.HelloWorkerHeader(
            version=1,
            worker_id="w1",
            instance=secrets.token_hex(8),
            patterns=(f"job.assign.{EXEC}",),
            hands=self.credit,
            credit=self.credit,
        )
        return encode_frame(MsgType.HELLO_WORKER, secrets.token_bytes(16), header=encode_header(hello))

    def take(self, frame: Frame) -> None:
        if frame.type == MsgType.ASSIGN_JOB:
            self.seen += 1
            self.batch.append((frame.msg_id, header_of(frame, j.AssignJobHeader)))

    def settle(self) -> None:
        for at in range(0, len(self.batch), STARTED_MAX):
            part = self.batch[at : at + STARTED_MAX]
            jobs = tuple(j.StartedJob(job_id.hex(), header.fence) for job_id, header in part)
            self.out.append(encode_frame(MsgType.STARTED, header=encode_header(j.StartedHeader(jobs))))
            for job_id, header in part:
                self.acks += 1
                ack = j.AckJobHeader(header.fence, self.acks, run_us=5, credit=(self.seen, self.credit))
                self.out.append(
                    encode_frame(MsgType.ACK_JOB, NO_ID, job_id, header=encode_header(ack), payload=RESULT)
                )
        self.batch.clear()


async def client(port: int, jobs: int, outstanding: int, name: str = "c1") -> float:
    """Jobs per second."""
    done = asyncio.get_running_loop().create_future()
    loop = asyncio.get_running_loop()
    await loop.create_connection(
        lambda: RawClient(jobs, outstanding, done.set_result, name), "127.0.0.1", port
    )
    return jobs / await done


async def worker(port: int, credit: int) -> None:
    """Until it is ended."""
    loop = asyncio.get_running_loop()
    await loop.create_connection(lambda: RawWorker(credit), "127.0.0.1", port)
    await loop.create_future()


def main(role: str, port: int, *rest: str) -> None:
    """One of the two."""
    if role == "worker":
        uvloop.run(worker(port, int(rest[0]) if rest else CREDIT))
    else:
        print(f"{uvloop.run(client(port, int(rest[0]), int(rest[1]))):.1f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
