"""The `codec=` hook of Client and Worker: compress, encrypt or sign what users send each other.

It is applied to payloads, results, progress and error details, and to nothing else: the queue never looks
into them. The id of the key is logged, keys never are, so destroying a key erases what it protected from
every log, snapshot and table.
"""

from typing import Protocol

from rollmq.errors import CodecFailed


class Codec(Protocol):
    """What a codec has to be. Client and workers need the same one; it may be called from several threads."""

    def encode(self, data: bytes) -> tuple[bytes, str]:
        """What goes over the wire, and the id of the key that it needs: up to 128 characters, for the log."""

    def decode(self, data: bytes, key_id: str) -> bytes:
        """What `encode` was given. `key_id` is empty for what was sent without a codec: whether that is good
        enough is the codec's to say. Raise anything for what cannot be decoded."""


def encoded(codec: Codec, data: bytes, what: str) -> tuple[bytes, str]:
    """Encode, or raise CodecFailed; then nothing is sent."""
    try:
        return codec.encode(data)
    except Exception as error:
        raise CodecFailed(what=f"encoding {what}", reason=_reason(error)) from error


def decoded(codec: Codec, data: bytes, key_id: str, what: str) -> bytes:
    """Decode, or raise CodecFailed."""
    try:
        return codec.decode(data, key_id)
    except Exception as error:
        raise CodecFailed(what=f"decoding {what}", reason=f"key {key_id!r}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
