"""docs/protocol.md says what the code does: read back byte by byte, by a reader that knows only the page."""

import json
import re

import msgspec
import pytest

from rollmq import limits
from rollmq.core.subject import matches
from rollmq.wire.catalog import MESSAGES
from rollmq.wire.codec import encode, header_of, payload_of
from rollmq.wire.message import Frame, MsgType, type_name
from rollmq.wire.peer import PEER_ROWS, message_of
from rollmq.wire.readers import exec_of_assign, exec_of_submit, read_ack, read_hello_worker, read_submit
from rollmq.wire.session import Session, Side
from tests.wire.conversations import CLIENT, CONVERSATIONS, Conversation
from tests.wire.protocol_page import PAGE, PART, header_types, meaning, parts, rendered

RENEW = "run: .venv/bin/python -m tests.wire.protocol_page --rewrite"
DUMP_ROW = re.compile(r"^([0-9a-f]{8})  ([0-9a-f ]{48})  \|")


@pytest.fixture(scope="module")
def page(request: pytest.FixtureRequest) -> str:
    if request.config.getoption("--rewrite"):
        PAGE.write_text(rendered(PAGE.read_text()))
    return PAGE.read_text()


def test_the_page_is_current(page: str) -> None:
    assert page == rendered(page), RENEW


def test_every_part_has_its_place(page: str) -> None:
    assert {found["name"] for found in PART.finditer(page)} == set(parts())


@pytest.mark.parametrize("kind", MsgType, ids=type_name)
def test_every_message_has_its_section_with_its_fields(kind: MsgType, page: str) -> None:
    section = _section(page, f"### {kind.value} {type_name(kind)}")
    row = MESSAGES[kind]
    assert f"<!-- begin: fields {row.header.__name__} -->" in section
    if row.payload is not None:
        assert f"<!-- begin: fields {row.payload.__name__} -->" in section
    # More than the table: somebody wrote what it means and what answers it.
    assert len(PART.sub("", section).split()) >= 5 or kind is MsgType.INSTALL_SNAP_RESP


def test_every_field_has_a_word_about_it() -> None:
    silent = [
        f"{kind.__name__}.{field.name}"
        for kind in header_types()
        for field in msgspec.structs.fields(kind)
        if not meaning(kind, field.name)
    ]
    assert silent == []


def test_the_bounds_in_the_text_are_those_of_the_code(page: str) -> None:
    text = " ".join(PART.sub("", page).split())
    assert f"the hello's frame at most {limits.HELLO_FRAME_BYTES_MAX:,} bytes" in text
    assert f"at most {limits.ERROR_DETAIL_BYTES_MAX:,} bytes. Confirmed by AckDone" in text
    assert f"the whole header has one too ({limits.HEADER_BYTES_MAX:,} bytes)" in text
    assert f"together they are at most {limits.MANY_BYTES_MAX:,}" in text
    assert f"one chunk, at most {limits.SNAPSHOT_CHUNK_BYTES_MAX:,} bytes" in text
    assert f"together have at most {limits.SUBJECT_BYTES_MAX} bytes" in text
    assert f"handshake has {limits.HANDSHAKE_US_MAX // 1_000_000} s" in text
    assert f"heard nothing for {limits.PING_EVERY_US // 1_000_000} s, send Ping" in text
    assert f"hears nothing for {limits.IDLE_US_MAX // 1_000_000} s closes" in text


def test_the_table_of_patterns_is_true(page: str) -> None:
    table = [
        [cell.strip().strip("`") for cell in line.strip("|").split("|")]
        for line in _section(page, "## Subjects and patterns").splitlines()
        if line.startswith("| ")
    ]
    subjects, rows = table[0][1:], table[2:]
    assert len(rows) == 4
    for pattern, *cells in rows:
        assert [cell == "matches" for cell in cells] == [matches(pattern, subject) for subject in subjects]


# --- conversations ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_the_hexdumps_are_the_frames_and_a_reader_of_the_page_understands_them(name: str, page: str) -> None:
    dumped = _dumps(_part(page, f"conversation {name}"))
    frames = [line.frame for line in CONVERSATIONS[name].lines]
    assert dumped == [encode(frame) for frame in frames]
    assert [_read_by_the_page(data) for data in dumped] == frames


@pytest.mark.parametrize("talk", CONVERSATIONS.values(), ids=CONVERSATIONS)
def test_a_conversation_is_legal_at_both_ends(talk: Conversation) -> None:
    library, node = Session(Side.LIBRARY), Session(Side.NODE)
    for line in talk.lines:
        sender, receiver = (library, node) if line.is_to_node else (node, library)
        sender.send(line.frame)
        receiver.receive(line.frame)


@pytest.mark.parametrize("talk", CONVERSATIONS.values(), ids=CONVERSATIONS)
def test_what_is_said_in_a_conversation_can_be_read(talk: Conversation) -> None:
    for line in talk.lines:
        frame = line.frame
        row = MESSAGES[MsgType(frame.type)]
        is_answer = row.answer_header is not None and not line.is_to_node
        kind = row.answer_header if is_answer and row.answer_header is not None else row.header
        assert set(json.loads(frame.header or b"{}")) <= set(kind.__struct_fields__)
        header_of(frame, kind)
        if row.payload is not None and not is_answer:
            payload_of(frame, row.payload)
        _read_whole(frame, is_answer=is_answer)


def _read_whole(frame: Frame, *, is_answer: bool) -> None:
    """By the reader that a node or a library uses for this type, if there is one."""
    if frame.type == MsgType.SUBMIT_JOB:
        assert exec_of_submit(frame) == "image.resize"
        read_submit(frame)
    elif frame.type == MsgType.ASSIGN_JOB:
        assert exec_of_assign(frame) == "image.resize"
    elif frame.type == MsgType.ACK_JOB:
        read_ack(frame)
    elif frame.type == MsgType.HELLO_WORKER and not is_answer:
        read_hello_worker(frame)
    elif frame.type in {row.kind for row in PEER_ROWS}:
        message_of(frame)


def test_a_changed_byte_in_the_page_is_noticed(page: str) -> None:
    dump = _part(page, "conversation client")
    damaged = page.replace(dump, dump.replace("00 00 00 48", "00 00 00 49", 1), 1)
    assert damaged != page
    assert rendered(damaged) == page
    assert _dumps(_part(damaged, "conversation client")) != [encode(line.frame) for line in CLIENT.lines]


def _part(page: str, name: str) -> str:
    return next(found.group() for found in PART.finditer(page) if found["name"] == name)


def _section(page: str, heading: str) -> str:
    """From a heading to the next one of the same or a higher rank."""
    _, found, rest = page.partition(f"{heading}\n")
    assert found, f"docs/protocol.md has no heading {heading!r}"
    rank = heading.index(" ")
    return re.split(rf"^#{{1,{rank}}} ", rest, maxsplit=1, flags=re.MULTILINE)[0]


def _dumps(text: str) -> list[bytes]:
    """The bytes of each hexdump: rows whose offset begins at 0 again begin another."""
    dumps: list[bytearray] = []
    for line in text.splitlines():
        if row := DUMP_ROW.match(line):
            if row[1] == "00000000":
                dumps.append(bytearray())
            assert int(row[1], 16) == len(dumps[-1])
            dumps[-1] += bytes.fromhex(row[2])
    return [bytes(dump) for dump in dumps]


def _read_by_the_page(data: bytes) -> Frame:
    """One frame by the table under "Frames", with nothing of ours but the value to compare."""
    length = int.from_bytes(data[0:4], "big")
    assert length == len(data) - 4
    subject_len, header_len = int.from_bytes(data[37:39], "big"), int.from_bytes(data[39:41], "big")
    header_at, payload_at = 41 + subject_len, 41 + subject_len + header_len
    assert len(data) - payload_at == length - 37 - subject_len - header_len
    return Frame(
        type=data[4],
        msg_id=data[5:21],
        corr_id=data[21:37],
        subject=data[41:header_at].decode("utf-8"),
        header=data[header_at:payload_at],
        payload=data[payload_at:],
    )
