"""Which header, and which JSON payload, belongs to which message type. The list of all messages.

A table only: codec decodes by it, docs/protocol.md is generated from it, and a test fails when a
MsgType has no row.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from rollmq.wire import headers, job_headers, many_headers, peer_headers, repair_headers
from rollmq.wire.message import MsgType


class MessageRow(NamedTuple):
    """What a message of one type is made of."""

    header: type[headers.Header]
    answer_header: type[headers.Header] | None = None
    """A hello's answer is a frame of the same type with another header."""
    payload: type[headers.Header] | None = None
    """When the payload is JSON of ours."""
    subject: str = ""
    """Form of the subject; empty: none is sent, and one that comes is ignored."""


MESSAGES: Final[Mapping[MsgType, MessageRow]] = {
    MsgType.HELLO_CLIENT: MessageRow(headers.HelloClientHeader, headers.HelloAnswerHeader),
    MsgType.HELLO_WORKER: MessageRow(headers.HelloWorkerHeader, headers.HelloAnswerHeader, headers.HeldList),
    MsgType.SUBMIT_JOB: MessageRow(job_headers.SubmitJobHeader, subject="job.submit.<exec>"),
    MsgType.ASSIGN_JOB: MessageRow(job_headers.AssignJobHeader, subject="job.assign.<exec>.<worker>"),
    MsgType.ACK_JOB: MessageRow(job_headers.AckJobHeader),
    MsgType.CREDIT: MessageRow(job_headers.CreditHeader),
    MsgType.RESULT: MessageRow(job_headers.ResultHeader),
    MsgType.HELLO_OPERATOR: MessageRow(headers.HelloOperatorHeader, headers.HelloAnswerHeader),
    MsgType.QUERY: MessageRow(headers.QueryHeader),
    MsgType.REPLY: MessageRow(headers.ReplyHeader),
    MsgType.READ_LOG: MessageRow(headers.ReadLogHeader),
    MsgType.LOG_CHUNK: MessageRow(headers.LogChunkHeader),
    MsgType.ACCEPTED: MessageRow(job_headers.AcceptedHeader),
    MsgType.STARTED: MessageRow(job_headers.StartedHeader),
    MsgType.PING: MessageRow(headers.PingHeader),
    MsgType.PONG: MessageRow(headers.PongHeader),
    MsgType.CANCEL: MessageRow(job_headers.CancelHeader),
    MsgType.ERROR: MessageRow(headers.ErrorHeader),
    MsgType.GOODBYE: MessageRow(headers.GoodbyeHeader),
    MsgType.NOT_LEADER: MessageRow(headers.NotLeaderHeader),
    MsgType.LEADER_HELLO: MessageRow(peer_headers.LeaderHelloHeader, peer_headers.LeaderHelloHeader),
    MsgType.APPEND_ENTRIES: MessageRow(peer_headers.AppendEntriesHeader, subject="cluster.<group>.append"),
    MsgType.APPEND_RESP: MessageRow(peer_headers.AppendRespHeader, subject="cluster.<group>.append"),
    MsgType.REQUEST_VOTE: MessageRow(peer_headers.RequestVoteHeader, subject="cluster.<group>.vote"),
    MsgType.VOTE_RESP: MessageRow(peer_headers.VoteRespHeader, subject="cluster.<group>.vote"),
    MsgType.INSTALL_SNAPSHOT: MessageRow(
        peer_headers.InstallSnapshotHeader, subject="cluster.<group>.snapshot"
    ),
    MsgType.INSTALL_SNAP_RESP: MessageRow(
        peer_headers.InstallSnapRespHeader, subject="cluster.<group>.snapshot"
    ),
    MsgType.ACK_DONE: MessageRow(job_headers.AckDoneHeader),
    MsgType.LEADER_IS: MessageRow(headers.LeaderIsHeader),
    MsgType.TIMEOUT_NOW: MessageRow(peer_headers.TimeoutNowHeader, subject="cluster.<group>.vote"),
    MsgType.REPAIR_ASK: MessageRow(repair_headers.RepairAskHeader, subject="cluster.<group>.repair"),
    MsgType.REPAIR_HAS: MessageRow(repair_headers.RepairHasHeader, subject="cluster.<group>.repair"),
    MsgType.REPAIR_FETCH: MessageRow(repair_headers.RepairFetchHeader, subject="cluster.<group>.repair"),
    MsgType.REPAIR_PIECE: MessageRow(repair_headers.RepairPieceHeader, subject="cluster.<group>.repair"),
    MsgType.SUBMIT_JOBS: MessageRow(many_headers.SubmitJobsHeader, subject="job.submit.<exec>"),
    MsgType.ACCEPTED_JOBS: MessageRow(many_headers.AcceptedJobsHeader),
    MsgType.ASSIGN_JOBS: MessageRow(many_headers.AssignJobsHeader, subject="job.assign.<exec>.<worker>"),
    MsgType.ACK_JOBS: MessageRow(many_headers.AckJobsHeader),
    MsgType.RESULTS: MessageRow(many_headers.ResultsHeader),
}

_TYPES = frozenset(
    kind
    for row in MESSAGES.values()
    for kind in (headers.VersionHeader, row.header, row.answer_header, row.payload)
    if kind is not None
)
DECODERS: Final[Mapping[type[headers.Header], "msgspec.json.Decoder[Any]"]] = {
    kind: msgspec.json.Decoder(kind) for kind in _TYPES
}
"""Made once: building one costs as much as a thousand decodes."""
DEFAULTS: Final[Mapping[type[headers.Header], headers.Header]] = {
    kind: kind() for kind in _TYPES if not any(field.required for field in msgspec.structs.fields(kind))
}
"""What an empty header says, for the types whose fields all have defaults: nothing is parsed."""
