"""The replicated state, and the one function that changes it: `apply`.

Apply is deterministic and total. It makes no choice, reads no clock, draws nothing at random and never
refuses: events are decided facts. Replicas that applied the same index have the same state, byte for
byte (`state.dump_state`). What the leader decides, and why, is in `leader`.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from rollmq.core.dedup import FinishedJobs, Keys
from rollmq.core.events import (
    Ack,
    AnyEvent,
    Assign,
    Cancel,
    Client,
    Counts,
    Dlq,
    Drop,
    Ending,
    Enqueue,
    FailRequeue,
    MaybeEnding,
    Members,
    Noop,
    Pause,
    Pipeline,
    Redrive,
    Resume,
    Settings,
    SnapshotMarker,
    TimeoutRequeue,
    Worker,
    WorkerDownRequeue,
)
from rollmq.core.inflight import Inflight, is_current, may_ack_late
from rollmq.core.job import (
    BY_FAILURE,
    BY_LOSS,
    BY_RETURN,
    BY_SNOOZE,
    BY_TIMEOUT,
    BY_UNSTARTED_LOSS,
    CANCELLED,
    DEAD,
    DONE,
    DROPPED,
    INFLIGHT,
    QUEUED,
    Finished,
    Job,
    JobError,
    weight_of,
)
from rollmq.core.parties import Clients, ClientState
from rollmq.core.queues import Queues
from rollmq.core.record import NO_BYTES, KeyRecord, WorkerRecord
from rollmq.limits import AGEING_BUDGET_PER_EVENT, PRIORITY_MAX

TIMEOUT_ERROR: Final = "Timeout"
LOST_ERROR: Final = "WorkerLost"
GONE: Final = "gone"
"""The one reason of a worker_down_requeue that says the worker died; with the others it lives."""


class Machine:
    """The state of one group as of an index.

    Invariants: a job id is in exactly one of `jobs`, `dead` and `finished`; a job in `jobs` is queued or
    in flight; a queued one is in a lane or delayed; counts equal what they count.
    What one event could break is asserted where it is applied; tests audit the whole after every step.
    """

    def __init__(self, *, is_indexed: bool = True) -> None:
        self.last_index = 0
        self.last_term = 0
        self.last_at_us = 0
        self.settings = Settings(0, 0, 0)
        self.is_settled = False
        """Whether a `settings` event was applied; before that the defaults of this version hold."""
        self.members: Members | None = None
        self.pipelines: dict[str, int] = {}
        self.jobs: dict[str, Job] = {}
        self.dead: dict[str, Job] = {}
        self.finished = FinishedJobs()
        self.keys = Keys()
        self.clients = Clients()
        self.workers: dict[str, WorkerRecord] = {}
        self.paused: dict[str, bool] = {}
        self.inflight = Inflight()
        self.queued_bytes = 0
        """Of the payloads of queued jobs."""
        self.dead_bytes = 0
        """Of dead letters: payloads and error details."""
        self.no_ops = 0
        self.queues: Queues | None = None
        """None while folding snapshots: nobody asks there whose turn it is."""
        if is_indexed:
            self.queues = Queues(
                self.jobs,
                cap_default=lambda: self.settings.cap_default,
                ageing_us=lambda: self.settings.ageing_us,
            )
        self._apply_by_type: dict[type, Callable[[Any], Job | None]] = {
            Enqueue: self._enqueue,
            Assign: self._assign,
            Ack: self._ack,
            FailRequeue: self._fail_requeue,
            TimeoutRequeue: self._timeout_requeue,
            WorkerDownRequeue: self._worker_down_requeue,
            Dlq: self._dlq,
            Redrive: self._redrive,
            Drop: self._drop,
            Cancel: self._cancel,
            Client: self._client,
            Worker: self._worker,
            Pause: self._pause,
            Resume: self._resume,
            Settings: self._settings,
            Pipeline: self._pipeline,
            SnapshotMarker: self._nothing,
            Noop: self._nothing,
            Members: self._members,
        }

    def apply(self, event: AnyEvent) -> Job | None:
        """Apply one event; return the job it was about, for whoever is to be told once it is committed.

        A stale event (its fence is not the current one) changes nothing, alike on every replica, and is
        counted: a correct leader proposes none, so a count is a bug seen.
        """
        index, term, at_us = event.index, event.term, event.at_us
        assert index == self.last_index + 1
        assert term >= self.last_term
        assert at_us >= self.last_at_us
        self.last_index, self.last_term, self.last_at_us = index, term, at_us
        queues = self.queues
        if queues is not None and queues.next_due_us <= at_us:
            queues.advance(at_us, self.clients.by_id, AGEING_BUDGET_PER_EVENT)
        return self._apply_by_type[type(event)](event)

    def counts(self) -> Counts:
        """How much of everything there is, for markers and for replicas to compare."""
        return Counts(
            queued=len(self.jobs) - self.inflight.count,
            inflight=self.inflight.count,
            dlq=len(self.dead),
            finished=len(self.finished),
            results=self.finished.results_count,
            keys=len(self.keys),
            clients=len(self.clients),
            workers=len(self.workers),
            no_ops=self.no_ops,
        )

    def is_known(self, job_id: str) -> bool:
        """Whether the id belongs to an open, dead or remembered finished job."""
        return job_id in self.jobs or job_id in self.dead or job_id in self.finished.by_id

    def client_of(self, job_id: str) -> str | None:
        """Whose job an id is; null when it is not known."""
        known = self.jobs.get(job_id) or self.dead.get(job_id) or self.finished.by_id.get(job_id)
        return known.client_id if known is not None else None

    # -- accepting and assigning

    def _enqueue(self, event: Enqueue) -> Job | None:
        if self.is_known(event.job_id):
            return self._no_op()
        client = self.clients.get_or_add(event.client_id, event.index)
        place_us = max(event.at_us, event.not_before_us)
        job = Job(
            event.job_id,
            client.client_id,
            event.exec,
            event.index,
            event.at_us,
            event.payload or NO_BYTES,
            event.content_type,
            event.content_digest,
            event.key_id,
            event.key,
            event.headers,
            min(max(event.priority, 0), PRIORITY_MAX),  # total: a foolish event stops no replica
            event.expires_at_us,
            event.timeout_us,
            event.timeout_factor,
            event.tries_max,
            event.backoff,
            ready_us=place_us,
            place_us=place_us,
            place_index=event.index,
        )
        self.jobs[job.id] = job
        self.clients.job_opened(client)
        self._queue(job, client, event.at_us)
        if event.key:
            record = KeyRecord(
                event.client_id, event.exec, event.key, event.job_id, event.content_digest, event.at_us
            )
            client.key_count += 1
            self.keys.add(record, self._key_forgotten)
        settings = self.settings
        if self.keys.is_any:
            self.keys.evict(event.at_us, settings, self._key_forgotten)
        if len(self.clients.by_id) > settings.clients_max:
            self.clients.forget_over(settings.clients_max)
        return job

    def _key_forgotten(self, record: KeyRecord) -> None:
        client = self.clients.by_id[record.client_id]
        client.key_count -= 1
        assert client.key_count >= 0

    def _assign(self, event: Assign) -> Job | None:
        job = self.jobs.get(event.job_id)
        if job is None or job.state != QUEUED or event.attempt != job.attempt + 1:
            return self._no_op()
        self._unqueue(job)
        job.state = INFLIGHT
        job.attempt = event.attempt
        job.fence = (event.term, event.index)
        job.worker_id = event.worker_id
        job.assigned_us = event.at_us
        job.ended_by = ""
        job.is_started = False
        job.deadline_us = job.asked_back_us = 0
        self.inflight.begin(job)
        self.clients.by_id[job.client_id].inflight_count += 1
        if self.queues is not None:
            self.queues.exec_queue(job.exec).inflight_count += 1
        return job

    # -- ending an attempt

    def _ack(self, event: Ack) -> Job | None:
        job = self.jobs.get(event.job_id)
        if job is None:
            return self._no_op()
        if is_current(job, event.fence):
            self._end_attempt(job)
        elif may_ack_late(job, event.fence):
            self._unqueue(job)
        else:
            return self._no_op()
        job.tries = max(job.tries, event.tries)
        finished = Finished(
            job.id, job.client_id, job.exec, DONE, event.at_us, job.tries, job.life,
            event.result or NO_BYTES, event.content_type, event.key_id, fence=event.fence,
        )  # fmt: skip
        self._close(job, finished)
        return job

    def _fail_requeue(self, event: FailRequeue) -> Job | None:
        job = self._ending(event)
        if job is None:
            return None
        if event.counted:
            self._remember_error(
                job, event, event.error_type, event.error_message, event.error_detail, event.key_id
            )
        ended_by = BY_FAILURE if event.counted else BY_SNOOZE
        self._requeue(job, event, ended_by, event.not_before_us)
        return job

    def _timeout_requeue(self, event: TimeoutRequeue) -> Job | None:
        job = self._ending(event)
        if job is None:
            return None
        self._remember_error(job, event, TIMEOUT_ERROR, "the handler ran over its time")
        self._requeue(job, event, BY_TIMEOUT, event.not_before_us)
        return job

    def _worker_down_requeue(self, event: WorkerDownRequeue) -> Job | None:
        job = self._ending(event)
        if job is None:
            return None
        is_gone = event.reason == GONE
        if is_gone and event.started:
            job.crashes += 1
            self._remember_error(job, event, LOST_ERROR, f"{event.worker_id} went away while it ran")
        ended_by = BY_RETURN
        if is_gone:
            ended_by = BY_LOSS if event.started else BY_UNSTARTED_LOSS
        self._requeue(job, event, ended_by, 0, keeps_place=not event.started)
        return job

    def _ending(self, event: Ending) -> Job | None:
        """The job whose current attempt this event ends, taken out of flight; None when it is stale."""
        job = self.jobs.get(event.job_id)
        if job is None or not is_current(job, event.fence):
            return self._no_op()
        self._end_attempt(job)
        return job

    def _end_attempt(self, job: Job) -> None:
        assert job.state == INFLIGHT
        self.inflight.end(job)
        client = self.clients.by_id[job.client_id]
        client.inflight_count -= 1
        assert client.inflight_count >= 0
        if self.queues is not None:
            self.queues.attempt_ended(job.exec)
            if client.parked:
                self.queues.client_may_run(client)

    def _requeue(
        self, job: Job, event: Ending, ended_by: str, not_before_us: int, *, keeps_place: bool = False
    ) -> None:
        job.tries = event.tries
        job.starts += event.started
        job.ended_by = ended_by
        job.state = QUEUED
        job.ready_us = max(event.at_us, not_before_us)
        if not keeps_place:
            job.place_us, job.place_index = job.ready_us, event.index
        self._queue(job, self.clients.by_id[job.client_id], event.at_us, is_given_back=keeps_place)

    def _remember_error(
        self,
        job: Job,
        event: Ending | MaybeEnding,
        kind: str,
        message: str,
        detail: bytes = NO_BYTES,
        key_id: str = "",
    ) -> None:
        error = JobError(event.at_us, event.attempt, kind, message, detail or NO_BYTES, key_id)
        kept = self.settings.errors_kept
        job.errors = [*(job.errors or []), error][-kept:] if kept else None

    # -- final states and the dead letters

    def _dlq(self, event: Dlq) -> Job | None:
        job = self._leave_open(event)
        if job is None:
            return None
        if event.fence is not None:
            job.starts += event.started
            job.tries = event.tries
        if event.error_type:
            self._remember_error(
                job, event, event.error_type, event.error_message, event.error_detail, event.key_id
            )
        del self.jobs[job.id]
        self._client_lost_job(job, event.index)
        job.state, job.dead_us, job.dead_reason = DEAD, event.at_us, event.reason
        self.dead[job.id] = job
        self.dead_bytes += weight_of(job)
        return job

    def _leave_dead(self, job_id: str) -> Job | None:
        """Take a job out of the DLQ."""
        job = self.dead.pop(job_id, None)
        if job is None:
            return self._no_op()
        self.dead_bytes -= weight_of(job)
        return job

    def _redrive(self, event: Redrive) -> None:
        for job_id in event.job_ids:
            job = self._leave_dead(job_id)
            if job is None:
                continue
            job.state, job.dead_us, job.dead_reason = QUEUED, 0, ""
            job.life += 1
            job.tries = job.starts = job.crashes = 0
            job.ended_by = ""
            job.expires_at_us = 0
            job.ready_us = job.place_us = event.at_us
            job.place_index = event.index
            client = self.clients.get_or_add(job.client_id, event.index)
            self.jobs[job.id] = job
            self.clients.job_opened(client)
            self._queue(job, client, event.at_us)

    def _drop(self, event: Drop) -> None:
        for job_id in event.job_ids:
            job = self._leave_dead(job_id)
            if job is None:
                continue
            self.finished.add(_ended(job, DROPPED, event.at_us, event.why), self.settings)

    def _cancel(self, event: Cancel) -> Job | None:
        job = self._leave_open(event)
        if job is None:
            return None
        if event.fence is not None:
            job.tries = event.tries
        self._close(job, _ended(job, CANCELLED, event.at_us, event.why))
        return job

    def _leave_open(self, event: MaybeEnding) -> Job | None:
        """Take a job out of its queue (no fence) or out of flight (its current fence)."""
        job = self.jobs.get(event.job_id)
        if job is not None and event.fence is None and job.state == QUEUED:
            self._unqueue(job)
            return job
        if job is not None and is_current(job, event.fence):
            self._end_attempt(job)
            return job
        return self._no_op()

    def _close(self, job: Job, finished: Finished) -> None:
        del self.jobs[job.id]
        job.state = finished.state  # effects that wait may still hold it
        self._client_lost_job(job, self.last_index)
        self.finished.add(finished, self.settings)

    def _client_lost_job(self, job: Job, index: int) -> None:
        self.clients.job_closed(self.clients.by_id[job.client_id], index)

    # -- settings of all kinds

    def _client(self, event: Client) -> None:
        client = self.clients.get_or_add(event.client_id, event.index)
        client.cap, client.weight, client.by = event.cap, event.weight, event.by
        if self.queues is not None:
            self.queues.client_may_run(client)
        self.clients.forget_over(self.settings.clients_max)

    def _worker(self, event: Worker) -> None:
        self.workers.pop(event.worker_id, None)
        self.workers[event.worker_id] = WorkerRecord(
            event.worker_id,
            event.instance,
            event.host,
            event.release,
            event.patterns,
            event.hands,
            event.index,
        )
        over = len(self.workers) - self.settings.workers_max
        if over > 0:
            # Changed longest ago first. A loop over the front is short: it ends at the first idle one.
            for worker_id in list(self.workers)[: over + self.settings.workers_max // 2]:
                if worker_id not in self.inflight.by_worker and worker_id != event.worker_id:
                    del self.workers[worker_id]
                    over -= 1
                    if over <= 0:
                        break

    def _pause(self, event: Pause) -> None:
        self.paused[event.exec] = event.submits
        if self.queues is not None:
            self.queues.pause(self.queues.exec_queue(event.exec), submits=event.submits)

    def _resume(self, event: Resume) -> None:
        if self.paused.pop(event.exec, None) is None:
            self._no_op()
        elif self.queues is not None:
            queue = self.queues.exec_queue(event.exec)
            self.queues.resume(queue)
            self.queues.forget_if_idle(queue)

    def _settings(self, event: Settings) -> None:
        # Total: a leader proposes no foolish settings, and if one did, no replica would stop.
        least = {name: 0 for name in event.__struct_fields__ if name not in ("index", "term", "at_us", "by")}
        least["ageing_us"] = 1
        raised = {name: low for name, low in least.items() if getattr(event, name) < low}
        self.settings = msgspec.structs.replace(event, **raised) if raised else event
        self.is_settled = True
        if self.queues is not None:
            for client in self.clients.by_id.values():
                self.queues.client_may_run(client)  # the default cap may have grown

    def _pipeline(self, event: Pipeline) -> None:
        self.pipelines[event.name] = max(event.confirmed_index, self.pipelines.get(event.name, 0))

    def _members(self, event: Members) -> None:
        self.members = event

    def _nothing(self, _event: object) -> None:
        """A noop and a marker change no state; a marker's seal is the store's business."""

    # -- the queue

    def _queue(self, job: Job, client: ClientState, at_us: int, *, is_given_back: bool = False) -> None:
        self.queued_bytes += weight_of(job)
        if self.queues is not None:
            self.queues.add(job, client, at_us, is_given_back=is_given_back)

    def _unqueue(self, job: Job) -> None:
        self.queued_bytes -= weight_of(job)
        if self.queues is not None:
            self.queues.remove(job)

    def _no_op(self) -> Job | None:
        self.no_ops += 1
        return None


def _ended(job: Job, state: str, at_us: int, why: str) -> Finished:
    return Finished(
        job.id, job.client_id, job.exec, state, at_us, job.tries, job.life, fence=job.fence,
        is_result_dropped=True, why=why,
    )  # fmt: skip
