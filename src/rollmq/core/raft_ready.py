"""What passes between the Raft core and its host: settings, what to persist, what to send, what to tell.

Pure values. The rules are in raft.py; `Ready` says the host's duties.
"""

from dataclasses import dataclass
from enum import Enum

from rollmq import limits
from rollmq.core.raft_messages import PeerMessage


class Role(Enum):
    """What a node is in its term. A pre-candidate asks whether it could win, before it disturbs anybody."""

    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftSettings:
    """Times and bounds. Tests make them small; a node takes the first three from its command line."""

    heartbeat_us: int = limits.HEARTBEAT_US
    election_us_min: int = limits.ELECTION_US_MIN
    election_us_max: int = limits.ELECTION_US_MAX
    write_bytes_max: int = limits.WRITE_BYTES_MAX
    append_bytes_max: int = limits.APPEND_BYTES_MAX
    append_lines_max: int = limits.APPEND_LINES_MAX
    appends_inflight_max: int = limits.APPENDS_INFLIGHT_MAX
    appends_inflight_bytes_max: int = limits.APPENDS_INFLIGHT_BYTES_MAX
    uncommitted_bytes_max: int = limits.UNCOMMITTED_BYTES_MAX
    tail_bytes_max: int = limits.TAIL_BYTES_MAX
    chunk_bytes_max: int = limits.SNAPSHOT_CHUNK_BYTES_MAX

    def __post_init__(self) -> None:
        """A heartbeat must come within the shortest election timeout, or every follower would campaign."""
        assert 0 < self.heartbeat_us < self.election_us_min, "heartbeats come before elections"
        assert self.election_us_min <= self.election_us_max, "the range of election timeouts"


@dataclass(frozen=True, slots=True)
class HardState:
    """Term and vote, always persisted together in one record (pitfall 2)."""

    term: int = 0
    voted_for: str | None = None


@dataclass(frozen=True, slots=True)
class Write:
    """What must be durable, in this order: hard_state, then cut from truncate_from on, then append lines.

    One Write is out at a time. When all of it is synced the host sends `messages_after`, in order, and calls
    `RaftCore.persisted(write)`. A write or sync that fails stops the node: neither is done then.
    """

    hard_state: HardState | None
    truncate_from: int | None
    """The disk may hold lines from here on that are no longer the log's; they go before lines are added."""
    first_index: int
    lines: list[bytes]
    """Entries first_index, first_index + 1, …; possibly none."""
    messages_after: tuple[PeerMessage, ...]
    """What these things on disk make true: votes given and asked for, a follower's "I have it"."""

    @property
    def last_index(self) -> int:
        """The index of the last line; first_index - 1 when there is none."""
        return self.first_index + len(self.lines) - 1


@dataclass(frozen=True, slots=True)
class ReadLines:
    """A follower is behind what the leader has in memory: the host reads the store, off its loop.

    It answers with `RaftCore.lines_read(request, lines)`: lines from first_index on, at most up to
    last_index and bytes_max (but at least one), or none when the store no longer has the first. With this
    node itself as target they are for its own machine, which is behind what is in memory.
    """

    target: str
    term: int
    first_index: int
    last_index: int
    bytes_max: int


@dataclass(frozen=True, slots=True)
class SnapshotFacts:
    """A snapshot file: the last entry in it with its term, sha256 of the file, and its size."""

    last_index: int
    last_term: int
    digest: str
    total_bytes: int


@dataclass(frozen=True, slots=True)
class ReadChunk:
    """A follower needs a snapshot: the host reads this piece of the file, off its loop.

    It answers with `RaftCore.chunk_read(request, data)`; None when that file is no longer kept.
    """

    target: str
    term: int
    snapshot: SnapshotFacts
    offset: int
    bytes_max: int


@dataclass(frozen=True, slots=True)
class WriteChunk:
    """A piece of a leader's snapshot for this node's disk, beside everything else. Offset 0 begins anew.

    When it is written the host calls `RaftCore.chunk_written(chunk)`; durable it must be only in the end.
    """

    snapshot: SnapshotFacts
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class ReadTicket:
    """A read index (section 8; thesis 6.4): what was asked of the leader was asked in this term and round."""

    term: int
    round: int
    index: int
    """What must be applied before the answer is given."""


@dataclass(frozen=True, slots=True)
class Ready:
    """Work for the host, in this order:

    1. If `cut_from` is set, drop every pending effect from that index on, *before* looking at
       commit_index: other entries will take these indexes. If the machine had applied one of them (a
       deposed leader's had), rebuild it from snapshot and log, with `hold_campaign(True)` meanwhile.
    2. Start `write`, off the loop, and send `messages` beside it. None of them depends on `write`.
    3. Release effects up to commit_index (leader) or apply entries up to it (others), then call
       `RaftCore.applied(index)`. A node that does not lead has no effects to release: drop them all.
    4. When the write is synced: send `write.messages_after`, call `persisted(write)`, ask for the next.
    5. If `needs_noop`: apply the whole log, then `propose_noop`; only after that, decide anything.
    6. At any time, off the loop: `chunk_reads` (a leader's), `chunk` (a follower's). `install` goes to the
       thread that writes, behind every Write: check the received file against its digest, install it in
       place of log and state (store/install.py), load the state, then call `snapshot_installed`; is it
       not what its digest says, call `install_refused`. No Write with lines comes meanwhile.
    """

    write: Write | None
    messages: tuple[PeerMessage, ...]
    """May leave at once."""
    reads: tuple[ReadLines, ...]
    cut_from: int | None
    """The log was cut from here on since the last Ready."""
    commit_index: int
    term: int
    role: Role
    leader_id: str | None
    """Where to redirect clients; None while nobody is known to lead."""
    role_changed: bool
    """Term, role or known leader differ from those of the last Ready."""
    needs_noop: bool
    """This node leads and has not yet proposed its first entry."""
    chunk_reads: tuple[ReadChunk, ...] = ()
    chunk: WriteChunk | None = None
    install: SnapshotFacts | None = None
