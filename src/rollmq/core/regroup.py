"""A leader's decisions about who is a member: one server at a time, and a new one learns first (thesis 4).

    add: learner -> caught up -> voter        replace: the same, then the old one is removed

It asks Raft whether a change may begin and is asked by the replica which to write; it writes nothing itself.
Nobody is removed on a guess: an operator says who goes, and a change that would leave the group without a
live majority is refused (pitfall 36).
"""

from collections.abc import Sequence

from rollmq.core.events import Member
from rollmq.core.members import added, promoted, removed
from rollmq.core.operate import Refusal
from rollmq.core.raft import RaftCore
from rollmq.core.raft_election import quorum_of

MEMBERS_MAX = 9
"""Of one group: each costs every write another answer, and more than five add hardly any safety."""


def add(
    raft: RaftCore, members: Sequence[Member], node_id: str, *, replaces: str = ""
) -> list[Member] | Refusal:
    """The members with a new learner, which votes once it has caught up."""
    known = [member.node_id for member in members]
    if node_id in known:
        return _refusal(f"{node_id} is a member already")
    if replaces and replaces not in known:
        return _refusal(f"{replaces} is no member, so it cannot be replaced")
    if len(known) >= MEMBERS_MAX:
        return _refusal(f"the group has {len(known)} members, at most {MEMBERS_MAX} make sense")
    problem = raft.members_problem
    return _refusal(problem) if problem else added(members, node_id, replaces=replaces)


def remove(raft: RaftCore, members: Sequence[Member], node_id: str) -> list[Member] | Refusal:
    """The members without this one."""
    if node_id not in {member.node_id for member in members}:
        return _refusal(f"{node_id} is no member")
    rest = removed(members, node_id)
    voters = [member.node_id for member in rest if member.voter]
    if not voters:
        return _refusal("it is the last one that votes")
    live = _live_count(raft, voters)
    if live < quorum_of(len(voters)):
        text = (
            f"only {live} of the {len(voters)} voters that would be left answer: the group would stand still"
        )
        return _refusal(text)
    problem = raft.members_problem
    return _refusal(problem) if problem else rest


def next_change(raft: RaftCore, members: Sequence[Member]) -> list[Member] | None:
    """What follows by itself from an earlier command: a learner that has caught up votes; whom it replaces
    goes. None: nothing, or not now."""
    leadership = raft.leadership
    if leadership is None or raft.members_problem is not None:
        return None
    for member in members:
        if not member.voter and leadership.is_caught_up(member.node_id, raft.now_us):
            return promoted(members, member.node_id)
    for member in members:
        if member.voter and member.replaces:
            rest = remove(raft, members, member.replaces)
            return rest if isinstance(rest, list) else None
    return None


def _live_count(raft: RaftCore, voters: Sequence[str]) -> int:
    leadership = raft.leadership
    if leadership is None:
        return 0
    return sum(each == raft.node_id or leadership.hears(each, raft.now_us) for each in voters)


def _refusal(text: str) -> Refusal:
    return Refusal("bad_command", f"{text}. Nothing was changed.")
