"""The header of every message between two nodes of a group. Shapes only: core/raft has the rules.

The fields are those of core/raft_messages, by the same names; peer.py turns one into the other. As with
other headers, unknown fields are ignored: a newer node may say more.
"""

from rollmq.wire.headers import Header, NameOrNone, Number, Text, VersionHeader


class LeaderHelloHeader(VersionHeader, frozen=True, kw_only=True):
    """A node says who it is. The answer is a LeaderHello too, corr_id = the hello's msg_id."""

    node_id: NameOrNone
    """32 hex digits, made once and kept in state/node.json."""
    group: NameOrNone = ""
    """The group's uuid; empty: not yet known, the node is new."""
    group_name: NameOrNone = "default"
    """`--group`: for the message that explains a wrong address."""
    address: NameOrNone = ""
    """host:port at which others reach it (`--advertise`)."""
    term: Number = 0
    """Its current term. Only told: a handshake changes no term."""
    last_index: Number = 0
    """End of its log, for the first start and for repair; 0 = empty."""
    is_empty: bool = False
    """Its directory is new: it has never voted and holds nothing."""
    founders: tuple[NameOrNone, ...] = ()
    """Ids of the nodes that begin the group, this one among them: all whom a new node has found, or, once the
    group has formed, those of whom its uuid is the hash. Empty: not yet known."""
    members: tuple[NameOrNone, ...] = ()
    """Ids of the members, learners too, as the committed log says."""
    wall_us: Number = 0
    """Its wall clock, to tell clocks that are far apart."""
    life: NameOrNone = ""
    """Another one for each process of a node: what an earlier one said is dropped from then on."""
    token: Text = ""
    """Secret of the group, when one is set."""


class PeerHeader(Header, frozen=True):
    """What every Raft message says."""

    source: NameOrNone
    """Node id of the sender. One that is not the connection's is dropped."""
    target: NameOrNone
    """Node id of the receiver. One that is not ours is dropped."""
    term: Number
    """The sender's term; of a pre-vote, the term that it would campaign in."""


class RequestVoteHeader(PeerHeader, frozen=True):
    """Asks for a vote, or in a pre-vote whether one would be given."""

    last_index: Number
    """End of the candidate's log."""
    last_term: Number
    """Its term."""
    pre: bool = False
    """Only asks; changes nothing at the receiver."""
    transfer: bool = False
    """The leader asked for this election."""


class VoteRespHeader(PeerHeader, frozen=True):
    """Answers RequestVote."""

    asked_term: Number
    """Term of the request: votes are counted by it."""
    granted: bool
    """Yes or no."""
    pre: bool = False
    """As in the request."""


class AppendEntriesHeader(PeerHeader, frozen=True):
    """Lines from prev_index + 1 on; without lines a heartbeat. Payload: the lines, end to end."""

    prev_index: Number
    """Index of the entry before the first line."""
    prev_term: Number
    """Its term."""
    commit_index: Number
    """The leader's."""
    term_runs: tuple[tuple[Number, Number], ...] = ()
    """Terms of the lines as (first index, term), ascending."""
    lines_count: Number = 0
    """Lines in the payload, each with its newline."""
    round: Number = 0
    """Heartbeat round; echoed by the answer."""
    differs_index: Number = 0
    """Marker at which the receiver's counts are not those of a majority: it must stop; 0 = none."""
    differs_counts: bytes = b""
    """The counts that are meant, as the receiver told them: one that counts otherwise by now goes on."""


class AppendRespHeader(PeerHeader, frozen=True):
    """Answers AppendEntries."""

    ok: bool
    """Everything up to match_index is on disk and equal to the leader's log."""
    prev_index: Number
    """Of the request."""
    match_index: Number = 0
    """How far; computed from the request, never from the length of a log."""
    hint_index: Number = 0
    """Refused: the last index that may be equal."""
    hint_term: Number = 0
    """Refused: its term here."""
    round: Number = 0
    """Of the request: which heartbeat round it confirms."""
    counts_index: Number = 0
    """Marker that counts belongs to; 0 = none."""
    counts: bytes = b""
    """Digest of the state's counts at that marker, base64."""
    refused_index: Number = 0
    """A marker whose segment digest differs here; 0 = none."""
    wall_us: Number = 0
    """The sender's wall clock; 0 = not told."""


class InstallSnapshotHeader(PeerHeader, frozen=True):
    """One chunk of a snapshot. Payload: its bytes."""

    last_index: Number
    """The last entry that the snapshot contains."""
    last_term: Number
    """Its term."""
    digest: NameOrNone
    """Of the whole snapshot, hex: the snapshot's id."""
    total_bytes: Number
    """Of the whole snapshot."""
    offset: Number
    """Where this chunk begins."""
    crc: Number
    """crc32 of the payload."""
    round: Number = 0
    """Heartbeat round; echoed by the answer."""


class InstallSnapRespHeader(PeerHeader, frozen=True):
    """Answers InstallSnapshot: what is durable, and so where to go on."""

    last_index: Number
    """Which snapshot, with digest: as in the request."""
    digest: NameOrNone
    """As in the request."""
    next_offset: Number
    """Where to go on; total_bytes when complete, 0 to begin anew."""
    installed: bool = False
    """It is in force: everything up to last_index counts as matched."""
    round: Number = 0
    """Of the request."""


class TimeoutNowHeader(PeerHeader, frozen=True):
    """Leadership transfer: campaign at once."""
