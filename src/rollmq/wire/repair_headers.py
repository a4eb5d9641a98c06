"""The header of every message of a repair between two nodes. Shapes only: core/repair has the rules.

The fields are those of core/repair_messages, by the same names; peer.py turns one into the other.
"""

from rollmq.wire.headers import NameOrNone, Number
from rollmq.wire.peer_headers import PeerHeader


class RepairAskHeader(PeerHeader, frozen=True):
    """A damaged node asks what the receiver has. A leader forgets what it had confirmed."""

    round: Number
    """Grows with every question; echoed by the answer."""


class RepairHasHeader(PeerHeader, frozen=True):
    """Answers RepairAsk: what of its log the sender can vouch for."""

    round: Number
    """Of the question."""
    last_index: Number
    """End of the log on the sender's disk."""
    last_term: Number
    """Its term."""
    commit_index: Number
    """Up to here it knows its lines to be committed."""
    has_vote: bool = True
    """Its term and vote are sound; if not, `term` says nothing."""
    is_end_sure: bool = True
    """Nothing that it has confirmed is missing at its log's end."""
    is_whole: bool = True
    """No line is missing between its first and its last."""
    ranges: tuple[tuple[Number, Number], ...] = ()
    """Lines that it can send, as (first, last)."""
    runs: tuple[tuple[Number, Number], ...] = ()
    """Terms of its newest entries as (first index, term), ascending, up to last_index."""
    snapshot_index: Number = 0
    """The last entry of its newest snapshot; 0 = none."""
    snapshot_term: Number = 0
    """Its term."""
    snapshot_digest: NameOrNone = ""
    """sha256 of the file, hex."""
    snapshot_bytes: Number = 0
    """Size of the file."""
    members_index: Number = 0
    """The entry that made the members it goes by; 0: the group began with them."""
    voters: tuple[NameOrNone, ...] = ()
    """Ids of those who vote, as of that entry."""


class RepairFetchHeader(PeerHeader, frozen=True):
    """Asks for lines, or for a piece of a snapshot."""

    first_index: Number = 0
    """The first line; 0: a snapshot is meant."""
    last_index: Number = 0
    """The last line."""
    check_index: Number = 0
    """An entry at or behind last_index; 0: send them only if they are committed."""
    check_term: Number = 0
    """Send the lines only if that entry has this term in the receiver's log."""
    snapshot_index: Number = 0
    """The last entry of the snapshot; 0: lines are meant."""
    offset: Number = 0
    """Where the piece of the snapshot begins."""


class RepairPieceHeader(PeerHeader, frozen=True):
    """Answers RepairFetch. Payload: lines end to end from first_index on, or bytes of the snapshot."""

    first_index: Number = 0
    """As asked."""
    check_index: Number = 0
    """As asked."""
    snapshot_index: Number = 0
    """As asked."""
    offset: Number = 0
    """As asked."""
    is_refused: bool = False
    """The sender does not have it, or its log is another one there."""
