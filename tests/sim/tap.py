"""Reads along what a worker and its node say to each other, and keeps its own count of what was allowed.

It shares the codec with those it listens to and nothing else: a core that books its credit wrongly, or runs
a handler before it has said so, is found here.
"""

from rollmq.errors import ProtocolError
from rollmq.limits import FRAME_BYTES_MAX
from rollmq.wire import headers as h
from rollmq.wire import job_headers as j
from rollmq.wire.codec import FrameDecoder, header_of
from rollmq.wire.message import Frame, MsgType
from tests.sim.world import Violation


class WorkerTap:
    """One worker's conversation, connection after connection."""

    def __init__(self, name: str) -> None:
        self.name = name
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
        self._said = FrameDecoder(FRAME_BYTES_MAX)
        self._heard = FrameDecoder(FRAME_BYTES_MAX)

    def said(self, data: bytes) -> None:
        """The worker wrote this."""
        for frame in self._said.feed(data):
            if isinstance(frame, ProtocolError):
                raise Violation(f"{self.name} writes what nobody can read: {frame}")
            if frame.type == MsgType.HELLO_WORKER:
                self._allowed = header_of(frame, h.HelloWorkerHeader).credit
            elif frame.type == MsgType.CREDIT:
                header = header_of(frame, j.CreditHeader)
                self._allowed = max(self._allowed, header.seen + header.more)
            elif frame.type == MsgType.ACK_JOB:
                credit = header_of(frame, j.AckJobHeader).credit
                if credit is not None:
                    self._allowed = max(self._allowed, sum(credit))
            elif frame.type == MsgType.STARTED:
                self.started.update(each.fence for each in header_of(frame, j.StartedHeader).jobs)

    def heard(self, data: bytes) -> None:
        """The node wrote this, and nothing of it was lost or overtaken."""
        for frame in self._heard.feed(data):
            if isinstance(frame, Frame) and frame.type == MsgType.ASSIGN_JOB:
                seq = header_of(frame, j.AssignJobHeader).seq
                if seq != self._seen + 1:
                    raise Violation(f"{self.name} gets assign {seq} after assign {self._seen}")
                if seq > self._allowed:
                    raise Violation(f"P4: {self.name} gets assign {seq}, it allowed {self._allowed}")
                self._seen = seq
