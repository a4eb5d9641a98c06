"""Reads along what a worker and its node say to each other, and keeps its own count of what was allowed.

It shares the codec with those it listens to and nothing else: a core that books its credit wrongly, or runs
a handler before it has said so, is found here.
"""

from collections.abc import Callable

from rollmq.errors import ProtocolError
from rollmq.limits import FRAME_BYTES_MAX
from rollmq.wire import headers as h
from rollmq.wire import job_headers as j
from rollmq.wire.codec import FrameDecoder, header_of, payload_of
from rollmq.wire.message import Frame, MsgType
from tests.sim.oracle import Oracle
from tests.sim.world import Violation
from tests.wire.unfold import unfold


class WorkerTap:
    """One worker's conversation, connection after connection."""

    def __init__(self, name: str, oracle: Oracle, running: Callable[[], set[h.Fence]]) -> None:
        self.name = name
        self._oracle = oracle
        self._running = running
        """Attempts whose handlers run and still count."""
        self.ended: set[h.Fence] = set()
        """Attempts whose outcome was told or is to be told, and is not confirmed: none may be forgotten."""
        self._decided_before = 0
        """Entries that were decided when this connection was opened."""
        self._acks: dict[int, tuple[str, h.Fence]] = {}
        """Outcomes said on this connection and not yet confirmed, by number."""
        self.started: set[h.Fence] = set()
        """Attempts that the worker has said to begin."""
        self._allowed = 0
        """The highest number that an assign of this connection may have."""
        self._seen = 0
        self._said = FrameDecoder(FRAME_BYTES_MAX)
        self._heard = FrameDecoder(FRAME_BYTES_MAX)

    def opened(self) -> None:
        """A new connection: numbers begin anew."""
        self._allowed = self._seen = 0
        self._acks.clear()
        self._decided_before = len(self._oracle.lines)
        self._said = FrameDecoder(FRAME_BYTES_MAX)
        self._heard = FrameDecoder(FRAME_BYTES_MAX)

    def said(self, data: bytes) -> None:
        """The worker wrote this."""
        for item in self._said.feed(data):
            if isinstance(item, ProtocolError):
                raise Violation(f"{self.name} writes what nobody can read: {item}")
            for frame in unfold(item):
                self._said_one(frame)

    def _said_one(self, frame: Frame) -> None:
        if frame.type == MsgType.HELLO_WORKER:
            self._allowed = header_of(frame, h.HelloWorkerHeader).credit
            self._check_list(payload_of(frame, h.HeldList))
        elif frame.type == MsgType.CREDIT:
            header = header_of(frame, j.CreditHeader)
            self._allowed = max(self._allowed, header.seen + header.more)
        elif frame.type == MsgType.ACK_JOB:
            header_ack = header_of(frame, j.AckJobHeader)
            self._acks[header_ack.seq] = (frame.corr_id.hex(), header_ack.fence)
            if header_ack.credit is not None:
                self._allowed = max(self._allowed, sum(header_ack.credit))
        elif frame.type == MsgType.STARTED:
            self.started.update(each.fence for each in header_of(frame, j.StartedHeader).jobs)

    def heard(self, data: bytes) -> None:
        """The node wrote this, and nothing of it was lost or overtaken."""
        for item in self._heard.feed(data):
            if isinstance(item, Frame):
                for frame in unfold(item):
                    self._heard_one(frame)

    def _heard_one(self, frame: Frame) -> None:
        if frame.type == MsgType.ACK_DONE:
            self._confirmed(header_of(frame, j.AckDoneHeader).seq)
        elif frame.type == MsgType.ASSIGN_JOB:
            header = header_of(frame, j.AssignJobHeader)
            seq, index = header.seq, header.fence[1]
            if index <= self._decided_before:
                raise Violation(f"P4: {self.name} gets entry {index}, decided for an earlier connection")
            if seq != self._seen + 1:
                raise Violation(f"{self.name} gets assign {seq} after assign {self._seen}")
            if seq > self._allowed:
                raise Violation(f"P4: {self.name} gets assign {seq}, it allowed {self._allowed}")
            self._seen = seq

    def _confirmed(self, seq: int) -> None:
        """Outcomes up to this one are safe, says the node: then the committed log ends their attempts."""
        for number in [number for number in self._acks if number <= seq]:
            job_id, fence = self._acks.pop(number)
            self.ended.discard(fence)
            job = self._oracle.ledger.jobs.get(job_id)
            if job is not None and job.state == "inflight" and job.fence == fence:
                raise Violation(f"P5: an outcome of {job_id} is confirmed, and the log says that it runs")

    def _check_list(self, listed: h.HeldList) -> None:
        """A hello is exhaustive: what it leaves out is given to others."""
        begun = {held.fence for held in listed.held if held.started}
        running = self._running()
        if not running <= begun:
            raise Violation(f"P3: {self.name} says hello and not that {running - begun} run")
        outcomes = {outcome.fence for outcome in listed.outcomes}
        if not self.ended <= outcomes:
            raise Violation(f"P3: {self.name} says hello and forgets the outcomes of {self.ended - outcomes}")
