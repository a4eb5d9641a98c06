"""Accepted jobs whose end a client waits for: pushed by the node, or asked for again after a reconnect.

Part of ClientCore, which says when there is a connection; sans-IO like it.
"""

from collections import deque
from typing import Final

import msgspec

from rollmq.errors import JobUnknown, RequestRefused, ResultExpired, RollmqError
from rollmq.library.call import ENDED, GONE, Call, Outcome, ResultReply
from rollmq.library.dialog import Dialog
from rollmq.wire.codec import encode_frame, encode_header, encode_payload, header_of
from rollmq.wire.headers import ErrorHeader, QueryHeader
from rollmq.wire.job_headers import ResultHeader
from rollmq.wire.many import parts_of
from rollmq.wire.many_headers import ResultsHeader
from rollmq.wire.message import Frame, MsgType

ASKS_MAX: Final = 256
"""Results asked for at once after a reconnect: the answers shall not crowd out everything else."""
_decode_reply = msgspec.json.Decoder(ResultReply).decode


class Awaited:
    """Jobs by id, each with the calls that wait for it.

    Invariant: a call is in here exactly while `is_open`, and `count` is how many are.
    """

    def __init__(self, dialog: Dialog) -> None:
        self._dialog = dialog
        self.count = 0
        self._open: dict[bytes, Call] = {}
        """The newest call of a job; its `twin` is the one before."""
        self._to_ask: deque[bytes] = deque()
        self._asked: dict[bytes, bytes] = {}
        """Request id -> job id."""

    def add(self, call: Call) -> None:
        """This session is told of its end, for it submitted or is about to ask."""
        call.is_open = True
        call.twin = self._open.get(call.job_id)
        self._open[call.job_id] = call
        self.count += 1

    def ask(self, call: Call) -> None:
        """Ask for a job whose end would not be told by itself."""
        self.add(call)
        self._to_ask.append(call.job_id)
        self._ask_more()

    def connected(self) -> None:
        """A new connection knows nothing of what the last one was to be told."""
        self._asked.clear()
        self._to_ask = deque(self._open)
        self._ask_more()

    def _ask_more(self) -> None:
        """A bounded number at a time."""
        dialog = self._dialog
        while self._to_ask and len(self._asked) < ASKS_MAX and dialog.can_say(MsgType.QUERY):
            job_id = self._to_ask.popleft()
            if job_id in self._open:
                request_id = dialog.next_request_id()
                self._asked[request_id] = job_id
                header = encode_header(QueryHeader(name="result"))
                payload = encode_payload({"job_id": job_id.hex()})
                dialog.put(encode_frame(MsgType.QUERY, request_id, header=header, payload=payload))

    # -- answers

    def on_result(self, frame: Frame) -> None:
        """A job has ended, or its handler said something."""
        call = self._open.get(frame.corr_id)
        if call is None:
            return  # A second copy, or nobody asks about it any more.
        header = header_of(frame, ResultHeader)
        if header.state == "gone":
            self._close(frame.corr_id, None, ResultExpired(job_id=frame.corr_id.hex()))
            return
        if header.final:
            self._close(frame.corr_id, _outcome_of(frame, header), None)
            return
        while call is not None:
            call.progressed(frame.payload, header.key_id)
            call = call.twin

    def on_results(self, frame: Frame) -> None:
        """Many jobs are done."""
        header = header_of(frame, ResultsHeader)
        content_type, key_id = header.content_type, header.key_id
        parts = parts_of(frame, [row[3] for row in header.jobs])
        for (tries, ended_at_us, run_us, _size), (job_id, result) in zip(header.jobs, parts, strict=True):
            if job_id in self._open:
                own = ResultHeader(
                    tries=tries,
                    content_type=content_type,
                    key_id=key_id,
                    ended_at_us=ended_at_us,
                    run_us=run_us,
                )
                self._close(job_id, Outcome("done", job_id.hex(), result, "", tries, 0, b"", own), None)

    def on_reply(self, frame: Frame) -> bool:
        """Whether it answers one of these questions."""
        job_id = self._asked.pop(frame.corr_id, None)
        if job_id is None:
            return False
        state = _state_of(frame.payload)
        if state == "expired":
            self._close(job_id, None, ResultExpired(job_id=job_id.hex()))
        elif state in ("unknown", "too_old_to_tell"):
            self._close_unknown(job_id, is_old=state == "too_old_to_tell")
        self._ask_more()
        return True

    def on_refusal(self, frame: Frame, header: ErrorHeader) -> bool:
        """Whether it answers one of these questions."""
        job_id = self._asked.pop(frame.corr_id, None)
        if job_id is None:
            return False
        if not header.retryable:
            error = RequestRefused(code=header.code, text=header.text, retryable=False)
            self._close(job_id, None, error)
        self._ask_more()
        return True

    def _close_unknown(self, job_id: bytes, *, is_old: bool) -> None:
        """No such job is remembered. One that we know was accepted has ended, long ago."""
        call = self._open.get(job_id)
        is_ours = call is not None and call.subject
        error = ResultExpired if is_old and is_ours else JobUnknown
        self._close(job_id, None, error(job_id=job_id.hex()))

    def give_up_all(self, error: RollmqError) -> None:
        """Nobody will be told anything any more."""
        for job_id in list(self._open):
            self._close(job_id, None, error)

    def _close(self, job_id: bytes, outcome: Outcome | None, error: RollmqError | None) -> None:
        """The end of a job is known, or known not to be told."""
        call = self._open.pop(job_id, None)
        while call is not None:
            twin, call.twin = call.twin, None
            call.is_open = False
            self.count -= 1
            call.outcome, call.error = outcome, error
            call.state = ENDED if outcome is not None else GONE
            call.moved()
            call = twin


def _outcome_of(frame: Frame, header: ResultHeader) -> Outcome:
    job_id = frame.corr_id.hex()
    if header.state == "done":
        return Outcome("done", job_id, frame.payload, "", header.tries, 0, b"", header)
    error = header.error_message
    if header.error_type:
        error = f"{header.error_type}: {error}" if error else header.error_type
    error = error or header.reason or header.state
    return Outcome(header.state, job_id, b"", error, header.tries, 0, frame.payload, header)


def _state_of(payload: bytes) -> str:
    try:
        return _decode_reply(payload).state
    except msgspec.DecodeError:
        return ""  # Nothing can be learnt from it; the Result may still come.
