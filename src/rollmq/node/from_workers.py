"""Frames of workers: hellos, acks, credit, started notices, progress.

It reads and translates; every decision is the leader's.
"""

from rollmq.core.attempts import Outcome
from rollmq.core.effects import AckDone
from rollmq.core.inflight import is_current
from rollmq.core.leader import Leader
from rollmq.core.liveness import REFUSED, Held, Hello
from rollmq.node.conn import Conn
from rollmq.wire import headers as h
from rollmq.wire import job_headers as j
from rollmq.wire.codec import encode_header, header_of
from rollmq.wire.many import parts_of
from rollmq.wire.many_headers import AckJobsHeader
from rollmq.wire.message import NO_ID, Frame, MsgType
from rollmq.wire.readers import read_ack

_RESULT = int(MsgType.RESULT)


def hello_of(header: h.HelloWorkerHeader, listed: h.HeldList) -> Hello:
    """A worker's hello as the core takes it. An outcome that follows counts as a job that runs until then."""
    held = [
        Held(each.job_id, each.fence, each.started, each.left_us if each.started else None)
        for each in listed.held
    ]
    held += [Held(each.job_id, each.fence, True) for each in listed.outcomes]
    return Hello(
        header.worker_id,
        header.instance,
        list(header.patterns),
        header.hands,
        header.credit,
        header.host,
        header.release,
        held,
    )


def ack(conn: Conn, frame: Frame, leader: Leader) -> None:
    """An attempt's outcome. It is confirmed by AckDone, in the order in which acks came."""
    header = read_ack(frame)
    job_id = frame.corr_id.hex()
    conn.acks.append((header.seq, job_id, header.fence))
    if header.ok:
        outcome = Outcome(
            job_id,
            header.fence,
            True,
            frame.payload,
            header.content_type,
            header.key_id,
            header.run_us,
        )
        leader.attempts.outcome(conn.worker_id, outcome)
    elif header.what == "hand_back":
        reason = header.reason or REFUSED
        leader.attempts.give_back(conn.worker_id, job_id, header.fence, reason)
        done = AckDone(leader.desk.last_index, conn.worker_id, job_id, header.fence, is_late=False)
        leader.desk.say(done)
    else:
        leader.attempts.outcome(conn.worker_id, _failure(job_id, header, frame.payload))
    if header.credit is not None:
        leader.liveness.credit(conn.worker_id, *header.credit)


def ack_many(conn: Conn, frame: Frame, leader: Leader) -> None:
    """Attempts whose handlers returned, one after the other."""
    header = header_of(frame, AckJobsHeader)
    content_type, key_id, seq = header.content_type, header.key_id, header.seq
    outcome, worker_id, sent = leader.attempts.outcome, conn.worker_id, conn.acks
    parts = parts_of(frame, [row[3] for row in header.jobs])
    for (term, index, run_us, _size), (raw_id, result) in zip(header.jobs, parts, strict=True):
        job_id, fence = raw_id.hex(), (term, index)
        sent.append((seq, job_id, fence))
        seq += 1
        outcome(worker_id, Outcome(job_id, fence, True, result, content_type, key_id, run_us))
    if header.credit is not None:
        leader.liveness.credit(worker_id, *header.credit)


def _failure(job_id: str, header: j.AckJobHeader, detail: bytes) -> Outcome:
    return Outcome(
        job_id,
        header.fence,
        is_ok=False,
        run_us=header.run_us,
        error_type=header.error_type,
        error_message=header.error_message,
        error_detail=detail,
        key_id=header.key_id,
        wants=header.what,
        after_us=header.after_us,
    )


def credit(conn: Conn, frame: Frame, leader: Leader) -> None:
    """How many more it takes."""
    header = header_of(frame, j.CreditHeader)
    leader.liveness.credit(conn.worker_id, header.seen, header.more)


def started(conn: Conn, frame: Frame, leader: Leader) -> None:
    """These handlers are about to run."""
    for each in header_of(frame, j.StartedHeader).jobs:
        leader.attempts.begin(conn.worker_id, each.job_id, each.fence)


def progress(conn: Conn, frame: Frame, leader: Leader) -> None:
    """How far a handler is, or a part of its result: passed on, not kept. It may ask for more time."""
    header = header_of(frame, j.ResultHeader)
    job_id = frame.corr_id.hex()
    if header.fence is None:
        return
    if header.extend_us:
        leader.attempts.extend(conn.worker_id, job_id, header.fence, header.extend_us)
    job = leader.desk.machine.jobs.get(job_id)
    if job is None or not is_current(job, header.fence) or job.worker_id != conn.worker_id:
        return
    if not header.seq and not frame.payload:
        return  # it only asked for time
    told = encode_header(
        j.ResultHeader(
            final=False,
            state="running",
            tries=job.tries,
            content_type=header.content_type,
            key_id=header.key_id,
            seq=header.seq,
        )
    )
    for each in conn.door.interested_in(job_id):
        if each.pipe.unsent_bytes() < PROGRESS_UNSENT_MAX:
            each.put_frame(_RESULT, NO_ID, frame.corr_id, told, frame.payload)


PROGRESS_UNSENT_MAX = 1024 * 1024
"""A client that does not keep up gets no progress: the next one is newer, and the outcome is what counts."""
