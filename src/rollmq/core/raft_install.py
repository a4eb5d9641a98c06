"""InstallSnapshot, both sides (section 7): for a follower whose next line the leader no longer has.

Chunks go one at a time, each with its checksum, bound to (term, snapshot, offset); the answer says where to
go on, so a lost one is resumed and not begun anew. The leader reads chunks from its store and serves on
meanwhile. A follower's log stays untouched until the snapshot is durable: entries that it confirmed once
may be what makes them committed. It does no IO: the host reads, writes and installs.
"""

import zlib

from rollmq.core.raft_log import RaftLog
from rollmq.core.raft_messages import InstallSnapResp, InstallSnapshot
from rollmq.core.raft_ready import ReadChunk, SnapshotFacts, WriteChunk


class Shipment:
    """A snapshot on its way to one follower; kept by the leader for one term."""

    __slots__ = ("is_due", "next_offset", "reading", "sent_us", "snapshot")

    def __init__(self, snapshot: SnapshotFacts, now_us: int) -> None:
        self.snapshot = snapshot
        self.next_offset = 0
        self.is_due = True
        """The next chunk is to be read and sent."""
        self.reading: ReadChunk | None = None
        self.sent_us = now_us

    def answered(self, answer: InstallSnapResp) -> None:
        """Go on where the follower says (it knows what it has)."""
        is_this = (answer.last_index, answer.digest) == (self.snapshot.last_index, self.snapshot.digest)
        if is_this and 0 <= answer.next_offset < self.snapshot.total_bytes:
            self.next_offset = answer.next_offset
            self.is_due = self.reading is None


class Receiving:
    """A snapshot that comes in, at a follower.

    receiving -> (all chunks written) -> complete -> (the log is quiet) -> installing -> installed or refused
    """

    __slots__ = (
        "_is_complete",
        "_log",
        "_next_offset",
        "_node_id",
        "_snapshot",
        "_source",
        "_term",
        "_writing",
        "chunk",
        "is_installing",
    )

    def __init__(self, *, node_id: str, log: RaftLog) -> None:
        self._node_id = node_id
        self._log = log
        self.chunk: WriteChunk | None = None
        """For the host, collected by the next Ready."""
        self.is_installing = False
        """The host replaces log and state by the snapshot: nothing may be added to the log meanwhile."""
        self._begin(None, "", 0)

    def _begin(self, snapshot: SnapshotFacts | None, source: str, term: int) -> None:
        self._snapshot = snapshot
        self._source, self._term = source, term
        self._next_offset = 0
        self._is_complete = False
        self._writing: WriteChunk | None = None
        self.chunk = None

    def abort(self) -> None:
        """The term changed: what came so far continues nothing. An install that has begun goes on: what is
        in a snapshot is committed, whoever leads."""
        if not self.is_installing:
            self._begin(None, "", 0)

    def take(self, request: InstallSnapshot) -> InstallSnapResp | None:
        """Take one chunk of the current leader. Returns the answer, None when it waits for the disk."""
        if self.is_installing:
            return None
        if self._is_known(request):
            return self._answer(request, request.total_bytes, installed=True)
        facts = SnapshotFacts(request.last_index, request.last_term, request.digest, request.total_bytes)
        if (facts, request.source, request.term) != (self._snapshot, self._source, self._term):
            # Pitfall 29: a chunk of another snapshot, sender or term never continues this one.
            if self._writing is not None or request.offset != 0:
                return self._answer(request, 0)
            self._begin(facts, request.source, request.term)
        if self._writing is not None or self._is_complete:
            return None  # Its answer comes with the chunk that is being written, or with the install.
        is_whole = bool(request.data) and zlib.crc32(request.data) == request.crc
        is_next = request.offset == self._next_offset
        if not is_whole or not is_next or request.offset + len(request.data) > request.total_bytes:
            return self._answer(request, self._next_offset)
        self._writing = self.chunk = WriteChunk(facts, request.offset, request.data)
        return None

    def _is_known(self, request: InstallSnapshot) -> bool:
        """All that the snapshot holds is here (section 7, step 6): the log keeps it, and what follows it."""
        log = self._log
        if request.last_index <= log.commit_index:
            return True
        if log.matches(request.last_index, request.last_term):
            log.commit_to(request.last_index)  # A snapshot holds committed entries only.
            return True
        return False

    def chunk_written(self, chunk: WriteChunk) -> InstallSnapResp | None:
        """The host has written it. Returns the answer, None when all is there or nobody waits for it."""
        if chunk is not self._writing or self._snapshot is None:
            self._writing = None if chunk is self._writing else self._writing
            return None
        self._writing = None
        self._next_offset = chunk.offset + len(chunk.data)
        self._is_complete = self._next_offset == chunk.snapshot.total_bytes
        return None if self._is_complete else self._answer_now(self._next_offset)

    def begin_install(self) -> SnapshotFacts | None:
        """What to install now, if all of it is here; call it only while the disk has the log as it is."""
        if not self._is_complete or self.is_installing:
            return None
        assert self._snapshot is not None
        if self._snapshot.last_index <= self._log.commit_index:
            self._begin(None, "", 0)
            return None
        self.is_installing = True
        return self._snapshot

    def ended(self, *, installed: bool) -> InstallSnapResp | None:
        """The host has installed it, or found that it is not what its digest says."""
        assert self.is_installing
        assert self._snapshot is not None
        answer = self._answer_now(self._snapshot.total_bytes if installed else 0, installed=installed)
        self.is_installing = False
        self._begin(None, "", 0)
        return answer

    def _answer_now(self, next_offset: int, *, installed: bool = False) -> InstallSnapResp:
        assert self._snapshot is not None
        return InstallSnapResp(
            self._node_id,
            self._source,
            self._term,
            last_index=self._snapshot.last_index,
            digest=self._snapshot.digest,
            next_offset=next_offset,
            installed=installed,
        )

    def _answer(
        self, request: InstallSnapshot, next_offset: int, *, installed: bool = False
    ) -> InstallSnapResp:
        return InstallSnapResp(
            self._node_id,
            request.source,
            request.term,
            last_index=request.last_index,
            digest=request.digest,
            next_offset=next_offset,
            installed=installed,
            round=request.round,
        )
