"""Whole conversations for docs/protocol.md, as the frames that the real codec writes. One story, no chance.

A client submits a job, a worker fails it once and finishes it, a follower sends somebody elsewhere, a
reader takes the log. The page shows them as hexdumps; its test encodes them anew.
"""

import struct
from typing import NamedTuple

from rollmq.core.events import Noop
from rollmq.core.line import encode_line
from rollmq.core.raft_messages import AppendEntries
from rollmq.wire.codec import encode_header, encode_payload, error_frame
from rollmq.wire.error_codes import ErrorCode, violation
from rollmq.wire.headers import (
    Header,
    Held,
    HeldList,
    HelloAnswerHeader,
    HelloClientHeader,
    HelloOperatorHeader,
    HelloWorkerHeader,
    LeaderIsHeader,
    LogChunkHeader,
    NotLeaderHeader,
    PongHeader,
    QueryHeader,
    ReadLogHeader,
    ReplyHeader,
)
from rollmq.wire.job_headers import (
    AcceptedHeader,
    AckDoneHeader,
    AckJobHeader,
    AssignJobHeader,
    CreditHeader,
    ResultHeader,
    StartedHeader,
    StartedJob,
    SubmitJobHeader,
)
from rollmq.wire.many_headers import ResultsHeader, SubmitJobsHeader
from rollmq.wire.message import NO_ID, PROTOCOL_VERSION, Frame, MsgType
from rollmq.wire.peer import frame_of
from rollmq.wire.peer_headers import LeaderHelloHeader
from rollmq.wire.readers import assign_subject, submit_subject

JOB = bytes.fromhex("019a982c8e3b7a51b2c04d5e6f708192")
NEXT_JOB = bytes.fromhex("019a982c8e3b7a53c0d1e2f3041526a7")
OLD_JOB = "019a982c8e3b7a52a1b2c3d4e5f60718"
NODE = "0b7c2f54e1d84f0f9a3d5c6b7a891011"
OTHER_NODE = "5d1e2f3a4b5c4d6e8f70818293a4b5c6"
GROUP = "7f3a9d20c4b84e15a6d7e8f901122334"
LOG_AT_US = 1_763_490_000_123_456


class Line(NamedTuple):
    """One frame of a conversation."""

    is_to_node: bool
    says: str
    frame: Frame


class Conversation(NamedTuple):
    """A connection from its hello on, between the dialing side and a node."""

    dialer: str
    lines: tuple[Line, ...]


def number(value: int) -> bytes:
    """A small msg_id, so that the page stays readable; real ones are 16 random bytes or a counter."""
    return struct.pack(">8xQ", value)


def _frame(
    kind: MsgType,
    header: Header | None = None,
    *,
    msg_id: bytes = NO_ID,
    corr_id: bytes = NO_ID,
    subject: str = "",
    payload: bytes = b"",
) -> Frame:
    encoded = b"" if header is None else encode_header(header)
    return Frame(kind, msg_id, corr_id, subject, encoded, payload)


def _answer(kind: MsgType, *, many: bool = False) -> Line:
    header = HelloAnswerHeader(
        version=PROTOCOL_VERSION, node_id=NODE, group=GROUP, term=3, log_at_us=LOG_AT_US, many=many
    )
    return Line(False, "welcome; log time now", _frame(kind, header, corr_id=number(1)))


CLIENT = Conversation(
    "client",
    (
        Line(
            True,
            "who I am",
            _frame(
                MsgType.HELLO_CLIENT,
                HelloClientHeader(version=PROTOCOL_VERSION, client_id="webshop"),
                msg_id=number(1),
            ),
        ),
        _answer(MsgType.HELLO_CLIENT),
        Line(
            True,
            "a job; its id is drawn by the client, in log time",
            _frame(
                MsgType.SUBMIT_JOB,
                SubmitJobHeader(priority=3, tries_max=3),
                msg_id=JOB,
                subject=submit_subject("image.resize"),
                payload=b"cat.png 300",
            ),
        ),
        Line(
            False,
            "committed: it cannot get lost any more",
            _frame(MsgType.ACCEPTED, AcceptedHeader(), msg_id=JOB, corr_id=JOB),
        ),
        Line(
            False,
            "halfway (progress, as its handler told it)",
            _frame(
                MsgType.RESULT,
                ResultHeader(final=False, state="running", seq=1),
                corr_id=JOB,
                payload=b"50 %",
            ),
        ),
        Line(
            False,
            "done, at the second try",
            _frame(
                MsgType.RESULT,
                ResultHeader(tries=2, ended_at_us=LOG_AT_US + 3_500_000, run_us=812_000),
                corr_id=JOB,
                payload=b"cat-300.png",
            ),
        ),
        Line(
            True,
            "the same job again, because the client was not sure",
            _frame(
                MsgType.SUBMIT_JOB,
                SubmitJobHeader(priority=3, tries_max=3, resend=True),
                msg_id=JOB,
                subject=submit_subject("image.resize"),
                payload=b"cat.png 300",
            ),
        ),
        Line(
            False,
            "known: nothing new was queued",
            _frame(MsgType.ACCEPTED, AcceptedHeader(repeated=True), msg_id=JOB, corr_id=JOB),
        ),
        Line(True, "I begin nothing new", _frame(MsgType.GOODBYE)),
        Line(False, "neither do I", _frame(MsgType.GOODBYE)),
    ),
)

WORKER = Conversation(
    "worker",
    (
        Line(
            True,
            "who I am, what I take, and that I still hold an old job",
            _frame(
                MsgType.HELLO_WORKER,
                HelloWorkerHeader(
                    version=PROTOCOL_VERSION,
                    worker_id="w1",
                    instance="f3a9",
                    patterns=("job.assign.image.*",),
                    hands=2,
                    credit=3,
                ),
                msg_id=number(1),
                payload=encode_payload(HeldList(held=(Held(OLD_JOB, (2, 17), True, 900_000, 59_100_000),))),
            ),
        ),
        _answer(MsgType.HELLO_WORKER),
        Line(
            False,
            "run this",
            _frame(
                MsgType.ASSIGN_JOB,
                AssignJobHeader(attempt=1, fence=(3, 42), seq=1, tries_max=3, client_id="webshop"),
                msg_id=JOB,
                subject=assign_subject("image.resize", "w1"),
                payload=b"cat.png 300",
            ),
        ),
        Line(
            True,
            "its handler is about to run",
            _frame(MsgType.STARTED, StartedHeader(jobs=(StartedJob(JOB.hex(), (3, 42)),))),
        ),
        Line(
            True,
            "it failed: try again. And: I have seen 1 assign and take 3 more",
            _frame(
                MsgType.ACK_JOB,
                AckJobHeader(
                    fence=(3, 42),
                    seq=1,
                    ok=False,
                    what="retry",
                    run_us=1_200,
                    error_type="OSError",
                    error_message="disk full",
                    credit=(1, 3),
                ),
                corr_id=JOB,
                payload=b"Traceback: ...",
            ),
        ),
        Line(False, "that is committed", _frame(MsgType.ACK_DONE, AckDoneHeader(seq=1))),
        Line(
            False,
            "after its backoff: the second attempt, with a new fence",
            _frame(
                MsgType.ASSIGN_JOB,
                AssignJobHeader(attempt=2, fence=(3, 51), seq=2, tries=1, tries_max=3, client_id="webshop"),
                msg_id=JOB,
                subject=assign_subject("image.resize", "w1"),
                payload=b"cat.png 300",
            ),
        ),
        Line(
            True,
            "started",
            _frame(MsgType.STARTED, StartedHeader(jobs=(StartedJob(JOB.hex(), (3, 51)),))),
        ),
        Line(
            True,
            "done; the payload is the result",
            _frame(
                MsgType.ACK_JOB,
                AckJobHeader(fence=(3, 51), seq=2, run_us=812_000),
                corr_id=JOB,
                payload=b"cat-300.png",
            ),
        ),
        Line(True, "I have seen 2 assigns and take 4 more", _frame(MsgType.CREDIT, CreditHeader(2, 4))),
        Line(False, "committed, and it counted", _frame(MsgType.ACK_DONE, AckDoneHeader(seq=2))),
        Line(False, "still there?", _frame(MsgType.PING, msg_id=number(9))),
        Line(True, "yes", _frame(MsgType.PONG, PongHeader(), corr_id=number(9))),
    ),
)

REDIRECT = Conversation(
    "client",
    (
        CLIENT.lines[0],
        Line(
            False,
            "I only follow; go there. Then it closes",
            _frame(MsgType.NOT_LEADER, NotLeaderHeader(leader="10.0.0.2:5000", term=3), corr_id=number(1)),
        ),
    ),
)

WATCH = Conversation(
    "watching client",
    (
        Line(
            True,
            "tell me who leads",
            _frame(
                MsgType.HELLO_CLIENT,
                HelloClientHeader(version=PROTOCOL_VERSION, client_id="webshop", watches=True),
                msg_id=number(1),
            ),
        ),
        _answer(MsgType.HELLO_CLIENT),
        Line(False, "this one", _frame(MsgType.LEADER_IS, LeaderIsHeader(leader="10.0.0.2:5000", term=3))),
        Line(False, "now another", _frame(MsgType.LEADER_IS, LeaderIsHeader(leader="10.0.0.3:5000", term=4))),
    ),
)

OPERATOR = Conversation(
    "operator",
    (
        Line(
            True,
            "who gives the commands",
            _frame(
                MsgType.HELLO_OPERATOR,
                HelloOperatorHeader(version=PROTOCOL_VERSION, by="olga"),
                msg_id=number(1),
            ),
        ),
        _answer(MsgType.HELLO_OPERATOR),
        Line(
            True,
            "why does this job not run?",
            _frame(
                MsgType.QUERY,
                QueryHeader(name="explain"),
                msg_id=number(2),
                payload=encode_payload({"job_id": JOB.hex()}),
            ),
        ),
        Line(
            False,
            "true as of entry 60",
            _frame(
                MsgType.REPLY,
                ReplyHeader(index=60),
                corr_id=number(2),
                payload=encode_payload({"state": "done"}),
            ),
        ),
        Line(True, "nonsense", _frame(MsgType.QUERY, QueryHeader(name="dance"), msg_id=number(3))),
        Line(
            False,
            "refused; the connection goes on",
            error_frame(
                violation(
                    ErrorCode.UNKNOWN_QUERY,
                    "no query is called 'dance'; nothing was changed",
                    Frame(MsgType.QUERY, number(3)),
                )
            ),
        ),
    ),
)

READER = Conversation(
    "reader",
    (
        Line(
            True,
            "I only read the log; a follower will do",
            _frame(
                MsgType.HELLO_OPERATOR,
                HelloOperatorHeader(version=PROTOCOL_VERSION, reads_only=True),
                msg_id=number(1),
            ),
        ),
        _answer(MsgType.HELLO_OPERATOR),
        Line(
            True,
            "entries from 2 on",
            _frame(MsgType.READ_LOG, ReadLogHeader(from_index=2, wait_us=1_000_000), msg_id=number(2)),
        ),
        Line(
            False,
            "one line, the very bytes of the log",
            _frame(
                MsgType.LOG_CHUNK,
                LogChunkHeader(first_index=2, last_index=2, commit_index=2, group=GROUP),
                corr_id=number(2),
                payload=encode_line(Noop(index=2, term=1, at_us=LOG_AT_US)),
            ),
        ),
    ),
)

_NODE_HELLO = LeaderHelloHeader(
    version=PROTOCOL_VERSION, node_id=NODE, group=GROUP, address="10.0.0.1:5000", term=3, last_index=60
)
_NODE_ANSWER = LeaderHelloHeader(
    version=PROTOCOL_VERSION, node_id=OTHER_NODE, group=GROUP, address="10.0.0.2:5000", term=2
)
PEER = Conversation(
    "node",
    (
        Line(True, "a peer calls", _frame(MsgType.LEADER_HELLO, _NODE_HELLO, msg_id=number(1))),
        Line(False, "and is answered", _frame(MsgType.LEADER_HELLO, _NODE_ANSWER, corr_id=number(1))),
        Line(
            True,
            "a heartbeat: AppendEntries without lines",
            frame_of(
                AppendEntries(NODE, OTHER_NODE, 3, prev_index=60, prev_term=3, commit_index=60, round=7),
                group="default",
            ),
        ),
    ),
)

MANY = Conversation(
    "client",
    (
        Line(
            True,
            "who I am, and that I understand many jobs in one frame",
            _frame(
                MsgType.HELLO_CLIENT,
                HelloClientHeader(version=PROTOCOL_VERSION, client_id="webshop", many=True),
                msg_id=number(1),
            ),
        ),
        _answer(MsgType.HELLO_CLIENT, many=True),
        Line(
            True,
            "two jobs with the same options: both ids, then both payloads",
            _frame(
                MsgType.SUBMIT_JOBS,
                SubmitJobsHeader((7, 11), SubmitJobHeader(tries_max=3)),
                subject=submit_subject("image.resize"),
                payload=JOB + NEXT_JOB + b"cat.png" + b"dog.png 640",
            ),
        ),
        Line(
            False,
            "both are committed",
            _frame(MsgType.ACCEPTED_JOBS, payload=JOB + NEXT_JOB),
        ),
        Line(
            False,
            "both are done, each after one try",
            _frame(
                MsgType.RESULTS,
                ResultsHeader(((1, LOG_AT_US + 900_000, 812_000, 2), (1, LOG_AT_US + 900_007, None, 0))),
                payload=JOB + NEXT_JOB + b"ok",
            ),
        ),
    ),
)

CONVERSATIONS = {
    "client": CLIENT,
    "worker": WORKER,
    "many": MANY,
    "redirect": REDIRECT,
    "watch": WATCH,
    "operator": OPERATOR,
    "reader": READER,
    "peer": PEER,
}
