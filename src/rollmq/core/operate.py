"""What operators and clients may command: cancel, redrive, drop, pause, resume, caps, settings, pipelines.

Every command is an event that says who and why, so the log is also the record of operators' actions.
A command on something that is not there is refused and writes nothing.
"""

import msgspec

from rollmq.core.attempts import Attempts
from rollmq.core.desk import Desk
from rollmq.core.effects import Answer, AttemptVoid, Ended
from rollmq.core.events import (
    MACHINE_VERSION,
    Cancel,
    Client,
    Drop,
    Pause,
    Pipeline,
    Redrive,
    Resume,
    Settings,
)
from rollmq.core.job import INFLIGHT
from rollmq.core.sanity import as_text, is_number, is_text
from rollmq.core.subject import BadSubject, check_subject
from rollmq.limits import ERROR_TEXT_CHARS_MAX, ID_CHARS_MAX, REDRIVE_JOBS_MAX, WEIGHT_MAX


class Done(msgspec.Struct, frozen=True, gc=False):
    """A command's answer: how many jobs or settings it changed."""

    changed_count: int


class Refusal(msgspec.Struct, frozen=True, gc=False):
    """A command's answer when nothing was changed."""

    code: str
    text: str


class Operate:
    """Decides about commands. Each method's answer waits for its entry's commit."""

    def __init__(self, desk: Desk, attempts: Attempts) -> None:
        self._desk = desk
        self._attempts = attempts

    def cancel(self, job_id: str, *, by: str, why: str, to: object) -> None:
        """Finish an open job as cancelled. Its worker is told; a late ack of it changes nothing."""
        desk = self._desk
        job = desk.machine.jobs.get(job_id)
        if job is None:
            self._refuse(to, *self._why_not_open(job_id))
            return
        fence, worker_id = job.fence, job.worker_id
        if job.state == INFLIGHT:
            event = Cancel(
                *self._attempts.ending_of(job, is_started=job.is_started, tries=job.tries + job.is_started),
                *_signed(by, why),
            )
            self._attempts.forget(job)
            desk.decide(event)
            desk.scheduler.ended(worker_id)
            assert fence is not None
            desk.say(AttemptVoid(event.index, worker_id, job_id, fence, "cancelled"))
        else:
            by, why = _signed(by, why)
            event = Cancel(desk.next_index, desk.term, desk.now_us, job_id, tries=job.tries, by=by, why=why)
            desk.decide(event)
        desk.say(Ended(event.index, event, job))
        self._done(to, 1)

    def _why_not_open(self, job_id: str) -> tuple[str, str]:
        machine = self._desk.machine
        finished = machine.finished.by_id.get(job_id)
        if finished is not None:
            return "job_finished", f"job {job_id} is finished ({finished.state}); nothing was changed"
        if job_id in machine.dead:
            return "job_dead", f"job {job_id} is in the DLQ: drop or redrive it; nothing was changed"
        return "job_unknown", f"no job {job_id} is known; nothing was changed"

    def redrive(self, job_ids: list[str], *, by: str, why: str, to: object) -> None:
        """Begin a new life for these dead letters."""
        dead = self._dead_among(job_ids)
        if dead:
            desk = self._desk
            desk.decide(Redrive(desk.next_index, desk.term, desk.now_us, dead, *_signed(by, why)))
        self._done(to, len(dead))

    def drop(self, job_ids: list[str], *, by: str, why: str, to: object) -> None:
        """Let these dead letters go."""
        dead = self._dead_among(job_ids)
        if dead:
            desk = self._desk
            desk.decide(Drop(desk.next_index, desk.term, desk.now_us, dead, *_signed(by, why)))
        self._done(to, len(dead))

    def _dead_among(self, job_ids: list[str]) -> list[str]:
        """Those that are in the DLQ, once each; at most as many as one event may hold."""
        dead = self._desk.machine.dead
        return [job_id for job_id in dict.fromkeys(job_ids) if job_id in dead][:REDRIVE_JOBS_MAX]

    def pause(self, exec_name: str, *, submits: bool, by: str, why: str, to: object) -> None:
        """Hand out nothing of this exec, and refuse its submits too if asked."""
        desk = self._desk
        if not self._is_exec(exec_name, to):
            return
        is_new = desk.machine.paused.get(exec_name) is not submits
        if is_new:
            desk.decide(Pause(desk.next_index, desk.term, desk.now_us, exec_name, submits, *_signed(by, why)))
        self._done(to, int(is_new))

    def resume(self, exec_name: str, *, by: str, why: str, to: object) -> None:
        """Hand it out again."""
        desk = self._desk
        is_paused = exec_name in desk.machine.paused
        if is_paused:
            desk.decide(Resume(desk.next_index, desk.term, desk.now_us, exec_name, *_signed(by, why)))
        self._done(to, int(is_paused))

    def set_client(self, client_id: str, *, cap: int, weight: int, by: str, to: object) -> None:
        """Set a client's cap and weight; from now on this beats its own wish."""
        desk = self._desk
        is_named = bool(client_id and by) and is_text(client_id, ID_CHARS_MAX) and is_text(by, ID_CHARS_MAX)
        if not is_named or not is_number(cap) or not 1 <= weight <= WEIGHT_MAX:
            text = (
                f"needs a client, a cap of 0 (default) or more, a weight 1 to {WEIGHT_MAX}, and who says so"
            )
            self._refuse(to, "bad_command", text)
            return
        desk.decide(Client(desk.next_index, desk.term, desk.now_us, client_id, cap, weight, by))
        self._done(to, 1)

    def set_settings(self, settings: Settings, *, by: str, to: object) -> None:
        """Change what `apply` and the decisions depend on."""
        desk = self._desk
        problem = problem_of_settings(settings)
        if problem is not None:
            self._refuse(to, "bad_command", problem)
            return
        desk.decide(
            msgspec.structs.replace(
                settings,
                index=desk.next_index,
                term=desk.term,
                at_us=desk.now_us,
                by=as_text(by, ID_CHARS_MAX),
            )
        )
        self._done(to, 1)

    def confirm_pipeline(self, name: str, confirmed_index: int, *, to: object) -> None:
        """A pipeline has taken the history up to here."""
        desk = self._desk
        if not name or not is_text(name, ID_CHARS_MAX) or not 0 <= confirmed_index <= desk.last_index:
            text = (
                f"a pipeline has a name and confirms entries of the log; {confirmed_index} is not in it yet"
            )
            self._refuse(to, "bad_command", text)
            return
        is_new = confirmed_index > desk.machine.pipelines.get(name, 0)
        if is_new:
            desk.decide(Pipeline(desk.next_index, desk.term, desk.now_us, name, confirmed_index))
        self._done(to, int(is_new))

    def _is_exec(self, exec_name: str, to: object) -> bool:
        try:
            check_subject(exec_name)
        except BadSubject as error:
            self._refuse(to, "bad_command", f"exec {error}")
            return False
        return True

    def _done(self, to: object, changed_count: int) -> None:
        self._desk.say(Answer(self._desk.last_index, to, Done(changed_count)))

    def _refuse(self, to: object, code: str, text: str) -> None:
        self._desk.say(Answer(self._desk.last_index, to, Refusal(code, text)))


def _signed(by: str, why: str) -> tuple[str, str]:
    """Who and why, as they may stand in the log."""
    return as_text(by, ID_CHARS_MAX), as_text(why, ERROR_TEXT_CHARS_MAX)


def problem_of_settings(settings: Settings) -> str | None:
    """Why these settings cannot be; null when they can."""
    if settings.machine_version != MACHINE_VERSION:
        return (
            f"machine_version {settings.machine_version}: this rollmq applies version {MACHINE_VERSION} only"
        )
    numbers = {
        name: getattr(settings, name)
        for name in settings.__struct_fields__
        if name not in ("index", "term", "at_us", "by")
    }
    for name, value in numbers.items():
        if not is_number(value):
            return f"{name} is {value}; it must be from 0 to 2^53 - 1"
    for name in ("crashes_max", "starts_max", "ageing_us", "cap_default", "finished_max", "clients_max"):
        if numbers[name] < 1:
            return f"{name} must be at least 1"
    return None
