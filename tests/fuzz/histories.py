"""Bytes to histories: every two bytes become an event that fits the state, or nearly.

A fuzzer that guesses events finds only stale ones. So the bytes choose what happens and to whom, and the
state says which attempt and fence that means; now and then a wrong one is taken on purpose, for stale
events must change nothing on any replica.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

from rollmq.core.events import (
    Ack,
    AnyEvent,
    Assign,
    Cancel,
    Client,
    Dlq,
    Drop,
    Enqueue,
    FailRequeue,
    Fence,
    Pause,
    Redrive,
    Resume,
    Settings,
    TimeoutRequeue,
    Worker,
    WorkerDownRequeue,
)
from rollmq.core.job import Job
from rollmq.core.machine import Machine

JOBS_COUNT: Final = 12
CLIENTS: Final = ("a", "b", "c", "d")
EXECS: Final = ("e", "f.g")
WORKERS: Final = ("w1", "w2", "w3")
REASONS: Final = ("gone", "drained", "refused", "taken back")
STALE_EVERY: Final = 16


def events_of(data: bytes, machine: Machine) -> Iterator[AnyEvent]:
    """An event for every two bytes, made for the state that the machine has when it is asked for."""
    for at in range(0, len(data) - 1, 2):
        yield _Maker(machine, data[at], data[at + 1]).event()


class _Maker:
    """One event: `kind` says what happens and how much time has passed, `choice` to whom."""

    def __init__(self, machine: Machine, kind: int, choice: int) -> None:
        self.machine = machine
        self.kind = kind
        self.choice = choice
        self.job_id = f"{choice % JOBS_COUNT:012x}{choice % JOBS_COUNT:020x}"
        self.place: dict[str, Any] = {
            "index": machine.last_index + 1,
            "term": max(1, machine.last_term + (kind == 255)),
            "at_us": machine.last_at_us + kind // 32,
        }

    def event(self) -> AnyEvent:
        """What these two bytes say."""
        makers: tuple[Callable[[], AnyEvent], ...] = (
            self._enqueue, self._enqueue, self._enqueue, self._assign, self._assign, self._assign,
            self._ack, self._fail, self._timeout, self._worker_down, self._dlq, self._redrive,
            self._drop, self._cancel, self._client, self._worker, self._pause, self._resume, self._settings,
        )  # fmt: skip
        return makers[self.kind % len(makers)]()

    def _enqueue(self) -> AnyEvent:
        choice = self.choice
        return Enqueue(
            **self.place,
            job_id=self.job_id,
            client_id=CLIENTS[choice % 4],
            exec=EXECS[choice // 4 % 2],
            payload=bytes(choice % 5),
            key=f"k{choice % 3}" if choice & 8 else "",
            priority=choice // 16 % 10,
            not_before_us=self.place["at_us"] + choice % 7 if choice & 16 else 0,
            tries_max=2,
        )

    def _job(self) -> Job | None:
        return self.machine.jobs.get(self.job_id)

    def _assign(self) -> AnyEvent:
        job = self._job()
        attempt = (job.attempt if job else 0) + 1 + (self.choice % STALE_EVERY == 1)
        worker_id = WORKERS[self.choice // 16 % 3]
        return Assign(
            **self.place, job_id=self.job_id, worker_id=worker_id, attempt=attempt, ready_us=0, credit_left=0
        )

    def _fence(self) -> Fence:
        job = self._job()
        is_stale = job is None or job.fence is None or self.choice % STALE_EVERY == 1
        return (0, 0) if is_stale or job is None or job.fence is None else job.fence

    def _ending(self) -> dict[str, Any]:
        job = self._job()
        started = bool(self.choice & 32)
        return {
            **self.place,
            "job_id": self.job_id,
            "fence": self._fence(),
            "attempt": job.attempt if job else 1,
            "worker_id": job.worker_id if job else "w1",
            "started": started,
            "tries": (job.tries if job else 0) + started,
            "held_us": 1,
            "run_us": None,
        }

    def _ack(self) -> AnyEvent:
        return Ack(**self._ending(), result=bytes(self.choice % 4))

    def _fail(self) -> AnyEvent:
        later_us = self.place["at_us"] + self.choice % 5
        return FailRequeue(**self._ending(), error_type="E", not_before_us=later_us)

    def _timeout(self) -> AnyEvent:
        return TimeoutRequeue(**self._ending())

    def _worker_down(self) -> AnyEvent:
        return WorkerDownRequeue(**self._ending(), reason=REASONS[self.choice // 64])

    def _maybe_ending(self) -> dict[str, Any]:
        """For an attempt that runs, its ending; for a queued job none."""
        job = self._job()
        is_queued = job is not None and job.lane is not None
        return {**self.place, "job_id": self.job_id} if is_queued else self._ending()

    def _dlq(self) -> AnyEvent:
        return Dlq(**self._maybe_ending(), reason="tries_max", error_type="E")

    def _cancel(self) -> AnyEvent:
        return Cancel(**self._maybe_ending(), by="o")

    def _redrive(self) -> AnyEvent:
        return Redrive(**self.place, job_ids=[self.job_id], by="o")

    def _drop(self) -> AnyEvent:
        return Drop(**self.place, job_ids=[self.job_id], by="o")

    def _client(self) -> AnyEvent:
        by = "o" if self.choice & 8 else ""
        return Client(
            **self.place, client_id=CLIENTS[self.choice % 4], cap=1, weight=1 + self.choice % 3, by=by
        )

    def _worker(self) -> AnyEvent:
        return Worker(**self.place, worker_id=WORKERS[self.choice % 3], instance=str(self.choice))

    def _pause(self) -> AnyEvent:
        return Pause(**self.place, exec=EXECS[self.choice % 2], submits=bool(self.choice & 2))

    def _resume(self) -> AnyEvent:
        return Resume(**self.place, exec=EXECS[self.choice % 2])

    def _settings(self) -> AnyEvent:
        choice = self.choice
        return Settings(
            **self.place,
            results_keep_us=choice % 9,
            results_max=1 + choice % 3,
            results_bytes_max=2 + choice % 5,
            finished_max=1 + choice % 5,
            keys_keep_us=1 + choice % 16,
            errors_kept=choice % 3,
            clients_max=1 + choice % 4,
            workers_max=1 + choice % 3,
        )
