"""Every bound of the wire, broken once: which Error frame comes back, and whether the connection lives."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rollmq import limits
from rollmq.errors import ProtocolError
from rollmq.wire.codec import FrameDecoder, encode, error_frame, header_of
from rollmq.wire.error_codes import CODE_ROWS, LIMIT_CODES, ErrorCode, violation
from rollmq.wire.headers import ErrorHeader, HelloClientHeader, HelloWorkerHeader, ReadLogHeader
from rollmq.wire.job_headers import AckJobHeader, StartedHeader, SubmitJobHeader
from rollmq.wire.liveness import Due, Liveness, timeout_error
from rollmq.wire.message import Frame, MsgType
from rollmq.wire.peer import message_of
from rollmq.wire.readers import exec_of_submit, read_ack, read_hello_worker
from rollmq.wire.session_table import Role
from tests.wire.pairs import greeted, refusal

CORE = Path(__file__).resolve().parents[2] / "src" / "rollmq" / "core"
JOB = '"job_id":"' + "ab" * 16 + '","fence":[1,2]'


def _header(kind: type, header: str) -> ProtocolError:
    with pytest.raises(ProtocolError) as error:
        header_of(Frame(0, header=header.encode()), kind)
    return error.value


def _worker(**fields: str) -> str:
    base = {"version": "1", "worker_id": '"w"', "instance": '"i"', **fields}
    return "{" + ",".join(f'"{name}":{value}' for name, value in base.items()) + "}"


def _first(data: bytes, frame_bytes_max: int) -> ProtocolError:
    error = FrameDecoder(frame_bytes_max).feed(data)[0]
    assert isinstance(error, ProtocolError)
    return error


def _refused(read: Callable[[], object]) -> ProtocolError:
    with pytest.raises(ProtocolError) as error:
        read()
    return error.value


def _length(bytes_max: int) -> bytes:
    return (bytes_max + 1).to_bytes(4, "big")


def _raw(subject: bytes, header: bytes) -> bytes:
    head = (37 + len(subject) + len(header)).to_bytes(4, "big") + b"\x03" + bytes(32)
    return head + len(subject).to_bytes(2, "big") + len(header).to_bytes(2, "big") + subject + header


def _held(count: int) -> Frame:
    rows = ",".join(["{" + JOB + "}"] * count)
    payload = f'{{"held":[{rows}],"outcomes":[{{{JOB}}}]}}'.encode()
    return Frame(MsgType.HELLO_WORKER, header=_worker().encode(), payload=payload)


def _late(due_us: int, *, is_ready: bool) -> ProtocolError:
    liveness = Liveness(0)
    if is_ready:
        liveness.ready(0)
    assert liveness.due(due_us - 1) in (Due.NOTHING, Due.PING)
    return timeout_error(liveness.due(due_us))


def _chunk() -> Frame:
    header = (
        '{"source":"a","target":"b","term":1,"last_index":1,"last_term":1,"digest":"d",'
        '"total_bytes":9999999,"offset":0,"crc":0}'
    )
    payload = bytes(limits.SNAPSHOT_CHUNK_BYTES_MAX + 1)
    return Frame(MsgType.INSTALL_SNAPSHOT, header=header.encode(), payload=payload)


VIOLATIONS: dict[str, Callable[[], ProtocolError]] = {
    "FRAME_BYTES_MAX": lambda: _first(_length(limits.FRAME_BYTES_MAX), limits.FRAME_BYTES_MAX),
    "HELLO_FRAME_BYTES_MAX": lambda: _first(
        _length(limits.HELLO_FRAME_BYTES_MAX), limits.HELLO_FRAME_BYTES_MAX
    ),
    "FRAME_SUBJECT_BYTES_MAX": lambda: _first(
        _raw(b"s" * (limits.FRAME_SUBJECT_BYTES_MAX + 1), b""), limits.FRAME_BYTES_MAX
    ),
    "SUBJECT_BYTES_MAX": lambda: _refused(
        lambda: exec_of_submit(Frame(3, subject="job.submit." + "e" * limits.SUBJECT_BYTES_MAX))
    ),
    "HEADER_BYTES_MAX": lambda: _first(
        _raw(b"", b"h" * (limits.HEADER_BYTES_MAX + 1)), limits.FRAME_BYTES_MAX
    ),
    "PAYLOAD_BYTES_MAX": lambda: refusal(
        greeted(Role.CLIENT).node, Frame(MsgType.SUBMIT_JOB, payload=bytes(limits.PAYLOAD_BYTES_MAX + 1))
    ),
    "ERROR_DETAIL_BYTES_MAX": lambda: _refused(
        lambda: read_ack(
            Frame(
                MsgType.ACK_JOB,
                header=b'{"fence":[1,2],"seq":1,"ok":false,"what":"retry"}',
                payload=bytes(limits.ERROR_DETAIL_BYTES_MAX + 1),
            )
        )
    ),
    "SNAPSHOT_CHUNK_BYTES_MAX": lambda: _refused(lambda: message_of(_chunk())),
    "ID_CHARS_MAX": lambda: _header(
        HelloClientHeader, f'{{"version":1,"client_id":"{"c" * (limits.ID_CHARS_MAX + 1)}"}}'
    ),
    "KEY_CHARS_MAX": lambda: _header(SubmitJobHeader, f'{{"key":"{"k" * (limits.KEY_CHARS_MAX + 1)}"}}'),
    "TOKEN_CHARS_MAX": lambda: _header(
        HelloWorkerHeader, _worker(token=f'"{"t" * (limits.TOKEN_CHARS_MAX + 1)}"')
    ),
    "USER_HEADERS_MAX": lambda: _header(
        SubmitJobHeader,
        '{"headers":{' + ",".join(f'"{n}":""' for n in range(limits.USER_HEADERS_MAX + 1)) + "}}",
    ),
    "ERROR_TEXT_CHARS_MAX": lambda: _header(
        AckJobHeader, f'{{"fence":[1,2],"seq":1,"error_message":"{"e" * (limits.ERROR_TEXT_CHARS_MAX + 1)}"}}'
    ),
    "WORKER_PATTERNS_MAX": lambda: _header(
        HelloWorkerHeader, _worker(patterns="[" + ",".join(['"a"'] * (limits.WORKER_PATTERNS_MAX + 1)) + "]")
    ),
    "WORKER_HANDS_MAX": lambda: _header(HelloWorkerHeader, _worker(hands=str(limits.WORKER_HANDS_MAX + 1))),
    "JOBS_PER_MESSAGE_MAX": lambda: _header(
        StartedHeader, f'{{"jobs":[{",".join(["{" + JOB + "}"] * (limits.JOBS_PER_MESSAGE_MAX + 1))}]}}'
    ),
    "READ_LOG_BYTES_MAX": lambda: _header(ReadLogHeader, f'{{"bytes_max":{limits.READ_LOG_BYTES_MAX + 1}}}'),
    "READ_LOG_WAIT_US_MAX": lambda: _header(
        ReadLogHeader, f'{{"wait_us":{limits.READ_LOG_WAIT_US_MAX + 1}}}'
    ),
    "WORKER_HELD_MAX": lambda: _refused(lambda: read_hello_worker(_held(limits.WORKER_HELD_MAX))),
    "TIMEOUT_MAX_US": lambda: _header(SubmitJobHeader, f'{{"timeout_us":{limits.TIMEOUT_MAX_US + 1}}}'),
    "TRIES_MAX_MAX": lambda: _header(SubmitJobHeader, f'{{"tries_max":{limits.TRIES_MAX_MAX + 1}}}'),
    "CONNECTIONS_MAX": lambda: violation(LIMIT_CODES["CONNECTIONS_MAX"], "10,000 connections are open"),
    "HANDSHAKES_MAX": lambda: violation(LIMIT_CODES["HANDSHAKES_MAX"], "256 strangers are connected"),
    "HANDSHAKE_US_MAX": lambda: _late(limits.HANDSHAKE_US_MAX, is_ready=False),
    "IDLE_US_MAX": lambda: _late(limits.IDLE_US_MAX, is_ready=True),
}


def test_every_bound_with_a_code_is_broken_here_and_the_other_way_round() -> None:
    assert set(VIOLATIONS) == set(LIMIT_CODES)
    assert all(hasattr(limits, name) for name in LIMIT_CODES)


@pytest.mark.parametrize("name", VIOLATIONS)
def test_a_broken_bound_is_answered_with_its_error_frame(name: str) -> None:
    error = VIOLATIONS[name]()
    assert error.code == LIMIT_CODES[name]
    (frame,) = FrameDecoder(limits.FRAME_BYTES_MAX).feed(encode(error_frame(error)))
    assert isinstance(frame, Frame)
    header = header_of(frame, ErrorHeader)
    row = CODE_ROWS[LIMIT_CODES[name]]
    assert frame.type == MsgType.ERROR
    assert (header.code, header.closes, header.retryable) == (error.code, row.closes, row.retryable)
    assert header.closes == error.closes
    assert header.text


def test_every_code_has_a_row() -> None:
    assert set(CODE_ROWS) == set(ErrorCode)


def test_an_error_text_is_cut_to_its_bound_and_never_refused_itself() -> None:
    frame = error_frame(violation(ErrorCode.BAD_HEADER, "ä" * 10 * limits.ERROR_TEXT_CHARS_MAX))
    assert len(header_of(frame, ErrorHeader).text) == limits.ERROR_TEXT_CHARS_MAX


def test_every_refusal_of_the_core_has_its_code() -> None:
    found = set(_codes_in(CORE / "intake.py")) | set(_codes_in(CORE / "operate.py"))
    assert {"queue_full", "key_conflict", "job_unknown", "bad_command", "payload_too_large"} <= found
    assert found <= set(ErrorCode)


def _codes_in(path: Path) -> Iterator[str]:
    """Codes as the core writes them: first of a returned pair, or an argument of a refusal."""
    pattern = re.compile(r'(?:return \(?|_refuse\(to, |submit\.job_id, )\s*"([a-z_]+)"')
    return iter(pattern.findall(path.read_text()))
