"""The client's end of the conversation: which submits are answered, which are to be repeated, which results
are still to come.

    core.submit(call, now_us); core.ask(question, now_us)      # then write what `take_out` gives
    core.opened / feed / lost / tick                           # as every Dialog
    call.moved(), question.answered()                          # overridden by whoever wants to hear of it

Sans-IO: times and chance are handed in. Done, refused and unknown are kept apart: what was sent and not
answered is repeated under its id, after each reconnect, until it is answered or patience is at its end; then
it is unknown. Only what is certainly in no log is told as refused.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rollmq import limits
from rollmq.errors import ClientClosed, RollmqError
from rollmq.library.awaited import Awaited
from rollmq.library.call import ACCEPTED, GONE, REFUSED, Call, Question
from rollmq.library.dialog import NEVER_US, Dialog, hello_frame
from rollmq.library.questions import Questions
from rollmq.library.submits import Submits
from rollmq.wire.codec import header_of
from rollmq.wire.headers import ErrorHeader, HelloAnswerHeader, HelloClientHeader
from rollmq.wire.message import PROTOCOL_VERSION, PROTOCOL_VERSION_MIN, Frame, MsgType

LOOK_EVERY_US: Final = 100_000
"""How often what is unanswered is looked at, while there is any."""
_ACCEPTED, _RESULT, _REPLY = int(MsgType.ACCEPTED), int(MsgType.RESULT), int(MsgType.REPLY)
_ACCEPTED_JOBS, _RESULTS = int(MsgType.ACCEPTED_JOBS), int(MsgType.RESULTS)
_ERROR: Final = int(MsgType.ERROR)


@dataclass(frozen=True, slots=True)
class ClientProfile:
    """Who a client is and how long it waits."""

    client_id: str
    cap: int = 0
    weight: int = 1
    token: str = ""
    release: str = ""
    patience_us: int = 60_000_000
    """How long a submit or question may go without an answer."""


class ClientCore(Dialog):
    """One session of a client, over all of its connections."""

    def __init__(
        self, profile: ClientProfile, *, bits: Callable[[int], int], chance: Callable[[], float]
    ) -> None:
        """`bits(n)` draws n random bits for ids, never the same in two processes; `chance` 0 to 1."""
        super().__init__()
        self.profile = profile
        self._awaited = Awaited(self)
        self._submits = Submits(
            self,
            patience_us=profile.patience_us,
            bits=bits,
            chance=chance,
            accepted=self._on_call_accepted,
        )
        self._questions = Questions(self, patience_us=profile.patience_us)
        self._may_ask = False
        """Ready, and neither side has said goodbye."""
        self.is_closed = False
        """By its user; there is no way back."""
        self._look_us = NEVER_US

    # -- what the host does

    @property
    def has_room(self) -> bool:
        """Whether another submit may be made; also when it would be refused at once."""
        return self._submits.has_room or self.is_closed or self.fatal is not None

    @property
    def unanswered_count(self) -> int:
        """Submits that are neither accepted nor refused."""
        return len(self._submits)

    @property
    def awaited_count(self) -> int:
        """Calls that were accepted and whose end will be told."""
        return self._awaited.count

    def submit(self, call: Call, now_us: int) -> None:
        """Send it, now or as soon as that is possible. `call.moved` says what came of it."""
        self.now_us = now_us
        if self.fatal is not None or self.is_closed:
            call.state, call.error = REFUSED, self.fatal or ClientClosed()
            call.moved()
            return
        call.began_us = call.began_us or now_us
        if self._look_us == NEVER_US:
            self._look_us = now_us + LOOK_EVERY_US
        if call.wants_result and self._awaited.count + len(self._submits) >= limits.RESULTS_AWAITED_MAX:
            call.wants_result = False
        self._submits.add(call, may_send=self._may_ask and not self.is_over)

    def await_result(self, call: Call, now_us: int) -> None:
        """See to it that the end of an accepted job is told, also of one that somebody else submitted."""
        self.now_us = now_us
        if call.state != ACCEPTED or call.is_open:
            return
        if self.fatal is not None or self.is_closed:
            call.state, call.error = GONE, self.fatal or ClientClosed()
            call.moved()
        else:
            self._awaited.ask(call)

    def ask(self, question: Question, now_us: int) -> None:
        """Send a cancel or query, now or as soon as that is possible. `question.answered` follows."""
        self.now_us = now_us
        if self.fatal is not None or self.is_closed:
            question.error = self.fatal or ClientClosed()
            question.answered()
            return
        question.began_us = now_us
        if self._look_us == NEVER_US:
            self._look_us = now_us + LOOK_EVERY_US
        self._questions.add(question, may_send=self._may_ask and not self.is_over)

    def close(self, now_us: int) -> None:
        """Nothing more is wanted. What was sent and not answered is unknown, what was not is refused."""
        self.now_us = now_us
        self.is_closed = True
        self._give_up_all(ClientClosed())

    @property
    def next_us(self) -> int:
        """When to tick at the latest, connected or not."""
        return min(super().next_us, self._look_us)

    # -- the connection

    def make_hello(self) -> Frame:
        """Who this is."""
        return self._hello(watches=False)

    def make_watch_hello(self) -> Frame:
        """The second connection, which hears of new leaders."""
        return self._hello(watches=True)

    def _hello(self, *, watches: bool) -> Frame:
        profile = self.profile
        header = HelloClientHeader(
            version=PROTOCOL_VERSION,
            version_min=PROTOCOL_VERSION_MIN,
            client_id=profile.client_id,
            cap=profile.cap,
            weight=profile.weight,
            token=profile.token,
            release=profile.release,
            watches=watches,
            many=not watches,
        )
        return hello_frame(MsgType.HELLO_CLIENT, self.next_request_id(), header)

    def on_ready(self, answer: HelloAnswerHeader) -> None:
        """Repeat what was not answered, send what waits, ask for the results that are still to come."""
        del answer
        self._may_ask = True
        self._submits.connected()
        self._questions.connected()
        self._awaited.connected()

    def on_goodbye(self) -> None:
        """The node stops: what is new waits for the next one."""
        self._may_ask = False

    def say_goodbye(self) -> None:
        """Nothing new is said."""
        super().say_goodbye()
        self._may_ask = False

    def on_lost(self) -> None:
        """What was under way is doubtful."""
        self._may_ask = False
        self._submits.lost()
        self._questions.lost()

    def on_fatal(self, error: RollmqError) -> None:
        """No node will ever answer."""
        self._may_ask = False
        self._give_up_all(error)

    def gather(self) -> None:
        """Submits wait for others to go along until the host writes, or something else is said."""
        self._submits.gather()

    def _give_up_all(self, error: RollmqError) -> None:
        self._submits.give_up_all(error)
        self._awaited.give_up_all(error)
        self._questions.give_up_all(error)
        self._look_us = NEVER_US

    def on_tick(self) -> None:
        """Send again what is due; give up what went without an answer for too long."""
        if self.now_us < self._look_us:
            return
        if self._may_ask and not self.is_over:
            self._submits.send_due()
        self._submits.give_up_late()
        self._questions.give_up_late()
        is_idle = not (len(self._submits) or len(self._questions))
        self._look_us = NEVER_US if is_idle else self.now_us + LOOK_EVERY_US

    # -- frames in

    def on_frame(self, frame: Frame) -> None:
        """What a node says to a client."""
        kind = frame.type
        if kind == _RESULTS:
            self._awaited.on_results(frame)
        elif kind == _ACCEPTED_JOBS:
            self._submits.on_accepted_many(frame)
        elif kind == _RESULT:
            self._awaited.on_result(frame)
        elif kind == _ACCEPTED:
            if not self._submits.on_accepted(frame):
                self._questions.on_accepted(frame)
        elif kind == _REPLY:
            if not self._awaited.on_reply(frame):
                self._questions.on_reply(frame)
        elif kind == _ERROR:
            header = header_of(frame, ErrorHeader)
            if not self._submits.on_refusal(frame, header) and not self._awaited.on_refusal(frame, header):
                self._questions.on_refusal(frame, header)

    def _on_call_accepted(self, call: Call) -> None:
        if call.wants_result:
            self._awaited.add(call)
