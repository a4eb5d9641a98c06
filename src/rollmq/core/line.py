"""One event as one line of the log, and back.

    {"crc":"9a0b1c2d","type":"enqueue","index":42,...}\n

The crc32 covers the bytes after the crc's comma up to, not including, the newline. A line is
encoded once, by the leader; everybody else stores and forwards those very bytes.
"""

import zlib
from typing import Any

import msgspec

from rollmq.core.events import AnyEvent

BODY_AT = 18
"""Where the covered bytes begin: behind `{"crc":"xxxxxxxx",`."""
CRC_AT, CRC_END = 8, 16
"""Where its eight hex digits are."""

_encode = msgspec.json.Encoder().encode
_decoder: "msgspec.json.Decoder[AnyEvent]" = msgspec.json.Decoder(AnyEvent)
_decode = _decoder.decode


class LineDamaged(ValueError):
    """A line is not what was written: no newline, no crc, another crc, or no event of this version."""


def seal(body: bytes) -> bytes:
    """Put the crc before an encoded JSON object and a newline behind it."""
    rest = body[1:]
    return b'{"crc":"%08x",%b\n' % (zlib.crc32(rest), rest)


def encode_line(event: AnyEvent) -> bytes:
    """The event as a line of the log, newline included."""
    rest = _encode(event)[1:]
    return b'{"crc":"%08x",%b\n' % (zlib.crc32(rest), rest)


def open_line(line: bytes) -> bytes:
    """Check a line's frame and crc; return its JSON object without the crc. Raises LineDamaged."""
    if line[-1:] != b"\n":
        raise LineDamaged("the line has no newline")
    if len(line) <= BODY_AT:
        raise LineDamaged("the line is too short for a crc")
    rest = line[BODY_AT:-1]
    if line[:BODY_AT] != b'{"crc":"%08x",' % zlib.crc32(rest):
        raise LineDamaged("the crc does not match the line")
    return b"{" + rest


def decode_line(line: bytes) -> AnyEvent:
    """The event that a line holds. Raises LineDamaged, never anything else."""
    body = open_line(line)
    try:
        return _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise LineDamaged(f"the line is no event of this version: {error}") from error


def decode_part(line: bytes, decoder: "msgspec.json.Decoder[Any]") -> Any:
    """Like decode_line for the lines of other files: snapshots, headers, votes."""
    body = open_line(line)
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise LineDamaged(f"the line does not have the expected shape: {error}") from error
