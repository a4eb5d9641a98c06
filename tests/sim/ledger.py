"""A second, dumb account of what the log says: a few dicts, no indexes, no scheduler, no code of the queue.

It reads committed events in order and says so when one contradicts those before it. What the machine
does cleverly, this does plainly; where the two differ, one of them is wrong.
"""

from collections import Counter
from dataclasses import dataclass, field

from rollmq.core.events import (
    Ack,
    AnyEvent,
    Assign,
    Cancel,
    Client,
    Dlq,
    Drop,
    Ending,
    Enqueue,
    FailRequeue,
    Fence,
    Pause,
    Redrive,
    Resume,
    Settings,
    Worker,
    WorkerDownRequeue,
)
from tests.sim.world import Violation

LATE_AFTER = ("timeout_requeue", "lost")


@dataclass(slots=True)
class Entry:
    """What the log says of one job."""

    enqueue: Enqueue
    state: str = "queued"
    life: int = 1
    attempt: int = 0
    tries: int = 0
    fence: Fence | None = None
    worker_id: str = ""
    ended_by: str = ""
    not_before_us: int = 0
    finals: list[tuple[int, str, bytes]] = field(default_factory=list)
    """(life, state, result) of each life that ended."""


class Ledger:
    """The log so far."""

    def __init__(self) -> None:
        self.jobs: dict[str, Entry] = {}
        self.running: Counter[str] = Counter()
        """By client."""
        self.open: Counter[str] = Counter()
        self.caps: dict[str, tuple[int, str]] = {}
        """By client: its cap, and who set it."""
        self.may_be_forgotten: set[str] = set()
        """Clients that were idle since they last said their cap: it may be the default by now."""
        self.settings = Settings(0, 0, 0)
        self.paused: dict[str, bool] = {}
        self.workers: dict[str, Worker] = {}
        self.last: AnyEvent | None = None
        self.counts: Counter[str] = Counter()

    def read(self, event: AnyEvent) -> None:
        """The next committed event."""
        last = self.last
        if last is not None and (
            event.index != last.index + 1 or event.term < last.term or event.at_us < last.at_us
        ):
            raise Violation(f"entry {event.index} does not follow {last.index}")
        self.last = event
        self.counts[type(event).__name__] += 1
        if isinstance(event, Enqueue):
            self._enqueue(event)
        elif isinstance(event, Assign):
            self._assign(event)
        elif isinstance(event, Ending):
            self._ending(event)
        elif isinstance(event, Dlq | Cancel):
            self._dlq_or_cancel(event)
        elif isinstance(event, Redrive | Drop):
            self._redrive_or_drop(event)
        else:
            self._others(event)

    def _others(self, event: AnyEvent) -> None:
        if isinstance(event, Client):
            self.caps[event.client_id] = (event.cap, event.by)
            self.may_be_forgotten.discard(event.client_id)
        elif isinstance(event, Settings):
            self.settings = event
        elif isinstance(event, Pause):
            self.paused[event.exec] = event.submits
        elif isinstance(event, Resume):
            if self.paused.pop(event.exec, None) is None:
                raise Violation(f"entry {event.index} resumes {event.exec}, which is not paused")
        elif isinstance(event, Worker):
            self.workers[event.worker_id] = event

    def _enqueue(self, event: Enqueue) -> None:
        if event.job_id in self.jobs:
            raise Violation(
                f"P1: job {event.job_id} is accepted twice, the second time by entry {event.index}"
            )
        if self.paused.get(event.exec):
            raise Violation(f"job {event.job_id} is accepted while {event.exec} is paused for submits")
        self.open[event.client_id] += 1
        self.jobs[event.job_id] = Entry(event, not_before_us=event.not_before_us)

    def _assign(self, event: Assign) -> None:
        job = self.jobs.get(event.job_id)
        if job is None or job.state != "queued":
            raise Violation(
                f"P3: entry {event.index} assigns a job that is {job.state if job else 'unknown'}"
            )
        if event.attempt != job.attempt + 1:
            raise Violation(f"P3: attempt {event.attempt} of {event.job_id} follows attempt {job.attempt}")
        if event.at_us < job.not_before_us:
            raise Violation(f"{event.job_id} is assigned at {event.at_us}, before {job.not_before_us}")
        if job.enqueue.exec in self.paused:
            raise Violation(f"{event.job_id} is assigned while {job.enqueue.exec} is paused")
        if event.worker_id not in self.workers:
            raise Violation(f"entry {event.index}: the log does not know worker {event.worker_id}")
        expires_at_us = job.enqueue.expires_at_us if job.life == 1 else 0
        if expires_at_us and event.at_us > expires_at_us:
            raise Violation(f"{event.job_id} is assigned after it expired")
        client_id = job.enqueue.client_id
        cap = self._cap_of(client_id)
        if self.running[client_id] >= cap:
            raise Violation(
                f"P4: entry {event.index}: {client_id} has {self.running[client_id]} of cap {cap}"
            )
        self.running[client_id] += 1
        job.state, job.attempt, job.worker_id = "inflight", event.attempt, event.worker_id
        job.fence, job.ended_by = (event.term, event.index), ""

    def _cap_of(self, client_id: str) -> int:
        default = self.settings.cap_default
        cap = self.caps.get(client_id, (0, ""))[0] or default
        return max(cap, default) if client_id in self.may_be_forgotten else cap

    def _closed(self, client_id: str) -> None:
        """One open job less. Without any, a client and what it wished may be forgotten."""
        self.open[client_id] -= 1
        if not self.open[client_id] and not self.caps.get(client_id, (0, ""))[1]:
            self.may_be_forgotten.add(client_id)

    def _ending(self, event: Ending) -> None:
        job = self.jobs.get(event.job_id)
        if job is None or job.fence != event.fence or job.attempt != event.attempt:
            raise Violation(f"P3: entry {event.index} ends an attempt that is not the newest")
        is_late = job.state == "queued" and isinstance(event, Ack) and job.ended_by in LATE_AFTER
        if job.state != "inflight" and not is_late:
            raise Violation(f"P2: entry {event.index} ends {event.job_id}, which is {job.state}")
        self._count_tries(job, event)
        if job.state == "inflight":
            self.running[job.enqueue.client_id] -= 1
        if isinstance(event, Ack):
            self._final(job, "done", event.result)
            return
        job.state = "queued"
        job.ended_by = event.__struct_config__.tag  # type: ignore[assignment]
        if isinstance(event, WorkerDownRequeue):
            job.ended_by = "lost" if event.reason == "gone" else "returned"
            job.not_before_us = 0
        else:
            job.not_before_us = event.not_before_us  # type: ignore[attr-defined]
        if isinstance(event, FailRequeue) and not event.started:
            raise Violation(f"entry {event.index}: a handler failed that had not started")

    def _count_tries(self, job: Entry, event: Ending | Dlq | Cancel) -> None:
        if not job.tries <= event.tries <= job.tries + 1:
            raise Violation(f"P3: tries of {event.job_id} go from {job.tries} to {event.tries}")
        if event.tries > job.enqueue.tries_max:
            raise Violation(f"P3: {event.job_id} has had {event.tries} tries of {job.enqueue.tries_max}")
        job.tries = event.tries

    def _dlq_or_cancel(self, event: Dlq | Cancel) -> None:
        job = self.jobs.get(event.job_id)
        if job is None or job.state not in ("queued", "inflight"):
            raise Violation(f"P2: entry {event.index} ends a job that is {job.state if job else 'unknown'}")
        if (event.fence is None) != (job.state == "queued"):
            raise Violation(f"entry {event.index}: {event.job_id} is {job.state}, its fence is {event.fence}")
        if event.fence is not None:
            if event.fence != job.fence:
                raise Violation(f"P3: entry {event.index} ends another attempt of {event.job_id}")
            self._count_tries(job, event)
            self.running[job.enqueue.client_id] -= 1
        self._final(job, "dead" if isinstance(event, Dlq) else "cancelled", b"")

    def _redrive_or_drop(self, event: Redrive | Drop) -> None:
        for job_id in event.job_ids:
            job = self.jobs.get(job_id)
            if job is None or job.state != "dead":
                raise Violation(f"entry {event.index} takes {job_id} out of the DLQ, where it is not")
            if isinstance(event, Redrive):
                job.state, job.ended_by = "queued", ""
                self.open[job.enqueue.client_id] += 1
                job.life += 1
                job.tries = job.not_before_us = 0
            else:
                job.state = "dropped"

    def _final(self, job: Entry, state: str, result: bytes) -> None:
        if any(life == job.life for life, _, _ in job.finals):
            raise Violation(f"P2: {job.enqueue.job_id} ends twice in life {job.life}")
        job.state = state
        self._closed(job.enqueue.client_id)
        job.finals.append((job.life, state, result))
