"""How a transcript tells an effect, and where every job is. Text only; it reads and changes nothing."""

from rollmq.core.effects import (
    Accepted,
    AckDone,
    Answer,
    AnyEffect,
    AskedBack,
    Assigned,
    AttemptVoid,
    Ended,
    Refused,
)
from rollmq.core.events import Ack, Dlq
from rollmq.core.job import INFLIGHT, QUEUED, Job
from rollmq.core.machine import Machine
from rollmq.core.operate import Done, Refusal
from tests.core.naming import T0_US, Names, duration_text


def effect_text(effect: AnyEffect, names: Names) -> str:
    """One line: who is told what."""
    return "tell " + _told(effect, names)


def _told(effect: AnyEffect, names: Names) -> str:
    if isinstance(effect, Accepted):
        first = "" if effect.first_id == effect.job_id else f" is {names.name(effect.first_id)}"
        return f"{effect.to}: accepted {names.name(effect.job_id)}{first}"
    if isinstance(effect, Refused):
        kind = "unknown" if effect.is_unknown else "retry later" if effect.is_retryable else "for good"
        text = names.in_text(effect.text)
        return f"{effect.to}: refused {names.name(effect.job_id)} {effect.code} ({kind}): {text}"
    if isinstance(effect, Assigned):
        event = effect.event
        fence, timeout = f"{event.term}.{event.index}", duration_text(effect.timeout_us)
        job = names.name(event.job_id)
        what = f"run {job} attempt={event.attempt} fence={fence} tries={effect.tries}"
        return f"{event.worker_id}: {what} timeout={timeout}"
    if isinstance(effect, Ended):
        return f"submitter: {names.name(effect.job.id)} is {_final(effect)}"
    if isinstance(effect, AttemptVoid):
        return f"{effect.worker_id}: stop {names.name(effect.job_id)}{_fence(effect.fence)}: {effect.why}"
    if isinstance(effect, AskedBack):
        return (
            f"{effect.worker_id}: give back {names.name(effect.job_id)}{_fence(effect.fence)} unless it runs"
        )
    if isinstance(effect, AckDone):
        late = " too late" if effect.is_late else ""
        return (
            f"{effect.worker_id}: outcome of {names.name(effect.job_id)}{_fence(effect.fence)} is safe{late}"
        )
    return f"{effect.to}: {_answer(effect, names)}"


def _fence(fence: tuple[int, int]) -> str:
    return f" fence={fence[0]}.{fence[1]}"


def _final(effect: Ended) -> str:
    if isinstance(effect.event, Ack):
        return f"done: {effect.event.result.decode()}"
    return f"dead: {effect.event.reason}" if isinstance(effect.event, Dlq) else "cancelled"


def _answer(effect: Answer, names: Names) -> str:
    if isinstance(effect.value, Done):
        return f"changed {effect.value.changed_count}"
    assert isinstance(effect.value, Refusal)
    return f"refused {effect.value.code}: {names.in_text(effect.value.text)}"


def place_text(machine: Machine, names: Names) -> str:
    """Where every job is: queued in order of place (@ delayed), in-flight (* started), dead, finished."""
    waiting = sorted(
        (job for job in machine.jobs.values() if job.state == QUEUED),
        key=lambda job: (job.place_us, job.place_index),
    )
    flying = [job for jobs in machine.inflight.by_worker.values() for job in jobs.values()]
    assert all(job.state == INFLIGHT for job in flying)
    queued = " ".join(names.name(job.id) + _delay(job, machine.last_at_us) for job in waiting)
    inflight = " ".join(
        f"{names.name(job.id)}:{job.worker_id}:{job.attempt}{'*' if job.is_started else ''}" for job in flying
    )
    dead = " ".join(f"{names.name(job.id)}:{job.dead_reason}" for job in machine.dead.values())
    finished = " ".join(f"{names.name(f.id)}:{f.state}" for f in machine.finished.in_order())
    return f"queued=[{queued}] inflight=[{inflight}] dlq=[{dead}] finished=[{finished}]"


def _delay(job: Job, at_us: int) -> str:
    return f"@{duration_text(job.place_us - T0_US)}" if job.place_us > at_us else ""
