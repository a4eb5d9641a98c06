"""Messages between nodes travel as frames and come back equal, or are refused as a whole."""

import typing
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollmq import limits
from rollmq.core import raft_messages as raft
from rollmq.core import repair_messages as mend
from rollmq.errors import ProtocolError
from rollmq.wire.catalog import MESSAGES
from rollmq.wire.codec import FrameDecoder, encode
from rollmq.wire.headers import NUMBER_MAX
from rollmq.wire.message import Frame, MsgType
from rollmq.wire.peer import PEER_ROWS, NodeMessage, PeerRow, frame_of, message_of
from tests.wire.strategies import bodies, frames, numbers

ids = st.text("0123456789abcdef", min_size=32, max_size=32)
base: dict[str, st.SearchStrategy[Any]] = {"source": ids, "target": ids, "term": numbers}
lines = st.binary(max_size=40).map(lambda body: body.replace(b"\n", b"") + b"\n")


def _drawn(draw: st.DrawFn) -> dict[str, Any]:
    return {name: draw(each) for name, each in base.items()}


@st.composite
def appends(draw: st.DrawFn) -> raft.AppendEntries:
    return raft.AppendEntries(
        **_drawn(draw),
        prev_index=draw(numbers),
        prev_term=draw(numbers),
        commit_index=draw(numbers),
        term_runs=tuple(draw(st.lists(st.tuples(numbers, numbers), max_size=4))),
        lines=draw(st.lists(lines, max_size=6)),
        round=draw(numbers),
    )


@st.composite
def chunks(draw: st.DrawFn) -> raft.InstallSnapshot:
    data = draw(st.binary(max_size=60))
    offset, rest = draw(st.integers(0, 1000)), draw(st.integers(0, 1000))
    return raft.InstallSnapshot(
        **_drawn(draw),
        last_index=draw(numbers),
        last_term=draw(numbers),
        digest=draw(st.text("0123456789abcdef", min_size=64, max_size=64)),
        total_bytes=offset + len(data) + rest,
        offset=offset,
        data=data,
        crc=zlib.crc32(data),
        round=draw(numbers),
    )


def _simple(row: PeerRow) -> st.SearchStrategy[raft.Message]:
    hints = typing.get_type_hints(row.message)
    kinds: dict[Any, st.SearchStrategy[Any]] = {
        int: numbers,
        bool: st.booleans(),
        str: ids,
        bytes: st.binary(max_size=32),
        tuple[tuple[int, int], ...]: st.lists(st.tuples(numbers, numbers), max_size=4).map(tuple),
        tuple[str, ...]: st.lists(ids, max_size=4).map(tuple),
    }
    return st.builds(row.message, **{name: kinds[kind] for name, kind in hints.items()})


messages = st.one_of(
    appends(),
    chunks(),
    *[_simple(row) for row in PEER_ROWS if row.message not in (raft.AppendEntries, raft.InstallSnapshot)],
)
HEARTBEAT = raft.AppendEntries("a" * 32, "b" * 32, 3, prev_index=9, prev_term=2, commit_index=8)


@given(messages)
def test_every_message_between_nodes_comes_back_as_it_went(message: NodeMessage) -> None:
    (frame,) = FrameDecoder(limits.FRAME_BYTES_MAX).feed(encode(frame_of(message, group="default")))
    assert isinstance(frame, Frame)
    assert message_of(frame) == message


def test_every_message_between_nodes_has_a_row() -> None:
    assert {row.message for row in PEER_ROWS} == set(typing.get_args(NodeMessage))
    assert all(MESSAGES[row.kind].header is row.header for row in PEER_ROWS)


@pytest.mark.parametrize("row", PEER_ROWS, ids=lambda row: row.kind.name)
def test_a_header_has_the_fields_of_its_message_and_the_rest_is_the_payload(row: PeerRow) -> None:
    fields = set(row.message.__struct_fields__)
    in_payload = {"lines"} if row.message is raft.AppendEntries else {"data"} & fields
    only_in_header = {"lines_count"} if row.message is raft.AppendEntries else set()
    assert set(row.header.__struct_fields__) - only_in_header == fields - in_payload
    assert MESSAGES[row.kind].subject == f"cluster.<group>.{row.topic}"


def test_the_lines_travel_as_the_very_bytes() -> None:
    sent = [b'{"crc":"00000000","type":"noop"}\n', b"with\ra carriage return\n"]
    frame = frame_of(
        raft.AppendEntries("a", "b", 1, prev_index=0, prev_term=0, commit_index=0, lines=sent), group="g1"
    )
    message = message_of(frame)
    assert isinstance(message, raft.AppendEntries)
    assert message.lines == sent
    assert frame.payload == b"".join(sent)
    assert frame.subject == "cluster.g1.append"


@pytest.mark.parametrize(
    ("payload", "text"), [(b"no newline", "newline"), (b"a\nb\n", "0 lines are announced, there are 2")]
)
def test_lines_that_do_not_fit_their_header_are_refused(payload: bytes, text: str) -> None:
    frame = frame_of(HEARTBEAT, group="g1")
    with pytest.raises(ProtocolError, match=text) as error:
        message_of(Frame(frame.type, header=frame.header, payload=payload))
    assert error.value.code == "bad_payload"


def test_a_chunk_beyond_its_snapshot_is_refused() -> None:
    chunk = raft.InstallSnapshot("a", "b", 1, 5, 1, "d", total_bytes=10, offset=8, data=b"xyz", crc=0)
    with pytest.raises(ProtocolError, match="beyond") as error:
        message_of(frame_of(chunk, group="g1"))
    assert error.value.code == "bad_payload"


def test_a_frame_that_is_no_raft_message_is_refused() -> None:
    with pytest.raises(ProtocolError, match="SubmitJob is no message of the consensus"):
        message_of(Frame(MsgType.SUBMIT_JOB))


@given(frames(kinds=st.sampled_from([int(row.kind) for row in PEER_ROWS])), bodies)
def test_any_frame_is_a_raft_message_or_refused(frame: Frame, header: bytes) -> None:
    frame.header = header
    try:
        message = message_of(frame)
    except ProtocolError:
        return
    assert isinstance(message, raft.Message)


def test_what_a_node_tells_one_that_repairs_itself_fits_a_header() -> None:
    largest = tuple((NUMBER_MAX, NUMBER_MAX) for _ in range(limits.REPAIR_RUNS_MAX))
    has = mend.RepairHas(
        "a" * 32, "b" * 32, NUMBER_MAX, NUMBER_MAX, NUMBER_MAX, NUMBER_MAX, NUMBER_MAX,
        ranges=largest, runs=largest, snapshot_digest="c" * 64, voters=("d" * 32,) * 9,
    )  # fmt: skip
    assert len(frame_of(has, group="default").header) <= limits.HEADER_BYTES_MAX
