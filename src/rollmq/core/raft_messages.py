"""What the members of a group say to each other, as values.

Pure shapes: no rule of Raft is here (raft.py has them) and no byte layout (wire/ has that). A message
names its source and its target, and `term` is always the term its sender was in, the pre-vote
excepted: there it is the term that the sender would campaign in, which nobody holds yet.

Lines are opaque bytes; what the core needs of them, their terms, travels beside them as runs, so a batch
of a thousand lines costs one pair of numbers and no object per line.
"""

from typing import TypeAlias

import msgspec

TermRun: TypeAlias = tuple[int, int]
"""(first index, term): from this index on, entries have this term, until the next run begins."""


class Message(msgspec.Struct, frozen=True, gc=False):
    """What every message has."""

    source: str
    target: str
    term: int


class RequestVote(Message, frozen=True, gc=False):
    """Asks for a vote in `term` (5.2), or, with `pre`, whether one would be given (9.6 of the thesis).

    A pre-vote's `term` is one more than its sender's own. It must never be adopted by its receiver.
    """

    last_index: int
    last_term: int
    pre: bool = False
    transfer: bool = False
    """The leader itself asked for this election, so the receiver's loyalty to it does not count."""


class VoteResp(Message, frozen=True, gc=False):
    """Answers RequestVote. `asked_term` is the term of the request: votes are counted by it."""

    asked_term: int
    granted: bool
    pre: bool = False


class AppendEntries(Message, frozen=True, gc=False):
    """Lines from prev_index + 1 on; without lines a heartbeat, with the same consistency check (5.3)."""

    prev_index: int
    prev_term: int
    commit_index: int
    term_runs: tuple[TermRun, ...] = ()
    """Terms of the lines, ascending; the first run begins at prev_index + 1. Empty without lines."""
    lines: list[bytes] = []
    """The very bytes of the log, each with its newline. Never changed after the message is made."""
    round: int = 0
    """Echoed by the answer: which of the leader's heartbeat rounds it confirms (for read index)."""
    differs_index: int = 0
    """A marker at which the target's counts are not those of a majority (rule 5): it must stop. 0 = none."""
    differs_counts: bytes = b""
    """What it told of that marker: a process that counts otherwise, for it is newer, is not meant."""


class AppendResp(Message, frozen=True, gc=False):
    """Answers AppendEntries.

    ok: everything up to `match_index` is on the sender's disk and equal to the leader's log. It is
    computed from the request answered (prev_index + its lines), never from the length of a log.
    Not ok: the consistency check failed, or the request's term was old (then only `term` matters).
    """

    ok: bool
    prev_index: int
    """Of the request answered, so that the leader can tell a late refusal from a new one."""
    match_index: int = 0
    hint_index: int = 0
    """Refused: the last index that may be equal; nothing after it is. 0 when ok."""
    hint_term: int = 0
    """Refused: the term of hint_index in the sender's log."""
    round: int = 0
    counts_index: int = 0
    """Which marker `counts` belongs to; 0 = none. Filled by the host, the core only carries it, and in
    answers to heartbeats only: these come often enough."""
    counts: bytes = b""
    """Digest of the counts of the state at that marker (rule 5): replicas must agree."""
    refused_index: int = 0
    """A marker whose segment digest differs from the sender's (rule 5), which did not take it; 0 = none."""
    wall_us: int = 0
    """The sender's wall clock, 0 = not told: larger steps of log time need a majority's clocks (rule 2).
    In answers to heartbeats."""


class InstallSnapshot(Message, frozen=True, gc=False):
    """One chunk of a snapshot for a follower whose next line the leader no longer has (section 7).

    Chunks are bound to (term, last_index, digest, offset): one of another snapshot or another term never
    continues this one.
    """

    last_index: int
    """The last entry that the snapshot contains (lastIncludedIndex), and its term."""
    last_term: int
    digest: str
    """Of the whole snapshot, hex."""
    total_bytes: int
    offset: int
    data: bytes
    crc: int
    """crc32 of `data`."""
    round: int = 0


class InstallSnapResp(Message, frozen=True, gc=False):
    """Answers InstallSnapshot: what the sender has durably, and so where to go on."""

    last_index: int
    digest: str
    next_offset: int
    """Go on from here; total_bytes when complete, 0 to begin anew."""
    installed: bool = False
    """The snapshot is installed: everything up to last_index counts as matched."""
    round: int = 0


class TimeoutNow(Message, frozen=True, gc=False):
    """Leadership transfer (3.10 of the thesis): campaign at once, without waiting and without pre-vote."""


PeerMessage: TypeAlias = (
    RequestVote | VoteResp | AppendEntries | AppendResp | InstallSnapshot | InstallSnapResp | TimeoutNow
)


def entries_are_sound(message: AppendEntries) -> bool:
    """Whether a message's numbers can describe a piece of a log at all. False: drop it, it is not ours."""
    if message.prev_index < 0 or message.commit_index < 0 or not 0 <= message.prev_term <= message.term:
        return False
    if not message.lines or not message.term_runs:
        return not message.lines and not message.term_runs
    first_index = message.prev_index + 1
    if message.term_runs[0][0] != first_index or message.term_runs[-1][0] >= first_index + len(message.lines):
        return False
    before_index, before_term = message.prev_index, message.prev_term
    for index, term in message.term_runs:
        if index <= before_index or term < before_term or term > message.term:
            return False
        before_index, before_term = index, term
    return True
