"""One end of a connection: which messages may come and go now. Both ends walk the same table.

    session = Session(Side.NODE)
    session.receive(frame)               # raises ProtocolError for what the table forbids
    transport.write(session.send(Frame(MsgType.HELLO_CLIENT, corr_id=frame.msg_id, header=...)))
    if session.may_send(MsgType.ASSIGN_JOB): ...

The host's duties: hand in each frame before acting on it, one by one; write what `refuse` makes of each
ProtocolError, the decoder's too; when is_closed, write what is left and close. A library is silent: it skips
what does not close, and reconnects after what does. It knows no time (liveness does) and no job.
"""

from enum import Enum

from rollmq import limits
from rollmq.errors import ProtocolError
from rollmq.wire.codec import agree_version, encode, error_frame, header_of
from rollmq.wire.error_codes import ErrorCode, violation
from rollmq.wire.headers import (
    ErrorHeader,
    HelloClientHeader,
    HelloOperatorHeader,
    HelloWorkerHeader,
)
from rollmq.wire.message import Frame, MsgType, type_name
from rollmq.wire.session_table import HELLOS, LEGAL, Direction, Role, State

_KNOWN = frozenset(int(kind) for kind in MsgType)
_PAYLOAD_OF_LINES = frozenset(
    {int(MsgType.APPEND_ENTRIES), int(MsgType.LOG_CHUNK), int(MsgType.REPAIR_PIECE)}
)
_MOVING = frozenset({*map(int, HELLOS), int(MsgType.GOODBYE), int(MsgType.NOT_LEADER), int(MsgType.ERROR)})


class Side(Enum):
    """Which end this is. Of two nodes, the one that dialed takes the library's side."""

    LIBRARY = "library"
    NODE = "node"


class Session:
    """Role and state of one connection, seen from one end.

    Invariant: either direction is closed only if both are; a stranger is connected or closed.
    """

    __slots__ = ("_hello_type", "_states", "is_closed", "legal_in", "legal_out", "role", "side", "version")

    def __init__(self, side: Side) -> None:
        self.side = side
        self.role = Role.STRANGER
        self.version = 0
        """Agreed by the hello; 0 before."""
        self._hello_type = 0
        self.legal_in = self.legal_out = frozenset[int]()
        """The types that the table lets through now, as plain numbers: asked for every frame."""
        self._states = dict.fromkeys(Direction, State.CONNECTED)
        self.is_closed = False
        """Nothing may be said any more: the host closes the connection, and skips what still comes."""
        self._look_up()

    @property
    def incoming(self) -> State:
        """How far the direction is on which this end receives."""
        return self._states[self._direction_in]

    @property
    def outgoing(self) -> State:
        """How far the direction is on which this end sends."""
        return self._states[self._direction_out]

    @property
    def is_ready(self) -> bool:
        """The hello was answered, and the connection is not closed."""
        return self.incoming in (State.READY, State.DRAINING)

    @property
    def frame_bytes_max(self) -> int:
        """What the decoder of this end may accept now."""
        if self.side is Side.NODE and not self.is_ready:
            return limits.HELLO_FRAME_BYTES_MAX
        return limits.FRAME_BYTES_MAX

    def receive(self, frame: Frame) -> None:
        """Let a frame in, or raise the ProtocolError to `refuse`; then it is dropped and moves no state."""
        if frame.type not in self.legal_in:
            raise self._forbidden(frame)
        if len(frame.payload) > limits.PAYLOAD_BYTES_MAX and frame.type not in _PAYLOAD_OF_LINES:
            size, size_max = len(frame.payload), limits.PAYLOAD_BYTES_MAX
            text = f"the payload has {size:,} bytes, at most {size_max:,} are allowed"
            raise violation(ErrorCode.PAYLOAD_TOO_LARGE, text, frame)
        if frame.type in _MOVING:
            self._move(frame, self._direction_in)

    def may_send(self, kind: int) -> bool:
        """Whether this message may go out now."""
        return kind in self.legal_out

    def send(self, frame: Frame) -> bytes:
        """The bytes of a message of ours. Those that move the state must come through here.

        Sending what the table forbids is a programmer's error: ask may_send where it can happen.
        """
        assert frame.type in self.legal_out, self._describe(frame, self._direction_out)
        data = encode(frame)
        if frame.type in _MOVING:
            self._move(frame, self._direction_out)
        return data

    def refuse(self, error: ProtocolError) -> bytes:
        """What answers a violation: the Error frame's bytes; a library says nothing. Closes if it must."""
        if self.may_send(MsgType.ERROR):
            return self.send(error_frame(error))
        if error.closes:
            self.close()
        return b""

    def close(self) -> None:
        """The connection is gone, or this end gives it up."""
        self._states = dict.fromkeys(Direction, State.CLOSED)
        self._look_up()

    @property
    def _direction_in(self) -> Direction:
        return Direction.TO_NODE if self.side is Side.NODE else Direction.FROM_NODE

    @property
    def _direction_out(self) -> Direction:
        return Direction.FROM_NODE if self.side is Side.NODE else Direction.TO_NODE

    def _move(self, frame: Frame, direction: Direction) -> None:
        """Take the step in the table that this message stands for."""
        if frame.type == MsgType.GOODBYE:
            self._states[direction] = State.DRAINING
        elif frame.type == MsgType.NOT_LEADER:
            return self.close()
        elif frame.type == MsgType.ERROR:
            if header_of(frame, ErrorHeader).closes:
                return self.close()
        elif direction is Direction.TO_NODE:
            version, role = agree_version(frame), role_of_hello(frame)
            self.version, self.role, self._hello_type = version, role, frame.type
        elif frame.type != self._hello_type:
            raise self._forbidden(frame)
        else:
            self.version = agree_version(frame)
            self._states = dict.fromkeys(Direction, State.READY)
        return self._look_up()

    def _look_up(self) -> None:
        """Take over what the table says now."""
        self.legal_in = frozenset(map(int, LEGAL[self.role, self._direction_in, self.incoming]))
        self.legal_out = frozenset(map(int, LEGAL[self.role, self._direction_out, self.outgoing]))
        self.is_closed = self.incoming is State.CLOSED

    def _forbidden(self, frame: Frame) -> ProtocolError:
        if frame.type not in _KNOWN and self.is_ready:
            return violation(
                ErrorCode.UNKNOWN_TYPE, f"no message has type {frame.type}; it was skipped", frame
            )
        return violation(ErrorCode.ILLEGAL_MESSAGE, self._describe(frame, self._direction_in), frame)

    def _describe(self, frame: Frame, direction: Direction) -> str:
        return (
            f"{type_name(frame.type)} may not be sent {direction} by or to a {self.role} "
            f"whose state is {self._states[direction]}"
        )


def role_of_hello(frame: Frame) -> Role:
    """Which role a hello asks for. Raises ProtocolError bad_header."""
    if frame.type == MsgType.HELLO_CLIENT:
        return Role.WATCHER if header_of(frame, HelloClientHeader).watches else Role.CLIENT
    if frame.type == MsgType.HELLO_WORKER:
        return Role.WATCHER if header_of(frame, HelloWorkerHeader).watches else Role.WORKER
    if frame.type == MsgType.HELLO_OPERATOR:
        return Role.READER if header_of(frame, HelloOperatorHeader).reads_only else Role.OPERATOR
    assert frame.type == MsgType.LEADER_HELLO
    return Role.PEER
