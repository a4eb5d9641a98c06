"""The consensus core: who leads, what is in the log, what is committed. A deterministic state machine.

It does no IO, reads no clock, draws no random number, and does not know what a line means. The host calls
`tick(now_us)` with a monotonic clock (once per turn, before the turn's messages), `step(message)`,
`propose(lines)` as a leader, then `ready()` and does what `Ready` says. One voter is the same core as
five: it elects itself, and its own fsync is the majority. How the pointers into the log relate is on the
first page of raft_log.py; section numbers are those of the Raft paper (extended version), "thesis" is
Ongaro's dissertation.

Decide early, speak late: a leader's host applies an event when it proposes it; effects wait for
commit_index. What comes to nothing because a newer leader cut it, `Ready.cut_from` tells. Lines from a
peer are as opaque as all others: before `step`, the host checks that each is whole (its crc) and carries
the index and term that the message gives it.

Written in whole: elections with pre-vote and check-quorum, replication with pipelining, commit, redirection.
Left to grow here, the shapes being in raft_messages.py: InstallSnapshot (a follower that needs one is
marked `needs_snapshot`; `RaftLog.compact_to` exists), change of members and learners (voters are one
frozenset, read at every use), leadership transfer (`transfer` is honoured in votes, TimeoutNow is
ignored), read index (`round` is echoed), elections started by a reset connection (`campaign` is public).
A peer that lost lines which it had confirmed is not noticed here: it must repair itself before it counts.
"""

from collections.abc import Callable, Sequence

from rollmq.core.raft_election import Ballot
from rollmq.core.raft_follower import Following
from rollmq.core.raft_leader import Leadership
from rollmq.core.raft_log import RaftLog
from rollmq.core.raft_messages import (
    AppendEntries,
    AppendResp,
    PeerMessage,
    RequestVote,
    VoteResp,
    entries_are_sound,
)
from rollmq.core.raft_outbox import Outbox
from rollmq.core.raft_ready import HardState, RaftSettings, ReadLines, Ready, Role, Write


class RaftCore:
    """One member of one group. Not thread-safe: only one task may touch it."""

    def __init__(
        self,
        *,
        node_id: str,
        voters: frozenset[str],
        hard_state: HardState,
        log: RaftLog,
        settings: RaftSettings,
        chance: Callable[[], float],
        now_us: int,
        has_vote: bool = True,
    ) -> None:
        """Start, or start again, from what is on disk.

        `chance` gives numbers in 0..1, from a seed in tests. With `has_vote=False` (a damaged node, rule 7)
        it gives no votes, confirms no lines and never campaigns: it only learns who leads.
        """
        assert hard_state.term >= log.last_term, "the term is on disk before any line of it"
        assert log.handed_index == log.last_index, "a log that starts is all on disk"
        self.node_id = node_id
        self.log = log
        self.role = Role.FOLLOWER
        self.leader_id: str | None = None
        self.has_vote = has_vote
        self.now_us = now_us
        self._ignored_count = 0
        self._voters = voters
        self._settings = settings
        self._chance = chance
        self._outbox = Outbox(hard_state=hard_state, write_bytes_max=settings.write_bytes_max)
        self._following = Following(node_id=node_id, term=hard_state.term, log=log, counts=(0, b""))
        self._campaign_is_held = False
        self._leadership: Leadership | None = None
        """Invariant: set exactly while the role is leader."""
        self._ballot: Ballot | None = None
        """Invariant: set exactly while the role is candidate or pre-candidate."""
        self._heard_us: int | None = None
        """When the known leader was last heard; None while none is known."""
        self._told: tuple[int, Role, str | None, int, bool] | None = None
        self._deadline_us = now_us
        """Of the next election (or, for a leader, heartbeat)."""
        if voters != {node_id}:
            self._await_leader()  # Alone there is nobody to wait for: the first tick elects.

    # What the host may ask

    @property
    def term(self) -> int:
        """The current term. Never falls, also across restarts."""
        return self._outbox.hard_state.term

    @property
    def voted_for(self) -> str | None:
        """Who got this node's vote in this term."""
        return self._outbox.hard_state.voted_for

    @property
    def next_index(self) -> int:
        """The index that the next proposed line gets."""
        return self.log.last_index + 1

    @property
    def commit_index(self) -> int:
        """Everything up to here will never be taken back."""
        return self.log.commit_index

    @property
    def needs_noop(self) -> bool:
        """This node leads and its term has no entry yet: nothing can be committed or proposed before it."""
        return self._leadership is not None and self._leadership.term_start_index is None

    @property
    def can_propose(self) -> bool:
        """Whether new work may be taken on: this node leads, and uncommitted bytes are within bounds.

        Beyond them the host refuses submits; what ends jobs may still be proposed.
        """
        is_open = self._leadership is not None and not self.needs_noop
        return is_open and self.log.uncommitted_bytes < self._settings.uncommitted_bytes_max

    @property
    def ignored_count(self) -> int:
        """Messages that no correct member would have sent us. A number above zero is a bug or an attack."""
        return self._ignored_count + self._following.contradictions_count

    @property
    def deadline_us(self) -> int:
        """When `tick` has something to do next, if nothing happens before."""
        return self._deadline_us

    # Time

    def tick(self, now_us: int) -> None:
        """Take the time: campaign or step down or send heartbeats when they are due."""
        assert now_us >= self.now_us, "the clock handed in is monotonic"
        self.now_us = now_us
        if self._leadership is not None and not self._leadership.hears_majority(now_us):
            # Thesis 6.2: a leader that a majority no longer hears must neither serve nor redirect to itself.
            self._become_follower()
        if now_us < self._deadline_us:
            return
        if self._leadership is not None:
            self._leadership.heartbeat()
            self._deadline_us = now_us + self._settings.heartbeat_us
        else:
            self.campaign()

    def campaign(self) -> None:
        """Stand for election now, if this node may. `tick` calls it when no leader was heard for too long."""
        assert self.role is not Role.LEADER, "a leader has nothing to win"
        self._await_leader()
        if self._campaign_is_held or not self.has_vote or self.node_id not in self._voters:
            return
        if self._voters == {self.node_id}:
            self._become_candidate()
        else:
            self._become_pre_candidate()

    def hold_campaign(self, is_held: bool) -> None:
        """While held this node does not stand for election: its machine is being rebuilt (rule 3).

        A campaign that is under way ends. Votes for others are given and lines confirmed as ever.
        """
        self._campaign_is_held = is_held
        if is_held and self._ballot is not None:
            self._become_follower()
        elif not is_held and self._voters == {self.node_id} and self.role is Role.FOLLOWER:
            self._deadline_us = self.now_us

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
        if was_leader:
            self._await_leader()  # Its deadline was a heartbeat's.

    def _new_term(self, hard_state: HardState) -> None:
        self._outbox.new_term(hard_state)
        self._ignored_count += self._following.contradictions_count
        self._following = Following(
            node_id=self.node_id, term=hard_state.term, log=self.log, counts=self._following.counts
        )
        self._heard_us = None

    def _become_pre_candidate(self) -> None:
        """Thesis 9.6: ask first whether an election could be won; nothing is changed by asking."""
        self._become_follower()
        self.role = Role.PRE_CANDIDATE
        self._open_ballot(asked_term=self.term + 1, is_pre=True)
        self._ballot_recorded(self.node_id, granted=True)

    def _become_candidate(self) -> None:
        """5.2: a new term, a vote for itself, and requests, which leave when that vote is on disk."""
        self._become_follower(term=self.term + 1, voted_for=self.node_id)
        self.role = Role.CANDIDATE
        self._await_leader()
        self._open_ballot(asked_term=self.term, is_pre=False)

    def _open_ballot(self, *, asked_term: int, is_pre: bool) -> None:
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
            voters=self._voters,
            term=self.term,
            log=self.log,
            settings=self._settings,
            now_us=self.now_us,
        )
        self._deadline_us = self.now_us + self._settings.heartbeat_us

    # Messages

    def step(self, message: PeerMessage) -> None:
        """Take one message. Never blocks, and nothing a peer sends raises — with one exception: lines that
        contradict what is committed here are proof of lost data, and the node halts rather than go on.
        """
        if message.target != self.node_id or message.source == self.node_id or message.term < 0:
            self._ignored_count += 1
        elif isinstance(message, RequestVote):
            self._on_request_vote(message)
        elif isinstance(message, VoteResp) and message.pre and message.granted:
            self._on_vote(message)  # Its sender may be in an older term than ours, and may stay there.
        elif message.term < self.term:
            self._refuse_old_term(message)
        else:
            if message.term > self.term:
                # 5.1: a newer term always wins, whatever the message says.
                self._become_follower(term=message.term)
            if isinstance(message, AppendEntries):
                self._on_append(message)
            elif isinstance(message, AppendResp):
                self._on_append_resp(message)
            elif isinstance(message, VoteResp):
                self._on_vote(message)

    def _refuse_old_term(self, message: PeerMessage) -> None:
        """5.1: a request with a stale term is refused with ours, so that its sender steps down."""
        if isinstance(message, AppendEntries):
            self._outbox.send(
                AppendResp(
                    self.node_id,
                    message.source,
                    self.term,
                    ok=False,
                    prev_index=message.prev_index,
                    round=message.round,
                )
            )

    # Elections

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

    # Replication: a follower's side

    def _on_append(self, request: AppendEntries) -> None:
        is_foreign = self.role is Role.LEADER  # 5.2: one leader per term, and it is this node.
        if is_foreign or not entries_are_sound(request):
            self._ignored_count += 1
            return
        self._become_follower(leader_id=request.source)
        self._heard_us = self.now_us
        self._await_leader()
        if not self.has_vote:
            return  # Its log is under repair: nothing may be added and nothing confirmed.
        answer = self._following.take(request)
        if answer is not None:
            self._outbox.send(answer)

    def tell_counts(self, index: int, counts: bytes) -> None:
        """From now on answers carry this digest of the state's counts at the marker `index` (rule 5)."""
        self._following.counts = (index, counts)

    # Replication: a leader's side

    def propose_noop(self, line: bytes) -> int:
        """A new leader's first entry (5.4.2, 8). Returns its index."""
        leadership = self._leadership
        assert leadership is not None, "only a leader proposes"
        assert leadership.term_start_index is None, "one noop per term"
        leadership.term_start_index = self.log.append((line,), term=self.term)
        return leadership.term_start_index

    def propose(self, lines: Sequence[bytes]) -> int:
        """Decide lines, encoded with next_index, next_index + 1, … and `term`. Returns the first's index."""
        leadership = self._leadership
        assert leadership is not None, "only a leader proposes"
        assert leadership.term_start_index is not None, "the noop comes first in a term"
        return self.log.append(lines, term=leadership.term)

    def lines_read(self, request: ReadLines, lines: list[bytes]) -> None:
        """The host's answer to a ReadLines: lines from its first_index on; none if the store lacks it.

        It is dropped when this node no longer leads in the term of the request, or has asked anew since.
        """
        message = self._leadership.lines_read(request, lines) if self._leadership is not None else None
        if message is not None:
            self._outbox.send(message)

    def _on_append_resp(self, answer: AppendResp) -> None:
        if self._leadership is not None and self._leadership.answered(answer, self.now_us):
            self._advance_commit(self._leadership)

    def _advance_commit(self, leadership: Leadership) -> None:
        self.log.commit_to(leadership.committed_index())

    # The host's side of the work

    def ready(self) -> Ready | None:
        """What there is to do since the last call; None when there is nothing. See Ready for the duties."""
        reads: tuple[ReadLines, ...] = ()
        if self._leadership is not None:
            for message in self._leadership.appends():
                self._outbox.send(message)
            if self._leadership.reads:
                reads = tuple(self._leadership.reads)
                self._leadership.reads.clear()
        self._outbox.release(self._following)
        write = self._outbox.next_write(self.log, self._following)
        told = (self.term, self.role, self.leader_id, self.log.commit_index, self.needs_noop)
        cut_from = self.log.cut_from
        if write is None and self._outbox.is_empty and not reads and cut_from is None and told == self._told:
            return None
        role_changed = self._told is None or self._told[:3] != told[:3]
        self._told = told
        self.log.cut_from = None
        return Ready(
            write=write,
            messages=self._outbox.take_free(),
            reads=reads,
            cut_from=cut_from,
            commit_index=self.log.commit_index,
            term=self.term,
            role=self.role,
            leader_id=self.leader_id,
            role_changed=role_changed,
            needs_noop=self.needs_noop,
        )

    def persisted(self, write: Write) -> None:
        """All of this Write is synced. Lines of it that were cut meanwhile do not count."""
        self._outbox.persisted(write)
        self.log.persisted_to(write.last_index)
        if self._leadership is not None:
            # 5.3, pitfall 4: a leader counts itself after its own fsync, alone too.
            self._advance_commit(self._leadership)
        elif self.role is Role.CANDIDATE and self._outbox.is_durable:
            self._ballot_recorded(self.node_id, granted=True)

    def applied(self, index: int) -> None:
        """The host has applied entries up to `index` and released their effects; their lines may go."""
        self.log.applied_to(index)
