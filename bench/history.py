"""A log like a busy queue's: submits, assigns, acks, some failures, made by the real decisions."""

from collections.abc import Iterator

from rollmq.core.attempts import Outcome
from rollmq.core.effects import Assigned
from rollmq.core.intake import Submit
from rollmq.core.leader import Leader, SegmentFacts
from rollmq.core.liveness import Hello
from rollmq.core.machine import Machine
from rollmq.core.segment_digest import SegmentDigest
from rollmq.limits import MARKER_EVERY_ENTRIES

START_US = 1_763_490_000_000_000
GROUP = "0" * 32


def job_id(number: int, at_us: int) -> str:
    """A UUIDv7 in log time, numbered instead of random."""
    return f"{at_us // 1000:012x}7{number:019x}"


class Busy:
    """A leader with clients and workers attached, and no log: its lines are taken, its effects obeyed."""

    def __init__(self, *, execs: int = 10, clients: int = 10, workers: int = 4, credit: int = 64) -> None:
        self.machine = Machine()
        self.leader = Leader(self.machine, term=1, jitter=lambda: 0.5, now_us=START_US)
        self.leader.found_group(group=GROUP, node_ids=["1" * 32])
        self.now_us = START_US
        self.submitted_count = 0
        self._execs = [f"exec{number}" for number in range(execs)]
        self._clients = [f"client{number}" for number in range(clients)]
        self._sent: dict[str, int] = {}
        self._credit = credit
        for number in range(workers):
            name = f"worker{number}"
            self._sent[name] = 0
            hello = Hello(name, name, ["job.assign.>"], hands=credit, credit=credit)
            assert self.leader.liveness.hello(hello) is None

    def submit(self, count: int, payload: bytes = b"p" * 100) -> None:
        """Submit jobs, execs and clients in turn."""
        for _ in range(count):
            number = self.submitted_count
            self.submitted_count += 1
            self.now_us += 20
            self.leader.desk.set_time(self.now_us)
            client = self._clients[number % len(self._clients)]
            exec_name = self._execs[number // len(self._clients) % len(self._execs)]
            self.leader.intake.submit(Submit(job_id(number, self.now_us), client, exec_name, payload), None)

    def work(self) -> int:
        """Hand out what can be handed out and let the workers answer; how many attempts that were."""
        self.leader.schedule()
        attempts = 0
        for effect in self.leader.desk.take_effects():
            if type(effect) is Assigned:
                attempts += 1
                self._answer(effect, is_ok=attempts % 20 != 0)
        return attempts

    def _answer(self, effect: Assigned, *, is_ok: bool) -> None:
        worker_id, job = effect.event.worker_id, effect.job
        assert job.fence is not None
        self._sent[worker_id] += 1
        self.leader.attempts.begin(worker_id, job.id, job.fence)
        outcome = Outcome(
            job.id, job.fence, is_ok=is_ok, result=b"r" * 16, run_us=50, error_type="E", after_us=0
        )
        self.leader.attempts.outcome(worker_id, outcome)
        self.leader.liveness.credit(worker_id, self._sent[worker_id], self._credit)

    def lines(self) -> list[bytes]:
        """What was decided since the last call."""
        return self.leader.desk.take_lines()


def busy_log(job_count: int) -> Iterator[list[bytes]]:
    """The lines of a log in which this many jobs are submitted and run, in batches."""
    busy = Busy()
    while busy.submitted_count < job_count:
        busy.submit(200)
        busy.work()
        yield busy.lines()
    while busy.work():
        yield busy.lines()


def marked_log(job_count: int, *, is_worked: bool) -> Iterator[bytes]:
    """A whole log with its markers, as a leader writes it; without work the jobs stay queued."""
    busy = Busy(workers=4 if is_worked else 0)
    digest = SegmentDigest(group=GROUP, first_index=1)

    def taken() -> list[bytes]:
        lines = busy.lines()
        digest.add_all(lines)
        return lines

    while busy.submitted_count < job_count:
        busy.submit(200)
        while is_worked and busy.work():
            pass
        yield from taken()
        if (
            digest.next_index - digest.first_index >= MARKER_EVERY_ENTRIES
            or busy.submitted_count >= job_count
        ):
            busy.leader.mark(SegmentFacts(digest.first_index, digest.byte_count, digest.hexdigest()))
            busy.leader.desk.take_effects()
            yield from taken()
