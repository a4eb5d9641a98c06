"""Effects out: what the leader decided to say, as frames, once it is committed.

It is called for released effects only, so whatever it says is true and will stay true (rule 3). It decides
nothing; what it cannot deliver is covered as docs/architecture.md says, effect by effect.
"""

from typing import TYPE_CHECKING

import msgspec

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
from rollmq.core.events import Ack, Cancel, Dlq
from rollmq.core.job import DEAD, DROPPED, Finished, Job
from rollmq.core.liveness import DRAINED
from rollmq.core.operate import Done, Refusal
from rollmq.limits import ERROR_TEXT_CHARS_MAX, JOBS_PER_MESSAGE_MAX, MANY_BYTES_MAX
from rollmq.node.asked import Asker, Greeting, Outcome, Pages
from rollmq.node.conn import Conn
from rollmq.node.runs import AcceptedRun, AssignRun, ResultRun
from rollmq.wire import headers as h
from rollmq.wire import job_headers as j
from rollmq.wire.codec import encode_frame, encode_header
from rollmq.wire.error_codes import CODE_ROWS, ErrorCode
from rollmq.wire.message import NO_ID, MsgType
from rollmq.wire.readers import assign_subject

if TYPE_CHECKING:
    from rollmq.node.door import Door

REPEATED = encode_header(j.AcceptedHeader(repeated=True))
_RESULT, _ACCEPTED, _ASSIGN = int(MsgType.RESULT), int(MsgType.ACCEPTED), int(MsgType.ASSIGN_JOB)
_ACCEPTED_JOBS, _RESULTS = int(MsgType.ACCEPTED_JOBS), int(MsgType.RESULTS)
_ACK_DONE, _ERROR, _REPLY, _CANCEL = (
    int(MsgType.ACK_DONE),
    int(MsgType.ERROR),
    int(MsgType.REPLY),
    int(MsgType.CANCEL),
)


class Teller:
    """Says what is committed."""

    def __init__(self, door: "Door") -> None:
        self._door = door
        self.accepted_count = self.assigned_count = self.ended_count = 0
        """Jobs that were told of since the process began: for rates. Repeats are not counted."""

    def tell(self, effect: AnyEffect) -> None:
        """Say one effect to whom it concerns, if he is there."""
        kind = type(effect)
        if kind is Accepted:
            self._accepted(effect)  # type: ignore[arg-type]
        elif kind is Assigned:
            self._assigned(effect)  # type: ignore[arg-type]
        elif kind is Ended:
            self._ended(effect)  # type: ignore[arg-type]
        elif kind is AckDone:
            self._ack_done(effect)  # type: ignore[arg-type]
        elif isinstance(effect, AttemptVoid | AskedBack):
            self._cancel(effect)
        elif isinstance(effect, Refused):
            to = effect.to.conn if isinstance(effect.to, Asker) else effect.to
            if isinstance(to, Conn):
                put_error(to, bytes.fromhex(effect.job_id), effect.code, effect.text)
        elif isinstance(effect, Answer):
            self._answer(effect)

    # -- to clients

    def _accepted(self, effect: Accepted) -> None:
        self.accepted_count += not effect.is_repeat
        to = effect.to
        conn = to.conn if isinstance(to, Asker) else to
        if not isinstance(conn, Conn) or conn.session.is_closed:
            return
        job_id, first_id = effect.job_id, effect.first_id
        sent_id = bytes.fromhex(job_id)
        if first_id == job_id and not effect.is_repeat:
            if conn.takes_many:
                _accepted_along(conn, sent_id)
            else:
                conn.put_frame(_ACCEPTED, sent_id, sent_id)
        else:
            conn.put_frame(_ACCEPTED, bytes.fromhex(first_id), sent_id, REPEATED)
        if to is conn:
            self._door.will_tell(first_id, conn)

    def _ended(self, effect: Ended) -> None:
        self.ended_count += 1
        event = effect.event
        conns = self._door.take_interest(event.job_id)
        if conns is None:
            return
        corr_id = bytes.fromhex(event.job_id)
        if type(event) is Ack and len(event.result) <= MANY_BYTES_MAX:
            alone = [conn for conn in conns if not _result_along(conn, corr_id, event)]
            if not alone:
                return
            conns = tuple(alone)
        header, payload = result_of_event(event)
        for conn in conns:
            conn.put_frame(_RESULT, NO_ID, corr_id, header, payload)

    # -- to workers

    def _assigned(self, effect: Assigned) -> None:
        self.assigned_count += 1
        event, job = effect.event, effect.job
        conn = self._door.workers.get(event.worker_id)
        if conn is None or event.index <= conn.hello_index:
            return
        if not conn.is_greeted:
            conn.early.append(effect)
            return
        fence = (event.term, event.index)
        if _ASSIGN not in conn.session.legal_out:
            self._door.give_back(event.worker_id, event.job_id, fence, DRAINED)
            return
        conn.assigned_seq += 1
        if conn.takes_many and job.headers is None and len(job.payload) <= MANY_BYTES_MAX:
            _assign_along(conn, effect)
            return
        header = j.AssignJobHeader(
            attempt=event.attempt,
            fence=fence,
            seq=conn.assigned_seq,
            tries=effect.tries,
            tries_max=job.tries_max,
            timeout_us=effect.timeout_us,
            client_id=job.client_id,
            content_type=job.content_type,
            key_id=job.key_id,
            headers=job.headers,
            accepted_at_us=job.enqueued_us,
        )
        subject = assign_subject(job.exec, event.worker_id)
        conn.put(
            encode_frame(_ASSIGN, bytes.fromhex(job.id), NO_ID, subject, encode_header(header), job.payload)
        )

    def _ack_done(self, effect: AckDone) -> None:
        conn = self._door.workers.get(effect.worker_id)
        if conn is None or not conn.acks:
            return
        seq, job_id, fence = conn.acks[0]
        if job_id != effect.job_id or fence != effect.fence:
            return  # of an earlier connection: its worker has sent, or will send, this outcome again
        conn.acks.popleft()
        if not conn.done_seq:
            self._door.confirming.append(conn)
        conn.done_seq = seq
        if effect.is_late:
            conn.late_seqs.append(seq)
            if len(conn.late_seqs) >= JOBS_PER_MESSAGE_MAX:
                confirm(conn)

    def _cancel(self, effect: AttemptVoid | AskedBack) -> None:
        conn = self._door.workers.get(effect.worker_id)
        if conn is None:
            return
        if isinstance(effect, AttemptVoid):
            header = j.CancelHeader(what="stop", fence=effect.fence, why=effect.why)
        else:
            header = j.CancelHeader(what="take_back", fence=effect.fence)
        conn.put_frame(_CANCEL, NO_ID, bytes.fromhex(effect.job_id), encode_header(header))

    # -- to whoever asked

    def _answer(self, effect: Answer) -> None:
        to, value = effect.to, effect.value
        if isinstance(to, Greeting):
            to.door.greet(to)
            return
        if not isinstance(to, Asker):
            return
        conn = to.conn
        if to.msg_id:
            conn.asks_count -= 1
        if isinstance(value, Refusal):
            put_error(conn, to.msg_id, value.code, value.text)
        elif isinstance(value, Outcome):
            if to.msg_id:
                reply(conn, to.msg_id, {"state": value.state}, index=effect.index)
            if value.result:
                conn.put_frame(_RESULT, NO_ID, bytes.fromhex(to.job_id), value.result, value.payload)
        elif isinstance(value, Done) and to.job_id:
            conn.put_frame(_ACCEPTED, bytes.fromhex(to.job_id), to.msg_id)
        elif isinstance(value, Pages):
            last = len(value.parts) - 1
            for number, part in enumerate(value.parts):
                reply(conn, to.msg_id, part, index=effect.index, more=number < last)
        else:
            reply(conn, to.msg_id, value, index=effect.index)


def _accepted_along(conn: Conn, job_id: bytes) -> None:
    """Together with those accepted before it."""
    run = conn.run
    if type(run) is not AcceptedRun or not run.has_room():
        if _ACCEPTED_JOBS not in conn.session.legal_out:
            return
        run = AcceptedRun()
        conn.open_run(run)
    run.ids.append(job_id)


def _result_along(conn: Conn, job_id: bytes, event: Ack) -> bool:
    """Together with the results before it, if this connection takes them so."""
    if not conn.takes_many:
        return False
    result, shared, run = event.result, (event.content_type, event.key_id), conn.run
    if type(run) is not ResultRun or run.shared != shared or not run.has_room(len(result)):
        if _RESULTS not in conn.session.legal_out:
            return True  # and nothing else may be said either
        run = ResultRun(shared)
        conn.open_run(run)
    run.rows.append((event.tries, event.at_us, event.run_us, len(result)))
    run.add(job_id, result)
    return True


def _assign_along(conn: Conn, effect: Assigned) -> None:
    """Together with those of this exec and client before it."""
    event, job = effect.event, effect.job
    payload, run = job.payload, conn.run
    shared = (
        job.exec, event.worker_id, event.term, job.tries_max, effect.timeout_us,
        job.client_id, job.content_type, job.key_id,
    )  # fmt: skip
    if type(run) is not AssignRun or run.shared != shared or not run.has_room(len(payload)):
        run = AssignRun(shared, conn.assigned_seq)
        conn.open_run(run)
    run.rows.append((event.index, event.attempt, effect.tries, job.enqueued_us, len(payload)))
    run.add(bytes.fromhex(job.id), payload)


def confirm(conn: Conn) -> None:
    """One AckDone for all acks of this turn."""
    header = j.AckDoneHeader(seq=conn.done_seq, late=tuple(conn.late_seqs))
    conn.done_seq = 0
    conn.late_seqs = []
    conn.put_frame(_ACK_DONE, header=encode_header(header))


def reply(conn: Conn, msg_id: bytes, value: object, *, index: int = 0, more: bool = False) -> None:
    """Answer a query."""
    header = encode_header(h.ReplyHeader(more=more, index=index))
    conn.put_frame(_REPLY, NO_ID, msg_id, header, msgspec.json.encode(value))


def put_error(conn: Conn, corr_id: bytes, code: str, text: str) -> None:
    """A refusal that leaves the connection as it is."""
    row = CODE_ROWS[ErrorCode(code)]
    assert not row.closes
    header = h.ErrorHeader(
        code=code,
        text=text[:ERROR_TEXT_CHARS_MAX],
        retryable=row.retryable,
        unknown=row.unknown,
    )
    conn.put_frame(_ERROR, NO_ID, corr_id, encode_header(header))


def result_of_event(event: Ack | Dlq | Cancel) -> tuple[bytes, bytes]:
    """Header and payload of the Result that tells of this end."""
    if isinstance(event, Ack):
        header = j.ResultHeader(
            tries=event.tries,
            content_type=event.content_type,
            key_id=event.key_id,
            ended_at_us=event.at_us,
            run_us=event.run_us,
        )
        return encode_header(header), event.result
    if isinstance(event, Cancel):
        header = j.ResultHeader(
            state="cancelled", tries=event.tries, error_message=event.why, ended_at_us=event.at_us
        )
        return encode_header(header), b""
    header = j.ResultHeader(
        state="dead",
        tries=event.tries,
        reason=event.reason,
        error_type=event.error_type,
        error_message=event.error_message,
        key_id=event.key_id,
        ended_at_us=event.at_us,
        run_us=event.run_us,
    )
    return encode_header(header), event.error_detail


def result_of_dead(job: Job) -> tuple[bytes, bytes]:
    """The same for a job that lies in the DLQ."""
    assert job.state == DEAD
    last = job.errors[-1] if job.errors else None
    header = j.ResultHeader(
        state="dead",
        tries=job.tries,
        reason=job.dead_reason,
        error_type=last.type if last is not None else "",
        error_message=last.message if last is not None else "",
        key_id=last.key_id if last is not None else "",
        ended_at_us=job.dead_us,
    )
    return encode_header(header), last.detail if last is not None else b""


def result_of_finished(finished: Finished) -> tuple[bytes, bytes]:
    """The same for a finished job whose result is still kept."""
    state = finished.state
    assert state in ("done", "cancelled", DROPPED)
    header = j.ResultHeader(
        state=state,  # type: ignore[arg-type]
        tries=finished.tries,
        error_message=finished.why,
        content_type=finished.content_type,
        key_id=finished.key_id,
        ended_at_us=finished.ended_us,
    )
    return encode_header(header), finished.result
