"""Attempts that run: who holds which job, and which answers still count.

It decides nothing: the leader asks it, the machine tells it.
"""

from rollmq.core.events import Fence
from rollmq.core.job import INFLIGHT, LATE_ACK_AFTER, QUEUED, Job, weight_of


class Inflight:
    """Jobs in flight by worker, each worker's in the order in which they were assigned."""

    def __init__(self) -> None:
        self.by_worker: dict[str, dict[str, Job]] = {}
        self.count = 0
        self.size_bytes = 0
        """What these jobs weigh."""

    def begin(self, job: Job) -> None:
        """The job is in its worker's hands."""
        held = self.by_worker.get(job.worker_id)
        if held is None:
            held = self.by_worker[job.worker_id] = {}
        assert job.id not in held
        held[job.id] = job
        self.count += 1
        self.size_bytes += weight_of(job)

    def end(self, job: Job) -> None:
        """It no longer is."""
        held = self.by_worker[job.worker_id]
        del held[job.id]
        if not held:
            del self.by_worker[job.worker_id]
        self.count -= 1
        self.size_bytes -= weight_of(job)

    def held_by(self, worker_id: str) -> dict[str, Job]:
        """What a worker holds, oldest assignment first; empty when it holds nothing."""
        return self.by_worker.get(worker_id) or {}


def is_current(job: Job, fence: Fence | None) -> bool:
    """Whether this fence is of the attempt that runs now."""
    return job.state == INFLIGHT and job.fence == fence


def may_ack_late(job: Job, fence: Fence) -> bool:
    """Whether a success with this fence still counts although its attempt was ended.

    It was the last attempt, it was ended by timeout or by loss of its worker, and nobody else got the
    job since: taking the answer then saves a run and cannot contradict another.
    """
    return job.state == QUEUED and job.fence == fence and job.ended_by in LATE_ACK_AFTER
