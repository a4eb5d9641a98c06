"""A frame of many jobs as the single frames that say the same: for those who read along, and for the simplest
clients, which know only single ones."""

from collections.abc import Iterable

import msgspec

from rollmq import limits
from rollmq.wire import headers as h
from rollmq.wire import job_headers as j
from rollmq.wire import many_headers as m
from rollmq.wire.codec import FrameDecoder, encode, encode_header, header_of
from rollmq.wire.many import ids_of, parts_of
from rollmq.wire.message import NO_ID, Frame, MsgType


def unfold(frame: Frame) -> list[Frame]:
    """What it says, one by one; any other frame is itself."""
    unfolded = _UNFOLD.get(frame.type)
    return [frame] if unfolded is None else list(unfolded(frame))


def unfolded(data: bytes) -> list[Frame]:
    """All that whole frames say, one by one."""
    frames = FrameDecoder(limits.FRAME_BYTES_MAX).feed(data)
    assert all(isinstance(frame, Frame) for frame in frames), frames
    return [single for frame in frames for single in unfold(frame)]  # type: ignore[arg-type]


def as_the_simplest(data: bytes) -> bytes:
    """The same from somebody who has never heard of many jobs in one frame."""
    return b"".join(encode(_without_many(frame)) for frame in unfolded(data))


def _without_many(frame: Frame) -> Frame:
    kinds: dict[int, type[h.HelloClientHeader] | type[h.HelloWorkerHeader]] = {
        MsgType.HELLO_CLIENT: h.HelloClientHeader,
        MsgType.HELLO_WORKER: h.HelloWorkerHeader,
    }
    if frame.type in kinds:
        header = msgspec.structs.replace(header_of(frame, kinds[frame.type]), many=False)
        return msgspec.structs.replace(frame, header=encode_header(header))
    return frame


def _submits(frame: Frame) -> Iterable[Frame]:
    header = header_of(frame, m.SubmitJobsHeader)
    options = encode_header(header.options) if header.options is not None else b""
    for job_id, payload in parts_of(frame, header.jobs):
        yield Frame(MsgType.SUBMIT_JOB, job_id, NO_ID, frame.subject, options, payload)


def _accepted(frame: Frame) -> Iterable[Frame]:
    return [Frame(MsgType.ACCEPTED, job_id, job_id) for job_id in ids_of(frame)]


def _assigns(frame: Frame) -> Iterable[Frame]:
    many = header_of(frame, m.AssignJobsHeader)
    parts = parts_of(frame, [row[-1] for row in many.jobs])
    for number, ((index, attempt, tries, accepted_at_us, _), (job_id, payload)) in enumerate(
        zip(many.jobs, parts, strict=True)
    ):
        header = j.AssignJobHeader(
            attempt,
            (many.term, index),
            many.seq + number,
            tries,
            many.tries_max,
            many.timeout_us,
            many.client_id,
            many.content_type,
            many.key_id,
            accepted_at_us=accepted_at_us,
        )
        yield Frame(MsgType.ASSIGN_JOB, job_id, NO_ID, frame.subject, encode_header(header), payload)


def _acks(frame: Frame) -> Iterable[Frame]:
    many = header_of(frame, m.AckJobsHeader)
    parts = parts_of(frame, [row[-1] for row in many.jobs])
    for number, ((term, index, run_us, _), (job_id, result)) in enumerate(zip(many.jobs, parts, strict=True)):
        header = j.AckJobHeader(
            (term, index),
            many.seq + number,
            run_us=run_us,
            content_type=many.content_type,
            key_id=many.key_id,
            credit=many.credit if number == len(many.jobs) - 1 else None,
        )
        yield Frame(MsgType.ACK_JOB, NO_ID, job_id, header=encode_header(header), payload=result)


def _results(frame: Frame) -> Iterable[Frame]:
    many = header_of(frame, m.ResultsHeader)
    parts = parts_of(frame, [row[-1] for row in many.jobs])
    for (tries, ended_at_us, run_us, _), (job_id, result) in zip(many.jobs, parts, strict=True):
        header = j.ResultHeader(
            tries=tries,
            content_type=many.content_type,
            key_id=many.key_id,
            ended_at_us=ended_at_us,
            run_us=run_us,
        )
        yield Frame(MsgType.RESULT, NO_ID, job_id, header=encode_header(header), payload=result)


_UNFOLD = {
    MsgType.SUBMIT_JOBS: _submits,
    MsgType.ACCEPTED_JOBS: _accepted,
    MsgType.ASSIGN_JOBS: _assigns,
    MsgType.ACK_JOBS: _acks,
    MsgType.RESULTS: _results,
}
