"""How attempts begin and end: assigned, acked, failed, timed out, given back, lost with their worker.

It writes `assign`, `ack`, the requeues and `dlq`. Who is connected and alive is `liveness`' business.
"""

from itertools import islice
from typing import Final, NamedTuple

import msgspec

from rollmq.core.desk import Desk
from rollmq.core.effects import AckDone, Assigned, AttemptVoid, Ended
from rollmq.core.events import (
    Ack,
    Assign,
    Backoff,
    Dlq,
    Drop,
    FailRequeue,
    Fence,
    TimeoutRequeue,
    WorkerDownRequeue,
)
from rollmq.core.inflight import is_current, may_ack_late
from rollmq.core.job import BY_FAILURE, BY_SNOOZE, BY_UNSTARTED_LOSS, DONE, INFLIGHT, QUEUED, Job, weight_of
from rollmq.core.machine import GONE, LOST_ERROR, TIMEOUT_ERROR
from rollmq.core.queues import NEVER_US
from rollmq.core.requests import REJECT as REJECT
from rollmq.core.requests import RETRY as RETRY
from rollmq.core.requests import SNOOZE as SNOOZE
from rollmq.core.requests import Outcome as Outcome
from rollmq.core.sanity import as_number, as_text, is_number, is_text
from rollmq.core.scheduler import Choice
from rollmq.limits import (
    ERROR_DETAIL_BYTES_MAX,
    ERROR_TEXT_CHARS_MAX,
    ID_CHARS_MAX,
    PAYLOAD_BYTES_MAX,
    RECLAIM_GRACE_US,
    TIMEOUT_MAX_US,
)

# Why a job is in the DLQ.
TRIES_USED_UP: Final = "tries"
STARTS_USED_UP: Final = "starts"
REJECTED: Final = "rejected"
EXPIRED: Final = "expired"
POISON: Final = "poison"

EXPIRED_ERROR: Final = "Expired"
TOLD_FAILURES: Final = frozenset({BY_FAILURE, BY_SNOOZE})
RETURNED_ERROR: Final = "Returned"
LEADERS_ERRORS: Final = frozenset({TIMEOUT_ERROR, LOST_ERROR, EXPIRED_ERROR, RETURNED_ERROR})
"""Error types that no handler reported."""

DLQ_DROP_BATCH: Final = 100
"""Most dead letters that one event drops when the DLQ is over its bound."""
DEFAULT_BACKOFF: Final = Backoff()


class Cause(NamedTuple):
    """Why a job is buried: what its last error says. The detail has passed the codec, as the result would."""

    type: str
    message: str
    detail: bytes = b""
    key_id: str = ""


class Running:
    """One worker's jobs whose handlers run, as far as this leader was told: at most as many as its hands.

    Invariant: no deadline is before `earliest_us`. So a quiet tick looks at one number per worker.
    """

    __slots__ = ("earliest_us", "jobs")

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.earliest_us = NEVER_US

    def add(self, job: Job) -> None:
        """Its handler has begun."""
        self.jobs[job.id] = job
        self.earliest_us = min(self.earliest_us, job.deadline_us)

    def over_time(self, now_us: int) -> list[Job]:
        """The jobs whose time is over."""
        if self.earliest_us > now_us:
            return []
        over = [job for job in self.jobs.values() if job.deadline_us <= now_us]
        rest = (job.deadline_us for job in self.jobs.values() if job.deadline_us > now_us)
        self.earliest_us = min(rest, default=NEVER_US)
        return over

    def time_stepped(self, by_us: int) -> None:
        """Log time went ahead, and no handler ran for that long."""
        for job in self.jobs.values():
            job.deadline_us += by_us
        self.earliest_us = min((job.deadline_us for job in self.jobs.values()), default=NEVER_US)


class Attempts:
    """Decides about attempts."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.running: dict[str, Running] = {}
        """By worker; without an entry it runs nothing that this leader knows of."""
        for held in desk.machine.inflight.by_worker.values():
            for job in held.values():
                # What this node knew when it led before; the workers will say how it is now.
                job.is_started = False
                job.deadline_us = job.asked_back_us = 0

    # -- beginning

    def assign(self, choice: Choice) -> None:
        """Make the scheduler's choice a fact."""
        desk, job, slot = self._desk, choice.job, choice.worker
        lane = job.lane
        assert lane is not None
        assert slot.credit > 0
        event = Assign(
            desk.next_index,
            desk.term,
            desk.now_us,
            job.id,
            slot.worker_id,
            job.attempt + 1,
            job.ready_us,
            slot.credit - 1,
        )
        desk.decide(event)
        assert lane.client.inflight_count <= (lane.client.cap or desk.machine.settings.cap_default)
        desk.queues.take_turn(lane)
        desk.scheduler.assigned(choice, lane.exec)
        desk.say(Assigned(event.index, event, job, job.tries, timeout_of(job)))

    def begin(self, worker_id: str, job_id: str, fence: Fence, *, left_us: int | None = None) -> None:
        """The worker says that the handler runs: the timeout's clock starts, or goes on after a failover."""
        job = self._desk.machine.jobs.get(job_id)
        if job is None or not is_current(job, fence) or job.worker_id != worker_id or job.is_started:
            return
        job.is_started = True
        given_us = timeout_of(job) if left_us is None else min(max(left_us, RECLAIM_GRACE_US), TIMEOUT_MAX_US)
        job.deadline_us = self._desk.now_us + given_us
        running = self.running.get(worker_id)
        if running is None:
            running = self.running[worker_id] = Running()
        running.add(job)

    def extend(self, worker_id: str, job_id: str, fence: Fence, by_us: int) -> bool:
        """The handler asks for more time, from now. Only a running attempt gets it."""
        job = self._desk.machine.jobs.get(job_id)
        if job is None or not is_current(job, fence) or job.worker_id != worker_id:
            return False
        self.begin(worker_id, job_id, fence)
        job.deadline_us = max(job.deadline_us, self._desk.now_us + min(by_us, TIMEOUT_MAX_US))
        return True

    # -- ending, as the worker says

    def outcome(self, worker_id: str, outcome: Outcome) -> None:
        """An ack or a failure. What counts becomes an event; a repeated or late one only gets its answer."""
        desk = self._desk
        job = desk.machine.jobs.get(outcome.job_id)
        is_holder = job is not None and job.worker_id == worker_id
        if job is not None and is_holder and is_current(job, outcome.fence):
            index = self._end_as_told(job, sanitized(outcome))
            desk.say(AckDone(index, worker_id, outcome.job_id, outcome.fence, is_late=False))
        elif job is not None and is_holder and outcome.is_ok and may_ack_late(job, outcome.fence):
            # A lost attempt that was not known to have started was no try; now it is known to have been one.
            tries = job.tries + (job.ended_by == BY_UNSTARTED_LOSS)
            index = self._ack(job, sanitized(outcome), tries=tries)
            desk.say(AckDone(index, worker_id, outcome.job_id, outcome.fence, is_late=False))
        else:
            is_late = not self._was_counted(outcome)
            done = AckDone(desk.last_index, worker_id, outcome.job_id, outcome.fence, is_late=is_late)
            desk.say(done)

    def _was_counted(self, outcome: Outcome) -> bool:
        """Whether this very outcome was counted before, as far as the state can still tell: once a newer
        attempt has begun, a repeated failure looks like a late one. Neither changes anything."""
        machine = self._desk.machine
        if outcome.is_ok:
            finished = machine.finished.by_id.get(outcome.job_id)
            return finished is not None and finished.state == DONE and finished.fence == outcome.fence
        job = machine.jobs.get(outcome.job_id)
        if job is not None:
            return job.state == QUEUED and job.fence == outcome.fence and job.ended_by in TOLD_FAILURES
        dead = machine.dead.get(outcome.job_id)
        if dead is None or dead.fence != outcome.fence or not dead.errors:
            return False
        return dead.errors[-1].attempt == dead.attempt and dead.errors[-1].type not in LEADERS_ERRORS

    def _end_as_told(self, job: Job, outcome: Outcome) -> int:
        """End the current attempt as its worker says; the index of the event."""
        if outcome.is_ok:
            return self._ack(job, outcome, tries=job.tries + 1)
        is_snooze = outcome.wants == SNOOZE
        tries = job.tries if is_snooze else job.tries + 1
        reason = self._reason_to_bury(job, tries, is_rejected=outcome.wants == REJECT)
        if reason is not None:
            return self._bury(
                job,
                reason,
                tries=tries,
                is_started=True,
                run_us=outcome.run_us,
                cause=Cause(outcome.error_type, outcome.error_message, outcome.error_detail, outcome.key_id),
            )
        desk = self._desk
        pause_us = self._backoff_us(job, tries)
        if outcome.after_us is not None:
            pause_us = min(max(outcome.after_us, 0), TIMEOUT_MAX_US)
        worker_id = self.forget(job)
        event = FailRequeue(
            *self.ending_of(job, is_started=True, tries=tries, run_us=outcome.run_us),
            outcome.error_type,
            outcome.error_message,
            outcome.error_detail,
            desk.now_us + pause_us if pause_us else 0,
            not is_snooze,
            outcome.key_id,
        )
        desk.decide(event)
        desk.scheduler.ended(worker_id)
        return event.index

    def _ack(self, job: Job, outcome: Outcome, *, tries: int) -> int:
        desk = self._desk
        is_inflight = job.state == INFLIGHT
        worker_id = self.forget(job) if is_inflight else job.worker_id
        event = Ack(
            *self.ending_of(job, is_started=True, tries=tries, run_us=outcome.run_us),
            outcome.result,
            len(outcome.result),
            outcome.content_type,
            outcome.key_id,
        )
        desk.decide(event)
        if is_inflight:
            desk.scheduler.ended(worker_id)
        desk.say(Ended(event.index, event, job))
        return event.index

    def give_back(self, worker_id: str, job_id: str, fence: Fence, reason: str) -> None:
        """The worker hands back a job: drained, refused, or asked back. If it had said that the handler
        runs, that was a try; otherwise being passed around costs the job nothing."""
        job = self._desk.machine.jobs.get(job_id)
        if job is None or not is_current(job, fence) or job.worker_id != worker_id:
            return
        tries = job.tries + 1
        buried = self._reason_to_bury(job, tries) if job.is_started else None
        if buried is None:
            self._worker_down(job, reason, is_started=job.is_started)
        else:
            cause = Cause(RETURNED_ERROR, f"{worker_id} gave it back while it ran")
            self._bury(job, buried, tries=tries, is_started=True, cause=cause)

    # -- ending, as the leader decides

    def time_out(self, job: Job) -> None:
        """The handler ran over its time: another try after its backoff, or the DLQ."""
        desk, fence, worker_id = self._desk, job.fence, job.worker_id
        assert fence is not None
        tries = job.tries + 1
        reason = self._reason_to_bury(job, tries)
        if reason is not None:
            index = self._bury(
                job,
                reason,
                tries=tries,
                is_started=True,
                cause=Cause(TIMEOUT_ERROR, "the handler ran over its time"),
            )
        else:
            self.forget(job)
            event = TimeoutRequeue(
                *self.ending_of(job, is_started=True, tries=tries), desk.now_us + self._backoff_us(job, tries)
            )
            desk.decide(event)
            desk.scheduler.ended(worker_id)
            index = event.index
        desk.say(AttemptVoid(index, worker_id, job.id, fence, "timeout"))

    def lose(self, worker_id: str, job: Job, *, is_started: bool) -> None:
        """The worker died, or came back without this job."""
        assert job.worker_id == worker_id
        if not is_started:
            self._worker_down(job, GONE, is_started=False)
            return
        tries = job.tries + 1
        crashes_max = self._desk.machine.settings.crashes_max
        reason = POISON if job.crashes + 1 >= crashes_max else self._reason_to_bury(job, tries)
        if reason is None:
            self._worker_down(job, GONE, is_started=True)
        else:
            cause = Cause(LOST_ERROR, f"{worker_id} went away while it ran")
            self._bury(job, reason, tries=tries, is_started=True, cause=cause)

    def expire(self, job: Job) -> None:
        """It was not started by the time after which nobody wants it."""
        self._bury(
            job, EXPIRED, tries=job.tries, is_started=False, cause=Cause(EXPIRED_ERROR, "not run in time")
        )

    def _worker_down(self, job: Job, reason: str, *, is_started: bool) -> None:
        desk, worker_id = self._desk, self.forget(job)
        ending = self.ending_of(job, is_started=is_started, tries=job.tries + is_started)
        desk.decide(WorkerDownRequeue(*ending, reason))
        desk.scheduler.ended(worker_id)

    def _bury(
        self,
        job: Job,
        reason: str,
        *,
        tries: int,
        is_started: bool,
        run_us: int | None = None,
        cause: Cause,
    ) -> int:
        """Into the DLQ, from the queue or out of flight; the index of the event."""
        desk = self._desk
        is_inflight = job.state == INFLIGHT
        worker_id = self.forget(job) if is_inflight else ""
        if is_inflight:
            ending = self.ending_of(job, is_started=is_started, tries=tries, run_us=run_us)
            event = Dlq(*ending, reason, *cause)
        else:
            event = Dlq(
                desk.next_index,
                desk.term,
                desk.now_us,
                job.id,
                tries=tries,
                reason=reason,
                error_type=cause.type,
                error_message=cause.message,
            )
        desk.decide(event)
        if is_inflight:
            desk.scheduler.ended(worker_id)
        desk.say(Ended(event.index, event, job))
        self._keep_dlq_bounded()
        return event.index

    def _keep_dlq_bounded(self) -> None:
        """Drop the oldest dead letters, those just buried included, until both bounds hold again."""
        machine = self._desk.machine
        settings = machine.settings
        # Some room at once, so that a full DLQ does not cost an event for every burial.
        spare_count = min(settings.dlq_max // 100, DLQ_DROP_BATCH)
        while len(machine.dead) > settings.dlq_max or machine.dead_bytes > settings.dlq_bytes_max:
            over_count = len(machine.dead) - settings.dlq_max
            wanted = (over_count + spare_count) if over_count > 0 else 0
            self._drop_oldest(wanted, machine.dead_bytes - settings.dlq_bytes_max)

    def _drop_oldest(self, over_count: int, over_bytes: int) -> None:
        desk = self._desk
        oldest: list[str] = []
        for job in islice(desk.machine.dead.values(), DLQ_DROP_BATCH):
            if over_count <= 0 and over_bytes <= 0:
                break
            oldest.append(job.id)
            over_count -= 1
            over_bytes -= weight_of(job)
        desk.decide(
            Drop(desk.next_index, desk.term, desk.now_us, oldest, "rollmq", "the DLQ was over its bound")
        )

    # -- the parts of a decision

    def _reason_to_bury(self, job: Job, tries: int, *, is_rejected: bool = False) -> str | None:
        if is_rejected:
            return REJECTED
        if tries >= job.tries_max:
            return TRIES_USED_UP
        if job.starts + 1 >= self._desk.machine.settings.starts_max:
            return STARTS_USED_UP
        return None

    def _backoff_us(self, job: Job, tries: int) -> int:
        return backoff_us(job.backoff or DEFAULT_BACKOFF, tries, self._desk.jitter())

    def forget(self, job: Job) -> str:
        """The attempt ends: forget what only the leader knew of it. Returns its worker."""
        running = self.running.get(job.worker_id)
        if running is not None and running.jobs.pop(job.id, None) is not None and not running.jobs:
            del self.running[job.worker_id]
        return job.worker_id

    def ending_of(
        self, job: Job, *, is_started: bool, tries: int, run_us: int | None = None
    ) -> tuple[int, int, int, str, Fence, int, str, bool, int, int, int | None]:
        """The leading fields of every event that ends an attempt."""
        desk, fence = self._desk, job.fence
        assert fence is not None
        at_us = desk.now_us
        return (
            desk.next_index, desk.term, at_us, job.id, fence, job.attempt, job.worker_id,
            is_started, tries, at_us - job.assigned_us, run_us,
        )  # fmt: skip


def timeout_of(job: Job) -> int:
    """How long the next or current try may run: it grows by the job's factor with every try."""
    if job.timeout_factor == 1.0:
        return job.timeout_us
    return min(int(job.timeout_us * job.timeout_factor ** min(job.tries, 64)), TIMEOUT_MAX_US)


def sanitized(outcome: Outcome) -> Outcome:
    """The outcome with everything brought within bounds: a worker that says too much has still answered."""
    if outcome.is_ok and len(outcome.result) <= PAYLOAD_BYTES_MAX and _is_plain(outcome):
        return outcome
    if outcome.is_ok and len(outcome.result) > PAYLOAD_BYTES_MAX:
        size = len(outcome.result)
        return Outcome(
            outcome.job_id,
            outcome.fence,
            is_ok=False,
            run_us=as_number(outcome.run_us),
            error_type="ResultTooLarge",
            error_message=f"the result has {size:,} bytes, at most {PAYLOAD_BYTES_MAX:,} are allowed",
            wants=REJECT,
        )
    return msgspec.structs.replace(
        outcome,
        run_us=as_number(outcome.run_us),
        content_type=as_text(outcome.content_type, ID_CHARS_MAX),
        key_id=as_text(outcome.key_id, ID_CHARS_MAX),
        error_type=as_text(outcome.error_type, ID_CHARS_MAX),
        error_message=as_text(outcome.error_message, ERROR_TEXT_CHARS_MAX),
        error_detail=outcome.error_detail[:ERROR_DETAIL_BYTES_MAX],
    )


def _is_plain(outcome: Outcome) -> bool:
    """Nothing in a success needs to be cut: the usual case, and the one that must be cheap."""
    is_timed = outcome.run_us is None or is_number(outcome.run_us)
    return is_timed and is_text(outcome.content_type, ID_CHARS_MAX) and is_text(outcome.key_id, ID_CHARS_MAX)


def backoff_us(backoff: Backoff, tries: int, jitter: float) -> int:
    """The pause after this many tries, shortened by chance so that failures do not come back in step."""
    steps = min(max(tries - 1, 0), 64)
    whole_us = min(backoff.first_us * backoff.factor**steps, backoff.max_us)
    return int(whole_us * (1.0 - backoff.jitter * jitter))
