"""One connection as the node sees it: who is at the other end, what is to be sent, what is not yet confirmed.

Sans-IO: a `Pipe` takes the bytes. It decides nothing about jobs, and it is cheap enough to have ten thousand.
"""

from collections import deque
from typing import TYPE_CHECKING, Protocol, TypeAlias

from rollmq import limits
from rollmq.core.effects import Assigned
from rollmq.core.events import Fence
from rollmq.errors import ProtocolError
from rollmq.node.runs import Run
from rollmq.wire.codec import HEAD, LENGTH_MIN, FrameDecoder
from rollmq.wire.liveness import Liveness
from rollmq.wire.message import NO_ID, Frame
from rollmq.wire.session import Session, Side

if TYPE_CHECKING:
    from rollmq.node.door import Door


class Pipe(Protocol):
    """Where a connection's bytes go."""

    def write(self, data: bytes) -> None: ...
    def close(self) -> None:
        """Send what was written, then close."""

    def abort(self) -> None:
        """Close at once: what is unsent is lost."""

    def unsent_bytes(self) -> int:
        """What the other side has not taken yet."""


SentAck: TypeAlias = tuple[int, str, Fence]
"""(seq, job id, fence) of an ack that waits for its commit. AckDone names the last of those that are done, in
their order."""


class Conn:
    """The node's end of a connection.

    Invariant: `out` is empty and there is no `run` unless the door has it among its `unflushed`.
    """

    __slots__ = (
        "acks",
        "asks_count",
        "assigned_seq",
        "by",
        "client_id",
        "decoder",
        "done_seq",
        "door",
        "early",
        "hello_index",
        "is_greeted",
        "is_unflushed",
        "late_seqs",
        "liveness",
        "out",
        "peer_id",
        "peer_life",
        "pipe",
        "reads",
        "run",
        "session",
        "takes_many",
        "worker_id",
    )

    def __init__(self, door: "Door", pipe: Pipe, now_us: int) -> None:
        self.door = door
        self.pipe = pipe
        self.session = Session(Side.NODE)
        self.decoder = FrameDecoder(self.session.frame_bytes_max)
        self.liveness = Liveness(now_us)
        self.out: list[bytes] = []
        self.run: Run | None = None
        """The end of what is said in this turn, while more of its kind may follow."""
        self.is_unflushed = False
        self.takes_many = False
        """Its hello said so."""
        self.client_id = ""
        self.worker_id = ""
        self.by = ""
        """The operator at the other end."""
        self.peer_id = ""
        """The node of this group at the other end."""
        self.peer_life = ""
        """Which of its processes."""
        self.is_greeted = False
        """Its hello was answered; until then it counts as a stranger."""
        self.asks_count = 0
        """Its queries and cancels whose answers wait for their commit."""
        self.reads = 0
        """ReadLogs that are not answered yet."""
        # Of a worker:
        self.hello_index = 0
        """The log's end when it said hello: assigns up to here were decided for an earlier connection."""
        self.assigned_seq = 0
        self.acks: deque[SentAck] = deque()
        self.early: list[Assigned] = []
        """Eager assigns (rule 3) that came before the hello was answered: the worker gets them after that."""
        self.done_seq = 0
        """Acks up to this one are committed and not yet confirmed; 0 is none."""
        self.late_seqs: list[int] = []

    @property
    def is_closed(self) -> bool:
        """Nothing more is said here."""
        return self.session.is_closed

    def put(self, data: bytes) -> None:
        """Bytes of one message that moves no state; the caller has asked `may_send`."""
        if self.run is not None:
            self._close_run(self.run)
        elif not self.is_unflushed:
            self._begin()
        self.out.append(data)
        if len(data) > limits.FLUSH_AT_BYTES:
            self.door.flush_early(self)

    def open_run(self, run: Run) -> None:
        """The first of many of its kind is to be said; the caller adds to it, and has asked `may_send`."""
        if self.run is not None:
            self._close_run(self.run)
        elif not self.is_unflushed:
            self._begin()
        self.run = run

    def _close_run(self, run: Run) -> None:
        self.out.append(run.frame())
        self.run = None

    def _begin(self) -> None:
        self.is_unflushed = True
        self.door.unflushed.append(self)

    def put_frame(
        self,
        kind: int,
        msg_id: bytes = NO_ID,
        corr_id: bytes = NO_ID,
        header: bytes = b"",
        payload: bytes = b"",
    ) -> None:
        """The same without a subject, packed here: most of what a node says goes this way."""
        if kind not in self.session.legal_out:
            return
        size = len(header)
        assert size <= limits.HEADER_BYTES_MAX
        head = HEAD.pack(LENGTH_MIN + size + len(payload), kind, msg_id, corr_id, 0, size)
        data = head + header + payload if size or payload else head
        if self.run is not None:
            self._close_run(self.run)
        elif not self.is_unflushed:
            self._begin()
        self.out.append(data)
        if len(data) > limits.FLUSH_AT_BYTES:
            self.door.flush_early(self)

    def send(self, frame: Frame) -> None:
        """Any message, if it may be said now; those that move the session's state go this way."""
        if self.session.may_send(frame.type):
            self.put(self.session.send(frame))

    def refuse(self, error: ProtocolError) -> None:
        """Answer a violation; it may close."""
        data = self.session.refuse(error)
        if data:
            self.put(data)

    def flush(self) -> bool:
        """Write out what was said in this turn, at once. False: the other side does not read, give it up."""
        if self.run is not None:
            self._close_run(self.run)
        out, self.out = self.out, []
        self.is_unflushed = False
        self.pipe.write(out[0] if len(out) == 1 else b"".join(out))
        return self.pipe.unsent_bytes() <= limits.UNSENT_BYTES_MAX
