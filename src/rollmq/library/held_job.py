"""A job in a worker's hands, from its assign to the moment its outcome is confirmed, and that outcome.

Values only: WorkerCore moves them on, runners read them.
"""

from typing import Final, TypeAlias

import msgspec

from rollmq.core.subject import ASSIGN_PREFIX
from rollmq.wire.headers import Fence
from rollmq.wire.job_headers import AssignJobHeader, HandBackReason

Key: TypeAlias = Fence
"""A fence names an assign, so it names what a worker holds: two attempts of one job are two of these."""

WAITING: Final = 0
"""Its handler has not begun; it may be given back."""
RUNNING: Final = 1
"""Its handler has begun, or is about to: the node was told so before."""
VOID: Final = 2
"""It was to stop and occupies its hand until its handler has ended. Nothing of it is told any more."""
ENDED: Final = 3
"""It has an outcome that waits for AckDone, or it is gone."""


class Outcome(msgspec.Struct, gc=False):
    """How an attempt ended, as its handler's side says it."""

    payload: bytes = b""
    """The result; of a failure its detail."""
    run_us: int | None = None
    what: str = ""
    """Empty: done. Otherwise retry, reject, snooze or hand_back, as in AckJob."""
    after_us: int | None = None
    reason: HandBackReason = ""
    error_type: str = ""
    error_message: str = ""
    content_type: str = ""
    key_id: str = ""


class HeldJob:
    """One attempt that a worker holds."""

    __slots__ = (
        "deadline_us",
        "exec",
        "header",
        "is_stopped",
        "job_id",
        "outcome",
        "payload",
        "started_us",
        "state",
    )

    def __init__(self, job_id: bytes, exec_name: str, header: AssignJobHeader, payload: bytes) -> None:
        self.job_id = job_id
        self.exec = exec_name
        self.header = header
        self.payload = payload
        self.state = WAITING
        self.started_us = 0
        self.deadline_us = 0
        """When its time is over by this process's clock, extensions included."""
        self.is_stopped = False
        """Its handler is to stop. Set on the connection's side, read by runners: it only ever turns true."""
        self.outcome: Outcome | None = None

    @property
    def fence(self) -> Fence:
        """Names the attempt."""
        return self.header.fence


def exec_of_subject(subject: str, worker_id: str) -> str:
    """The exec of an AssignJob to this worker, whose id is the subject's last token."""
    return subject[len(ASSIGN_PREFIX) : -1 - len(worker_id)]
