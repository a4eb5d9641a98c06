"""Both ends of one connection without a socket, in any state, for the tests of sessions."""

import pytest

from rollmq.errors import ProtocolError
from rollmq.wire.codec import FrameDecoder
from rollmq.wire.message import Frame, MsgType
from rollmq.wire.session import Session, Side
from rollmq.wire.session_table import Direction, Role, State

M = MsgType
ANSWER = b'{"version":1}'
HELLO_FRAMES = {
    Role.CLIENT: Frame(M.HELLO_CLIENT, header=b'{"version":1,"client_id":"c"}'),
    Role.WORKER: Frame(M.HELLO_WORKER, header=b'{"version":1,"worker_id":"w","instance":"i"}'),
    Role.OPERATOR: Frame(M.HELLO_OPERATOR, header=b'{"version":1}'),
    Role.READER: Frame(M.HELLO_OPERATOR, header=b'{"version":1,"reads_only":true}'),
    Role.WATCHER: Frame(M.HELLO_CLIENT, header=b'{"version":1,"client_id":"c","watches":true}'),
    Role.PEER: Frame(M.LEADER_HELLO, header=b'{"version":1,"node_id":"n"}'),
}
WATCHING_WORKER = Frame(M.HELLO_WORKER, header=b'{"version":1,"worker_id":"w","instance":"i","watches":true}')
CLOSING_ERROR = Frame(M.ERROR, header=b'{"code":"internal","closes":true}')


class Pair:
    """Both ends of one connection, without a socket: what one sends the other receives at once."""

    def __init__(self) -> None:
        self.library, self.node = Session(Side.LIBRARY), Session(Side.NODE)

    def to_node(self, frame: Frame) -> None:
        self._carry(self.library, self.node, frame)

    def from_node(self, frame: Frame) -> None:
        self._carry(self.node, self.library, frame)

    def pass_on(self, direction: Direction, frame: Frame) -> None:
        (self.to_node if direction is Direction.TO_NODE else self.from_node)(frame)

    def _carry(self, source: Session, target: Session, frame: Frame) -> None:
        (item,) = FrameDecoder(target.frame_bytes_max).feed(source.send(frame))
        assert isinstance(item, Frame)
        target.receive(item)
        assert (self.library.outgoing, self.library.incoming) == (self.node.incoming, self.node.outgoing)
        assert self.library.role == self.node.role


def greeted(role: Role) -> Pair:
    """A pair whose hello is answered."""
    pair = Pair()
    pair.to_node(HELLO_FRAMES[role])
    pair.from_node(Frame(HELLO_FRAMES[role].type, header=ANSWER))
    return pair


def reached(role: Role, direction: Direction, state: State) -> Pair:
    """A pair in which this direction is in this state."""
    if state is State.CONNECTED:
        pair = Pair()
        if role is not Role.STRANGER:
            pair.to_node(HELLO_FRAMES[role])
    elif state is State.CLOSED:
        pair = Pair() if role is Role.STRANGER else greeted(role)
        pair.from_node(CLOSING_ERROR)
    else:
        pair = greeted(role)
        if state is State.DRAINING:
            pair.pass_on(direction, Frame(M.GOODBYE))
    return pair


def refusal(session: Session, frame: Frame) -> ProtocolError:
    with pytest.raises(ProtocolError) as error:
        session.receive(frame)
    return error.value
