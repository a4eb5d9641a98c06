"""Messages between nodes to frames and back: Raft's, and those of a repair.

The core knows no bytes, and this knows no rule of the core.

The numbers of a message are its header; lines and chunks are the payload, the very bytes. A message
that does not fit together is a ProtocolError; whether it is true is for the core to judge.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias, cast

from rollmq import limits
from rollmq.core import raft_messages as raft
from rollmq.core import repair_messages as mend
from rollmq.errors import ProtocolError
from rollmq.wire import peer_headers as wire
from rollmq.wire import repair_headers as repair
from rollmq.wire.codec import HEAD, LENGTH_MIN, encode_header, header_of
from rollmq.wire.error_codes import ErrorCode, violation
from rollmq.wire.message import NO_ID, Frame, MsgType, type_name

NodeMessage: TypeAlias = raft.PeerMessage | mend.RepairMessage
"""What nodes say to each other once they know who the other is."""
_WITH_DATA: Final = (raft.InstallSnapshot, mend.RepairPiece)


class PeerRow(NamedTuple):
    """How one Raft message travels."""

    message: type[raft.Message]
    kind: MsgType
    header: type[wire.PeerHeader]
    topic: str
    """Last token of the subject `cluster.<group>.<topic>`."""


PEER_ROWS: Final = (
    PeerRow(raft.AppendEntries, MsgType.APPEND_ENTRIES, wire.AppendEntriesHeader, "append"),
    PeerRow(raft.AppendResp, MsgType.APPEND_RESP, wire.AppendRespHeader, "append"),
    PeerRow(raft.RequestVote, MsgType.REQUEST_VOTE, wire.RequestVoteHeader, "vote"),
    PeerRow(raft.VoteResp, MsgType.VOTE_RESP, wire.VoteRespHeader, "vote"),
    PeerRow(raft.TimeoutNow, MsgType.TIMEOUT_NOW, wire.TimeoutNowHeader, "vote"),
    PeerRow(raft.InstallSnapshot, MsgType.INSTALL_SNAPSHOT, wire.InstallSnapshotHeader, "snapshot"),
    PeerRow(raft.InstallSnapResp, MsgType.INSTALL_SNAP_RESP, wire.InstallSnapRespHeader, "snapshot"),
    PeerRow(mend.RepairAsk, MsgType.REPAIR_ASK, repair.RepairAskHeader, "repair"),
    PeerRow(mend.RepairHas, MsgType.REPAIR_HAS, repair.RepairHasHeader, "repair"),
    PeerRow(mend.RepairFetch, MsgType.REPAIR_FETCH, repair.RepairFetchHeader, "repair"),
    PeerRow(mend.RepairPiece, MsgType.REPAIR_PIECE, repair.RepairPieceHeader, "repair"),
)
_BY_MESSAGE: Final[Mapping[type[raft.Message], PeerRow]] = {row.message: row for row in PEER_ROWS}
_BY_TYPE: Final[Mapping[int, PeerRow]] = {int(row.kind): row for row in PEER_ROWS}


def frame_of(message: NodeMessage, *, group: str) -> Frame:
    """The frame that carries a Raft message; `group` is the group's name in the subject."""
    row = _BY_MESSAGE[type(message)]
    extra, payload = {}, b""
    if isinstance(message, raft.AppendEntries):
        extra, payload = {"lines_count": len(message.lines)}, b"".join(message.lines)
    elif isinstance(message, _WITH_DATA):
        payload = message.data
    header = encode_header(_copy(row.header, message, extra))
    return Frame(row.kind, subject=f"cluster.{group}.{row.topic}", header=header, payload=payload)


def parts_of(message: NodeMessage, *, group: str, lines: bytes | None = None) -> tuple[bytes, bytes]:
    """The same as the bytes of a frame, in two parts: what comes before the payload, and the payload.

    `lines` are the message's lines joined, for a sender who has them: they go to several followers.
    """
    row = _BY_MESSAGE[type(message)]
    extra, payload = {}, b""
    if isinstance(message, raft.AppendEntries):
        extra = {"lines_count": len(message.lines)}
        payload = b"".join(message.lines) if lines is None else lines
    elif isinstance(message, _WITH_DATA):
        payload = message.data
    header = encode_header(_copy(row.header, message, extra))
    subject = f"cluster.{group}.{row.topic}".encode()
    length = LENGTH_MIN + len(subject) + len(header) + len(payload)
    assert length <= limits.FRAME_BYTES_MAX, "a line and a chunk fit a frame"
    head = HEAD.pack(length, row.kind, NO_ID, NO_ID, len(subject), len(header))
    return head + subject + header, payload


def message_of(frame: Frame) -> NodeMessage:
    """The Raft message in a frame. Raises ProtocolError, never anything else."""
    row = _BY_TYPE.get(frame.type)
    if row is None:
        text = f"{type_name(frame.type)} is no message of the consensus"
        raise violation(ErrorCode.ILLEGAL_MESSAGE, text, frame)
    header = header_of(frame, row.header)
    extra: dict[str, object] = {}
    if isinstance(header, wire.AppendEntriesHeader):
        extra = {"lines": _lines_of(frame, header.lines_count)}
    elif isinstance(header, wire.InstallSnapshotHeader):
        _check_chunk(frame, header)
        extra = {"data": frame.payload}
    elif isinstance(header, repair.RepairPieceHeader):
        extra = {"data": frame.payload}
    return cast(NodeMessage, _copy(row.message, header, extra))


def _copy(target: type[Any], source: object, extra: Mapping[str, object]) -> Any:
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
