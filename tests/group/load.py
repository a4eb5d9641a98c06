"""A client and a worker that survive failovers, on bare frames, in a thread; and what they were told.

The library has its own tests; these know nothing of it, so that what a group did is counted by somebody else.
A submit that was not confirmed is sent again under its id, to whoever leads next.
"""

import asyncio
import contextlib
import secrets
import threading
import time
from collections.abc import Iterator

from rollmq.wire import headers as h
from rollmq.wire import job_headers as j
from rollmq.wire.codec import FrameDecoder, encode_frame, encode_header, header_of
from rollmq.wire.message import NO_ID, Frame, MsgType

EXEC = "resize"
FRAME_BYTES_MAX = 1 << 24
REDIAL_S = 0.01


class Line(asyncio.Protocol):
    """One connection; `ended` is set when it breaks or is sent away."""

    def __init__(self, party: "Party") -> None:
        self.party = party
        self.decoder = FrameDecoder(FRAME_BYTES_MAX)
        self.ended = asyncio.Event()
        self.hint: str | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.party.transport = transport  # type: ignore[assignment]
        self.party.say_hello()

    def data_received(self, data: bytes) -> None:
        for frame in self.decoder.feed(data):
            if not isinstance(frame, Frame):
                self.ended.set()
                return
            if frame.type == MsgType.NOT_LEADER:
                self.hint = header_of(frame, h.NotLeaderHeader).leader
                self.ended.set()
            elif frame.type == MsgType.PING:
                self.party.write(encode_frame(MsgType.PONG, corr_id=frame.msg_id))
            else:
                self.party.take(frame)
        self.party.settle()

    def connection_lost(self, _exc: Exception | None) -> None:
        self.ended.set()


class Party:
    """Dials the servers in turn, or where it is sent, for as long as it is not stopped."""

    def __init__(self, servers: str) -> None:
        self.servers = servers.split(",")
        self.transport: asyncio.Transport | None = None
        self.is_stopping = False

    def write(self, data: bytes) -> None:
        if self.transport is not None:
            self.transport.write(data)

    async def run(self) -> None:
        loop, at, hint = asyncio.get_running_loop(), 0, None
        while not self.is_stopping:
            address, hint = hint or self.servers[at % len(self.servers)], None
            at += 1
            host, _, port = address.rpartition(":")
            line = Line(self)
            try:
                async with asyncio.timeout(1.0):
                    transport, _ = await loop.create_connection(lambda line=line: line, host, int(port))
            except (OSError, TimeoutError):
                await asyncio.sleep(REDIAL_S)
                continue
            await self._stay(line)
            hint = line.hint
            self.transport = None
            transport.abort()
            if hint is None:
                await asyncio.sleep(REDIAL_S)

    async def _stay(self, line: Line) -> None:
        """Until it breaks; a server that says nothing for a while is left: it may be stopped."""
        while not line.ended.is_set() and not self.is_stopping:
            before = self.heard()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.5):
                    await line.ended.wait()
            if self.waits() and self.heard() == before:
                return

    def say_hello(self) -> None:
        raise NotImplementedError

    def take(self, frame: Frame) -> None:
        raise NotImplementedError

    def settle(self) -> None:
        """All that came is taken."""

    def heard(self) -> int:
        """A number that grows with what is heard."""
        raise NotImplementedError

    def waits(self) -> bool:
        """Whether an answer is owed to it."""
        raise NotImplementedError


class Submitter(Party):
    """Keeps so many submits unconfirmed; remembers every answer with its time."""

    def __init__(self, servers: str, *, outstanding: int = 64, payload: bytes = b"p" * 100) -> None:
        super().__init__(servers)
        self.outstanding = outstanding
        self.payload = payload
        self.jobs_max = 1 << 60
        self.unconfirmed: dict[bytes, float] = {}
        self.accepted: dict[str, int] = {}
        """Job id -> how often it was confirmed."""
        self.accepted_at: list[float] = []
        self.results: dict[str, list[str]] = {}
        """Job id -> final states that were told."""
        self.errors: list[str] = []
        self._is_ready = False
        self._prefix = b""
        self._sent = 0

    def say_hello(self) -> None:
        self._is_ready = False
        header = encode_header(h.HelloClientHeader(version=1, client_id="tester"))
        self.write(encode_frame(MsgType.HELLO_CLIENT, secrets.token_bytes(16), header=header))

    def take(self, frame: Frame) -> None:
        if frame.type == MsgType.HELLO_CLIENT:
            self._is_ready = True
            log_ms = header_of(frame, h.HelloAnswerHeader).log_at_us // 1000
            self._prefix = log_ms.to_bytes(6, "big") + b"\x70" + secrets.token_bytes(3)
            for job_id in self.unconfirmed:
                self._send(job_id)
        elif frame.type == MsgType.ACCEPTED:
            if self.unconfirmed.pop(frame.corr_id, None) is not None:
                self.accepted_at.append(time.monotonic())
            job_id = frame.msg_id.hex()
            self.accepted[job_id] = self.accepted.get(job_id, 0) + 1
        elif frame.type == MsgType.RESULT:
            state = header_of(frame, j.ResultHeader).state
            self.results.setdefault(frame.corr_id.hex(), []).append(state)
        elif frame.type == MsgType.ERROR:
            error = header_of(frame, h.ErrorHeader)
            if not error.retryable:
                self.errors.append(f"{error.code}: {error.text}")
            elif frame.corr_id in self.unconfirmed:
                self._send(frame.corr_id)

    def _send(self, job_id: bytes) -> None:
        self.write(
            encode_frame(MsgType.SUBMIT_JOB, job_id, subject=f"job.submit.{EXEC}", payload=self.payload)
        )

    def settle(self) -> None:
        while (
            self._is_ready
            and not self.is_stopping
            and len(self.unconfirmed) < self.outstanding
            and self._sent < self.jobs_max
        ):
            self._sent += 1
            job_id = self._prefix + self._sent.to_bytes(6, "big")
            self.unconfirmed[job_id] = time.monotonic()
            self._send(job_id)

    def heard(self) -> int:
        return len(self.accepted) + len(self.errors)

    def waits(self) -> bool:
        return bool(self.unconfirmed) or not self._is_ready


class Runner(Party):
    """A worker that acks whatever it is assigned, and keeps outcomes until they are confirmed."""

    def __init__(self, servers: str, *, credit: int = 64) -> None:
        super().__init__(servers)
        self.credit = credit
        self.runs: dict[str, int] = {}
        """Job id -> how often its handler ran."""
        self._instance = secrets.token_hex(8)
        self._seen = self._acks = self._heard = 0
        self._kept: list[tuple[int, bytes, tuple[int, int]]] = []
        self._batch: list[tuple[bytes, tuple[int, int]]] = []
        self._is_greeted = False

    def say_hello(self) -> None:
        self._seen = self._acks = 0
        self._is_greeted = False
        listed = h.HeldList(outcomes=tuple(h.HeldOutcome(job.hex(), fence) for _, job, fence in self._kept))
        hello = h.HelloWorkerHeader(
            version=1,
            worker_id="runner",
            instance=self._instance,
            patterns=(f"job.assign.{EXEC}",),
            hands=self.credit,
            credit=self.credit,
        )
        self.write(
            encode_frame(
                MsgType.HELLO_WORKER,
                secrets.token_bytes(16),
                header=encode_header(hello),
                payload=encode_header(listed),
            )
        )

    def take(self, frame: Frame) -> None:
        self._heard += 1
        if frame.type == MsgType.HELLO_WORKER:
            self._is_greeted = True
            kept, self._kept = self._kept, []
            for _, job_id, fence in kept:
                self._ack(job_id, fence)
        elif frame.type == MsgType.ASSIGN_JOB:
            self._seen += 1
            header = header_of(frame, j.AssignJobHeader)
            self.runs[frame.msg_id.hex()] = self.runs.get(frame.msg_id.hex(), 0) + 1
            self._batch.append((frame.msg_id, header.fence))
        elif frame.type == MsgType.ACK_DONE:
            seq = header_of(frame, j.AckDoneHeader).seq
            self._kept = [each for each in self._kept if each[0] > seq]

    def settle(self) -> None:
        batch, self._batch = self._batch, []
        for at in range(0, len(batch), 256):
            jobs = tuple(j.StartedJob(job_id.hex(), fence) for job_id, fence in batch[at : at + 256])
            self.write(encode_frame(MsgType.STARTED, header=encode_header(j.StartedHeader(jobs))))
        for job_id, fence in batch:
            self._ack(job_id, fence)

    def _ack(self, job_id: bytes, fence: tuple[int, int]) -> None:
        self._acks += 1
        self._kept.append((self._acks, job_id, fence))
        ack = j.AckJobHeader(fence, self._acks, run_us=5, credit=(self._seen, self.credit))
        self.write(encode_frame(MsgType.ACK_JOB, NO_ID, job_id, header=encode_header(ack), payload=b"r"))

    def heard(self) -> int:
        return self._heard

    def waits(self) -> bool:
        return bool(self._kept) or not self._is_greeted


@contextlib.contextmanager
def running(*parties: Party) -> Iterator[None]:
    """They live in a thread of their own, for as long as the block does."""
    failures: list[BaseException] = []

    async def live() -> None:
        await asyncio.gather(*(party.run() for party in parties))

    def work() -> None:
        try:
            asyncio.run(live())
        except BaseException as error:
            failures.append(error)
            raise

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        for party in parties:
            party.is_stopping = True
        thread.join(timeout=30)
    assert not failures, failures
