"""Clients: they submit, resend what was not answered, ask again for results, and check what they are told."""

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

import msgspec

from rollmq.library.dialog import Dialog, hello_frame
from rollmq.wire import headers as h
from rollmq.wire import job_headers as j
from rollmq.wire.codec import encode_header, encode_payload, header_of
from rollmq.wire.message import NO_ID, Frame, MsgType
from rollmq.wire.readers import submit_subject
from tests.sim.party import Party, Town
from tests.sim.swarm import MS, Swarm
from tests.sim.world import SECOND_US, Violation, World

PENDING: Final = "pending"
ACCEPTED: Final = "accepted"
REFUSED: Final = "refused"
UNKNOWN: Final = "unknown"
ENDED: Final = "ended"
ASK_AGAIN_US: Final = 8 * SECOND_US
PATIENCE: Final = 5
FULL: Final = frozenset({"queue_full", "keys_full", "paused"})
"""What may stay refused for good: no worker empties the queue, keys are remembered for a day."""


@dataclass(slots=True)
class Mine:
    """A job as its client sees it."""

    job_id: str
    subject: str
    header: j.SubmitJobHeader
    payload: bytes
    state: str = PENDING
    first_id: str = ""
    """The job that the answer named: another one when a key was repeated."""
    sent_count: int = 0
    told: str = ""
    refused_count: int = 0
    """In the calm; there its caller loses patience with a bound that will not move."""


class Speaker(Dialog):
    """Carries what a client says."""

    def __init__(self, client: "SimClient") -> None:
        super().__init__()
        self._client = client

    def make_hello(self) -> Frame:
        client = self._client
        header = h.HelloClientHeader(
            version=1, client_id=client.client_id, cap=client.cap, weight=client.weight, release="sim"
        )
        return hello_frame(MsgType.HELLO_CLIENT, self.next_request_id(), header)

    def on_ready(self, answer: h.HelloAnswerHeader) -> None:
        self._client.on_ready(answer)

    def on_frame(self, frame: Frame) -> None:
        self._client.on_frame(frame)


class SimClient(Party):
    """One session's process of a client."""

    def __init__(
        self, world: World, town: Town, swarm: Swarm, name: str, client_id: str, jobs_max: int
    ) -> None:
        super().__init__(world, town, swarm, name)
        self.client_id = client_id
        self.jobs: dict[str, Mine] = {}
        self.submits_left = jobs_max
        traffic = swarm.traffic
        self.cap = world.random.randint(1, 4) if world.happens(traffic.capped) else 0
        self.weight = world.random.choice((1, 1, 3))
        self._log_us = 0
        self._log_read_us = 0
        self._asked: dict[bytes, str] = {}
        world.after(world.between((0, SECOND_US)), lambda: self.begin(Speaker(self)))
        world.after(world.between((0, SECOND_US)), self._submit_some)
        world.after(ASK_AGAIN_US, self._ask_again)

    # -- submitting

    def _submit_some(self) -> None:
        """A burst now, another later."""
        if self.submits_left <= 0:
            return
        if self.is_ready:
            count = min(self.world.random.randint(1, self.swarm.traffic.burst), self.submits_left)
            self.submits_left -= count
            for _ in range(count):
                self._send(self._new_job())
        self.world.after(self.world.rarely(self.swarm.traffic.submit_every_us), self._submit_some)

    def _new_id(self) -> str:
        at_ms = (self._log_us + self.world.now_us - self._log_read_us) // 1000
        return f"{at_ms:012x}7{self.world.random.getrandbits(76):019x}"

    def _new_job(self) -> Mine:
        world, traffic = self.world, self.swarm.traffic
        kind = world.random.choices(list(traffic.kinds), list(traffic.kinds.values()))[0]
        job_id = self._new_id()
        payload = f"{kind} {self.name} ".encode() + bytes(world.random.randint(0, traffic.payload_bytes))
        key = digest = ""
        if world.happens(traffic.keyed):
            key = f"k{world.random.randrange(8)}"
            payload = f"{kind} {key} {int(world.happens(0.1))}".encode()
            digest = sha256(payload).hexdigest()
        header = j.SubmitJobHeader(
            key=key,
            content_digest=digest,
            priority=world.random.randrange(10) if world.happens(traffic.prioritised) else 0,
            delay_us=world.between((MS, 60 * SECOND_US)) if world.happens(traffic.delayed) else 0,
            expires_in_us=world.between((MS, 30 * SECOND_US)) if world.happens(traffic.expiring) else 0,
            timeout_us=(2 if world.happens(traffic.short_timeout) else 60) * SECOND_US,
            timeout_factor=world.random.choice((1.0, 2.0)),
            tries_max=world.random.choice((1, 2, 5)),
            backoff=world.random.choice(
                (None, j.BackoffOptions(10 * MS, 2.0, SECOND_US, 0.5), j.BackoffOptions(0, 1.0, 0, 0.0))
            ),
        )
        exec_name = f"exec{world.random.randrange(traffic.execs)}"
        job = self.jobs[job_id] = Mine(job_id, submit_subject(exec_name), header, payload)
        return job

    def _send(self, job: Mine) -> None:
        header = job.header if job.sent_count == 0 else msgspec.structs.replace(job.header, resend=True)
        frame = Frame(
            MsgType.SUBMIT_JOB,
            bytes.fromhex(job.job_id),
            subject=job.subject,
            header=encode_header(header),
            payload=job.payload,
        )
        if not self.send(frame):
            return
        job.sent_count += 1
        if self.world.happens(self.swarm.traffic.resend) and not self.world.is_calm:
            self.world.after(self.world.between((0, 5 * SECOND_US)), lambda: self._send(job))
        if self.world.happens(self.swarm.traffic.cancel) and not self.world.is_calm:
            self.world.after(self.world.between((0, 5 * SECOND_US)), lambda: self._cancel(job))

    def _cancel(self, job: Mine) -> None:
        self.send(Frame(MsgType.CANCEL, self.next_id(), bytes.fromhex(job.first_id or job.job_id)))

    # -- the connection

    @property
    def is_ready(self) -> bool:
        """Whether anything can be said."""
        return self.is_alive and self.dialog.is_ready

    def next_id(self) -> bytes:
        """For a request that is no job."""
        return self.dialog.next_request_id()

    def send(self, frame: Frame) -> bool:
        """Say it if it may be said now; whether it was."""
        if not self.is_ready or not self.dialog.can_say(MsgType(frame.type)):
            return False
        self.dialog.say(frame)
        self._main.write()
        return True

    def on_ready(self, answer: h.HelloAnswerHeader) -> None:
        self._log_us = answer.log_at_us
        self._log_read_us = self.world.now_us
        self._asked.clear()
        self._ask()

    def _ask_again(self) -> None:
        """Whatever is not answered is asked for again: answers may be lost as well as questions."""
        self._ask()
        self.world.after(ASK_AGAIN_US, self._ask_again)

    def _ask(self) -> None:
        if not self.is_ready:
            return
        for job in list(self.jobs.values()):
            if job.state == PENDING:
                self._send(job)
            elif job.state == ACCEPTED:
                self._ask_for(job)

    def _ask_for(self, job: Mine) -> None:
        msg_id = self.next_id()
        self._asked[msg_id] = job.first_id
        header = encode_header(h.QueryHeader(name="result"))
        payload = encode_payload({"job_id": job.first_id})
        self.send(Frame(MsgType.QUERY, msg_id, NO_ID, "", header, payload))

    # -- what it is told

    def on_frame(self, frame: Frame) -> None:
        take: dict[int, Callable[[Frame], None]] = {
            MsgType.ACCEPTED: self._on_accepted,
            MsgType.ERROR: self._on_error,
            MsgType.RESULT: self._on_result,
            MsgType.REPLY: self._on_reply,
        }
        if frame.type in take:
            take[frame.type](frame)

    def _on_accepted(self, frame: Frame) -> None:
        job = self.jobs.get(frame.corr_id.hex())
        if job is None:
            return  # of a cancel
        first_id = frame.msg_id.hex()
        if first_id not in self.oracle.ledger.jobs:
            raise Violation(f"P1: {self.name} is told of {first_id}, which is not in the log")
        if job.state in (PENDING, UNKNOWN, REFUSED):
            job.state, job.first_id = ACCEPTED, first_id
            if first_id != job.job_id:
                self._ask_for(job)

    def _on_error(self, frame: Frame) -> None:
        header = header_of(frame, h.ErrorHeader)
        job = self.jobs.get(frame.corr_id.hex())
        if job is None or job.state != PENDING:
            return
        self.oracle.counts[f"refused {header.code}"] += 1
        if header.code in ("too_old_to_tell", "id_in_future") and job.sent_count == 1:
            del self.jobs[job.job_id]
            job.job_id, job.sent_count = self._new_id(), 0
            self.jobs[job.job_id] = job
            self.world.after(self.world.between((MS, SECOND_US)), lambda: self._send(job))
        elif header.unknown:
            job.state = UNKNOWN
        elif not header.retryable:
            job.state = REFUSED
        elif self.world.is_calm and header.code in FULL:
            job.refused_count += 1
            if job.refused_count > PATIENCE:
                job.state = REFUSED

    def _on_result(self, frame: Frame) -> None:
        header = header_of(frame, j.ResultHeader)
        if header.final:
            self._ended(frame.corr_id.hex(), header.state, frame.payload if header.state == "done" else b"")

    def _on_reply(self, frame: Frame) -> None:
        asked = self._asked.pop(frame.corr_id, None)
        if asked is None:
            return  # a repeat
        state = msgspec.json.decode(frame.payload)["state"]
        if state == "unknown":
            raise Violation(f"P1: {self.name} asks for {asked}, which was accepted, and it is unknown")
        if state == "too_old_to_tell":
            for job in self._known_as(asked):
                # The answer is for those who hold a receipt; to the others the job is as unknown as before.
                if job.state == ACCEPTED:
                    job.state, job.told = ENDED, state
        elif state == "expired":
            self._ended(asked, "done", None)

    def _known_as(self, job_id: str) -> list[Mine]:
        mine = self.jobs.get(job_id)
        found = [mine] if mine is not None else []
        return found + [job for job in self.jobs.values() if job.first_id == job_id and job is not mine]

    def _ended(self, job_id: str, state: str, result: bytes | None) -> None:
        self.oracle.final_received(job_id, state, result)
        for job in self._known_as(job_id):
            # Sent once more after its key had aged, a repeat is a job of its own, with an end of its own.
            is_same = job.first_id == job_id
            is_contradicted = is_same and job.state == ENDED and job.told == "done" and state != "done"
            if is_contradicted and self.swarm.net.is_orderly:  # or the end of an earlier life came late
                raise Violation(f"P2: {job_id} was told to be done, now it is {state}")
            if job.state != PENDING:
                job.state, job.told, job.first_id = ENDED, state, job_id

    @property
    def is_answered(self) -> bool:
        """Whether nothing is open for this client."""
        return self.submits_left <= 0 and all(job.state != PENDING for job in self.jobs.values())
