"""The library's end of a conversation with whichever node leads, over one connection after another.

    dialog.opened(now_us)            # connected: the hello is what is to be said
    dialog.feed(data, now_us)        # bytes came
    dialog.tick(now_us)              # when next_us is reached
    dialog.lost(now_us)              # the connection is gone, whoever closed it

After each of these calls the host writes what `take_out` gives, and closes the connection when `is_over`.
`redirect` says where to go next; after `fatal` there is no use in going anywhere. It opens no socket and
reads no clock: times are microseconds of the host's monotonic clock.
"""

from collections.abc import Callable

from rollmq import limits
from rollmq.compiled import mypyc_attr
from rollmq.errors import (
    ConnectionRefused,
    NotAuthorized,
    ProtocolError,
    RollmqError,
    WrongGroup,
    WrongProtocolVersion,
)
from rollmq.wire.codec import FrameDecoder, encode_header, header_of
from rollmq.wire.error_codes import ErrorCode
from rollmq.wire.headers import (
    ErrorHeader,
    HelloAnswerHeader,
    LeaderIsHeader,
    NotLeaderHeader,
    PongHeader,
    VersionHeader,
)
from rollmq.wire.liveness import Due, Liveness
from rollmq.wire.message import Frame, MsgType
from rollmq.wire.session import Session, Side
from rollmq.wire.session_table import State

NEVER_US = 2**62
"""A time that does not come."""
_MIND_OWN_BUSINESS = frozenset(
    map(int, (MsgType.PING, MsgType.PONG, MsgType.NOT_LEADER, MsgType.ERROR, MsgType.GOODBYE))
)


@mypyc_attr(allow_interpreted_subclasses=True)
class Dialog:
    """What client, worker and watcher have in common: hello, pings, log time, being sent elsewhere.

    Subclasses say what their hello is and act on frames. They may call `say` whenever `can_say` allows it.
    """

    def __init__(self) -> None:
        self.session = Session(Side.LIBRARY)
        self.session.close()
        self.out: list[bytes] = []
        """Bytes to write on the current connection, in order; `put` adds to them, the host takes them out."""
        self.is_over = True
        """The connection, if there is one, is to be closed behind what is in `out`."""
        self.is_ready = False
        """The hello was answered and the connection is not over."""
        self.redirect: str | None = None
        """host:port to which the node sent us when the connection ended; null: it did not say."""
        self.redirect_term = 0
        """The term of that hint, or of the leader that we spoke with last: never falls."""
        self.fatal: RollmqError | None = None
        """Set once, for good: no node of this group will ever take us."""
        self.trouble = ""
        """Why the last connection ended, or why there is none, in words; for people."""
        self.leaderless = ""
        """Why nobody leads, as the last node said that knew of no leader; empty once one was found."""
        self.answer: HelloAnswerHeader | None = None
        """The last hello's answer."""
        self.may_say_many = False
        """It says that the node understands many jobs in one frame."""
        self.group = ""
        """The group's uuid, from the first answer on."""
        self.server = ""
        """host:port of the connection, for errors."""
        self.now_us = 0
        """When the last call came."""
        self.watch_violation: Callable[[ProtocolError], None] | None = None
        """Called for what a node says although it may not, before it is dealt with; for tests of nodes."""
        self._decoder = FrameDecoder(limits.FRAME_BYTES_MAX)
        self._liveness = Liveness(0)
        self._log_ahead_us = 0
        self._requests_count = 0

    # -- what subclasses say and do

    def make_hello(self) -> Frame:
        """The hello of this connection; its msg_id is `next_request_id()`."""
        raise NotImplementedError

    def gather(self) -> None:
        """Put into `out` what was held back for more of its kind to go along."""

    def make_watch_hello(self) -> Frame | None:
        """The hello of the second connection, which only watches for LeaderIs; None: no such connection."""
        return None

    def on_ready(self, answer: HelloAnswerHeader) -> None:
        """The hello was answered: say again what was not confirmed."""

    def on_frame(self, frame: Frame) -> None:
        """A frame for this role came; Error among them, unless it answers the hello."""

    def on_goodbye(self) -> None:
        """The node begins nothing new here; what is under way is still good."""

    def on_lost(self) -> None:
        """The connection was lost after its hello had been answered."""

    def on_fatal(self, error: RollmqError) -> None:
        """There will be no connection any more: whatever is open ends unknown."""

    def on_tick(self) -> None:
        """Time has passed."""

    # -- what the host calls

    def opened(self, now_us: int, server: str = "") -> None:
        """A connection to this server was made: begin with the hello."""
        assert self.fatal is None
        self.server = server
        self.now_us = now_us
        self.session = Session(Side.LIBRARY)
        self._decoder = FrameDecoder(limits.FRAME_BYTES_MAX)
        self._liveness = Liveness(now_us)
        self.out.clear()
        self.is_over = self.is_ready = False
        self.redirect = None
        self.trouble = ""
        self.say(self.make_hello())

    def feed(self, data: bytes, now_us: int) -> None:
        """Bytes came. Never raises, whatever they are."""
        self.now_us = now_us
        self._liveness.heard(now_us)
        receive = self.session.receive
        for item in self._decoder.feed(data):
            if self.is_over:
                return
            if isinstance(item, ProtocolError):
                self._on_violation(item)
                continue
            try:
                receive(item)
            except ProtocolError as error:
                self._on_violation(error)
                continue
            if not self.is_ready or item.type in _MIND_OWN_BUSINESS:
                self._on_own(item)
            else:
                self._hand_on(item)

    def take_out(self) -> bytes:
        """What is to be written now; empty when it is nothing."""
        self.gather()
        out = self.out
        data = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        return data

    def lost(self, now_us: int) -> None:
        """The connection is gone. What was said on it and not answered is unknown."""
        self.now_us = now_us
        was_ready, self.is_ready, self.is_over = self.is_ready, False, True
        self.trouble = self.trouble or "the connection was lost"
        self.session.close()
        self.out.clear()
        if was_ready:
            self.on_lost()

    def tick(self, now_us: int) -> None:
        """Do what is due: pings, giving up a silent node, what the subclass has to do."""
        self.now_us = now_us
        self.on_tick()
        if self.is_over:
            return
        due = self._liveness.due(now_us)
        if due is Due.PING:
            self.say(Frame(MsgType.PING, self.next_request_id()))
        elif due is not Due.NOTHING:
            self.end("the node was silent for too long")

    @property
    def next_us(self) -> int:
        """When to call `tick` at the latest."""
        return NEVER_US if self.is_over else self._liveness.next_us

    def say_goodbye(self) -> None:
        """Nothing new will be said; the node answers what is due, says Goodbye and the host closes."""
        if self.can_say(MsgType.GOODBYE):
            self.say(Frame(MsgType.GOODBYE))

    # -- what subclasses call

    def next_request_id(self) -> bytes:
        """Names a request that is no job: unique among all of this dialog."""
        self._requests_count += 1
        return self._requests_count.to_bytes(16, "big")

    def can_say(self, kind: MsgType) -> bool:
        """Whether this message may go out now."""
        return not self.is_over and self.session.may_send(kind)

    def say(self, frame: Frame) -> None:
        """Put a frame into `out`."""
        self.put(self.session.send(frame))

    def put(self, data: bytes) -> None:
        """The same for bytes that may be said now and move no state."""
        self.gather()
        self.out.append(data)

    def end(self, why: str) -> None:
        """Give this connection up; the host closes it and then calls `lost`."""
        self.trouble = why
        self.is_over = True

    def log_us(self, now_us: int) -> int:
        """Log time, as well as it can be known here: told by the node, carried on by our own clock."""
        return now_us + self._log_ahead_us

    # -- inside

    def _hand_on(self, frame: Frame) -> None:
        try:
            self.on_frame(frame)
        except ProtocolError as error:
            # A header that cannot be read: as good as not sent. Whoever waits for it asks again.
            self._on_violation(error)

    def _on_own(self, frame: Frame) -> None:
        """Frames that are the conversation's own, not the role's."""
        try:
            if frame.type == MsgType.PING:
                self._pong(frame)
            elif frame.type == MsgType.PONG:
                self._learn_log_time(header_of(frame, PongHeader).log_at_us)
            elif frame.type == MsgType.NOT_LEADER:
                self._on_not_leader(header_of(frame, NotLeaderHeader))
            elif frame.type == MsgType.ERROR:
                self._on_error(frame, header_of(frame, ErrorHeader))
            elif frame.type == MsgType.GOODBYE:
                self._on_goodbye()
            else:
                self._on_answer(header_of(frame, HelloAnswerHeader))
        except ProtocolError as error:
            self._on_violation(error)
            if not self.is_ready:
                self.end(f"the hello's answer cannot be read: {error}")

    def _pong(self, frame: Frame) -> None:
        if self.can_say(MsgType.PONG):
            self.say(Frame(MsgType.PONG, corr_id=frame.msg_id))

    def _on_goodbye(self) -> None:
        if self.session.outgoing is State.DRAINING:
            self.end("both sides said goodbye")
        else:
            self.trouble = "the node is shutting down, or gives up its office"
            self.on_goodbye()

    def _on_answer(self, answer: HelloAnswerHeader) -> None:
        if self.group and answer.group and answer.group != self.group:
            self._fail(WrongGroup(before=self.group, now=answer.group))
            return
        self.group = self.group or answer.group
        self.answer = answer
        self.may_say_many = answer.many
        self.leaderless = ""
        self.redirect_term = max(self.redirect_term, answer.term)
        self._liveness = _liveness_of(answer, self.now_us)
        self._learn_log_time(answer.log_at_us)
        self.is_ready = True
        self.on_ready(answer)

    def _learn_log_time(self, log_at_us: int) -> None:
        if log_at_us:
            self._log_ahead_us = log_at_us - self.now_us

    def _on_not_leader(self, header: NotLeaderHeader) -> None:
        # A hint of a lower term than one already seen is stale: it would send us back.
        if header.term >= self.redirect_term:
            self.redirect = header.leader
            self.redirect_term = header.term
        if header.leader is None:
            self.leaderless = f"{self.server}: {header.why or 'no leader is known'}"
        self.end(header.why or "the node does not lead")

    def _on_error(self, frame: Frame, header: ErrorHeader) -> None:
        why = f"{header.code}: {header.text}"
        if header.code == ErrorCode.NOT_AUTHORIZED and header.closes:
            self._fail(NotAuthorized(server=self.server, text=header.text))
        elif self.is_ready:
            self._hand_on(frame)
            if header.closes:
                self.end(why)
        elif header.code == ErrorCode.UNSUPPORTED_VERSION:
            self._fail(WrongProtocolVersion(server=self.server, text=header.text))
        elif header.retryable:
            self.end(why)
        else:
            self._fail(ConnectionRefused(code=header.code, text=f"refused ({why})"))

    def _on_violation(self, error: ProtocolError) -> None:
        """What the node may not say: skipped, or the end of this connection."""
        if self.watch_violation is not None:
            self.watch_violation(error)
        if error.code == ErrorCode.UNSUPPORTED_VERSION:
            self._fail(WrongProtocolVersion(server=self.server, text=error.text))
        elif error.closes:
            stranger = "" if self.is_ready else "this does not look like a rollmq node: "
            self.end(f"{stranger}{error.text}")

    def _fail(self, error: RollmqError) -> None:
        self.fatal = error
        self.end(str(error))
        self.on_fatal(error)


class Watch(Dialog):
    """The second connection, to another node than the one that is spoken with: it hears of new leaders."""

    def __init__(self, of: Dialog) -> None:
        super().__init__()
        self._of = of
        self.leader: str | None = None
        """Of the newest term that was announced here; null: nobody, as far as that node knows."""
        self.leader_term = 0

    def make_hello(self) -> Frame:
        """What the dialog that it watches for says, with `watches`."""
        hello = self._of.make_watch_hello()
        assert hello is not None, "a dialog without a watching hello has no Watch"
        return hello

    def on_frame(self, frame: Frame) -> None:
        """LeaderIs; anything else is of no interest here."""
        if frame.type == MsgType.LEADER_IS:
            header = header_of(frame, LeaderIsHeader)
            if header.term >= self.leader_term:
                self.leader, self.leader_term = header.leader, header.term


def hello_frame(kind: MsgType, msg_id: bytes, header: VersionHeader, payload: bytes = b"") -> Frame:
    """A hello as a frame."""
    return Frame(kind, msg_id, header=encode_header(header), payload=payload)


def _liveness_of(answer: HelloAnswerHeader, now_us: int) -> Liveness:
    """The pace that the node asks for; nonsense is not followed."""
    idle_us = max(answer.idle_us_max, 2)
    ping_us = min(max(answer.ping_every_us, 1), idle_us - 1)
    liveness = Liveness(now_us, ping_every_us=ping_us, idle_us_max=idle_us)
    liveness.ready(now_us)
    return liveness
