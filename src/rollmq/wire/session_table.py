"""Which message is legal when, for which role and in which direction. The whole contract is this table.

Each direction of a connection has a state of its own, moved only by what was sent on it (or, for the
hello's answer and for closing, by what both sides have seen), so the two ends never disagree about what
is legal, whatever is still under way.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from rollmq.wire.message import MsgType

M = MsgType


class Role(StrEnum):
    """Who dialed. The hello decides; before it, everybody is a stranger."""

    STRANGER = "stranger"
    CLIENT = "client"
    WORKER = "worker"
    OPERATOR = "operator"
    READER = "reader"
    """A HelloOperator with reads_only: takes the log, nothing else."""
    WATCHER = "watcher"
    """A HelloClient or HelloWorker with watches: hears LeaderIs, nothing else."""
    PEER = "peer"


class State(StrEnum):
    """How far one direction of a connection is."""

    CONNECTED = "connected"
    """No hello yet, or its answer is still awaited."""
    READY = "ready"
    DRAINING = "draining"
    """Goodbye was said in this direction: nothing new begins, what was begun is finished."""
    CLOSED = "closed"


class Direction(StrEnum):
    """Seen from the one who dialed; between two nodes that one takes the library's side."""

    TO_NODE = "to_node"
    FROM_NODE = "from_node"


HELLOS: Final = frozenset({M.HELLO_CLIENT, M.HELLO_WORKER, M.HELLO_OPERATOR, M.LEADER_HELLO})
ALIVE: Final = frozenset({M.PING, M.PONG})
NOTHING: Final[frozenset[MsgType]] = frozenset()
RAFT: Final = frozenset(
    {
        M.APPEND_ENTRIES,
        M.APPEND_RESP,
        M.REQUEST_VOTE,
        M.VOTE_RESP,
        M.INSTALL_SNAPSHOT,
        M.INSTALL_SNAP_RESP,
        M.TIMEOUT_NOW,
        M.READ_LOG,
        M.LOG_CHUNK,
        M.REPAIR_ASK,
        M.REPAIR_HAS,
        M.REPAIR_FETCH,
        M.REPAIR_PIECE,
    }
)
"""Between peers either side may lead. ReadLog and LogChunk: a node takes from another what it misses."""

_TO, _FROM = Direction.TO_NODE, Direction.FROM_NODE
_READY, _DRAINING = State.READY, State.DRAINING
_REFUSALS = frozenset({M.ERROR, M.NOT_LEADER})
_LEAVES = ALIVE | {M.GOODBYE}
_SPEAKS = _LEAVES | {M.ERROR}
_ANSWERS = frozenset({M.ACCEPTED, M.ACCEPTED_JOBS, M.RESULT, M.RESULTS, M.REPLY, M.LOG_CHUNK})
_OUTCOMES = frozenset({M.ACK_JOB, M.ACK_JOBS, M.STARTED, M.RESULT})

_BEGUN: Mapping[tuple[Role, Direction, State], frozenset[MsgType]] = {
    (Role.CLIENT, _TO, _READY): _LEAVES | {M.SUBMIT_JOB, M.SUBMIT_JOBS, M.CANCEL, M.QUERY, M.READ_LOG},
    (Role.CLIENT, _TO, _DRAINING): ALIVE,
    (Role.CLIENT, _FROM, _READY): _SPEAKS | {M.NOT_LEADER} | _ANSWERS,
    (Role.CLIENT, _FROM, _DRAINING): ALIVE | _REFUSALS | _ANSWERS,
    (Role.WORKER, _TO, _READY): _LEAVES | _OUTCOMES | {M.CREDIT, M.READ_LOG},
    (Role.WORKER, _TO, _DRAINING): ALIVE | _OUTCOMES,
    (Role.WORKER, _FROM, _READY): _SPEAKS
    | {M.NOT_LEADER, M.ASSIGN_JOB, M.ASSIGN_JOBS, M.ACK_DONE, M.CANCEL, M.LOG_CHUNK},
    (Role.WORKER, _FROM, _DRAINING): ALIVE | _REFUSALS | {M.ACK_DONE, M.CANCEL, M.LOG_CHUNK},
    (Role.OPERATOR, _TO, _READY): _LEAVES | {M.QUERY, M.READ_LOG},
    (Role.OPERATOR, _TO, _DRAINING): ALIVE,
    (Role.OPERATOR, _FROM, _READY): _SPEAKS | {M.NOT_LEADER, M.REPLY, M.LOG_CHUNK},
    (Role.OPERATOR, _FROM, _DRAINING): ALIVE | _REFUSALS | {M.REPLY, M.LOG_CHUNK},
    (Role.READER, _TO, _READY): _LEAVES | {M.READ_LOG},
    (Role.READER, _TO, _DRAINING): ALIVE,
    (Role.READER, _FROM, _READY): _SPEAKS | {M.LOG_CHUNK},
    (Role.READER, _FROM, _DRAINING): ALIVE | {M.ERROR, M.LOG_CHUNK},
    (Role.WATCHER, _TO, _READY): _LEAVES,
    (Role.WATCHER, _TO, _DRAINING): ALIVE,
    (Role.WATCHER, _FROM, _READY): _SPEAKS | {M.LEADER_IS},
    (Role.WATCHER, _FROM, _DRAINING): ALIVE | {M.ERROR},
    (Role.PEER, _TO, _READY): _SPEAKS | RAFT,
    (Role.PEER, _TO, _DRAINING): ALIVE | RAFT | {M.ERROR},
    (Role.PEER, _FROM, _READY): _SPEAKS | RAFT,
    (Role.PEER, _FROM, _DRAINING): ALIVE | RAFT | {M.ERROR},
}

# While the hello is on its way only the node may speak: it answers, sends elsewhere, or refuses.
_AWAITED: Mapping[Role, frozenset[MsgType]] = {
    Role.CLIENT: _REFUSALS | {M.HELLO_CLIENT},
    Role.WORKER: _REFUSALS | {M.HELLO_WORKER},
    Role.OPERATOR: _REFUSALS | {M.HELLO_OPERATOR},
    Role.READER: frozenset({M.ERROR, M.HELLO_OPERATOR}),
    Role.WATCHER: frozenset({M.ERROR, M.HELLO_CLIENT, M.HELLO_WORKER}),
    Role.PEER: frozenset({M.ERROR, M.LEADER_HELLO}),
}

LEGAL: Final[Mapping[tuple[Role, Direction, State], frozenset[MsgType]]] = {
    (Role.STRANGER, _TO, State.CONNECTED): HELLOS,
    (Role.STRANGER, _FROM, State.CONNECTED): _REFUSALS,
    **{(role, _TO, State.CONNECTED): NOTHING for role in _AWAITED},
    **{(role, _FROM, State.CONNECTED): legal for role, legal in _AWAITED.items()},
    **_BEGUN,
    **{(role, direction, State.CLOSED): NOTHING for role in Role for direction in Direction},
}
"""(role, direction, state) -> what may be sent. A stranger is never ready or draining."""
