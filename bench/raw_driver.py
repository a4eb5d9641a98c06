"""A client and a worker of bare frames, so that a node can be measured without the library's own cost.

    python -m bench.raw_driver client PORT JOBS OUTSTANDING [N]  prints jobs per second, submit to result
    python -m bench.raw_driver worker PORT [N]                   until it is ended
    python -m bench.raw_driver fill PORT JOBS                    queues jobs that nobody takes

Of several PORTs with commas the first is the leader's. With N there are so many clients and workers, each
with an exec of its own.

They say what the library says (a worker: Started, then acks with its credit) and check nothing.
"""

import asyncio
import secrets
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Final

import uvloop

from rollmq.wire import headers as h
from rollmq.wire import job_headers as j
from rollmq.wire import many_headers as m
from rollmq.wire.codec import FrameDecoder, encode_frame, encode_header, header_of
from rollmq.wire.many import ids_of, parts_of
from rollmq.wire.message import NO_ID, Frame, MsgType

EXEC: Final = "resize"
PAYLOAD: Final = b"p" * 100
RESULT: Final = b"r" * 16
CREDIT: Final = 1024
FRAME_BYTES_MAX: Final = 1 << 24
MANY: Final = 256


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

    def __init__(
        self,
        jobs: int,
        outstanding: int,
        done: Callable[[float], object],
        number: int = 0,
        *,
        is_filling: bool = False,
    ) -> None:
        super().__init__()
        self.jobs, self.outstanding, self.done = jobs, outstanding, done
        self.name = f"c{number}"
        self.exec = "backlog" if is_filling else f"{EXEC}{number}"
        self.ends_with = MsgType.ACCEPTED_JOBS if is_filling else MsgType.RESULTS
        self.sent = self.ended = 0
        self.began = 0.0
        self.prefix = b""

    def hello(self) -> bytes:
        header = encode_header(h.HelloClientHeader(version=1, client_id=self.name, many=True))
        return encode_frame(MsgType.HELLO_CLIENT, secrets.token_bytes(16), header=header)

    def take(self, frame: Frame) -> None:
        if frame.type == self.ends_with:
            is_result = frame.type == MsgType.RESULTS
            self.ended += len(header_of(frame, m.ResultsHeader).jobs if is_result else ids_of(frame))
            if self.ended == self.jobs:
                self.done(time.perf_counter() - self.began)
        elif frame.type == MsgType.HELLO_CLIENT:
            log_ms = header_of(frame, h.HelloAnswerHeader).log_at_us // 1000
            self.prefix = log_ms.to_bytes(6, "big") + secrets.token_bytes(4)
            self.began = time.perf_counter()
        else:
            assert frame.type == MsgType.ACCEPTED_JOBS, frame

    def settle(self) -> None:
        room = min(self.jobs, self.ended + self.outstanding) - self.sent if self.prefix else 0
        while room > 0:
            count = min(room, MANY)
            ids = b"".join(
                self.prefix + number.to_bytes(6, "big") for number in range(self.sent, self.sent + count)
            )
            header = encode_header(m.SubmitJobsHeader((len(PAYLOAD),) * count))
            subject, payload = f"job.submit.{self.exec}", ids + PAYLOAD * count
            self.out.append(encode_frame(MsgType.SUBMIT_JOBS, NO_ID, NO_ID, subject, header, payload))
            self.sent += count
            room -= count


class RawWorker(Raw):
    """Acks whatever it is assigned."""

    def __init__(self, credit: int, number: int = 0) -> None:
        super().__init__()
        self.credit = credit
        self.number = number
        self.seen = self.acks = 0

    def hello(self) -> bytes:
        hello = h.HelloWorkerHeader(
            version=1,
            worker_id=f"w{self.number}",
            instance=secrets.token_hex(8),
            patterns=(f"job.assign.{EXEC}{self.number}",),
            hands=self.credit,
            credit=self.credit,
            many=True,
        )
        return encode_frame(MsgType.HELLO_WORKER, secrets.token_bytes(16), header=encode_header(hello))

    def take(self, frame: Frame) -> None:
        if frame.type != MsgType.ASSIGN_JOBS:
            return
        header = header_of(frame, m.AssignJobsHeader)
        count = len(header.jobs)
        self.seen += count
        ids = [job_id for job_id, _ in parts_of(frame, [row[4] for row in header.jobs])]
        fences = [(header.term, row[0]) for row in header.jobs]
        jobs = tuple(j.StartedJob(job_id.hex(), fence) for job_id, fence in zip(ids, fences, strict=True))
        self.out.append(encode_frame(MsgType.STARTED, header=encode_header(j.StartedHeader(jobs))))
        rows = tuple((*fence, 5, len(RESULT)) for fence in fences)
        acks = m.AckJobsHeader(rows, self.acks + 1, credit=(self.seen, self.credit))
        self.acks += count
        payload = b"".join(ids) + RESULT * count
        self.out.append(encode_frame(MsgType.ACK_JOBS, header=encode_header(acks), payload=payload))


async def client(
    port: int, jobs: int, outstanding: int, count: int = 1, *, is_filling: bool = False
) -> float:
    """Jobs per second, of so many clients together."""
    loop = asyncio.get_running_loop()
    ends = [loop.create_future() for _ in range(count)]
    began = time.perf_counter()
    for number, end in enumerate(ends):
        await loop.create_connection(
            partial(
                RawClient,
                jobs // count,
                max(outstanding // count, 1),
                end.set_result,
                number,
                is_filling=is_filling,
            ),
            "127.0.0.1",
            port,
        )
    spent = await asyncio.gather(*ends)
    return jobs / (spent[0] if count == 1 else time.perf_counter() - began)


async def worker(port: int, count: int = 1) -> None:
    """Until it is ended."""
    loop = asyncio.get_running_loop()
    for number in range(count):
        await loop.create_connection(partial(RawWorker, max(CREDIT // count, 16), number), "127.0.0.1", port)
    await loop.create_future()


def main(role: str, port: int, *rest: int) -> None:
    """One of the three."""
    if role == "worker":
        uvloop.run(worker(port, *rest))
    elif role == "fill":
        print(f"{uvloop.run(client(port, *rest, outstanding=CREDIT, is_filling=True)):.1f}", flush=True)
    else:
        print(f"{uvloop.run(client(port, *rest)):.1f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2].partition(",")[0]), *map(int, sys.argv[3:]))
