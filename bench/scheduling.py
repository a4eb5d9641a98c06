"""Assignments per second at very different sizes: the cost of one must not grow with any of them."""

import gc
import time
from collections.abc import Iterator

from bench.history import START_US, job_id
from bench.machine_limits import Row
from rollmq.core.attempts import Outcome
from rollmq.core.effects import Assigned
from rollmq.core.intake import Submit
from rollmq.core.leader import Leader
from rollmq.core.liveness import Hello
from rollmq.core.machine import Machine

SMALL = (1_000, 1, 10)
SIZES = (
    (10, 1, 10),
    SMALL,
    (1_000_000, 1, 10),
    (100_000, 10_000, 10),
    (1_000, 1, 2_000),
    (1_000_000, 10_000, 2_000),
)
STEPS = 20_000


def run() -> list[Row]:
    """Assignments per second by queued jobs, execs and workers, each beside the small size's rate."""
    gc.disable()
    rows: list[Row] = []
    base = assignments_per_second(*SMALL)
    for queued, execs, workers in SIZES:
        speed = assignments_per_second(queued, execs, workers)
        name = f"assign + ack + submit at {queued:,} queued, {execs:,} execs, {workers:,} workers"
        rows.append((name, speed, f"/s, {speed / base:.2f} of the small size"))
    return rows


def assignments_per_second(queued: int, execs: int, workers: int) -> float:
    """Keep a backlog of this size: each step assigns, ends and replaces one job."""
    machine = Machine()
    leader = Leader(machine, term=1, jitter=lambda: 0.5, now_us=START_US)
    numbers = iter(range(10**9))
    for _ in range(queued):
        _submit(leader, numbers, execs)
    for number in range(workers):
        hello = Hello(f"w{number}", "i", ["job.assign.>"], hands=4, credit=1)
        assert leader.liveness.hello(hello) is None
    sent = {f"w{number}": 0 for number in range(workers)}
    leader.desk.take_effects()
    leader.desk.take_lines()
    done = 0
    begin = time.perf_counter()
    while done < STEPS:
        leader.schedule()
        for effect in leader.desk.take_effects():
            if type(effect) is Assigned:
                done += 1
                _end(leader, effect, sent)
                _submit(leader, numbers, execs)
        leader.desk.take_lines()
    speed = done / (time.perf_counter() - begin)
    leader.desk.queues.dispose()
    return speed


def _submit(leader: Leader, numbers: Iterator[int], execs: int) -> None:
    number = next(numbers)
    leader.intake.submit(
        Submit(job_id(number, START_US), f"c{number % 10}", f"exec{number % execs}", b"p" * 16), None
    )


def _end(leader: Leader, effect: Assigned, sent: dict[str, int]) -> None:
    worker_id, job = effect.event.worker_id, effect.job
    assert job.fence is not None
    sent[worker_id] += 1
    leader.attempts.outcome(worker_id, Outcome(job.id, job.fence))
    leader.liveness.credit(worker_id, sent[worker_id], 1)
