"""Many jobs in one frame, at the worker's end: assigned ones taken apart, outcomes put together.

Outcomes of handlers that returned go together; every other one goes alone.
"""

from collections.abc import Sequence

from rollmq.library.held_job import HeldJob, exec_of_subject
from rollmq.limits import MANY_BYTES_MAX
from rollmq.wire.codec import encode_frame, encode_header, header_of
from rollmq.wire.job_headers import AckJobHeader, AssignJobHeader, CreditPair
from rollmq.wire.many import Parts, parts_of
from rollmq.wire.many_headers import AckJobsHeader, AckRow, AssignJobsHeader
from rollmq.wire.message import NO_ID, Frame, MsgType

_ACK, _ACK_JOBS = int(MsgType.ACK_JOB), int(MsgType.ACK_JOBS)


def held_jobs_of(frame: Frame, worker_id: str) -> list[HeldJob]:
    """The jobs of an AssignJobs. Raises ProtocolError."""
    held: list[HeldJob] = []
    header = header_of(frame, AssignJobsHeader)
    exec_name, term, seq = exec_of_subject(frame.subject, worker_id), header.term, header.seq
    parts = parts_of(frame, [row[4] for row in header.jobs])
    for (index, attempt, tries, accepted_at_us, _size), (job_id, payload) in zip(
        header.jobs, parts, strict=True
    ):
        own = AssignJobHeader(
            attempt,
            (term, index),
            seq,
            tries,
            header.tries_max,
            header.timeout_us,
            header.client_id,
            header.content_type,
            header.key_id,
            None,
            accepted_at_us,
        )
        seq += 1
        held.append(HeldJob(job_id, exec_name, own, payload))
    return held


def ack_frames(
    ended: Sequence[HeldJob], seq: int, credit: CreditPair | None, *, may_say_many: bool
) -> list[bytes]:
    """What tells these outcomes, in their order. `seq` is the first one's number; the last frame says the
    credit."""
    frames: list[bytes] = []
    run: _Run | None = None
    for held in ended:
        outcome = held.outcome
        assert outcome is not None
        size = len(outcome.payload)
        if may_say_many and not outcome.what and size <= MANY_BYTES_MAX:
            shared = (outcome.content_type, outcome.key_id)
            if run is None or run.shared != shared or not run.has_room(size):
                if run is not None:
                    frames.append(run.frame(None))
                run = _Run(held, shared, seq)
            run.rows.append((*held.header.fence, outcome.run_us, size))
            run.add(held.job_id, outcome.payload)
        else:
            if run is not None:
                frames.append(run.frame(None))
                run = None
            frames.append(_ack_frame(held, seq, credit if held is ended[-1] else None))
        seq += 1
    if run is not None:
        frames.append(run.frame(credit))
    return frames


class _Run(Parts):
    """Successes with one kind of result."""

    __slots__ = ("_first", "_seq", "rows", "shared")

    def __init__(self, first: HeldJob, shared: tuple[str, str], seq: int) -> None:
        super().__init__()
        self._first = first
        self._seq = seq
        self.shared = shared
        """Content type, key id."""
        self.rows: list[AckRow] = []

    def frame(self, credit: CreditPair | None) -> bytes:
        """All of it."""
        if len(self.rows) == 1:
            return _ack_frame(self._first, self._seq, credit)
        header = AckJobsHeader(tuple(self.rows), self._seq, *self.shared, credit)
        return encode_frame(_ACK_JOBS, header=encode_header(header), payload=self.payload())


def _ack_frame(held: HeldJob, seq: int, credit: CreditPair | None) -> bytes:
    outcome = held.outcome
    assert outcome is not None
    header = AckJobHeader(
        held.header.fence,
        seq,
        not outcome.what,
        outcome.what,  # type: ignore[arg-type]
        outcome.after_us,
        outcome.reason,
        outcome.run_us,
        outcome.error_type,
        outcome.error_message,
        outcome.content_type,
        outcome.key_id,
        credit,
    )
    return encode_frame(_ACK, NO_ID, held.job_id, header=encode_header(header), payload=outcome.payload)
