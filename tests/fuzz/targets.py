"""The fuzz targets: functions from bytes to nothing that raise when the code under test misbehaves.

Each knows which errors are allowed; any other exception, and any broken law, is a finding. They know
nothing of the fuzzer, so the same functions run under atheris, and on their seeds in `make test`.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from rollmq import limits
from rollmq.core import state as state_lines
from rollmq.core.events import AnyEvent
from rollmq.core.line import LineDamaged, decode_line, encode_line, open_line, seal
from rollmq.core.machine import Machine
from rollmq.core.segment_digest import header_line
from rollmq.errors import ProtocolError, StateDamaged
from rollmq.store.mark import read_mark
from rollmq.store.segment import scan_segment
from rollmq.store.vote import read_vote
from rollmq.wire.catalog import MESSAGES
from rollmq.wire.codec import FrameDecoder, Received, encode_frame, header_of, payload_of
from rollmq.wire.message import Frame, MsgType
from rollmq.wire.peer import message_of
from rollmq.wire.readers import exec_of_assign, exec_of_submit, read_ack, read_hello_worker, read_submit
from rollmq.wire.session import Session, Side
from rollmq.wire.session_table import HELLOS
from tests.docs_examples import EXAMPLES, GROUP
from tests.fuzz.histories import events_of
from tests.fuzz.memory_disk import disk_of

SEGMENT: Final = "wal/events-1.log"
FRAME_BYTES_MAX: Final = 4096
"""A limit that the fuzzer can reach; the decoder is told it like any other."""


class Target(NamedTuple):
    """One function under fire and the inputs to begin with."""

    run: Callable[[bytes], None]
    seeds: tuple[bytes, ...]


# --- the wire ----------------------------------------------------------------------------------------


def frames(data: bytes) -> None:
    """The first byte says how the rest is cut into chunks. Any cut gives the same frames."""
    if not data:
        return
    chunk_bytes, stream = data[0] or 256, data[1:]
    whole = _received([stream])
    assert _received([stream[at : at + chunk_bytes] for at in range(0, len(stream), chunk_bytes)]) == whole
    for item in whole:
        if isinstance(item, Frame):
            _read_headers(item)


def _received(chunks: list[bytes]) -> list[object]:
    decoder = FrameDecoder(FRAME_BYTES_MAX)
    items: list[Received] = []
    for chunk in chunks:
        items += decoder.feed(chunk)
        assert decoder.held_bytes < 4 + FRAME_BYTES_MAX
    assert not any(item.closes for item in items[:-1] if isinstance(item, ProtocolError))
    return [(item.code, item.text) if isinstance(item, ProtocolError) else item for item in items]


def _read_headers(frame: Frame) -> None:
    row = MESSAGES.get(MsgType(frame.type)) if frame.type in set(MsgType) else None
    if row is None:
        return
    for kind in filter(None, (row.header, row.answer_header)):
        _allow_protocol_error(lambda kind=kind: header_of(frame, kind))  # type: ignore[misc]
    if payload_kind := row.payload:
        _allow_protocol_error(lambda: payload_of(frame, payload_kind))


def _allow_protocol_error(read: Callable[[], object]) -> None:
    with contextlib.suppress(ProtocolError):
        read()


def session(data: bytes) -> None:
    """A node's end of a connection. It greets whoever says hello, so that what follows is looked at too,
    and every reader sees what was let in."""
    this_end, decoder = Session(Side.NODE), FrameDecoder(FRAME_BYTES_MAX)
    for item in decoder.feed(data):
        if this_end.is_closed:
            return
        try:
            if isinstance(item, ProtocolError):
                raise item
            this_end.receive(item)
        except ProtocolError as error:
            _one_frame_or_nothing(this_end.refuse(error))
            continue
        if item.type in HELLOS and not this_end.is_ready and not this_end.is_closed:
            this_end.send(Frame(item.type, corr_id=item.msg_id, header=b'{"version":1,"node_id":"n"}'))
            assert this_end.is_ready
        for read in READERS:
            _allow_protocol_error(lambda read=read, item=item: read(item))  # type: ignore[misc]


def _one_frame_or_nothing(answer: bytes) -> None:
    assert len(FrameDecoder(limits.FRAME_BYTES_MAX).feed(answer)) == (1 if answer else 0)


READERS: Final = (exec_of_submit, exec_of_assign, read_submit, read_ack, read_hello_worker, message_of)


# --- the log -----------------------------------------------------------------------------------------


def log_line(data: bytes) -> None:
    """Raw bytes must be refused unless they are a line; sealed ones must be an event or be refused."""
    _decode_or_refuse(data)
    if data[:1] == b"{" and b"\n" not in data:
        sealed = seal(data)
        assert open_line(sealed) == data
        _decode_or_refuse(sealed)


def _decode_or_refuse(line: bytes) -> None:
    try:
        event = decode_line(line)
    except LineDamaged:
        return
    again = encode_line(event)
    assert decode_line(again) == event
    assert encode_line(decode_line(again)) == again


def segment(data: bytes) -> None:
    """A segment of lines that are sealed or not as their first byte says, so that crcs are no wall.

    The scan never raises, and what it calls sound is sound when it is read again alone.
    """
    content = header_line(group=GROUP, first_index=1) + b"".join(map(_maybe_sealed, data.split(b"\n")))
    disk = disk_of({SEGMENT: content})
    seen: list[AnyEvent] = []
    scan = scan_segment(disk, SEGMENT, group=GROUP, first_index=1, visit=lambda event, _: seen.append(event))
    assert 0 <= scan.good_bytes <= scan.size_bytes == len(content)
    assert (scan.damages_count == 0) == (scan.good_bytes == len(content))
    sound = content[: scan.good_bytes]
    if sound:
        again = scan_segment(disk_of({SEGMENT: sound}), SEGMENT, group=GROUP, first_index=1)
        assert again.damages_count == 0
        assert (again.last_index, again.last_term) == (scan.last_index, scan.last_term)
        assert [event.index for event in seen[: scan.last_index]] == list(range(1, scan.last_index + 1))


def _maybe_sealed(piece: bytes) -> bytes:
    """`+{…}` is sealed, `-…` is left as it is and loses its newline, anything else is a raw line."""
    if piece.startswith(b"+{"):
        return seal(piece[1:])
    return piece[1:] if piece.startswith(b"-") else piece + b"\n"


def small_files(data: bytes) -> None:
    """Vote and mark: the bytes as they are, and sealed. A value or StateDamaged, nothing else."""
    contents = [data, seal(data)] if data[:1] == b"{" else [data]
    for content in contents:
        disk = disk_of({"vote.json": content, "synced": content})
        for read in (read_vote, read_mark):
            with contextlib.suppress(StateDamaged):
                read(disk)


# --- the state ---------------------------------------------------------------------------------------


def state(data: bytes) -> None:
    """A state with fields put wrong: the first byte says which state of the story, then three bytes each
    say which line, which field, and what is put there. What loads can be dumped and loads to the same."""
    if not data:
        return
    lines = list(STATES[data[0] % len(STATES)])
    for line, field, value in zip(data[1::3], data[2::3], data[3::3], strict=False):
        lines[line % len(lines)] = _with_wrong_field(lines[line % len(lines)], field, value)
    with contextlib.suppress(state_lines.StateDamaged):
        dumped = _dump_of(state_lines.load_state(map(seal, lines)))
        assert _dump_of(state_lines.load_state(dumped)) == dumped


def _dump_of(machine: Machine) -> list[bytes]:
    """Its state, for the last time: jobs point at each other, and no collector looks for that."""
    dumped = list(state_lines.dump_state(machine))
    if machine.queues is not None:
        machine.queues.dispose()
    return dumped


def _with_wrong_field(body: bytes, field: int, value: int) -> bytes:
    record = msgspec.json.decode(body)
    name = (*record, *LEFT_OUT)[field % (len(record) + len(LEFT_OUT))]
    record[name] = WRONG_VALUES[value % len(WRONG_VALUES)]
    return msgspec.json.encode(record)


def _states() -> Iterator[tuple[bytes, ...]]:
    machine = Machine()
    for event in EXAMPLES:
        machine.apply(event)
        yield tuple(map(open_line, state_lines.dump_state(machine)))


STATES: Final = tuple(_states())
"""The states of the story after each of its events, as lines that are not sealed yet."""
LEFT_OUT: Final = (
    "priority",
    "state",
    "weight",
    "cap",
    "fence",
    "idle_index",
    "key",
    "place_us",
    "errors",
    "life",
)
WRONG_VALUES: Final[tuple[object, ...]] = (
    -1,
    0,
    1,
    77,
    2**62,
    0.5,
    "",
    "x",
    "queued",
    "inflight",
    "dead",
    GROUP,
    None,
    True,
    [],
    {},
)


def history(data: bytes) -> None:
    """Three replicas of one history: one runs through, one is restarted from its snapshot at a place that
    the first byte names, one only folds (it keeps no queues). At every end they have the same bytes."""
    machine, folding, twin = Machine(), Machine(is_indexed=False), None
    for number, event in enumerate(events_of(data[1:], machine)):
        if number == data[0]:
            dumped = list(state_lines.dump_state(machine))
            twin = state_lines.load_state(dumped)
            assert list(state_lines.dump_state(twin)) == dumped
        for replica in filter(None, (machine, folding, twin)):
            replica.apply(event)
    dumped = _dump_of(machine)
    assert _dump_of(folding) == dumped
    assert twin is None or _dump_of(twin) == dumped
    assert _dump_of(state_lines.load_state(dumped)) == dumped


# --- seeds -------------------------------------------------------------------------------------------


def _bodies() -> list[bytes]:
    return [msgspec.json.encode(event) for event in EXAMPLES]


def _session_seeds() -> tuple[bytes, ...]:
    hellos = (MsgType.HELLO_CLIENT, MsgType.HELLO_WORKER, MsgType.HELLO_OPERATOR, MsgType.LEADER_HELLO)
    headers = (
        b'{"version":1,"client_id":"a"}',
        b'{"version":1,"node_id":"n"}',
        b'{"version":1,"worker_id":"w","instance":"i"}',
        b'{"version":1}',
    )
    begun = [encode_frame(kind, header=header) for kind in hellos for header in headers]
    then = b"".join(encode_frame(kind, subject="job.submit.a", payload=b"{}") for kind in MsgType)
    return tuple(hello + then for hello in begun)


def _frame_seeds() -> tuple[bytes, ...]:
    one_each = [encode_frame(kind, subject="job.submit.a", header=b"{}", payload=b"x") for kind in MsgType]
    hello = encode_frame(MsgType.HELLO_CLIENT, header=b'{"version":1,"client_id":"webshop","cap":5}')
    return (b"\x07" + hello, b"\x01" + b"".join(one_each), *(b"\x00" + frame for frame in one_each))


TARGETS: Final[Mapping[str, Target]] = {
    "frames": Target(frames, _frame_seeds()),
    "session": Target(session, _session_seeds()),
    "log_line": Target(log_line, (*_bodies(), *map(encode_line, EXAMPLES))),
    "segment": Target(
        segment, (b"\n".join(b"+" + body for body in _bodies()), *(b"+" + body for body in _bodies()[:3]))
    ),
    "state": Target(state, tuple(bytes([number, 1, 7, 3, 2, 30, 3]) for number in range(len(STATES)))),
    "history": Target(history, (bytes(range(256)), bytes(range(255, 0, -1)), bytes([9, *range(0, 250, 3)]))),
    "small_files": Target(
        small_files, (b'{"term":3,"voted_for":"ab"}', b'{"first":1,"bytes":120,"index":7}', b"{}")
    ),
}
