"""What nodes say to each other while one of them repairs damaged files. Values only, as in raft_messages.

None of them is Raft's: they move no term, vote, role or log, so a group without a leader can use them.
"""

from typing import TypeAlias

from rollmq.core.raft_messages import Message, TermRun

IndexRange: TypeAlias = tuple[int, int]
"""(first index, last index)."""


class RepairAsk(Message, frozen=True, gc=False):
    """What do you have? Its sender is damaged: what it has confirmed before may be lost."""

    round: int
    """Echoed by the answer."""


class RepairHas(Message, frozen=True, gc=False):
    """What of its log the sender can vouch for. `term` is its term, if `has_vote`."""

    round: int
    last_index: int
    """End of the log on its disk."""
    last_term: int
    commit_index: int
    """Up to here it knows its lines to be committed."""
    has_vote: bool = True
    """Its term and vote are sound; if not, it has no term to tell."""
    is_end_sure: bool = True
    """Nothing that it has confirmed is missing at its log's end."""
    is_whole: bool = True
    """No line is missing between its first and its last: what it does not have now it will not get."""
    ranges: tuple[IndexRange, ...] = ()
    """Lines that it can send."""
    runs: tuple[TermRun, ...] = ()
    """Terms of its newest entries, ascending, up to last_index."""
    snapshot_index: int = 0
    """Its newest sound snapshot; 0 = none."""
    snapshot_term: int = 0
    snapshot_digest: str = ""
    snapshot_bytes: int = 0
    members_index: int = 0
    """The entry that made the members that it goes by; 0: its group began with them."""
    voters: tuple[str, ...] = ()


class RepairFetch(Message, frozen=True, gc=False):
    """Send lines first_index..last_index, or the piece at `offset` of the snapshot as of snapshot_index.

    Lines are sent only if entry `check_index`, at or behind the last of them, has `check_term` in the log of
    who is asked: then all before it are equal too (5.3). With check_index 0: only if they are committed.
    """

    first_index: int = 0
    last_index: int = 0
    check_index: int = 0
    check_term: int = 0
    snapshot_index: int = 0
    offset: int = 0


class RepairPiece(Message, frozen=True, gc=False):
    """Answers RepairFetch: the first of these lines, as many as fit, or a piece of the snapshot."""

    first_index: int = 0
    """As asked, and so are the next three: late answers are told apart by them."""
    check_index: int = 0
    snapshot_index: int = 0
    offset: int = 0
    is_refused: bool = False
    """The sender does not have it, or its log is another one there."""
    data: bytes = b""


RepairMessage: TypeAlias = RepairAsk | RepairHas | RepairFetch | RepairPiece
