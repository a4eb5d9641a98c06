"""Frames to bytes and back: any frame, any chunking, any bytes."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollmq import limits
from rollmq.errors import MessageTooLarge, ProtocolError
from rollmq.wire.codec import FrameDecoder, Received, encode, encode_frame
from rollmq.wire.message import Frame, MsgType, type_name
from tests.wire.strategies import (
    FRAME_BYTES_MAX,
    chunked,
    damaged_streams,
    frames,
    plain,
    receive,
    streams,
)

PING = Frame(MsgType.PING, msg_id=b"p" * 16)


def raw(
    length: int, *, kind: int = 15, subject_len: int = 0, header_len: int = 0, rest: bytes = b""
) -> bytes:
    """A frame by hand, so that its lengths can lie."""
    return struct.pack(">IB16s16sHH", length, kind, b"m" * 16, bytes(16), subject_len, header_len) + rest


def only_error(items: list[Received]) -> ProtocolError:
    assert len(items) == 1
    assert isinstance(items[0], ProtocolError)
    return items[0]


# --- examples ---------------------------------------------------------------------------------------


def test_the_layout_is_the_one_of_the_page() -> None:
    data = encode_frame(3, b"j" * 16, b"c" * 16, "job.submit.a", b'{"priority":1}', b"data")
    assert data[:4] == (len(data) - 4).to_bytes(4, "big")
    assert data[4] == 3
    assert data[5:21] == b"j" * 16
    assert data[21:37] == b"c" * 16
    assert data[37:41] == b"\x00\x0c\x00\x0e"
    assert data[41:] == b'job.submit.a{"priority":1}data'


def test_an_empty_frame_is_41_bytes_and_comes_back_when_its_last_byte_does() -> None:
    data = encode(PING)
    decoder = FrameDecoder(FRAME_BYTES_MAX)
    assert len(data) == 41
    assert decoder.feed(data[:-1]) == []
    assert decoder.held_bytes == 40
    assert decoder.feed(data[-1:]) == [PING]
    assert decoder.held_bytes == 0


def test_a_type_that_nobody_knows_is_a_frame_like_any_other() -> None:
    assert receive([encode(Frame(200))]) == [Frame(200)]
    assert type_name(200) == "type 200"
    assert type_name(27) == "InstallSnapResp"


def test_the_chunk_that_ends_a_frame_may_begin_others() -> None:
    data = encode(PING) * 3
    assert receive([data[:50], data[50:]]) == [PING, PING, PING]


def test_a_length_over_the_limit_is_refused_from_its_four_bytes_and_nothing_is_kept() -> None:
    decoder = FrameDecoder(FRAME_BYTES_MAX)
    error = only_error(decoder.feed(b"\xff\xff\xff\xff"))
    assert (error.code, error.closes) == ("frame_too_large", True)
    assert "4,294,967,295 bytes" in error.text
    assert "4,096" in error.text
    assert decoder.held_bytes == 0


def test_the_limit_itself_is_allowed_and_one_more_is_not() -> None:
    decoder = FrameDecoder(FRAME_BYTES_MAX)
    largest = Frame(15, payload=b"x" * (FRAME_BYTES_MAX - 37))
    assert decoder.feed(encode(largest)) == [largest]
    assert only_error(decoder.feed(encode(Frame(15, payload=largest.payload + b"x")))).closes


def test_the_limit_can_be_raised_between_two_frames() -> None:
    decoder = FrameDecoder(FRAME_BYTES_MAX)
    large = Frame(3, payload=b"x" * FRAME_BYTES_MAX)
    assert decoder.feed(encode(PING)) == [PING]
    decoder.frame_bytes_max = 2 * FRAME_BYTES_MAX
    assert decoder.feed(encode(large)) == [large]


@pytest.mark.parametrize("length", [0, 1, 36])
def test_a_length_too_short_for_a_head_breaks_the_stream(length: int) -> None:
    assert only_error(receive([length.to_bytes(4, "big")])).code == "bad_frame"


@pytest.mark.parametrize(("subject_len", "header_len"), [(1, 0), (0, 1), (65535, 65535), (2, 2)])
def test_inner_lengths_beyond_the_frame_break_the_stream(subject_len: int, header_len: int) -> None:
    error = only_error(receive([raw(37, subject_len=subject_len, header_len=header_len, rest=b"abc")]))
    assert (error.code, error.closes) == ("bad_frame", True)


def test_behind_a_broken_frame_nothing_is_believed() -> None:
    decoder = FrameDecoder(FRAME_BYTES_MAX)
    decoder.feed(b"\0\0\0\0")
    assert decoder.broken
    assert decoder.feed(encode(PING)) == []
    assert decoder.held_bytes == 0


def test_frames_before_the_broken_one_are_delivered() -> None:
    items = receive([encode(PING) + b"\0\0\0\1"])
    assert items[0] == PING
    assert isinstance(items[1], ProtocolError)


@pytest.mark.parametrize(
    ("subject", "header", "code"),
    [
        (b"s" * (limits.FRAME_SUBJECT_BYTES_MAX + 1), b"", "subject_too_long"),
        (b"", b"h" * (limits.HEADER_BYTES_MAX + 1), "header_too_large"),
        (b"\xff", b"", "bad_subject"),
        (b"\xed\xa0\x80", b"", "bad_subject"),
    ],
)
def test_a_frame_with_one_bad_part_is_skipped_and_named_and_the_next_one_comes(
    subject: bytes, header: bytes, code: str
) -> None:
    rest = subject + header
    bad = raw(37 + len(rest), kind=3, subject_len=len(subject), header_len=len(header), rest=rest)
    error, following = receive([bad + encode(PING)], frame_bytes_max=limits.FRAME_BYTES_MAX)
    assert isinstance(error, ProtocolError)
    assert (error.code, error.closes, error.request_type) == (code, False, 3)
    assert error.request_id == b"m" * 16
    assert following == PING


@pytest.mark.parametrize(
    ("frame", "part"),
    [
        (Frame(3, subject="s" * (limits.FRAME_SUBJECT_BYTES_MAX + 1)), "subject"),
        (Frame(3, header=b"h" * (limits.HEADER_BYTES_MAX + 1)), "header"),
        (Frame(3, payload=bytes(limits.FRAME_BYTES_MAX - 36)), "whole"),
    ],
)
def test_what_no_node_would_take_is_not_even_encoded(frame: Frame, part: str) -> None:
    with pytest.raises(MessageTooLarge, match=f"the message's {part} has .* Nothing was sent"):
        encode(frame)


def test_a_large_frame_in_tiny_chunks_costs_its_own_bytes_only() -> None:
    data = encode(Frame(3, payload=bytes(3000)))
    decoder = FrameDecoder(FRAME_BYTES_MAX)
    for at in range(len(data) - 1):
        assert decoder.feed(data[at : at + 1]) == []
        assert decoder.held_bytes == at + 1
    assert len(decoder.feed(data[-1:])) == 1


# --- properties -------------------------------------------------------------------------------------


@given(frames())
def test_any_frame_comes_back_as_it_went(frame: Frame) -> None:
    assert receive([encode(frame)]) == [frame]


@given(chunked(streams()))
def test_any_chunking_gives_the_same_frames(chunks: list[bytes]) -> None:
    items = receive(chunks)
    assert items == receive([b"".join(chunks)])
    assert b"".join(encode(item) for item in items if isinstance(item, Frame)) == b"".join(chunks)


@given(chunked(damaged_streams() | st.binary(max_size=6000)))
def test_any_bytes_in_any_chunking_give_the_same_frames_and_errors_of_ours(chunks: list[bytes]) -> None:
    items = receive(chunks)
    assert plain(items) == plain(receive([b"".join(chunks)]))
    assert not any(item.closes for item in items[:-1] if isinstance(item, ProtocolError))


@given(st.binary(max_size=200), st.integers(0, 2**32 - 1))
def test_no_announced_length_makes_the_decoder_hold_more_than_came(rest: bytes, length: int) -> None:
    decoder = FrameDecoder(FRAME_BYTES_MAX)
    decoder.feed(length.to_bytes(4, "big") + rest)
    assert decoder.held_bytes <= 4 + len(rest)
