"""Frames of clients: submits, cancels, and the question what became of a job.

It reads and translates; every decision is the leader's.
"""

from typing import Final

import msgspec

from rollmq.core.effects import Answer
from rollmq.core.events import Backoff
from rollmq.core.intake import HEX_DIGITS, ID_DIGITS, Submit
from rollmq.core.job import DONE
from rollmq.core.leader import Leader
from rollmq.node.asked import Asker, Outcome, ResultArguments
from rollmq.node.conn import Conn
from rollmq.node.telling import (
    put_error,
    result_of_dead,
    result_of_finished,
)
from rollmq.wire import job_headers as j
from rollmq.wire.codec import encode_header, header_of
from rollmq.wire.error_codes import ErrorCode, violation
from rollmq.wire.many import parts_of
from rollmq.wire.message import Frame
from rollmq.wire.readers import exec_of_submit, read_submit, read_submits

SUBJECTS_KNOWN_MAX: Final = 10_000
"""Subjects whose check is remembered: checking costs more than everything else that a plain submit needs."""


GONE: Final = encode_header(j.ResultHeader(state="gone", tries=0))
_decode_arguments = msgspec.json.Decoder(ResultArguments).decode


class Submits:
    """Hands submits to the leader. Remembers the subjects that it has checked."""

    def __init__(self) -> None:
        self._exec_by_subject: dict[str, str] = {}

    def take(self, conn: Conn, frame: Frame, leader: Leader) -> None:
        """A SubmitJob. Raises ProtocolError."""
        exec_name = self._exec_of(frame)
        if not frame.header:
            submit = Submit(frame.msg_id.hex(), conn.client_id, exec_name, frame.payload, is_plain=True)
            leader.intake.submit(submit, conn)
            return
        options = read_submit(frame)
        submit = _with_options(
            frame.msg_id, frame.payload, options, conn.client_id, exec_name, leader.desk.now_us
        )
        # Who wants no result is told through an Asker; everybody else saves the object.
        leader.intake.submit(submit, conn if options.wants_result else Asker(conn, frame.msg_id))

    def take_many(self, conn: Conn, frame: Frame, leader: Leader) -> None:
        """A SubmitJobs. Raises ProtocolError before anything of it is taken."""
        exec_name, client_id = self._exec_of(frame), conn.client_id
        header = read_submits(frame)
        submit, now_us, options = leader.intake.submit, leader.desk.now_us, header.options
        for job_id, payload in parts_of(frame, header.jobs):
            if options is None:
                submit(Submit(job_id.hex(), client_id, exec_name, payload, is_plain=True), conn)
            else:
                to = conn if options.wants_result else Asker(conn, job_id)
                submit(_with_options(job_id, payload, options, client_id, exec_name, now_us), to)

    def _exec_of(self, frame: Frame) -> str:
        known = self._exec_by_subject.get(frame.subject)
        return known if known is not None else self._check(frame)

    def _check(self, frame: Frame) -> str:
        exec_name = exec_of_submit(frame)
        if len(self._exec_by_subject) >= SUBJECTS_KNOWN_MAX:
            self._exec_by_subject.clear()
        self._exec_by_subject[frame.subject] = exec_name
        return exec_name


def _with_options(
    job_id: bytes, payload: bytes, header: j.SubmitJobHeader, client_id: str, exec_name: str, now_us: int
) -> Submit:
    expires = [header.expires_at_us, header.expires_in_us and now_us + header.expires_in_us]
    return Submit(
        job_id.hex(),
        client_id,
        exec_name,
        payload,
        header.content_type,
        header.content_digest,
        header.key_id,
        header.key,
        header.headers,
        header.priority,
        max(header.not_before_us, now_us + header.delay_us if header.delay_us else 0),
        min((at_us for at_us in expires if at_us), default=0),
        header.timeout_us,
        header.timeout_factor,
        header.tries_max,
        _backoff(header),
    )


def _backoff(header: j.SubmitJobHeader) -> Backoff | None:
    return header.backoff.to_log() if header.backoff is not None else None


def cancel(conn: Conn, frame: Frame, leader: Leader) -> None:
    """A client may cancel its own jobs: another's are unknown to it."""
    job_id = frame.corr_id.hex()
    if leader.desk.machine.client_of(job_id) not in (conn.client_id, None):
        put_error(conn, frame.msg_id, ErrorCode.JOB_UNKNOWN, f"this client has no job {job_id}")
        return
    why = header_of(frame, j.CancelHeader).why
    asker = Asker(conn, frame.msg_id, job_id)
    conn.asks_count += 1
    leader.operate.cancel(job_id, by=conn.client_id, why=why, to=asker)


def ask_result(conn: Conn, frame: Frame, leader: Leader) -> None:
    """What became of a job; while it is open the session is told of its end."""
    try:
        job_id = _decode_arguments(frame.payload or b"{}").job_id
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise violation(ErrorCode.BAD_COMMAND, f"the query result: {error}", frame) from error
    if len(job_id) != ID_DIGITS or job_id.strip(HEX_DIGITS):
        raise violation(ErrorCode.BAD_COMMAND, "a job id is 32 lower-case hex digits", frame)
    value = _outcome(leader, job_id)
    if value.state in ("queued", "inflight"):
        conn.door.add_interest(job_id, conn)
    conn.asks_count += 1
    leader.desk.say(Answer(leader.desk.last_index, Asker(conn, frame.msg_id, job_id), value))


def push_result(conn: Conn, job_id: str, leader: Leader) -> None:
    """Tell the end of a job that has ended; it waits for the commit of what is known now. That its end is
    not kept is told too: a session that hears nothing would wait for ever."""
    value = _outcome(leader, job_id)
    if not value.result:
        value = Outcome("gone", GONE)
    leader.desk.say(Answer(leader.desk.last_index, Asker(conn, b"", job_id), value))


def _outcome(leader: Leader, job_id: str) -> Outcome:
    machine = leader.desk.machine
    job = machine.jobs.get(job_id)
    if job is not None:
        return Outcome(job.state)
    dead = machine.dead.get(job_id)
    if dead is not None:
        return Outcome("dead", *result_of_dead(dead))
    finished = machine.finished.by_id.get(job_id)
    if finished is not None:
        if finished.state == DONE and finished.is_result_dropped:
            return Outcome("expired")
        return Outcome("finished", *result_of_finished(finished))
    return Outcome("too_old_to_tell" if machine.finished.is_too_old_to_tell(job_id) else "unknown")
