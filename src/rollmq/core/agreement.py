"""Whether replicas agree: their segments at each marker, and the counts of their states behind it (rule 5).

Every replica remembers what it counted at the newest markers. Followers tell theirs in answers to heartbeats
once the marker is committed; the leader compares. Whoever differs from a majority stops: a follower is told
so, and a leader that a majority contradicts, or whose marker a majority refuses, stops by itself.
"""

import hashlib
from collections.abc import Iterable
from typing import Final

import msgspec

from rollmq.core.events import Counts, SnapshotMarker
from rollmq.core.line import decode_line
from rollmq.core.raft import RaftCore
from rollmq.core.raft_election import quorum_of
from rollmq.core.raft_leader import Leadership
from rollmq.core.raft_log import RaftLog
from rollmq.core.segment_digest import SegmentDigest
from rollmq.errors import ReplicaDiverged
from rollmq.limits import APPLIES_PER_TURN

MARKERS_KEPT: Final = 64
"""Whose counts are remembered: a follower that is further behind is compared at its next marker."""
DIGEST_BYTES: Final = 16
_encode = msgspec.json.Encoder().encode


def is_another_segment(log: RaftLog, known: Iterable[SegmentDigest], index: int) -> bool | None:
    """Whether the marker `index`, which a leader has just sent, ends other bytes than ours.

    `known` are digests of our log, each as of some entry: one is needed from which the lines in memory go on.
    None: there is none, and nobody can say yet.
    """
    for digest in known:
        is_cut = log.cut_from is not None and log.cut_from < digest.next_index
        if not is_cut and log.held_index <= digest.next_index <= index <= log.last_index:
            *lines, marker = log.lines(digest.next_index, index)
            digest = digest.copy()
            digest.add_all(lines)
            event = decode_line(marker)
            assert isinstance(event, SnapshotMarker)
            return event.segment_digest != digest.hexdigest()
    return None


class LookBack:
    """The digest of our log up to the lines in memory, from the disk: when a leader cuts what a node found at
    its start, nothing else is left to hold the next marker against."""

    def __init__(self) -> None:
        self._digest: SegmentDigest | None = None

    def go_on(self, raft: RaftCore, applied: SegmentDigest) -> SegmentDigest | None:
        """From `applied` on, a piece per turn; None: there is more to read."""
        digest, held_index = self._digest, raft.log.held_index
        if digest is None or digest.next_index < applied.next_index:
            digest = applied.copy()
        self._digest = digest
        while digest.next_index < held_index:
            lines = raft.want_own_lines(digest.next_index, held_index - 1, lines_max=APPLIES_PER_TURN)
            if lines is None:
                return None
            digest.add_all(lines)
        return digest

    def cut(self) -> None:
        """What was read may be what was cut."""
        self._digest = None


class Agreement:
    """What one replica counted, and while it leads what the others told. It changes nothing."""

    def __init__(self) -> None:
        self._own: dict[int, bytes] = {}
        """By marker, oldest first."""
        self._told: dict[int, dict[str, bytes]] = {}
        """By marker and follower, while this node leads in `_term`."""
        self._term = 0
        self._untold: list[int] = []
        """Markers that were applied here and are not known to be committed."""
        self.differing: dict[str, int] = {}
        """Followers whose counts are not this leader's, and at which marker: for people."""

    def counted(self, index: int, counts: Counts) -> None:
        """The marker `index` was applied here."""
        self._untold.append(index)
        self._own[index] = hashlib.sha256(_encode(counts)).digest()[:DIGEST_BYTES]
        while len(self._own) > MARKERS_KEPT:
            del self._own[next(iter(self._own))]

    def is_meant(self, index: int, digest: bytes) -> bool:
        """Whether it is this run of the node that counted so at the marker `index`."""
        return self._own.get(index) == digest

    def cut(self, index: int) -> None:
        """Entries from here on came to nothing."""
        self._untold = [at for at in self._untold if at < index]
        for at in [at for at in self._own if at >= index]:
            del self._own[at]

    def tell(self, raft: RaftCore) -> None:
        """Let answers carry what was counted at the newest marker that is committed: another one may yet be
        cut, and a different marker stand in its place."""
        while self._untold and self._untold[0] <= raft.commit_index:
            index = self._untold.pop(0)
            if index in self._own:
                raft.tell_counts(index, self._own[index])

    def judge(self, raft: RaftCore) -> None:
        """As a leader: compare. Raises ReplicaDiverged when it is this node that differs."""
        leadership = raft.leadership
        if leadership is None:
            return
        refused_index = leadership.refused_marker()
        if refused_index:
            raise ReplicaDiverged(index=refused_index, what="the segment that this marker ends")
        if self._term != leadership.term:
            self._term = leadership.term
            self._told.clear()
            self.differing.clear()
        told, leadership.counts_told = leadership.counts_told, []
        for node_id, index, digest in told:
            if index in self._own and index <= raft.commit_index:
                self._told.setdefault(index, {})[node_id] = digest
                self._compare(raft, leadership, index)
        for index in [index for index in self._told if index not in self._own]:
            del self._told[index]

    def _compare(self, raft: RaftCore, leadership: Leadership, index: int) -> None:
        voters = raft.log.membership.current.voters
        told, own = self._told[index], self._own[index]
        digests = [digest for node_id, digest in told.items() if node_id in voters]
        quorum = quorum_of(len(voters))
        if any(digests.count(digest) >= quorum for digest in digests if digest != own):
            raise ReplicaDiverged(index=index, what="the counts of the state as of this marker")
        is_majority = digests.count(own) + (raft.node_id in voters) >= quorum
        for node_id, digest in told.items():
            progress = leadership.progress(node_id)
            if progress is None:
                continue
            if digest == own:
                self.differing.pop(node_id, None)
                progress.differs_index = 0
            else:
                self.differing[node_id] = index
                # Without a majority nobody knows who is wrong: it is only shown to people.
                progress.differs_index = index if is_majority else 0
                progress.differs_counts = digest
