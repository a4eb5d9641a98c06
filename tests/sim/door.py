"""The node's connections: frames in become calls of the leader, effects out become frames.

It is what a node's connection code has to do and nothing more; every decision is the core's. A few duties
are the host's alone: to drop an assign that was decided for an earlier connection of its worker, to give one
back that may not be sent any more, and to close a connection whose worker the leader has given up.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from rollmq.core.attempts import Outcome
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
from rollmq.core.events import Ack, Cancel, Dlq, Fence
from rollmq.core.intake import Submit, Wish
from rollmq.core.leader import Leader
from rollmq.core.liveness import DRAINED, Held, Hello
from rollmq.core.operate import Done, Refusal
from rollmq.errors import ProtocolError
from rollmq.limits import IDLE_US_MAX
from rollmq.wire import headers as h
from rollmq.wire import job_headers as j
from rollmq.wire.codec import FrameDecoder, encode_header, encode_payload, header_of
from rollmq.wire.error_codes import CODE_ROWS, ErrorCode, violation
from rollmq.wire.message import NO_ID, Frame, MsgType
from rollmq.wire.readers import assign_subject, exec_of_submit, read_ack, read_hello_worker, read_submit
from rollmq.wire.session import Session, Side
from tests.sim.net import End

if TYPE_CHECKING:
    from tests.sim.node import SimNode


class OutcomeQuery(msgspec.Struct):
    """Asks what became of a job."""

    job_id: str


class OutcomeReply(msgspec.Struct):
    """Says it: `state` is queued, inflight, dead, done, cancelled, dropped, too_old_to_tell or unknown."""

    job_id: str
    state: str
    result: bytes = b""
    is_expired: bool = False


class Asker(msgspec.Struct, eq=False):
    """Whom an answer is for: what the core hands around as `to`."""

    conn: "Conn"
    msg_id: bytes
    job_id: str


@dataclass(slots=True)
class PendingAck:
    """An ack that waits for its commit and for those before it: confirming is cumulative."""

    seq: int
    job_id: str
    fence: Fence
    is_done: bool = False
    is_late: bool = False


class Conn:
    """One accepted connection."""

    def __init__(self, door: "Door", end: End, now_us: int) -> None:
        self.door = door
        self.end = end
        self.session = Session(Side.NODE)
        self.decoder = FrameDecoder(self.session.frame_bytes_max)
        self.heard_us = now_us
        self.client_id = ""
        self.worker_id = ""
        self.hello_index = 0
        """Of a worker: assigns up to here were decided for an earlier connection."""
        self.assigned_seq = 0
        self.acks: deque[PendingAck] = deque()
        """Those that are not confirmed, in the order in which they came."""
        end.on_data = self.on_data
        end.on_closed = lambda: door.drop(self)

    def on_data(self, data: bytes) -> None:
        """Bytes came."""
        for item in self.decoder.feed(data):
            if self.session.is_closed:
                return
            try:
                if isinstance(item, ProtocolError):
                    raise item
                self.session.receive(item)
                self.door.take(self, item)
            except ProtocolError as error:
                self.door.node.world.say("node", f"refuses: {error}"[:120])
                self.end.send(self.session.refuse(error))
            self.decoder.frame_bytes_max = self.session.frame_bytes_max
        if self.session.is_closed:
            self.door.drop(self)

    def send(self, frame: Frame) -> None:
        """Say it, if it may be said now."""
        if self.session.may_send(MsgType(frame.type)):
            self.end.send(self.session.send(frame))

    def refuse(self, code: ErrorCode, text: str, request: Frame) -> None:
        self.end.send(self.session.refuse(violation(code, text, request)))


class Door:
    """All connections of one run of a node."""

    def __init__(self, node: "SimNode") -> None:
        self.node = node
        self.conns: list[Conn] = []
        self.workers: dict[str, Conn] = {}
        self.interests: dict[str, list[Conn]] = {}
        self._take: dict[int, Callable[[Conn, Frame, Leader], None]] = {
            MsgType.HELLO_CLIENT: self._hello_client,
            MsgType.HELLO_WORKER: self._hello_worker,
            MsgType.SUBMIT_JOB: self._submit,
            MsgType.CANCEL: self._cancel,
            MsgType.QUERY: self._query,
            MsgType.ACK_JOB: self._ack,
            MsgType.CREDIT: self._credit,
            MsgType.STARTED: self._started,
            MsgType.RESULT: self._progress,
            MsgType.GOODBYE: self._goodbye,
        }

    # -- connections

    def accept(self, end: End) -> None:
        """Somebody dialed."""
        self.conns.append(Conn(self, end, self.node.mono_us))

    def drop(self, conn: Conn) -> None:
        """A connection is gone, or is given up."""
        if conn not in self.conns:
            return
        self.conns.remove(conn)
        conn.session.close()
        conn.end.close()
        leader = self.node.leader
        if conn.worker_id and self.workers.get(conn.worker_id) is conn:
            del self.workers[conn.worker_id]
            self.node.oracle.worker_went(conn.worker_id)
            if leader is not None:
                leader.liveness.broken(conn.worker_id)
        if conn.client_id and leader is not None and not self._has_session(conn.client_id):
            leader.intake.goodbye(conn.client_id)
        self.node.wake()

    def _has_session(self, client_id: str) -> bool:
        return any(conn.client_id == client_id for conn in self.conns)

    def tick(self) -> None:
        """Close what is silent, and connections of workers that the leader has given up."""
        leader = self.node.leader
        for conn in list(self.conns):
            # A worker's silence is the leader's to find: were it found here too, nobody would miss that.
            is_silent = not conn.worker_id and conn.heard_us + IDLE_US_MAX <= self.node.mono_us
            presence = leader.liveness.present.get(conn.worker_id) if leader is not None else None
            is_lost = bool(conn.worker_id) and (presence is None or presence.slot is None)
            if is_silent or is_lost:
                self.drop(conn)

    def say_goodbye(self) -> None:
        """The node drains."""
        for conn in list(self.conns):
            conn.send(Frame(MsgType.GOODBYE))

    # -- frames in

    def take(self, conn: Conn, frame: Frame) -> None:
        """One frame that the session let in."""
        node = self.node
        node.set_time()
        conn.heard_us = node.mono_us
        leader = node.leader
        if frame.type == MsgType.PING:
            conn.send(Frame(MsgType.PONG, corr_id=frame.msg_id))
        elif leader is None:
            conn.send(Frame(MsgType.NOT_LEADER))
            self.drop(conn)
            return
        if leader is not None and conn.worker_id:
            leader.liveness.heard(conn.worker_id)
        take = self._take.get(frame.type)
        if take is not None and leader is not None:
            take(conn, frame, leader)
            node.wake()

    def _answer_hello(self, conn: Conn, frame: Frame, leader: Leader) -> None:
        header = h.HelloAnswerHeader(version=1, term=leader.desk.term, log_at_us=leader.desk.now_us)
        conn.send(Frame(frame.type, corr_id=frame.msg_id, header=encode_header(header)))

    def _hello_client(self, conn: Conn, frame: Frame, leader: Leader) -> None:
        header = header_of(frame, h.HelloClientHeader)
        problem = leader.intake.hello(header.client_id, Wish(header.cap, header.weight))
        assert problem is None, problem
        conn.client_id = header.client_id
        self._answer_hello(conn, frame, leader)

    def _hello_worker(self, conn: Conn, frame: Frame, leader: Leader) -> None:
        header, held = read_hello_worker(frame)
        jobs = [
            Held(each.job_id, each.fence, each.started, each.left_us if each.started else None)
            for each in held.held
        ]
        jobs += [Held(each.job_id, each.fence, True) for each in held.outcomes]
        hello = Hello(
            header.worker_id,
            header.instance,
            header.patterns,
            header.hands,
            header.credit,
            header.host,
            header.release,
            jobs,
        )
        problem = leader.liveness.hello(hello)
        if problem is not None:
            conn.refuse(ErrorCode.WORKER_EXISTS, problem, frame)
            return
        old = self.workers.pop(header.worker_id, None)
        if old is not None:
            old.worker_id = ""
            self.drop(old)
        conn.worker_id, conn.hello_index = header.worker_id, leader.desk.last_index
        self.workers[conn.worker_id] = conn
        self.node.oracle.worker_came(conn.worker_id, header.credit)
        self._answer_hello(conn, frame, leader)

    def _submit(self, conn: Conn, frame: Frame, leader: Leader) -> None:
        exec_name, header, now_us = exec_of_submit(frame), read_submit(frame), leader.desk.now_us
        job_id = frame.msg_id.hex()
        expires = (header.expires_at_us, header.expires_in_us and now_us + header.expires_in_us)
        submit = Submit(
            job_id,
            conn.client_id,
            exec_name,
            frame.payload,
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
            header.backoff.to_log() if header.backoff is not None else None,
        )
        leader.intake.submit(submit, Asker(conn, frame.msg_id, job_id))
        if header.wants_result:
            self.interests.setdefault(job_id, []).append(conn)

    def _cancel(self, conn: Conn, frame: Frame, leader: Leader) -> None:
        job_id = frame.corr_id.hex()
        asker = Asker(conn, frame.msg_id, job_id)
        leader.operate.cancel(job_id, by=conn.client_id, why=header_of(frame, j.CancelHeader).why, to=asker)

    def _query(self, conn: Conn, frame: Frame, leader: Leader) -> None:
        assert header_of(frame, h.QueryHeader).name == "outcome"
        job_id = msgspec.json.decode(frame.payload, type=OutcomeQuery).job_id
        machine = leader.desk.machine
        reply = OutcomeReply(job_id, leader.explain(job_id).state)
        finished = machine.finished.by_id.get(job_id)
        if finished is not None:
            reply = OutcomeReply(job_id, finished.state, finished.result, finished.is_result_dropped)
        elif machine.finished.is_too_old_to_tell(job_id) and not machine.is_known(job_id):
            reply = OutcomeReply(job_id, "too_old_to_tell")
        elif reply.state in ("queued", "inflight"):
            self.interests.setdefault(job_id, []).append(conn)
        leader.desk.say(Answer(leader.desk.last_index, Asker(conn, frame.msg_id, job_id), reply))

    # -- frames of workers

    def _ack(self, conn: Conn, frame: Frame, leader: Leader) -> None:
        header, job_id = read_ack(frame), frame.corr_id.hex()
        conn.acks.append(PendingAck(header.seq, job_id, header.fence))
        if header.what == "hand_back":
            leader.attempts.give_back(conn.worker_id, job_id, header.fence, header.reason)
            done = AckDone(leader.desk.last_index, conn.worker_id, job_id, header.fence, is_late=False)
            leader.desk.say(done)
        else:
            leader.attempts.outcome(conn.worker_id, _outcome(job_id, header, frame.payload))
        if header.credit is not None:
            self._set_credit(conn, leader, *header.credit)

    def _credit(self, conn: Conn, frame: Frame, leader: Leader) -> None:
        header = header_of(frame, j.CreditHeader)
        self._set_credit(conn, leader, header.seen, header.more)

    def _set_credit(self, conn: Conn, leader: Leader, seen_count: int, more: int) -> None:
        leader.liveness.credit(conn.worker_id, seen_count, more)
        self.node.oracle.worker_allows(conn.worker_id, seen_count, more)

    def _started(self, conn: Conn, frame: Frame, leader: Leader) -> None:
        for each in header_of(frame, j.StartedHeader).jobs:
            leader.attempts.begin(conn.worker_id, each.job_id, each.fence)

    def _progress(self, conn: Conn, frame: Frame, leader: Leader) -> None:
        header = header_of(frame, j.ResultHeader)
        if header.fence is not None and header.extend_us:
            leader.attempts.extend(conn.worker_id, frame.corr_id.hex(), header.fence, header.extend_us)

    def _goodbye(self, conn: Conn, _frame: Frame, leader: Leader) -> None:
        if conn.worker_id:
            leader.liveness.goodbye(conn.worker_id)
            self.node.oracle.worker_allows(conn.worker_id, 0, 0)
        conn.send(Frame(MsgType.GOODBYE))

    # -- effects out

    def tell(self, effect: AnyEffect) -> None:
        """Let an effect out whose entry is committed."""
        self.node.oracle.told(effect)
        if isinstance(effect, Assigned):
            self._tell_assigned(effect)
        elif isinstance(effect, Ended):
            for conn in self.interests.pop(effect.event.job_id, ()):
                conn.send(result_frame(effect.event))
        elif isinstance(effect, AckDone):
            self._tell_ack_done(effect)
        elif isinstance(effect, AttemptVoid | AskedBack):
            what = "stop" if isinstance(effect, AttemptVoid) else "take_back"
            conn = self.workers.get(effect.worker_id)
            if conn is not None:
                header = encode_header(j.CancelHeader(what=what, fence=effect.fence))  # type: ignore[arg-type]
                conn.send(Frame(MsgType.CANCEL, corr_id=bytes.fromhex(effect.job_id), header=header))
        else:
            self._answer(effect)

    def _tell_assigned(self, effect: Assigned) -> None:
        event, job = effect.event, effect.job
        conn = self.workers.get(event.worker_id)
        if conn is None or event.index <= conn.hello_index:
            return
        fence = (event.term, event.index)
        if not conn.session.may_send(MsgType.ASSIGN_JOB):
            leader = self.node.leader
            assert leader is not None
            leader.attempts.give_back(event.worker_id, event.job_id, fence, DRAINED)
            self.node.wake()
            return
        conn.assigned_seq += 1
        header = j.AssignJobHeader(
            attempt=event.attempt,
            fence=fence,
            seq=conn.assigned_seq,
            tries=effect.tries,
            tries_max=job.tries_max,
            timeout_us=effect.timeout_us,
            client_id=job.client_id,
        )
        subject = assign_subject(job.exec, event.worker_id)
        job_bytes = bytes.fromhex(job.id)
        conn.send(Frame(MsgType.ASSIGN_JOB, job_bytes, NO_ID, subject, encode_header(header), job.payload))

    def _tell_ack_done(self, effect: AckDone) -> None:
        conn = self.workers.get(effect.worker_id)
        if conn is None:
            return
        for ack in conn.acks:
            if (ack.job_id, ack.fence, ack.is_done) == (effect.job_id, effect.fence, False):
                ack.is_done, ack.is_late = True, effect.is_late
                break
        done: list[PendingAck] = []
        while conn.acks and conn.acks[0].is_done:
            done.append(conn.acks.popleft())
        if done:
            header = j.AckDoneHeader(seq=done[-1].seq, late=[ack.seq for ack in done if ack.is_late])
            conn.send(Frame(MsgType.ACK_DONE, header=encode_header(header)))

    def _answer(self, effect: Accepted | Refused | Answer) -> None:
        asker = effect.to
        if not isinstance(asker, Asker):
            return
        conn, corr_id = asker.conn, asker.msg_id
        if isinstance(effect, Accepted):
            repeated = encode_header(j.AcceptedHeader(repeated=effect.first_id != effect.job_id))
            conn.send(Frame(MsgType.ACCEPTED, bytes.fromhex(effect.first_id), corr_id, header=repeated))
        elif isinstance(effect, Refused):
            conn.send(_error_frame(effect.code, effect.text, corr_id))
        elif isinstance(effect.value, OutcomeReply):
            header = encode_header(h.ReplyHeader(index=effect.index))
            conn.send(Frame(MsgType.REPLY, NO_ID, corr_id, "", header, encode_payload(effect.value)))
        elif isinstance(effect.value, Done):
            conn.send(Frame(MsgType.ACCEPTED, bytes.fromhex(asker.job_id), corr_id))
        elif isinstance(effect.value, Refusal):
            conn.send(_error_frame(effect.value.code, effect.value.text, corr_id))


def _outcome(job_id: str, header: j.AckJobHeader, payload: bytes) -> Outcome:
    if header.ok:
        return Outcome(job_id, header.fence, result=payload, run_us=header.run_us)
    return Outcome(
        job_id,
        header.fence,
        is_ok=False,
        run_us=header.run_us,
        error_type=header.error_type,
        error_message=header.error_message,
        error_detail=payload,
        key_id=header.key_id,
        wants=header.what,
        after_us=header.after_us,
    )


def _error_frame(code: str, text: str, corr_id: bytes) -> Frame:
    row = CODE_ROWS[ErrorCode(code)]
    assert not row.closes
    header = h.ErrorHeader(code=code, text=text, retryable=row.retryable, unknown=row.unknown)
    return Frame(MsgType.ERROR, corr_id=corr_id, header=encode_header(header))


def result_frame(event: Ack | Dlq | Cancel) -> Frame:
    """What a client is told of its job's end."""
    corr_id = bytes.fromhex(event.job_id)
    if isinstance(event, Ack):
        header = j.ResultHeader(state="done", tries=event.tries, ended_at_us=event.at_us)
        return Frame(MsgType.RESULT, corr_id=corr_id, header=encode_header(header), payload=event.result)
    if isinstance(event, Cancel):
        header = j.ResultHeader(state="cancelled", tries=event.tries, reason="")
    else:
        header = j.ResultHeader(state="dead", tries=event.tries, reason=event.reason)
    return Frame(MsgType.RESULT, corr_id=corr_id, header=encode_header(header))
