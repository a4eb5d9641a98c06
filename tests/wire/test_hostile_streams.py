"""Whole streams against one end of a connection, as a host would run it: nothing but ProtocolError ever.

The host here does what session.py asks of hosts, and reads everything that the session lets in.
"""

from hypothesis import example, given
from hypothesis import strategies as st

from rollmq.errors import ProtocolError
from rollmq.wire.catalog import MESSAGES
from rollmq.wire.codec import FrameDecoder, encode, header_of, payload_of
from rollmq.wire.message import Frame, MsgType
from rollmq.wire.peer import PEER_ROWS, message_of
from rollmq.wire.readers import exec_of_assign, exec_of_submit, read_ack, read_hello_worker, read_submit
from rollmq.wire.session import Session, Side
from rollmq.wire.session_table import HELLOS
from tests.wire.conversations import CONVERSATIONS

PEER_TYPES = frozenset(int(row.kind) for row in PEER_ROWS)
TO_NODE = [[encode(line.frame) for line in talk.lines if line.is_to_node] for talk in CONVERSATIONS.values()]
FROM_NODE = [
    (talk.lines[0].frame, [encode(line.frame) for line in talk.lines if not line.is_to_node])
    for talk in CONVERSATIONS.values()
]


class Host:
    """One end with its decoder; counts what it took and what it refused."""

    def __init__(self, side: Side, hello: Frame | None = None) -> None:
        self.session = Session(side)
        self.decoder = FrameDecoder(self.session.frame_bytes_max)
        self.taken: list[int] = []
        self.refused: list[str] = []
        if hello is not None:
            self.session.send(hello)

    def receive(self, data: bytes) -> None:
        for item in self.decoder.feed(data):
            if self.session.is_closed:
                return
            error = self._error_of(item)
            if error is not None:
                self.refused.append(error.code)
                self.session.refuse(error)
                assert self.session.is_closed >= error.closes
        assert self.decoder.held_bytes < 4 + self.decoder.frame_bytes_max

    def _error_of(self, item: Frame | ProtocolError) -> ProtocolError | None:
        try:
            self._take(item)
        except ProtocolError as error:
            return error
        return None

    def _take(self, item: Frame | ProtocolError) -> None:
        if isinstance(item, ProtocolError):
            raise item
        self.session.receive(item)
        is_hello = item.type in HELLOS
        if is_hello and self.session.side is Side.NODE:
            self.session.send(Frame(item.type, corr_id=item.msg_id, header=b'{"version":1,"node_id":"n"}'))
        self.decoder.frame_bytes_max = self.session.frame_bytes_max
        read_everything(item, is_answer=is_hello and self.session.side is Side.LIBRARY)
        self.taken.append(item.type)


def read_everything(frame: Frame, *, is_answer: bool) -> None:
    """With each reader that is meant for this type."""
    row = MESSAGES[MsgType(frame.type)]
    header_of(frame, row.answer_header if is_answer and row.answer_header else row.header)
    if row.payload is not None and not is_answer:
        payload_of(frame, row.payload)
    if frame.type in PEER_TYPES:
        message_of(frame)
    elif frame.type == MsgType.SUBMIT_JOB:
        exec_of_submit(frame)
        read_submit(frame)
    elif frame.type == MsgType.ASSIGN_JOB:
        exec_of_assign(frame)
    elif frame.type == MsgType.ACK_JOB:
        read_ack(frame)
    elif frame.type == MsgType.HELLO_WORKER and not is_answer:
        read_hello_worker(frame)


@st.composite
def mutated(draw: st.DrawFn, frames: list[bytes]) -> bytes:
    """Frames lost, repeated and swapped; then bytes changed, lost and put in."""
    kept = draw(st.lists(st.sampled_from(frames), max_size=6)) if draw(st.booleans()) else list(frames)
    stream = bytearray(b"".join([frames[0], *kept] if draw(st.booleans()) else kept))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(stream)))
        stream[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return bytes(stream)


def in_chunks(host: Host, stream: bytes, chunk_bytes: int) -> Host:
    for at in range(0, len(stream), chunk_bytes):
        host.receive(stream[at : at + chunk_bytes])
    return host


def test_undamaged_streams_are_taken_whole_at_both_ends() -> None:
    for frames in TO_NODE:
        host = in_chunks(Host(Side.NODE), b"".join(frames), 7)
        assert (len(host.taken), host.refused) == (len(frames), [])
    for hello, frames in FROM_NODE:
        host = in_chunks(Host(Side.LIBRARY, hello), b"".join(frames), 7)
        assert (len(host.taken), host.refused) == (len(frames), [])


@given(st.sampled_from(TO_NODE).flatmap(mutated) | st.binary(max_size=300), st.integers(1, 400))
@example(b"\0\0\0\x25\x01" + bytes(36), 1)
def test_a_node_takes_or_refuses_whatever_comes_and_holds_little(stream: bytes, chunk_bytes: int) -> None:
    host = in_chunks(Host(Side.NODE), stream, chunk_bytes)
    assert host.taken == in_chunks(Host(Side.NODE), stream, len(stream) or 1).taken


@given(st.data(), st.integers(1, 400))
def test_a_library_takes_or_skips_whatever_comes_and_holds_little(
    data: st.DataObject, chunk_bytes: int
) -> None:
    hello, frames = data.draw(st.sampled_from(FROM_NODE))
    stream = data.draw(mutated(frames))
    host = in_chunks(Host(Side.LIBRARY, hello), stream, chunk_bytes)
    assert host.taken == in_chunks(Host(Side.LIBRARY, hello), stream, len(stream) or 1).taken
