"""The submits of a client that are neither accepted nor refused: sent once, repeated until they are answered.

It keeps refused and unknown apart: what was sent on a connection that is gone is *doubtful*, for a copy of it
may still be accepted. Part of ClientCore, which says when there is a connection; sans-IO like it.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from rollmq import limits
from rollmq.errors import KeyConflict, RollmqError, SubmitRefused, SubmitUnknown
from rollmq.library.call import ACCEPTED, REFUSED, SENT, UNKNOWN, WAITING, Call
from rollmq.library.dialog import Dialog
from rollmq.wire.codec import HEAD, LENGTH_MIN, encode_header, header_of
from rollmq.wire.error_codes import ErrorCode
from rollmq.wire.headers import ErrorHeader
from rollmq.wire.job_headers import AcceptedHeader, SubmitJobHeader
from rollmq.wire.many import Parts, ids_of
from rollmq.wire.many_headers import SubmitJobsHeader
from rollmq.wire.message import NO_ID, Frame, MsgType

RETRY_FIRST_US: Final = 50_000
RETRY_MAX_US: Final = 5_000_000
"""Pauses before what was refused for a passing reason is sent again."""

_ALWAYS_RETRIED: Final = frozenset(
    {ErrorCode.SHUTTING_DOWN, ErrorCode.OVERLOADED, ErrorCode.ID_IN_FUTURE, ErrorCode.LEADERSHIP_LOST}
)
"""Over in a moment, by themselves or with the next leader: no business of whoever submits."""
_LASTING: Final = frozenset(
    {ErrorCode.KEY_CONFLICT, ErrorCode.BAD_JOB, ErrorCode.PAYLOAD_TOO_LARGE, ErrorCode.BAD_HEADER}
)
"""An earlier copy that is still under way will be refused for the same reason."""
_SUBMIT, _SUBMIT_JOBS = int(MsgType.SUBMIT_JOB), int(MsgType.SUBMIT_JOBS)
_ID_SHIFT: Final = 80
_ID_RANDOM: Final = ~((0xF << 76) | (0b11 << 62))
_ID_FIXED: Final = (0x7 << 76) | (0b10 << 62)
"""Version and variant of a UUIDv7, in the 80 bits behind its milliseconds."""

_decode_options = msgspec.json.Decoder(SubmitJobHeader).decode


class Submits:
    """Every submit without an answer.

    Invariants: a call is in exactly one of `_waiting`, `_later` and `_sent`; `_bytes` is the sum of their
    payloads; what is doubtful keeps its id.
    """

    def __init__(
        self,
        dialog: Dialog,
        *,
        patience_us: int,
        bits: Callable[[int], int],
        chance: Callable[[], float],
        accepted: Callable[[Call], None],
    ) -> None:
        self._dialog = dialog
        self._patience_us = patience_us
        self._bits = bits
        self._chance = chance
        self._accepted = accepted
        """Told of each call that was accepted, before the call is."""
        self._waiting: deque[Call] = deque()
        """To be sent as soon as there is a connection, in order."""
        self._later: list[Call] = []
        """Refused for a passing reason: sent again at their `due_us`."""
        self._sent: dict[bytes, Call] = {}
        """By id."""
        self._run: _Run | None = None
        """Said, and held back until the host writes: others of its kind may go along."""
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._sent) + len(self._waiting) + len(self._later)

    @property
    def has_room(self) -> bool:
        """Whether another one may be made: all are kept here, to be repeated."""
        return len(self) < limits.UNANSWERED_MAX and self._bytes < limits.UNANSWERED_BYTES_MAX

    # -- out

    def add(self, call: Call, *, may_send: bool) -> None:
        """A new one."""
        assert call.state == WAITING
        self._bytes += len(call.payload)
        if may_send:
            self._send_first(call)
        else:
            self._waiting.append(call)

    def connected(self) -> None:
        """Repeat what was not answered, send what waits."""
        for call in self._sent.values():
            self._put(call)
        waiting, self._waiting = self._waiting, deque()
        for call in waiting:
            self._send_first(call)

    def lost(self) -> None:
        """What was sent on this connection and not answered may have been accepted."""
        self._run = None
        for call in self._sent.values():
            call.is_doubtful = True

    def send_due(self) -> None:
        """Send again what was refused for a passing reason."""
        now_us = self._dialog.now_us
        due = [call for call in self._later if call.due_us <= now_us]
        self._later = [call for call in self._later if call.due_us > now_us]
        for call in due:
            if call.is_doubtful:
                call.state = SENT
                self._sent[call.job_id] = call
                self._put(call)
            else:
                self._send_first(call)

    def _send_first(self, call: Call) -> None:
        """Under a new id, in log time: it is certain that no log holds the one before, if there was one."""
        dialog = self._dialog
        at_ms = dialog.log_us(dialog.now_us) // 1000
        random = (self._bits(_ID_SHIFT) & _ID_RANDOM) | _ID_FIXED
        call.job_id = job_id = (at_ms << _ID_SHIFT | random).to_bytes(16, "big")
        call.state = SENT
        self._sent[job_id] = call
        self._put(call)

    def gather(self) -> None:
        """What was held back is to be written now."""
        run, self._run = self._run, None
        if run is not None:
            self._dialog.out.append(run.frame())

    def _put(self, call: Call) -> None:
        header, subject, payload = call.header, call.subject, call.payload
        is_plain = not call.is_doubtful and call.wants_result
        if is_plain and self._dialog.may_say_many and len(payload) <= limits.MANY_BYTES_MAX:
            # The payload is kept here as well: the call may be given up, and lose it, before this is written.
            run = self._run
            if run is None or not run.takes(subject, header, len(payload)):
                self.gather()
                run = self._run = _Run(subject, header)
            run.add(call.job_id, payload)
            return
        if call.is_doubtful or not call.wants_result:
            options = _decode_options(header or b"{}")
            options = msgspec.structs.replace(
                options, resend=call.is_doubtful, wants_result=call.wants_result
            )
            header = encode_header(options)
        self._dialog.put(_frame(_SUBMIT, call.job_id, subject, header, payload))

    # -- answers

    def on_accepted(self, frame: Frame) -> bool:
        """Whether it answers one of these."""
        call = self._sent.get(frame.corr_id)
        if call is None:
            return False
        if frame.header:
            call.is_repeat = header_of(frame, AcceptedHeader).repeated
        del self._sent[frame.corr_id]
        call.job_id = frame.msg_id
        self._accept(call)
        return True

    def on_accepted_many(self, frame: Frame) -> None:
        """Each of them as a new job of its own id."""
        for job_id in ids_of(frame):
            call = self._sent.pop(job_id, None)
            if call is not None:
                self._accept(call)

    def _accept(self, call: Call) -> None:
        self._bytes -= len(call.payload)
        call.payload = b""
        call.error = None
        call.state = ACCEPTED
        self._accepted(call)
        call.moved()

    def on_refusal(self, frame: Frame, header: ErrorHeader) -> bool:
        """Whether it answers one of these."""
        call = self._sent.pop(frame.corr_id, None)
        if call is None:
            return False
        call.state = WAITING
        if header.code == ErrorCode.TOO_OLD_TO_TELL and not call.is_doubtful:
            # Nothing was ever accepted under this id: it was under way for too long. It gets a new one.
            self._retry(call, header)
        elif header.unknown and not header.retryable:
            self._unknown(call, f"{header.code}: {header.text}")
        elif header.code in _ALWAYS_RETRIED or (call.is_patient and header.retryable):
            call.is_doubtful |= header.unknown
            self._retry(call, header)
        elif call.is_doubtful and header.code not in _LASTING:
            # An earlier copy may still lie unread somewhere, and be accepted when the reason has passed.
            why = f"an earlier try was not answered, and now it is refused ({header.code}: {header.text})"
            self._unknown(call, why)
        elif header.code == ErrorCode.KEY_CONFLICT:
            self._refuse(call, KeyConflict(text=header.text))
        else:
            self._refuse(call, _refusal(header))
        return True

    def _retry(self, call: Call, header: ErrorHeader) -> None:
        """Not now: a little later, and later each time."""
        dialog = self._dialog
        pause_us = min(RETRY_FIRST_US << min(call.refused_count, 20), RETRY_MAX_US)
        pause_us = max(int(pause_us * (0.5 + 0.5 * self._chance())), header.after_us)
        call.refused_count += 1
        call.due_us = dialog.now_us + pause_us
        call.error = _refusal(header)
        if call.is_patient:
            call.began_us = dialog.now_us
        self._later.append(call)
        if header.code == ErrorCode.ID_IN_FUTURE and dialog.can_say(MsgType.PING):
            dialog.say(Frame(MsgType.PING, dialog.next_request_id()))  # The answer tells log time anew.

    # -- ends without an answer

    def give_up_late(self) -> None:
        """Those that nobody answered for too long."""
        limit_us = self._dialog.now_us - self._patience_us
        late = [call for call in self._sent.values() if call.began_us <= limit_us]
        for call in late:
            del self._sent[call.job_id]
        late += [call for call in self._later if call.began_us <= limit_us]
        late += [call for call in self._waiting if call.began_us <= limit_us]
        if late:
            self._later = [call for call in self._later if call.began_us > limit_us]
            self._waiting = deque(call for call in self._waiting if call.began_us > limit_us)
        for call in late:
            self._give_up(call)

    def give_up_all(self, error: RollmqError) -> None:
        """There will be no answers any more."""
        calls = [*self._sent.values(), *self._later, *self._waiting]
        self._sent.clear()
        self._later.clear()
        self._waiting.clear()
        for call in calls:
            if call.state == SENT or call.is_doubtful:
                self._unknown(call, str(error))
            else:
                self._refuse(call, error)

    def _give_up(self, call: Call) -> None:
        seconds, trouble = self._patience_us / 1e6, self._dialog.leaderless or self._dialog.trouble
        if call.state == SENT or call.is_doubtful:
            self._unknown(call, f"no answer for {seconds:g} s" + (trouble and f" ({trouble})"))
        elif call.error is not None:
            self._refuse(call, call.error)
        else:
            text = f"no leader took it for {seconds:g} s, it was never sent" + (trouble and f" ({trouble})")
            self._refuse(call, SubmitRefused(code="no_leader", text=text, retryable=True))

    def _refuse(self, call: Call, error: RollmqError) -> None:
        """Certainly in no log."""
        self._end(call, REFUSED, error)

    def _unknown(self, call: Call, why: str) -> None:
        self._end(call, UNKNOWN, SubmitUnknown(job_id=call.job_id.hex(), why=why))

    def _end(self, call: Call, state: int, error: RollmqError) -> None:
        self._bytes -= len(call.payload)
        assert self._bytes >= 0
        call.payload = b""
        call.state, call.error = state, error
        call.moved()


class _Run(Parts):
    """First sends of one exec with the same options."""

    __slots__ = ("_header", "_subject")

    def __init__(self, subject: bytes, header: bytes) -> None:
        super().__init__()
        self._subject = subject
        self._header = header

    def takes(self, subject: bytes, header: bytes, byte_count: int) -> bool:
        """Whether such a one may go along. A key names one job: those go alone."""
        is_alike = subject == self._subject and header == self._header
        return is_alike and self.has_room(byte_count) and (not header or _may_be_shared(header))

    def frame(self) -> bytes:
        """All of it."""
        if len(self) == 1:
            return _frame(_SUBMIT, self._ids[0], self._subject, self._header, self._parts[0])
        options = _decode_options(self._header) if self._header else None
        header = encode_header(SubmitJobsHeader(tuple(map(len, self._parts)), options))
        return _frame(_SUBMIT_JOBS, NO_ID, self._subject, header, self.payload())


def _may_be_shared(header: bytes) -> bool:
    return len(header) <= limits.MANY_OPTIONS_BYTES_MAX and b'"key"' not in header


def _frame(kind: int, msg_id: bytes, subject: bytes, header: bytes, payload: bytes) -> bytes:
    length = LENGTH_MIN + len(subject) + len(header) + len(payload)
    return HEAD.pack(length, kind, msg_id, NO_ID, len(subject), len(header)) + subject + header + payload


def _refusal(header: ErrorHeader) -> SubmitRefused:
    return SubmitRefused(
        code=header.code, text=header.text, retryable=header.retryable, after_s=header.after_us / 1e6
    )
