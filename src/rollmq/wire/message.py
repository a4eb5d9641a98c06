"""What goes over the wire: the message types and the frame that carries them all.

    length u32 | type u8 | msg_id 16 | corr_id 16 | subject_len u16 | header_len u16 |
        subject utf-8 | header JSON | payload raw

It knows neither bytes (codec) nor what a message's header says (headers, peer).
"""

from enum import IntEnum
from typing import Final

import msgspec

PROTOCOL_VERSION: Final = 1
"""What this code speaks. A hello names the versions of its sender; see codec.agree_version."""
PROTOCOL_VERSION_MIN: Final = 1

NO_ID: Final = bytes(16)
"""An id that says nothing: this message asks for no answer, or answers none."""


class MsgType(IntEnum):
    """The `type` byte of a frame. Codes never change their meaning; 42 to 255 are free."""

    HELLO_CLIENT = 1
    HELLO_WORKER = 2
    SUBMIT_JOB = 3
    ASSIGN_JOB = 4
    ACK_JOB = 5
    CREDIT = 6
    RESULT = 7
    HELLO_OPERATOR = 8
    QUERY = 9
    REPLY = 10
    READ_LOG = 11
    LOG_CHUNK = 12
    ACCEPTED = 13
    STARTED = 14
    PING = 15
    PONG = 16
    CANCEL = 17
    ERROR = 18
    GOODBYE = 19
    NOT_LEADER = 20
    LEADER_HELLO = 21
    APPEND_ENTRIES = 22
    APPEND_RESP = 23
    REQUEST_VOTE = 24
    VOTE_RESP = 25
    INSTALL_SNAPSHOT = 26
    INSTALL_SNAP_RESP = 27
    ACK_DONE = 28
    LEADER_IS = 29
    TIMEOUT_NOW = 32
    REPAIR_ASK = 33
    REPAIR_HAS = 34
    REPAIR_FETCH = 35
    REPAIR_PIECE = 36
    SUBMIT_JOBS = 37
    ACCEPTED_JOBS = 38
    ASSIGN_JOBS = 39
    ACK_JOBS = 40
    RESULTS = 41


class Frame(msgspec.Struct, gc=False):
    """One message as it came, or as it will go. The header is JSON that nobody has looked at yet."""

    type: int
    """A MsgType once a Session has let it through; before, any byte."""
    msg_id: bytes = NO_ID
    """16 bytes that name this message, or the job that it is about (see each type)."""
    corr_id: bytes = NO_ID
    """16 bytes: the msg_id of what this answers, or the job that it is about."""
    subject: str = ""
    header: bytes = b""
    """Encoded JSON object; empty means: all fields have their defaults."""
    payload: bytes = b""
    """The user's bytes, never re-encoded; some messages of ours carry JSON or log lines in it."""


def type_name(code: int) -> str:
    """How a person calls a type byte: `SubmitJob`, or `type 200`."""
    try:
        return MsgType(code).name.title().replace("_", "")
    except ValueError:
        return f"type {code}"
