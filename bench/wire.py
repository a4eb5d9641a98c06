"""What the wire costs: frames and headers per second on one core, beside the machine's own limits.

`run` gives (name, value, unit) rows. The limits are measured in the same run: how fast this machine's
msgspec reads a small object, zlib sums bytes, and Python makes a call, are what the figures mean.
"""

import struct
import zlib
from collections.abc import Callable

import msgspec

from bench.machine_limits import Row, rate
from rollmq import limits
from rollmq.core.raft_messages import AppendEntries
from rollmq.wire.codec import FrameDecoder, encode, encode_frame, encode_header, header_of
from rollmq.wire.job_headers import AckJobHeader, AssignJobHeader, SubmitJobHeader
from rollmq.wire.message import Frame, MsgType
from rollmq.wire.peer import frame_of, message_of
from rollmq.wire.readers import read_ack
from rollmq.wire.session import Session, Side

ROUNDS = 5
FRAMES = 20_000
CHUNK_BYTES = 65_536
"""What one read of a socket brings."""
JOB = bytes(range(16))
PAYLOAD = b"x" * 100
ACK = AckJobHeader(fence=(3, 4812), seq=4711, run_us=1234, credit=(4711, 8))
ASSIGN = AssignJobHeader(attempt=1, fence=(3, 4812), seq=4711)


def run() -> list[Row]:
    """Every figure of the wire, the machine's limits last."""
    return [*_frame_rows(), *_header_rows(), *_hop_rows(), *_peer_rows(), *_limit_rows()]


def _each(work: Callable[[], object], count: int = FRAMES) -> float:
    """Calls per second, in a loop as tight as the decoder's."""

    def repeated() -> None:
        for _ in range(count):
            work()

    return rate(repeated, 1, rounds=ROUNDS) * count


def _whole(work: Callable[[], object], items: int) -> float:
    """Items per second of work that handles many at once."""
    return rate(work, 1, rounds=ROUNDS) * items


def _submit() -> bytes:
    return encode_frame(MsgType.SUBMIT_JOB, JOB, subject="job.submit.image.resize", payload=PAYLOAD)


def _feed(stream: bytes, chunk_bytes: int) -> Callable[[], None]:
    def fed() -> None:
        decoder = FrameDecoder(limits.FRAME_BYTES_MAX)
        for at in range(0, len(stream), chunk_bytes):
            decoder.feed(stream[at : at + chunk_bytes])
        assert decoder.held_bytes == 0

    return fed


def _frame_rows() -> list[Row]:
    stream = _submit() * FRAMES
    large = encode(Frame(MsgType.SUBMIT_JOB, payload=bytes(limits.PAYLOAD_BYTES_MAX)))
    return [
        ("encode submit, 100 B payload", _each(_submit), "frames/s"),
        ("decode submit, 64 KiB chunks", _whole(_feed(stream, CHUNK_BYTES), FRAMES), "frames/s"),
        ("decode submit, 1 KiB chunks", _whole(_feed(stream, 1024), FRAMES), "frames/s"),
        (
            "decode 8 MiB payload, 64 KiB chunks",
            _whole(_feed(large, CHUNK_BYTES), len(large)) / 1e6,
            "MB/s",
        ),
    ]


def _header_rows() -> list[Row]:
    plain = Frame(MsgType.SUBMIT_JOB)
    options = Frame(MsgType.SUBMIT_JOB, header=b'{"priority":3,"timeout_us":60000000,"headers":{"a":"b"}}')
    ack = Frame(MsgType.ACK_JOB, header=encode_header(ACK))
    return [
        (
            "header submit, empty",
            _each(lambda: header_of(plain, SubmitJobHeader)),
            "headers/s",
        ),
        (
            "header submit, 3 options",
            _each(lambda: header_of(options, SubmitJobHeader)),
            "headers/s",
        ),
        ("header ack, read and checked", _each(lambda: read_ack(ack)), "headers/s"),
        ("header assign, encode", _each(lambda: encode_header(ASSIGN)), "headers/s"),
    ]


def _node() -> Session:
    """A node's end of a worker's connection, ready."""
    session = Session(Side.NODE)
    session.receive(Frame(MsgType.HELLO_WORKER, header=b'{"version":1,"worker_id":"w","instance":"i"}'))
    session.send(Frame(MsgType.HELLO_WORKER, header=b'{"version":1}'))
    return session


def _hop_rows() -> list[Row]:
    """A frame's whole way on the node's side: cut out, let in by the session, header read."""
    ack = encode(Frame(MsgType.ACK_JOB, corr_id=JOB, header=encode_header(ACK), payload=PAYLOAD))
    stream, session = ack * FRAMES, _node()

    def received() -> None:
        decoder = FrameDecoder(limits.FRAME_BYTES_MAX)
        for at in range(0, len(stream), CHUNK_BYTES):
            for item in decoder.feed(stream[at : at + CHUNK_BYTES]):
                assert isinstance(item, Frame)
                session.receive(item)
                read_ack(item)

    def assigned() -> bytes:
        return encode_frame(
            MsgType.ASSIGN_JOB,
            JOB,
            subject="job.assign.image.resize.w1",
            header=encode_header(ASSIGN),
            payload=PAYLOAD,
        )

    return [
        ("receive ack: decode, session, header", _whole(received, FRAMES), "frames/s"),
        ("send assign: header, frame", _each(assigned), "frames/s"),
    ]


def _peer_rows() -> list[Row]:
    """AppendEntries of a thousand lines of 300 bytes, as a busy leader sends them."""
    lines = [b'{"crc":"00000000","x":"' + b"y" * 274 + b'"}\n'] * 1000
    message = AppendEntries("a" * 32, "b" * 32, 3, 9, 3, 8, term_runs=((10, 3),), lines=lines, round=7)

    def carried() -> None:
        (frame,) = FrameDecoder(limits.FRAME_BYTES_MAX).feed(encode(frame_of(message, group="default")))
        assert isinstance(frame, Frame)
        message_of(frame)

    return [("carry lines to a follower, both ends", _whole(carried, len(lines)), "lines/s")]


def _limit_rows() -> list[Row]:
    decode = msgspec.json.Decoder(AckJobHeader).decode
    body, block, head = encode_header(ACK), bytes(1 << 20), struct.Struct(">IB16s16sHH")
    packed = head.pack(37, 3, JOB, JOB, 0, 0)
    return [
        ("limit: msgspec decodes that ack header", _each(lambda: decode(body)), "headers/s"),
        ("limit: struct unpacks a head", _each(lambda: head.unpack_from(packed)), "heads/s"),
        (
            "limit: zlib.crc32 of 1 MiB",
            _each(lambda: zlib.crc32(block), 20) * (1 << 20) / 1e6,
            "MB/s",
        ),
        ("limit: copying 1 MiB", _each(lambda: bytearray(block), 20) * (1 << 20) / 1e6, "MB/s"),
        ("limit: an empty call", _each(lambda: None), "calls/s"),
    ]


def main() -> None:
    """Print the figures."""
    for name, value, unit in run():
        print(f"{name:<45} {value:>14,.0f} {unit}")


if __name__ == "__main__":
    main()
