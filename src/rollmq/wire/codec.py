"""Bytes to frames and back, in any chunking, without ever trusting a length before checking it.

    decoder = FrameDecoder(limits.HELLO_FRAME_BYTES_MAX)
    for item in decoder.feed(data):          # Frame, or the ProtocolError that stands in its place
        ...
    decoder.frame_bytes_max = limits.FRAME_BYTES_MAX      # once the hello is answered

It knows neither roles nor states (session has them), and what a header says is read only when asked.
"""

import struct
from typing import Final, TypeAlias, TypeVar, cast

import msgspec

from rollmq import limits
from rollmq.errors import MessageTooLarge, ProtocolError
from rollmq.wire.catalog import DECODERS, DEFAULTS
from rollmq.wire.error_codes import CODE_ROWS, ErrorCode, violation
from rollmq.wire.headers import ErrorHeader, Header, VersionHeader
from rollmq.wire.message import (
    NO_ID,
    PROTOCOL_VERSION,
    PROTOCOL_VERSION_MIN,
    Frame,
    MsgType,
    type_name,
)

HEAD: Final = struct.Struct(">IB16s16sHH")
LENGTH_BYTES: Final = 4
LENGTH_MIN: Final = HEAD.size - LENGTH_BYTES
"""What `length` says of a frame without subject, header and payload."""

Received: TypeAlias = Frame | ProtocolError
"""One item of the stream. After an error that `closes` nothing follows."""

HeaderT = TypeVar("HeaderT", bound=Header)

_read_length = struct.Struct(">I").unpack_from
_encode_json = msgspec.json.Encoder().encode


# --- sending ---------------------------------------------------------------------------------------


def encode_frame(
    type: int,
    msg_id: bytes = NO_ID,
    corr_id: bytes = NO_ID,
    subject: str = "",
    header: bytes = b"",
    payload: bytes = b"",
) -> bytes:
    """One frame as bytes. Raises MessageTooLarge, before anything is sent, for what no node would take."""
    name = subject.encode()
    subject_bytes, header_bytes = len(name), len(header)
    length = LENGTH_MIN + subject_bytes + header_bytes + len(payload)
    if (
        subject_bytes > limits.FRAME_SUBJECT_BYTES_MAX
        or header_bytes > limits.HEADER_BYTES_MAX
        or length > limits.FRAME_BYTES_MAX
    ):
        raise _too_large(subject_bytes, header_bytes, length)
    assert len(msg_id) == 16
    assert len(corr_id) == 16
    return HEAD.pack(length, type, msg_id, corr_id, subject_bytes, header_bytes) + name + header + payload


def encode(frame: Frame) -> bytes:
    """The same for a Frame."""
    return encode_frame(frame.type, frame.msg_id, frame.corr_id, frame.subject, frame.header, frame.payload)


def encode_header(header: Header) -> bytes:
    """A header as the bytes of a frame; one that has only defaults is empty."""
    encoded = _encode_json(header)
    return b"" if encoded == b"{}" else encoded


def encode_payload(value: object) -> bytes:
    """The payload of a message whose payload is JSON of ours."""
    return _encode_json(value)


def error_frame(error: ProtocolError) -> Frame:
    """The Error frame that answers a violation."""
    row = CODE_ROWS[ErrorCode(error.code)]
    header = ErrorHeader(
        code=error.code,
        text=error.text[: limits.ERROR_TEXT_CHARS_MAX],
        retryable=row.retryable,
        unknown=row.unknown,
        closes=row.closes,
        request_type=error.request_type,
    )
    return Frame(MsgType.ERROR, corr_id=error.request_id, header=encode_header(header))


def _too_large(subject_bytes: int, header_bytes: int, length: int) -> MessageTooLarge:
    if subject_bytes > limits.FRAME_SUBJECT_BYTES_MAX:
        return MessageTooLarge(part="subject", size=subject_bytes, size_max=limits.FRAME_SUBJECT_BYTES_MAX)
    if header_bytes > limits.HEADER_BYTES_MAX:
        return MessageTooLarge(part="header", size=header_bytes, size_max=limits.HEADER_BYTES_MAX)
    return MessageTooLarge(part="whole", size=length, size_max=limits.FRAME_BYTES_MAX)


# --- receiving -------------------------------------------------------------------------------------


class FrameDecoder:
    """Bytes as they arrive to frames. Holds at most one unfinished frame between two calls.

    Invariant: held_bytes < LENGTH_BYTES + frame_bytes_max, and once broken, held_bytes == 0.
    """

    __slots__ = ("_held", "_need", "broken", "frame_bytes_max")

    def __init__(self, frame_bytes_max: int) -> None:
        assert frame_bytes_max >= LENGTH_MIN
        self.frame_bytes_max = frame_bytes_max
        """What `length` may say. Raised once the other side has said who it is; never lowered."""
        self.broken = False
        """Nothing in the stream can be trusted any more: whatever comes is thrown away."""
        self._held = bytearray()
        self._need = LENGTH_BYTES
        """How many bytes must be there before looking again is worth it."""

    @property
    def held_bytes(self) -> int:
        """Bytes kept between two calls."""
        return len(self._held)

    def feed(self, data: bytes) -> list[Received]:
        """Take what arrived; return what became complete, in order, errors in their place. Never raises."""
        if self.broken:
            return []
        held = self._held
        if held:
            if len(held) + len(data) < self._need:
                held += data
                return []
            # Only the unfinished frame is ever copied, and as a whole only when it is complete.
            data = b"".join((held, data))
            self._held = bytearray()
        received: list[Received] = []
        at = self._take_frames(data, received)
        if not self.broken:
            self._hold(data, at, received)
        return received

    def _take_frames(self, data: bytes, received: list[Received]) -> int:
        """Cut off the complete frames; return where the unfinished one begins."""
        length_max = self.frame_bytes_max
        unpack, add = HEAD.unpack_from, received.append
        at, size = 0, len(data)
        last = size - HEAD.size
        while at <= last:
            length, kind, msg_id, corr_id, subject_bytes, header_bytes = unpack(data, at)
            end = at + LENGTH_BYTES + length
            if end > size or length > length_max:
                break  # Unfinished, or too large; _hold looks at the length in both cases.
            subject_at = at + HEAD.size
            header_at = subject_at + subject_bytes
            payload_at = header_at + header_bytes
            if payload_at > end:
                break
            header = data[header_at:payload_at] if header_bytes else b""
            at = end
            if subject_bytes > limits.FRAME_SUBJECT_BYTES_MAX or header_bytes > limits.HEADER_BYTES_MAX:
                add(_oversized(kind, msg_id, subject_bytes, header_bytes))
                continue
            try:
                subject = str(data[subject_at:header_at], "utf-8") if subject_bytes else ""
            except UnicodeDecodeError:
                add(_violation_of(kind, msg_id, ErrorCode.BAD_SUBJECT, "the subject is not utf-8"))
                continue
            add(Frame(kind, msg_id, corr_id, subject, header, data[payload_at:end]))
        return at

    def _hold(self, data: bytes, at: int, received: list[Received]) -> None:
        """Keep the unfinished frame, unless its own lengths already condemn it."""
        left = len(data) - at
        if left < LENGTH_BYTES:
            self._held += data[at:]
            self._need = LENGTH_BYTES
            return
        (length,) = _read_length(data, at)
        if length > self.frame_bytes_max:
            text = (
                f"a frame of {length:,} bytes is announced, at most {self.frame_bytes_max:,} are allowed here"
            )
            self._break(violation(ErrorCode.FRAME_TOO_LARGE, text), received)
        elif length < LENGTH_MIN:
            text = f"a frame of {length} bytes is announced, the shortest has {LENGTH_MIN}"
            self._break(violation(ErrorCode.BAD_FRAME, text), received)
        elif left >= LENGTH_BYTES + length:
            text = f"the subject and the header reach beyond their frame of {length:,} bytes"
            self._break(violation(ErrorCode.BAD_FRAME, text), received)
        else:
            self._held += data[at:]
            self._need = LENGTH_BYTES + length

    def _break(self, error: ProtocolError, received: list[Received]) -> None:
        assert error.closes
        self.broken = True
        received.append(error)


def _violation_of(kind: int, msg_id: bytes, code: ErrorCode, text: str) -> ProtocolError:
    return violation(code, f"{type_name(kind)}: {text}; it was skipped", Frame(kind, msg_id))


def _oversized(kind: int, msg_id: bytes, subject_bytes: int, header_bytes: int) -> ProtocolError:
    if subject_bytes > limits.FRAME_SUBJECT_BYTES_MAX:
        text = (
            f"the subject has {subject_bytes:,} bytes, at most {limits.FRAME_SUBJECT_BYTES_MAX:,} are allowed"
        )
        return _violation_of(kind, msg_id, ErrorCode.SUBJECT_TOO_LONG, text)
    text = f"the header has {header_bytes:,} bytes, at most {limits.HEADER_BYTES_MAX:,} are allowed"
    return _violation_of(kind, msg_id, ErrorCode.HEADER_TOO_LARGE, text)


# --- headers on demand -----------------------------------------------------------------------------


def header_of(frame: Frame, header_type: type[HeaderT]) -> HeaderT:
    """The frame's header as this type. Raises ProtocolError bad_header, never anything else."""
    return _decode(frame, frame.header, header_type, ErrorCode.BAD_HEADER, "header")


def payload_of(frame: Frame, payload_type: type[HeaderT]) -> HeaderT:
    """The same for a payload that is JSON of ours. Raises ProtocolError bad_payload."""
    return _decode(frame, frame.payload, payload_type, ErrorCode.BAD_PAYLOAD, "payload")


def _decode(frame: Frame, body: bytes, header_type: type[HeaderT], code: ErrorCode, part: str) -> HeaderT:
    if not body and header_type in DEFAULTS:
        return cast(HeaderT, DEFAULTS[header_type])
    try:
        decoded: HeaderT = DECODERS[header_type].decode(body or b"{}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise violation(code, f"{type_name(frame.type)}: its {part} is wrong: {error}", frame) from error
    return decoded


def agree_version(frame: Frame) -> int:
    """The newest version that the sender of a hello, or of its answer, and we both speak.

    Raises ProtocolError unsupported_version. It is read before the rest of the hello, which may have
    another form in another version.
    """
    hello = header_of(frame, VersionHeader)
    newest = min(hello.version, PROTOCOL_VERSION)
    if newest >= max(hello.version_min or hello.version, PROTOCOL_VERSION_MIN):
        return newest
    spoken = f"{PROTOCOL_VERSION_MIN} to {PROTOCOL_VERSION}"
    theirs = f"{hello.version_min or hello.version} to {hello.version}"
    text = f"the other side speaks version {theirs} of the protocol, this one {spoken}; update the older one"
    raise violation(ErrorCode.UNSUPPORTED_VERSION, text, frame)
