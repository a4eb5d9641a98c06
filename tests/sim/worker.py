"""Workers: they hold, start, run, fail, hang and die, and repeat an outcome until it is confirmed.

What a handler does follows from the first word of its payload, so that a job can be a poison for whoever
runs it. A worker's process may die and come back as another instance under the same id.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from rollmq.core.events import Fence
from rollmq.wire import headers as h
from rollmq.wire import job_headers as j
from rollmq.wire.codec import encode_header, encode_payload, header_of
from rollmq.wire.message import NO_ID, Frame, MsgType
from tests.sim.node import SimNode
from tests.sim.party import Party
from tests.sim.swarm import MS, Swarm
from tests.sim.world import SECOND_US, Timer, Violation, World

NEVER_US: Final = 1 << 60
ACK_AGAIN_US: Final = 10 * SECOND_US


@dataclass(slots=True)
class HeldJob:
    """A job in a worker's hands."""

    job_id: str
    fence: Fence
    payload: bytes
    timeout_us: int
    tries: int
    started_us: int | None = None
    timer: Timer | None = None
    is_hanging: bool = False
    is_void: bool = False
    """It was to stop, and runs on."""
    outcome: tuple[j.AckJobHeader, bytes] | None = None
    """Its ack's header, but for its number and credit, and payload."""

    @property
    def is_running(self) -> bool:
        return self.started_us is not None and self.outcome is None


class SimWorker(Party):
    """One worker: the same id for ever, one instance after the other."""

    def __init__(self, world: World, node: SimNode, swarm: Swarm, name: str) -> None:
        super().__init__(world, node, swarm, name)
        self.hands = world.random.choice((1, 2, 4))
        self.capacity = self.hands * world.random.choice((1, 2, 4))
        self.patterns = self._draw_patterns()
        self.instance = ""
        self.jobs: dict[tuple[str, Fence], HeldJob] = {}
        self.is_draining = False
        self._seen_seq = 0
        self._ack_seq = 0
        self._sent: dict[int, tuple[str, Fence]] = {}
        """By number on this connection: acks that are not confirmed."""
        self._be_born()
        for every_us, fate in (
            (swarm.workers.die_every_us, self._die_by_chance),
            (swarm.workers.drain_every_us, self._drain_by_chance),
        ):
            if every_us:
                world.after(world.rarely(every_us), fate)
        world.after(ACK_AGAIN_US, self._ack_again)

    def _draw_patterns(self) -> list[str]:
        execs, random = self.swarm.traffic.execs, self.world.random
        if self.world.happens(self.swarm.traffic.unmatched):
            return [f"job.assign.exec{n}" for n in range(execs) if random.random() < 0.5] or [
                "job.assign.none"
            ]
        return random.choice(
            (["job.assign.>"], ["job.assign.*"], [f"job.assign.exec{n}" for n in range(execs)])
        )

    # -- life and death

    def _be_born(self) -> None:
        self.is_alive, self.is_draining = True, False
        self.instance = f"{self.world.random.getrandbits(64):016x}"
        self.jobs.clear()
        self.world.after(self.world.between((0, SECOND_US)), self.dial)

    def die(self, why: str) -> None:
        """The process is gone, with all that it held."""
        if not self.is_alive:
            return
        self.world.say(self.name, f"dies: {why}")
        self.node.oracle.counts["dead workers"] += 1
        self.is_alive = False
        link, self.link = self.link, None
        self.session.close()
        for job in self.jobs.values():
            _stop_timer(job)
        self.jobs.clear()
        if link is not None:
            if self.world.happens(self.swarm.workers.silent) and not self.world.is_calm:
                link.a.vanish()
            else:
                link.snap()
                link.a.is_open = False
        self.world.after(self.world.between((10 * MS, 20 * SECOND_US)), self._be_born)

    def _die_by_chance(self) -> None:
        if not self.world.is_calm:
            self.die("by chance")
            self.world.after(self.world.rarely(self.swarm.workers.die_every_us), self._die_by_chance)

    def _drain_by_chance(self) -> None:
        if not self.world.is_calm:
            self.drain()
            self.world.after(self.world.rarely(self.swarm.workers.drain_every_us), self._drain_by_chance)

    def drain(self) -> None:
        """A polite end: hand back what has not started, finish what runs, go when all is confirmed."""
        if not self.session.is_ready or self.is_draining:
            return
        self.world.say(self.name, "drains")
        self.is_draining = True
        self.send(Frame(MsgType.GOODBYE))
        for job in list(self.jobs.values()):
            if job.started_us is None:
                self._hand_back(job, "drained")
        self._leave_if_done()

    def _leave_if_done(self) -> None:
        if self.is_draining and not self.jobs:
            self.world.say(self.name, "leaves")
            self.is_alive = False
            link, self.link = self.link, None
            self.session.close()
            if link is not None:
                link.a.close()
            self.world.after(self.world.between((10 * MS, 20 * SECOND_US)), self._be_born)

    def calm_down(self) -> None:
        """The storm is over. A handler that hangs does so until it is stopped for its timeout."""
        for job in list(self.jobs.values()):
            if job.is_hanging and job.is_void:
                job.timer = self.world.after(SECOND_US, partial(self._return, job))

    # -- the connection

    def hello(self) -> Frame:
        # What was handed back need not be listed: the job then goes back to the queue at once.
        for key, job in list(self.jobs.items()):
            if job.outcome is not None and job.outcome[0].what == "hand_back":
                del self.jobs[key]
        header = h.HelloWorkerHeader(
            version=1,
            worker_id=self.name,
            instance=self.instance,
            patterns=self.patterns,
            hands=self.hands,
            credit=self._credit(),
            host="sim",
        )
        held = [
            h.Held(
                job.job_id,
                job.fence,
                job.started_us is not None,
                self.world.now_us - (job.started_us or self.world.now_us),
                max(job.timeout_us - self.world.now_us + job.started_us, 0)
                if job.started_us is not None
                else 0,
            )
            for job in self.jobs.values()
            if job.outcome is None
        ]
        outcomes = [
            h.HeldOutcome(job.job_id, job.fence) for job in self.jobs.values() if job.outcome is not None
        ]
        payload = encode_payload(h.HeldList(held, outcomes))
        return Frame(MsgType.HELLO_WORKER, self.next_id(), header=encode_header(header), payload=payload)

    def on_ready(self, answer: Frame) -> None:
        del answer
        self._seen_seq = self._ack_seq = 0
        self._sent.clear()
        for job in list(self.jobs.values()):
            if job.outcome is not None:
                self._send_ack(job)
        if self.is_draining:
            self.is_draining = False
            self.drain()
        else:
            self._start_more()

    def _ack_again(self) -> None:
        """Acks are repeated until they are confirmed."""
        if self.session.is_ready:
            for job in list(self.jobs.values()):
                if job.outcome is not None:
                    self._send_ack(job)
        self.world.after(ACK_AGAIN_US, self._ack_again)

    def _credit(self) -> int:
        if self.is_draining:
            return 0
        return max(self.capacity - sum(job.outcome is None for job in self.jobs.values()), 0)

    def _give_credit(self) -> None:
        header = j.CreditHeader(self._seen_seq, self._credit())
        self.send(Frame(MsgType.CREDIT, header=encode_header(header)))

    # -- jobs come

    def on_frame(self, frame: Frame) -> None:
        take: dict[int, Callable[[Frame], None]] = {
            MsgType.ASSIGN_JOB: self._on_assign,
            MsgType.ACK_DONE: self._on_ack_done,
            MsgType.CANCEL: self._on_cancel,
        }
        if frame.type in take:
            take[frame.type](frame)

    def _on_assign(self, frame: Frame) -> None:
        header = header_of(frame, j.AssignJobHeader)
        key = (frame.msg_id.hex(), header.fence)
        self._seen_seq = max(self._seen_seq, header.seq)
        if key in self.jobs or key in self.node.oracle.runs:
            if self.swarm.net.is_orderly:
                raise Violation(f"P3: {self.name} gets attempt {header.fence} of {key[0]} twice")
            return
        if self.swarm.net.is_orderly and self._credit() <= 0 and not self.is_draining:
            raise Violation(f"P4: {self.name} gets {key[0]}, and it has no room")
        job = HeldJob(key[0], header.fence, frame.payload, header.timeout_us, header.tries)
        self.jobs[key] = job
        if self.is_draining:
            self._hand_back(job, "drained")
        elif self.world.happens(self.swarm.workers.hand_back) and not self.world.is_calm:
            self._hand_back(job, "refused")
        else:
            self._start_more()

    def _hand_back(self, job: HeldJob, reason: str) -> None:
        job.outcome = (j.AckJobHeader(job.fence, 0, ok=False, what="hand_back", reason=reason), b"")
        self._send_ack(job)

    def _start_more(self) -> None:
        running = sum(job.is_running for job in self.jobs.values())
        for job in list(self.jobs.values()):
            if running >= self.hands or not self.is_alive:
                return
            if job.started_us is None and job.outcome is None and self.session.is_ready:
                self._start(job)
                running += 1

    def _start(self, job: HeldJob) -> None:
        """The handler runs."""
        world, faults = self.world, self.swarm.workers
        job.started_us = world.now_us
        if world.is_calm or not world.happens(faults.drop_started):
            header = j.StartedHeader([j.StartedJob(job.job_id, job.fence)])
            self.send(Frame(MsgType.STARTED, header=encode_header(header)))
        self.node.oracle.run_began(job.job_id, job.fence)
        kind = job.payload.split(b" ")[0].decode()
        run_us = world.between(faults.run_us)
        if kind == "slow":
            run_us += world.between((SECOND_US, 20 * SECOND_US))
        if kind == "poison":
            job.timer = world.after(run_us, lambda: self.die(f"of {job.job_id}"))
        elif not world.is_calm and world.happens(faults.hang):
            job.is_hanging = True
        else:
            if kind == "patient":
                world.after(run_us // 2, lambda: self._extend(job))
            job.timer = world.after(run_us, lambda: self._return(job))

    def _extend(self, job: HeldJob) -> None:
        if job.is_running and self.jobs.get((job.job_id, job.fence)) is job:
            header = j.ResultHeader(final=False, state="running", fence=job.fence, extend_us=5 * SECOND_US)
            self.send(Frame(MsgType.RESULT, corr_id=bytes.fromhex(job.job_id), header=encode_header(header)))
            job.timeout_us += 5 * SECOND_US

    def _return(self, job: HeldJob) -> None:
        """The handler returned or raised."""
        if self.jobs.get((job.job_id, job.fence)) is not job or job.outcome is not None:
            return
        assert job.started_us is not None
        job.outcome = self._outcome_of(job, self.world.now_us - job.started_us)
        header, payload = job.outcome
        self.node.oracle.run_ended(job.job_id, job.fence, payload if header.ok else b"")
        if self.world.happens(self.swarm.workers.late_ack) and not self.world.is_calm:
            self.world.after(self.world.between((SECOND_US, 30 * SECOND_US)), lambda: self._send_ack(job))
        else:
            self._send_ack(job)
        self._start_more()

    def _outcome_of(self, job: HeldJob, run_us: int) -> tuple[j.AckJobHeader, bytes]:
        random, calm = self.world.random, self.world.is_calm
        kind = job.payload.split(b" ")[0].decode()
        is_bad = kind == "failing" or (kind == "flaky" and random.random() < 0.5)
        if is_bad:
            after_us = random.choice((None, 0, 3 * SECOND_US))
            bad = j.AckJobHeader(
                job.fence, 0, ok=False, what="retry", after_us=after_us, run_us=run_us, error_type="Bad"
            )
            return bad, b"detail"
        if kind == "rejecting":
            return j.AckJobHeader(job.fence, 0, ok=False, what="reject", run_us=run_us, error_type="No"), b""
        if kind == "snoozing" and not calm and random.random() < 0.7:
            pause_us = self.world.between((0, 5 * SECOND_US))
            return j.AckJobHeader(
                job.fence, 0, ok=False, what="snooze", after_us=pause_us, run_us=run_us
            ), b""
        result = f"{job.job_id[-8:]} {job.fence} {self.name} {self.instance}".encode()
        return j.AckJobHeader(job.fence, 0, run_us=run_us), result

    # -- answers

    def _send_ack(self, job: HeldJob) -> None:
        if job.outcome is None or self.jobs.get((job.job_id, job.fence)) is not job:
            return
        header, payload = job.outcome
        self._ack_seq += 1
        numbered = j.AckJobHeader(
            **{
                **{name: getattr(header, name) for name in header.__struct_fields__},
                "seq": self._ack_seq,
                "credit": (self._seen_seq, self._credit()),
            }
        )
        corr_id = bytes.fromhex(job.job_id)
        frame = Frame(MsgType.ACK_JOB, NO_ID, corr_id, header=encode_header(numbered), payload=payload)
        if self.send(frame):
            self._sent[self._ack_seq] = (job.job_id, job.fence)
        else:
            self._ack_seq -= 1
        if self.world.happens(self.swarm.workers.repeat_ack) and not self.world.is_calm:
            self.world.after(self.world.between((0, 5 * SECOND_US)), lambda: self._send_ack(job))

    def _on_ack_done(self, frame: Frame) -> None:
        header = header_of(frame, j.AckDoneHeader)
        for seq in [seq for seq in self._sent if seq <= header.seq]:
            self.jobs.pop(self._sent.pop(seq), None)
        self._give_credit()
        self._leave_if_done()

    def _on_cancel(self, frame: Frame) -> None:
        header = header_of(frame, j.CancelHeader)
        assert header.fence is not None
        key = (frame.corr_id.hex(), header.fence)
        job = self.jobs.get(key)
        if header.what == "take_back":
            if job is None:
                job = self.jobs[key] = HeldJob(*key, b"", 0, 0)
                self._hand_back(job, "taken back")
            elif job.outcome is None and job.started_us is None:
                self._hand_back(job, "taken back")
            return
        if job is None or job.outcome is not None:
            return
        if job.started_us is not None and not (job.is_hanging and self.world.is_calm):
            job.is_void = self.world.happens(self.swarm.workers.ignores_stop)
            if job.is_void:
                return  # a thread cannot be stopped: its answer comes late, or never
        _stop_timer(job)
        del self.jobs[key]
        self._start_more()
        self._give_credit()
        self._leave_if_done()


def _stop_timer(job: HeldJob) -> None:
    if job.timer is not None:
        job.timer.cancel()
