"""Why a job is not running, in the leader's own terms. It reads; it decides nothing."""

from typing import Final

import msgspec

from rollmq.core.desk import Desk
from rollmq.core.events import Fence
from rollmq.core.job import BY_FAILURE, BY_SNOOZE, BY_TIMEOUT, DONE, INFLIGHT, Finished, Job, JobRecord
from rollmq.core.subject import ASSIGN_PREFIX
from rollmq.limits import EXPLAIN_DETAIL_BYTES_MAX, EXPLAIN_WALK_MAX

UNKNOWN: Final = "unknown"


class ErrorTold(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One failed attempt, as far as it can be shown."""

    at_us: int
    attempt: int
    type: str = ""
    message: str = ""
    detail: str = ""
    key_id: str = ""


class Explanation(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Where a job stands and why it is not further."""

    job_id: str
    state: str
    reason: str
    text: str
    until_us: int = 0
    before_count: int | None = None
    worker_id: str = ""
    fence: Fence | None = None
    tries: int = 0
    errors: tuple[ErrorTold, ...] = ()


def explain(desk: Desk, job_id: str) -> Explanation:
    """Answer for any id: open, dead, finished or never seen."""
    machine = desk.machine
    job = machine.jobs.get(job_id)
    if job is None:
        return _explain_closed(desk, job_id)
    if job.state == INFLIGHT:
        state = "its handler runs" if job.is_started else "its handler has not started yet"
        text = f"attempt {job.attempt} is with worker {job.worker_id}: {state}"
        return Explanation(
            job_id, job.state, "in_flight", text, job.deadline_us,
            worker_id=job.worker_id, fence=job.fence, tries=job.tries, errors=_errors(job),
        )  # fmt: skip
    reason, text, until_us = _why_waiting(desk, job)
    before = desk.queues.jobs_before(job, EXPLAIN_WALK_MAX)
    if before is not None:
        text += f"; {_how_many(before)} in exec {job.exec!r}"
    return Explanation(
        job_id, job.state, reason, text, until_us, before, tries=job.tries, errors=_errors(job)
    )


def _errors(job: JobRecord) -> tuple[ErrorTold, ...]:
    """Those that are kept, oldest first. A detail that a codec has passed is its users' alone."""
    told, room = [], EXPLAIN_DETAIL_BYTES_MAX
    for error in reversed(job.errors or ()):
        room -= len(error.detail)
        detail = error.detail.decode("utf-8", "replace") if room >= 0 and not error.key_id else ""
        told.append(ErrorTold(error.at_us, error.attempt, error.type, error.message, detail, error.key_id))
    return tuple(reversed(told))


def _how_many(before: int) -> str:
    """In words; turns and weights make it a guess, and a long lane is not walked to its end."""
    if before == 0:
        return "it is the next"
    return f"{'at least' if before >= EXPLAIN_WALK_MAX else 'about'} {before:,} before it"


def _why_waiting(desk: Desk, job: Job) -> tuple[str, str, int]:
    """Reason, text and until when; the first that holds, from the most to the least lasting."""
    if job.exec in desk.machine.paused:
        return "paused", f"exec {job.exec!r} is paused by an operator", 0
    if job.lane is None and job.place_us > desk.now_us:
        if job.ended_by in (BY_FAILURE, BY_TIMEOUT):
            return (
                "backing_off",
                f"try {job.tries} of {job.tries_max} failed; it waits for the next",
                job.place_us,
            )
        if job.ended_by == BY_SNOOZE:
            return "snoozed", "its handler asked to be run again later", job.place_us
        return "delayed", "its submitter asked for a later start", job.place_us
    routes = desk.scheduler.reach(job.exec)
    if routes.worker_count == 0:
        pattern = ASSIGN_PREFIX + job.exec
        return "no_worker", f"no connected worker has a pattern that matches {pattern!r}", 0
    client = desk.machine.clients.by_id[job.client_id]
    cap = client.cap or desk.machine.settings.cap_default
    if client.inflight_count >= cap:
        return (
            "capped",
            f"client {client.client_id!r} has {client.inflight_count} jobs in flight, its cap is {cap}",
            0,
        )
    if not routes.has_credit:
        return "no_credit", f"all {routes.worker_count} matching workers are busy", 0
    return "in_turn", "it is waiting for its turn", 0


def _explain_closed(desk: Desk, job_id: str) -> Explanation:
    machine = desk.machine
    dead = machine.dead.get(job_id)
    if dead is not None:
        last = dead.errors[-1] if dead.errors else None
        error = f": {last.type}: {last.message}" if last is not None else ""
        tries = f"{dead.tries} {'try' if dead.tries == 1 else 'tries'}"
        text = f"in the DLQ ({dead.dead_reason}) after {tries}{error}"
        return Explanation(
            job_id, dead.state, dead.dead_reason, text,
            tries=dead.tries, fence=dead.fence, errors=_errors(dead),
        )  # fmt: skip
    finished = machine.finished.by_id.get(job_id)
    if finished is not None:
        text = f"{finished.state}; {_kept(finished)}"
        return Explanation(job_id, finished.state, "finished", text, tries=finished.tries)
    if machine.finished.is_too_old_to_tell(job_id):
        return Explanation(
            job_id, UNKNOWN, "too_old_to_tell", "ids of that age are forgotten; see the history"
        )
    return Explanation(job_id, UNKNOWN, UNKNOWN, "no job with this id was accepted")


def _kept(finished: Finished) -> str:
    if finished.state != DONE:
        return finished.why or "it has no result"
    return "its result's retention is over" if finished.is_result_dropped else "its result is kept"
