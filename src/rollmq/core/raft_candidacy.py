"""The half of the consensus core that wins and loses elections: terms, votes, roles, timeouts.

raft.py builds replication on it. It decides who may lead and when this node stands for it; it moves
nothing in the log. Sections are those of the Raft paper (extended), "thesis" is Ongaro's dissertation.
"""

from collections.abc import Callable

from rollmq.core.raft_election import Ballot
from rollmq.core.raft_follower import Following
from rollmq.core.raft_install import Receiving
from rollmq.core.raft_leader import Leadership
from rollmq.core.raft_log import RaftLog
from rollmq.core.raft_messages import RequestVote, TimeoutNow, VoteResp
from rollmq.core.raft_outbox import Outbox
from rollmq.core.raft_ready import HardState, RaftSettings, Role
from rollmq.limits import RESET_ELECTION_US_MAX, UNAPPLIED_SOON_MAX


class Candidacy:
    """Term, vote and role of one member. RaftCore is what a host drives."""

    def __init__(
        self,
        *,
        node_id: str,
        hard_state: HardState,
        log: RaftLog,
        settings: RaftSettings,
        chance: Callable[[], float],
        now_us: int,
        has_vote: bool,
    ) -> None:
        assert hard_state.term >= log.last_term, "the term is on disk before any line of it"
        assert log.handed_index == log.last_index, "a log that starts is all on disk"
        self.node_id = node_id
        self.log = log
        self.role = Role.FOLLOWER
        self.leader_id: str | None = None
        self.has_vote = has_vote
        self.now_us = now_us
        self._ignored_count = 0
        self._settings = settings
        self._chance = chance
        self._outbox = Outbox(hard_state=hard_state, write_bytes_max=settings.write_bytes_max)
        self._following = Following(node_id=node_id, term=hard_state.term, log=log)
        self._receiving = Receiving(node_id=node_id, log=log)
        self._campaign_is_held = False
        self._leadership: Leadership | None = None
        """Invariant: set exactly while the role is leader."""
        self._ballot: Ballot | None = None
        """Invariant: set exactly while the role is candidate or pre-candidate."""
        self._heard_us: int | None = None
        """When the known leader was last heard; None while none is known."""
        self._deadline_us = now_us
        """Of the next election (or, for a leader, heartbeat)."""
        self._asks_twice = False
        """The leader's connection was reset and nobody was asked since."""
        if self._voters != {node_id}:
            self._await_leader()  # Alone there is nobody to wait for: the first tick elects.

    @property
    def term(self) -> int:
        """The current term. Never falls, also across restarts."""
        return self._outbox.hard_state.term

    @property
    def voted_for(self) -> str | None:
        """Who got this node's vote in this term."""
        return self._outbox.hard_state.voted_for

    @property
    def ignored_count(self) -> int:
        """Messages that no correct member would have sent us. A number above zero is a bug or an attack."""
        return self._ignored_count + self._following.contradictions_count

    @property
    def _voters(self) -> frozenset[str]:
        """Pitfall 27: whoever votes by the newest configuration in the log."""
        return self.log.membership.current.voters

    # Standing for election

    def campaign(self) -> None:
        """Stand for election now, if this node may. `tick` calls it when no leader was heard for too long."""
        assert self.role is not Role.LEADER, "a leader has nothing to win"
        self._await_leader()
        if self._asks_twice:
            # Who had not noticed the reset was loyal still, and refused: by then it has.
            self._asks_twice = False
            self._campaign_within(RESET_ELECTION_US_MAX)
        if not self._may_campaign():
            return
        if self._voters == {self.node_id}:
            self._become_candidate()
        else:
            self._become_pre_candidate()

    def _may_campaign(self) -> bool:
        is_busy = self._campaign_is_held or self._receiving.is_installing
        is_busy = is_busy or bool(self._following.unjudged_index)
        return self.has_vote and not is_busy and self.node_id in self._voters

    def hold_campaign(self, is_held: bool) -> None:
        """While held this node does not stand for election: its machine is being rebuilt (rule 3).

        A campaign that is under way ends. Votes for others are given and lines confirmed as ever.
        """
        self._campaign_is_held = is_held
        if is_held and self._ballot is not None:
            self._become_follower()
        elif not is_held and self._voters == {self.node_id} and self.role is Role.FOLLOWER:
            self._deadline_us = self.now_us

    def peer_reset(self, node_id: str) -> None:
        """The connection to this peer was reset. Was it the leader, its process is likely to be gone:
        loyalty to it ends, and a pre-vote begins soon.

        A leader that lives loses nothing by it: the pre-vote of those who heard it since is refused.
        """
        if self.role is Role.FOLLOWER and self.leader_id == node_id:
            self._become_follower()
            self._heard_us = None
            if self.log.last_index - self.log.applied_index <= UNAPPLIED_SOON_MAX:
                self._campaign_soon(without=node_id)
                self._asks_twice = True
            # Else it would have to apply all that before it leads: another stands first, if there is one.

    def _campaign_soon(self, *, without: str) -> None:
        """Stand before the timeout, each node of those that are left in its own part of the time: 9.3 asks
        for moments so far apart that the first has won before the second asks. Drawn from the whole of it
        two of them met, and split the votes, in one of six elections."""
        left = sorted(self._voters - {without})
        if self.node_id in left:
            part_us = RESET_ELECTION_US_MAX / len(left)
            self._campaign_within(int(part_us * (left.index(self.node_id) + self._chance() / 2)))

    def _campaign_within(self, pause_us: int) -> None:
        self._deadline_us = min(self._deadline_us, self.now_us + pause_us)

    def _on_timeout_now(self, message: TimeoutNow) -> None:
        """Thesis 3.10: the leader wants this node to take over; it asks everybody at once."""
        is_from_leader = self.role is Role.FOLLOWER and self.leader_id == message.source
        if is_from_leader and self._may_campaign():
            self._become_candidate(is_transfer=True)

    def _await_leader(self) -> None:
        """5.2, 9.3: a new random timeout each time, so that candidates do not collide again and again."""
        low, high = self._settings.election_us_min, self._settings.election_us_max
        self._deadline_us = self.now_us + low + int((high - low) * self._chance())

    # Roles

    def _become_follower(
        self, *, term: int | None = None, leader_id: str | None = None, voted_for: str | None = None
    ) -> None:
        """Follow, in a newer term or in this one. In this one the vote stays given (pitfall 6)."""
        if term is not None and term != self.term:
            assert term > self.term, "terms never fall"
            self._new_term(HardState(term, voted_for))
        was_leader = self._leadership is not None
        self.role = Role.FOLLOWER
        self._leadership = self._ballot = None
        self.leader_id = leader_id
        self._asks_twice &= leader_id is None
        if was_leader:
            self._await_leader()  # Its deadline was a heartbeat's.

    def _new_term(self, hard_state: HardState) -> None:
        self._outbox.new_term(hard_state)
        self._ignored_count += self._following.contradictions_count
        self._following = self._following.in_term(hard_state.term)
        self._receiving.abort()  # Pitfall 29: chunks belong to the term of their leader.
        self._heard_us = None

    def _become_pre_candidate(self) -> None:
        """Thesis 9.6: ask first whether an election could be won; nothing is changed by asking."""
        self._become_follower()
        self.role = Role.PRE_CANDIDATE
        self._open_ballot(asked_term=self.term + 1, is_pre=True)
        self._ballot_recorded(self.node_id, granted=True)

    def _become_candidate(self, *, is_transfer: bool = False) -> None:
        """5.2: a new term, a vote for itself, and requests, which leave when that vote is on disk."""
        self._become_follower(term=self.term + 1, voted_for=self.node_id)
        self.role = Role.CANDIDATE
        self._await_leader()
        self._open_ballot(asked_term=self.term, is_pre=False, is_transfer=is_transfer)

    def _open_ballot(self, *, asked_term: int, is_pre: bool, is_transfer: bool = False) -> None:
        self._ballot = Ballot(asked_term=asked_term, is_pre=is_pre, voters=self._voters)
        for voter in sorted(self._voters - {self.node_id}):
            self._outbox.send(
                RequestVote(
                    self.node_id,
                    voter,
                    asked_term,
                    last_index=self.log.last_index,
                    last_term=self.log.last_term,
                    pre=is_pre,
                    transfer=is_transfer,
                )
            )

    def _become_leader(self) -> None:
        assert self.role is Role.CANDIDATE, "only a candidate is elected"
        assert self._outbox.is_durable, "its vote for itself was counted from disk"
        self.role = Role.LEADER
        self._ballot = None
        self.leader_id = self.node_id
        self._leadership = Leadership(
            node_id=self.node_id,
            configuration=self.log.membership.current,
            term=self.term,
            log=self.log,
            settings=self._settings,
            now_us=self.now_us,
        )
        self._deadline_us = self.now_us + self._settings.heartbeat_us

    # Votes

    def _is_loyal_against(self, candidate: str) -> bool:
        """Thesis 4.2.3: who hears a leader does not help to disturb it — unless that leader itself asks."""
        if self._leadership is not None:
            return True
        if self.leader_id in (None, candidate) or self._heard_us is None:
            return False
        return self.now_us - self._heard_us < self._settings.election_us_min

    def _on_request_vote(self, request: RequestVote) -> None:
        if not request.transfer and self._is_loyal_against(request.source):
            self._answer_vote(request, granted=False)  # And its term is not adopted (pitfall 16).
            return
        if request.term > self.term and not request.pre:
            self._become_follower(term=request.term)
        # 5.4.1: only a log at least as new as ours may lead; otherwise a committed job could be forgotten.
        is_up_to_date = self.log.is_up_to_date(last_index=request.last_index, last_term=request.last_term)
        if not is_up_to_date and self.role in (Role.FOLLOWER, Role.PRE_CANDIDATE):
            # It cannot win, and has shown that it hears no leader either. Who could win stands now; otherwise
            # both would only wait for their timeouts. (Pitfall 14: no timer is put off by a request.) In a
            # larger group several may: chance keeps them apart.
            self._campaign_within(int(RESET_ELECTION_US_MAX * self._chance() / 4))
        if request.pre:
            # Nothing is remembered of a pre-vote: it is given to everybody who could win.
            is_granted = self.has_vote and is_up_to_date and request.term > self.term
        else:
            is_free = self.voted_for in (None, request.source)
            is_granted = self.has_vote and is_up_to_date and is_free and request.term == self.term
            if is_granted:
                # 5.2: one vote per term, first come first served.
                self._outbox.hard_state = HardState(self.term, request.source)
                self._await_leader()
        self._answer_vote(request, granted=is_granted)

    def _answer_vote(self, request: RequestVote, *, granted: bool) -> None:
        self._outbox.send(
            VoteResp(
                self.node_id,
                request.source,
                self.term,
                asked_term=request.term,
                granted=granted,
                pre=request.pre,
            )
        )

    def _on_vote(self, answer: VoteResp) -> None:
        ballot = self._ballot
        if ballot is None or answer.asked_term != ballot.asked_term or answer.pre != ballot.is_pre:
            return  # An answer to an earlier round: it says nothing about this one.
        if not ballot.is_pre and not self._outbox.is_durable:
            self._ignored_count += 1  # Nobody was asked yet in this round.
            return
        self._ballot_recorded(answer.source, granted=answer.granted)

    def _ballot_recorded(self, voter: str, *, granted: bool) -> None:
        assert self._ballot is not None, "a vote belongs to a round"
        self._ballot.record(voter, granted=granted)
        if self._ballot.is_won:
            if self._ballot.is_pre:
                self._become_candidate()
            else:
                self._become_leader()
        elif self._ballot.is_lost:
            self._become_follower()
