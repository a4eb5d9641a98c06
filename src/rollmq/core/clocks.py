"""What a leader does about its members' wall clocks: may log time step forward, and should another one lead.

Log time is slewed toward the leader's wall clock; a larger step forward needs a majority's clocks (rule 2),
for log time that has gone ahead never comes back. A leader whose own clock a majority of all members, itself
not counted, finds far off hands over to one of them. Pure: gaps in, a verdict out.
"""

from collections.abc import Iterable
from typing import Final

from rollmq.core.raft import RaftCore
from rollmq.core.raft_election import quorum_of
from rollmq.limits import CLOCK_OFF_MAX_US

LOOK_EVERY_US: Final = 1_000_000
"""How often clocks are compared: heartbeats bring newer readings several times in between."""
HAND_OVER_EVERY_US: Final = 60_000_000
"""Pause between two attempts to hand over because of a clock: each stops proposals for a moment."""


def agreed_gap_us(gaps_us: Iterable[int], voters_count: int) -> int | None:
    """How far ahead of the leader's wall clock, or behind it, log time may go: a majority's clocks are at
    least there. `gaps_us` are those of all voters that are heard, the leader's own 0 included."""
    gaps = sorted(gaps_us, reverse=True)
    quorum = quorum_of(voters_count)
    return gaps[quorum - 1] if len(gaps) >= quorum else None


def better_clock(gap_by_follower: dict[str, int], voters_count: int) -> str | None:
    """Who should lead in the leader's place because of the clocks; null: the leader may stay.

    A majority of all voters, without the leader, must find its clock too far off, all in one direction; the
    heir is the one whose clock is in the middle of all, so that nobody finds fault with it in turn.
    """
    quorum = quorum_of(voters_count)
    ahead = [node_id for node_id, gap in gap_by_follower.items() if gap > CLOCK_OFF_MAX_US]
    behind = [node_id for node_id, gap in gap_by_follower.items() if gap < -CLOCK_OFF_MAX_US]
    finders = ahead if len(ahead) >= quorum else behind
    if len(finders) < quorum:
        return None
    clocks = sorted([0, *gap_by_follower.values()])
    middle = clocks[len(clocks) // 2]
    return min(finders, key=lambda node_id: (abs(gap_by_follower[node_id] - middle), node_id))


class Clocks:
    """When a leader looked, and when it last offered its office."""

    def __init__(self) -> None:
        self._look_us = 0
        self._offer_us = 0
        self._was_off = False
        """A better clock was there when it last looked. Once is not enough: all clocks may have been set just
        now, and what is known of the others' is a heartbeat old."""

    def is_due(self, mono_us: int) -> bool:
        """Whether it is time to compare."""
        if mono_us < self._look_us:
            return False
        self._look_us = mono_us + LOOK_EVERY_US
        return True

    def hand_over(self, raft: RaftCore, mono_us: int) -> str | None:
        """Offer the leadership to a node with a better clock; who it is, if it was offered now."""
        heir = better_clock(gaps_heard(raft), len(raft.log.membership.current.voters))
        is_lasting, self._was_off = self._was_off and heir is not None, heir is not None
        if not is_lasting or mono_us < self._offer_us or raft.is_transferring:
            return None
        if raft.transfer(heir) is not None:
            return None
        self._offer_us = mono_us + HAND_OVER_EVERY_US
        return heir


def gaps_heard(raft: RaftCore) -> dict[str, int]:
    """How far the wall clock of each voting follower that answers is ahead of this leader's."""
    leadership = raft.leadership
    if leadership is None:
        return {}
    return {
        each.node_id: raft.now_us + each.wall_ahead_us - raft.wall_us
        for each in leadership.voting
        if each.wall_ahead_us is not None and leadership.hears(each.node_id, raft.now_us)
    }


def step_us(raft: RaftCore) -> int | None:
    """Up to which reading of this leader's wall clock log time may step; null: nobody can say.

    Alone there is no majority but an operator's word, so nothing is agreed here.
    """
    voters = raft.log.membership.current.voters
    if raft.leadership is None or len(voters) < 2:
        return None
    gaps = list(gaps_heard(raft).values())
    if raft.node_id in voters:
        gaps.append(0)
    agreed_us = agreed_gap_us(gaps, len(voters))
    return raft.wall_us + min(agreed_us, 0) if agreed_us is not None else None
