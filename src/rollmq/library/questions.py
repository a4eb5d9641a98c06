"""Cancels and queries of a client: safe to repeat, so they are, until one is answered.

Part of ClientCore, which says when there is a connection; sans-IO like it.
"""

from rollmq.errors import RequestRefused, RequestUnknown, RollmqError
from rollmq.library.call import CANCEL, Question
from rollmq.library.dialog import Dialog
from rollmq.wire.codec import encode_frame, encode_header, header_of
from rollmq.wire.headers import ErrorHeader, QueryHeader, ReplyHeader
from rollmq.wire.job_headers import CancelHeader
from rollmq.wire.message import Frame, MsgType


class Questions:
    """Every question without an answer."""

    def __init__(self, dialog: Dialog, *, patience_us: int) -> None:
        self._dialog = dialog
        self._patience_us = patience_us
        self._sent: dict[bytes, Question] = {}
        self._waiting: list[Question] = []

    def __len__(self) -> int:
        return len(self._sent) + len(self._waiting)

    # -- out

    def add(self, question: Question, *, may_send: bool) -> None:
        """A new one."""
        if may_send:
            self._send(question)
        else:
            self._waiting.append(question)

    def connected(self) -> None:
        """Ask again what was not answered, and what waits."""
        questions = [*self._sent.values(), *self._waiting]
        self._sent.clear()
        self._waiting.clear()
        for question in questions:
            self._send(question)

    def lost(self) -> None:
        """What was under way may have been carried out."""
        for question in self._sent.values():
            question.is_doubtful = True

    def _send(self, question: Question) -> None:
        request_id = self._dialog.next_request_id()
        self._sent[request_id] = question
        question.parts.clear()
        if question.name == CANCEL:
            header = encode_header(CancelHeader(why=question.why))
            frame = encode_frame(MsgType.CANCEL, request_id, question.job_id, header=header)
        else:
            header = encode_header(QueryHeader(name=question.name))
            frame = encode_frame(MsgType.QUERY, request_id, header=header, payload=question.payload)
        self._dialog.put(frame)

    # -- answers

    def on_reply(self, frame: Frame) -> None:
        """The answer to a query, or a part of it."""
        question = self._sent.get(frame.corr_id)
        if question is None:
            return
        has_more = header_of(frame, ReplyHeader).more
        question.parts.append(frame.payload)
        if not has_more:
            del self._sent[frame.corr_id]
            question.answered()

    def on_accepted(self, frame: Frame) -> None:
        """A cancel is committed."""
        question = self._sent.pop(frame.corr_id, None)
        if question is not None:
            question.answered()

    def on_refusal(self, frame: Frame, header: ErrorHeader) -> None:
        """It was not carried out, or nobody knows."""
        question = self._sent.get(frame.corr_id)
        if question is None or (header.retryable and header.unknown):
            return  # The leader is going: it is asked again on the next connection.
        del self._sent[frame.corr_id]
        if header.unknown or (question.is_doubtful and question.name == CANCEL):
            # The first copy of a cancel may have done what the second one finds done.
            question.error = RequestUnknown(what=question.name, why=f"{header.code}: {header.text}")
        else:
            question.error = RequestRefused(code=header.code, text=header.text, retryable=header.retryable)
        question.answered()

    # -- ends without an answer

    def give_up_late(self) -> None:
        """Those that nobody answered for too long."""
        limit_us = self._dialog.now_us - self._patience_us
        late = [key for key, question in self._sent.items() if question.began_us <= limit_us]
        given_up = [self._sent.pop(key) for key in late]
        given_up += [question for question in self._waiting if question.began_us <= limit_us]
        if given_up:
            self._waiting = [question for question in self._waiting if question.began_us > limit_us]
        for question in given_up:
            why = f"no answer for {self._patience_us / 1e6:g} s"
            question.error = RequestUnknown(what=question.name, why=why)
            question.answered()

    def give_up_all(self, error: RollmqError) -> None:
        """There will be no answers any more."""
        sent, waiting = list(self._sent.values()), self._waiting
        self._sent.clear()
        self._waiting = []
        for question in sent:
            question.error = RequestUnknown(what=question.name, why=str(error))
            question.answered()
        for question in waiting:
            was_sent = question.is_doubtful
            question.error = RequestUnknown(what=question.name, why=str(error)) if was_sent else error
            question.answered()
