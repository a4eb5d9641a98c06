"""Raft messages to frames and back. The core knows no bytes, and this knows no rule of Raft.

The numbers of a message are its header; lines and chunks are the payload, the very bytes. A message
that does not fit together is a ProtocolError; whether it is true is for the core to judge.
"""

from typing import Any

from rollmq import limits
from rollmq.core import raft_messages as raft
from rollmq.errors import ProtocolError
from rollmq.wire import peer_headers as wire
from rollmq.wire.codec import encode_header, header_of
from rollmq.wire.error_codes import ErrorCode, violation
from rollmq.wire.headers import Header
from rollmq.wire.message import Frame, MsgType, type_name


def frame_of(message: raft.PeerMessage, *, group: str) -> Frame:
    """The frame that carries a Raft message; `group` is the name in the subject."""
    match message:
        case raft.AppendEntries(lines=lines):
            header: Header = _copy(wire.AppendEntriesHeader, message, lines_count=len(lines))
            return _frame(MsgType.APPEND_ENTRIES, f"cluster.{group}.append", header, b"".join(lines))
        case raft.AppendResp():
            header = _copy(wire.AppendRespHeader, message)
            return _frame(MsgType.APPEND_RESP, f"cluster.{group}.append", header)
        case raft.RequestVote():
            header = _copy(wire.RequestVoteHeader, message)
            return _frame(MsgType.REQUEST_VOTE, f"cluster.{group}.vote", header)
        case raft.VoteResp():
            header = _copy(wire.VoteRespHeader, message)
            return _frame(MsgType.VOTE_RESP, f"cluster.{group}.vote", header)
        case raft.InstallSnapshot(data=data):
            header = _copy(wire.InstallSnapshotHeader, message)
            return _frame(MsgType.INSTALL_SNAPSHOT, f"cluster.{group}.snapshot", header, data)
        case raft.InstallSnapResp():
            header = _copy(wire.InstallSnapRespHeader, message)
            return _frame(MsgType.INSTALL_SNAP_RESP, f"cluster.{group}.snapshot", header)
        case raft.TimeoutNow():
            return _frame(MsgType.TIMEOUT_NOW, f"cluster.{group}.vote", _copy(wire.TimeoutNowHeader, message))


def message_of(frame: Frame) -> raft.PeerMessage:
    """The Raft message in a frame. Raises ProtocolError, never anything else."""
    match frame.type:
        case MsgType.APPEND_ENTRIES:
            header = header_of(frame, wire.AppendEntriesHeader)
            lines = _lines_of(frame, header.lines_count)
            return _copy(raft.AppendEntries, header, lines=lines)
        case MsgType.APPEND_RESP:
            return _copy(raft.AppendResp, header_of(frame, wire.AppendRespHeader))
        case MsgType.REQUEST_VOTE:
            return _copy(raft.RequestVote, header_of(frame, wire.RequestVoteHeader))
        case MsgType.VOTE_RESP:
            return _copy(raft.VoteResp, header_of(frame, wire.VoteRespHeader))
        case MsgType.INSTALL_SNAPSHOT:
            chunk = header_of(frame, wire.InstallSnapshotHeader)
            _check_chunk(frame, chunk)
            return _copy(raft.InstallSnapshot, chunk, data=frame.payload)
        case MsgType.INSTALL_SNAP_RESP:
            return _copy(raft.InstallSnapResp, header_of(frame, wire.InstallSnapRespHeader))
        case MsgType.TIMEOUT_NOW:
            return _copy(raft.TimeoutNow, header_of(frame, wire.TimeoutNowHeader))
        case _:
            text = f"{type_name(frame.type)} is no message of the consensus"
            raise violation(ErrorCode.ILLEGAL_MESSAGE, text, frame)


def _frame(kind: MsgType, subject: str, header: Header, payload: bytes = b"") -> Frame:
    return Frame(kind, subject=subject, header=encode_header(header), payload=payload)


def _copy(target: type[Any], source: Any, **extra: Any) -> Any:
    """A `target` with the fields that both have by the same name; a test holds the names together."""
    names = target.__struct_fields__
    return target(**{name: getattr(source, name) for name in names if name not in extra}, **extra)


def _lines_of(frame: Frame, lines_count: int) -> list[bytes]:
    """The payload cut behind each newline."""
    payload = frame.payload
    if not payload:
        lines = []
    elif payload[-1:] != b"\n":
        raise _bad(frame, "its last line has no newline")
    elif b"\r" in payload:
        # No encoder of ours writes one, but splitlines would take it for the end of a line.
        lines = [line + b"\n" for line in payload[:-1].split(b"\n")]
    else:
        lines = payload.splitlines(keepends=True)
    if len(lines) != lines_count:
        raise _bad(frame, f"{lines_count} lines are announced, there are {len(lines)}")
    return lines


def _check_chunk(frame: Frame, header: wire.InstallSnapshotHeader) -> None:
    """Sizes only. The checksum is the core's to check: it answers with where to go on."""
    size = len(frame.payload)
    if size > limits.SNAPSHOT_CHUNK_BYTES_MAX:
        text = f"a chunk of {size:,} bytes, at most {limits.SNAPSHOT_CHUNK_BYTES_MAX:,} are allowed"
        raise violation(ErrorCode.PAYLOAD_TOO_LARGE, f"{type_name(frame.type)}: {text}", frame)
    if header.offset + size > header.total_bytes:
        raise _bad(frame, "the chunk reaches beyond the snapshot's end")


def _bad(frame: Frame, text: str) -> ProtocolError:
    return violation(ErrorCode.BAD_PAYLOAD, f"{type_name(frame.type)}: {text}", frame)
