"""A ClientCore and the node at the other end of its connection, played by a test, without a socket."""

import random

import msgspec

from rollmq.errors import RollmqError
from rollmq.library.call import ACCEPTED, CANCEL, Call, Question
from rollmq.library.client_core import ClientCore, ClientProfile
from rollmq.wire.codec import FrameDecoder, encode_header, encode_payload
from rollmq.wire.headers import ErrorHeader, Header, HelloAnswerHeader, ReplyHeader
from rollmq.wire.job_headers import AcceptedHeader, ResultHeader, SubmitJobHeader
from rollmq.wire.message import NO_ID, Frame, MsgType
from rollmq.wire.session import Session, Side
from tests.wire.unfold import unfold

SECOND_US = 1_000_000
LOG_US = 1_700_000_000_000_000
FRAME_BYTES_MAX = 16 * 1024 * 1024


class Noted(Call):
    """A call that keeps the states through which it went, and what its handler said."""

    __slots__ = ("news", "states")

    def __init__(
        self, payload: bytes = b"p", header: bytes = b"", *, exec: str = "x", is_patient: bool = False
    ) -> None:
        super().__init__(b"job.submit." + exec.encode(), payload, header, is_patient=is_patient)
        self.states: list[int] = []
        self.news: list[bytes] = []

    def moved(self) -> None:
        self.states.append(self.state)

    def progressed(self, data: bytes, key_id: str) -> None:
        assert not key_id
        self.news.append(data)


class NotedQuestion(Question):
    """A question that counts its answers."""

    __slots__ = ("answers_count",)

    def __init__(self, name: str = CANCEL, *, job_id: bytes = NO_ID, payload: bytes = b"") -> None:
        super().__init__(name, job_id=job_id, payload=payload)
        self.answers_count = 0

    def answered(self) -> None:
        self.answers_count += 1


class Line:
    """The node's end of one connection."""

    def __init__(self, desk: "Desk") -> None:
        self._desk = desk
        self._session = Session(Side.NODE)
        self._decoder = FrameDecoder(FRAME_BYTES_MAX)

    def take(self, data: bytes) -> list[Frame]:
        """What the client said: always something that a node would take."""
        frames = []
        for frame in self._decoder.feed(data):
            assert isinstance(frame, Frame), frame
            self._session.receive(frame)
            frames += unfold(frame)
        return frames

    def say(
        self,
        kind: MsgType,
        header: Header | None = None,
        *,
        msg_id: bytes = NO_ID,
        corr_id: bytes = NO_ID,
        payload: bytes = b"",
    ) -> None:
        """Say something to the client, at once."""
        encoded = b"" if header is None else encode_header(header)
        frame = Frame(kind, msg_id, corr_id, header=encoded, payload=payload)
        self._desk.core.feed(self._session.send(frame), self._desk.now_us)

    def accept(self, submit: Frame, *, first_id: bytes | None = None, repeated: bool = False) -> None:
        header = AcceptedHeader(repeated=repeated)
        self.say(MsgType.ACCEPTED, header, msg_id=first_id or submit.msg_id, corr_id=submit.msg_id)

    def refuse(
        self, request: Frame, code: str, *, retryable: bool = False, unknown: bool = False, after_us: int = 0
    ) -> None:
        header = ErrorHeader(
            code=code, text="because", retryable=retryable, unknown=unknown, after_us=after_us
        )
        self.say(MsgType.ERROR, header, corr_id=request.msg_id)

    def end(self, job_id: bytes, payload: bytes = b"r", **fields: object) -> None:
        self.say(MsgType.RESULT, ResultHeader(**fields), corr_id=job_id, payload=payload)  # type: ignore[arg-type]

    def reply(self, query: Frame, value: object, *, more: bool = False) -> None:
        header = ReplyHeader(more=more)
        self.say(MsgType.REPLY, header, corr_id=query.msg_id, payload=encode_payload(value))


class Desk:
    """The client's core, its time, and the connection that it has."""

    def __init__(self, *, patience_us: int = 60 * SECOND_US, seed: int = 1) -> None:
        chance = random.Random(seed)
        profile = ClientProfile("c", patience_us=patience_us)
        self.core = ClientCore(profile, bits=chance.getrandbits, chance=chance.random)
        self.now_us = 5 * SECOND_US

    def connect(
        self, *, log_us: int | None = None, group: str = "g", term: int = 1, many: bool = True
    ) -> Line:
        """A connection whose hello is answered. What that made the client say is still in `out`."""
        line = Line(self)
        self.core.opened(self.now_us, "node:1")
        (hello,) = line.take(self.out())
        answer = HelloAnswerHeader(
            version=1,
            group=group,
            term=term,
            log_at_us=LOG_US + self.now_us if log_us is None else log_us,
            many=many,
        )
        line.say(MsgType.HELLO_CLIENT, answer, corr_id=hello.msg_id)
        return line

    def lose(self) -> None:
        self.core.lost(self.now_us)

    def out(self) -> bytes:
        """Take what is to be written."""
        return self.core.take_out()

    def submit(self, call: Noted | None = None) -> Noted:
        call = call or Noted()
        self.core.submit(call, self.now_us)
        return call

    def ask(self, question: NotedQuestion) -> NotedQuestion:
        self.core.ask(question, self.now_us)
        return question

    def wait(self, us: int) -> None:
        """Let time pass, with every tick that is due."""
        end_us = self.now_us + us
        while self.core.next_us <= end_us:
            self.now_us = max(self.core.next_us, self.now_us)
            self.core.tick(self.now_us)
        self.now_us = end_us


def error_of(what: Call | Question) -> RollmqError:
    assert what.error is not None
    return what.error


def accepted(desk: Desk, line: Line, call: Noted | None = None) -> Noted:
    """A call that was accepted."""
    call = desk.submit(call)
    (frame,) = line.take(desk.out())
    line.accept(frame)
    assert call.state == ACCEPTED
    return call


def options_of(frame: Frame) -> SubmitJobHeader:
    return msgspec.json.decode(frame.header or b"{}", type=SubmitJobHeader)
