"""What a node has to say of many jobs in a row, gathered until it is one frame.

A run is opened by the first of them and closed by whatever is said next that does not fit, so nothing is
overtaken. Only connections whose hello said `many` get them.
"""

from typing import Final, TypeAlias

from rollmq.limits import JOBS_PER_MESSAGE_MAX
from rollmq.wire.codec import encode_frame, encode_header
from rollmq.wire.many import Parts
from rollmq.wire.many_headers import AssignJobsHeader, AssignRow, ResultRow, ResultsHeader
from rollmq.wire.message import NO_ID, MsgType
from rollmq.wire.readers import assign_subject

_ACCEPTED_JOBS: Final = int(MsgType.ACCEPTED_JOBS)
_ASSIGN_JOBS: Final = int(MsgType.ASSIGN_JOBS)
_RESULTS: Final = int(MsgType.RESULTS)

AssignShared: TypeAlias = tuple[str, str, int, int, int, str, str, str]
"""Exec, worker, term, tries_max, timeout_us, client, content type, key id."""
ResultShared: TypeAlias = tuple[str, str]
"""Content type, key id."""


class AcceptedRun:
    """Submits that were accepted as new jobs."""

    __slots__ = ("ids",)

    def __init__(self) -> None:
        self.ids: list[bytes] = []

    def has_room(self) -> bool:
        """Whether one more may be said along."""
        return len(self.ids) < JOBS_PER_MESSAGE_MAX

    def frame(self) -> bytes:
        """All of it."""
        return encode_frame(_ACCEPTED_JOBS, payload=b"".join(self.ids))


class ResultRun(Parts):
    """Jobs that are done."""

    __slots__ = ("rows", "shared")

    def __init__(self, shared: ResultShared) -> None:
        super().__init__()
        self.shared = shared
        self.rows: list[ResultRow] = []

    def frame(self) -> bytes:
        """All of it."""
        header = ResultsHeader(tuple(self.rows), *self.shared)
        return encode_frame(_RESULTS, header=encode_header(header), payload=self.payload())


class AssignRun(Parts):
    """Jobs of one exec for one worker."""

    __slots__ = ("_seq", "rows", "shared")

    def __init__(self, shared: AssignShared, seq: int) -> None:
        super().__init__()
        self.shared = shared
        self._seq = seq
        """Of the first one."""
        self.rows: list[AssignRow] = []

    def frame(self) -> bytes:
        """All of it."""
        exec_name, worker_id, term, tries_max, timeout_us, client_id, content_type, key_id = self.shared
        header = AssignJobsHeader(
            tuple(self.rows), term, self._seq, tries_max, timeout_us, client_id, content_type, key_id
        )
        subject = assign_subject(exec_name, worker_id)
        return encode_frame(_ASSIGN_JOBS, NO_ID, NO_ID, subject, encode_header(header), self.payload())


Run: TypeAlias = AcceptedRun | ResultRun | AssignRun
