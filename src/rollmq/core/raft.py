"""The consensus core: who leads, what is in the log, what is committed. A deterministic state machine.

It does no IO, reads no clock, draws no random number, and does not know what a line means (but `members`
events, which say who votes). The host calls `tick(now_us)` with a monotonic clock (once per turn, before
the turn's messages), `step(message)`, `propose(lines)` as a leader, then `ready()` and does what `Ready`
says. One voter is the same core as five: it elects itself, and its own fsync is the majority. How the
pointers into the log relate is on the first page of raft_log.py; section numbers are those of the Raft
paper (extended version), "thesis" is Ongaro's dissertation.

Decide early, speak late: a leader's host applies an event when it proposes it; effects wait for
commit_index. What comes to nothing because a newer leader cut it, `Ready.cut_from` tells. Lines from a
peer are as opaque as all others: before `step`, the host checks that each is whole (its crc) and carries
the index and term that the message gives it.

Its parts: raft_candidacy (elections), raft_follower and raft_leader (the two ends of replication),
raft_install (snapshots), members (who votes), raft_outbox (what must be on disk before it leaves).
A peer that lost lines which it had confirmed is not noticed here: it repairs itself before it counts
(repair.py), and says so first (`peer_is_damaged`).
"""

from collections.abc import Callable, Sequence

from rollmq.core.members import Configuration
from rollmq.core.raft_candidacy import Candidacy
from rollmq.core.raft_leader import Leadership, Transfer
from rollmq.core.raft_log import RaftLog
from rollmq.core.raft_messages import (
    AppendEntries,
    AppendResp,
    InstallSnapResp,
    InstallSnapshot,
    PeerMessage,
    RequestVote,
    TimeoutNow,
    VoteResp,
    entries_are_sound,
)
from rollmq.core.raft_own_lines import OwnLines
from rollmq.core.raft_ready import (
    HardState,
    RaftSettings,
    ReadChunk,
    ReadLines,
    ReadTicket,
    Ready,
    Role,
    SnapshotFacts,
    Write,
    WriteChunk,
)


class RaftCore(Candidacy):
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

        `voters` are the founders; they count until the log (`log.membership`) says who does. A node that
        joins knows none. `chance` gives numbers in 0..1, from a seed in tests. With `has_vote=False`
        (a damaged node, rule 7) it gives no votes, confirms no lines and never campaigns: it only learns
        who leads.
        """
        membership = log.membership
        if not membership.index and not membership.current.voters:
            membership.set_founders(Configuration(voters))
        super().__init__(
            node_id=node_id,
            hard_state=hard_state,
            log=log,
            settings=settings,
            chance=chance,
            now_us=now_us,
            has_vote=has_vote,
        )
        self.snapshot: SnapshotFacts | None = None
        """The newest on this node's disk, for followers that need one; the host tells."""
        self.wall_us = 0
        """This node's wall clock, told to the leader and compared there; the host tells. 0 = not told."""
        self._own_lines = OwnLines()
        self._told: tuple[int, Role, str | None, int, bool] | None = None

    # What the host may ask

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
    def is_transferring(self) -> bool:
        """Leadership is being handed over: nothing may be proposed until that ends (thesis 3.10)."""
        return self._leadership is not None and self._leadership.transfer is not None

    @property
    def can_propose(self) -> bool:
        """Whether new work may be taken on: this node leads, and uncommitted bytes are within bounds.

        Beyond them the host refuses submits; what ends jobs may still be proposed.
        """
        is_open = self._leadership is not None and not self.needs_noop and self._leadership.transfer is None
        return is_open and self.log.uncommitted_bytes < self._settings.uncommitted_bytes_max

    @property
    def leadership(self) -> Leadership | None:
        """What is known of the followers while this node leads; to look at, not to touch."""
        return self._leadership

    @property
    def deadline_us(self) -> int:
        """When `tick` has something to do next, if nothing happens before."""
        return self._deadline_us

    # Time

    def tick(self, now_us: int) -> None:
        """Take the time: campaign or step down or send heartbeats when they are due."""
        assert now_us >= self.now_us, "the clock handed in is monotonic"
        self.now_us = now_us
        leadership = self._leadership
        if leadership is not None and not leadership.hears_majority(now_us):
            # Thesis 6.2: a leader that a majority no longer hears must neither serve nor redirect to itself.
            self._become_follower()
        elif leadership is not None and leadership.transfer_is_over(now_us):
            leadership.transfer = None  # Thesis 3.10: it did not come about within an election timeout.
        if now_us < self._deadline_us:
            return
        if self._leadership is not None:
            self._leadership.heartbeat(now_us)
            self._deadline_us = now_us + self._settings.heartbeat_us
        else:
            self.campaign()

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
            elif isinstance(message, InstallSnapshot):
                self._on_install_snapshot(message)
            elif isinstance(message, InstallSnapResp):
                self._on_install_snap_resp(message)
            else:
                self._on_timeout_now(message)

    def _refuse_old_term(self, message: PeerMessage) -> None:
        """5.1: a request with a stale term is refused with ours, so that its sender steps down."""
        if isinstance(message, AppendEntries | InstallSnapshot):
            self._outbox.send(
                AppendResp(
                    self.node_id,
                    message.source,
                    self.term,
                    ok=False,
                    prev_index=message.prev_index if isinstance(message, AppendEntries) else 0,
                    round=message.round,
                )
            )

    # Replication: a follower's side

    def _hears_leader(self, leader_id: str) -> None:
        self._become_follower(leader_id=leader_id)
        self._heard_us = self.now_us
        self._await_leader()

    def _on_append(self, request: AppendEntries) -> None:
        is_foreign = self.role is Role.LEADER  # 5.2: one leader per term, and it is this node.
        if is_foreign or not entries_are_sound(request):
            self._ignored_count += 1
            return
        self._hears_leader(request.source)
        if not self.has_vote:
            return  # Its log is under repair: nothing may be added and nothing confirmed.
        if self._receiving.is_installing and request.lines:
            return  # The log is being replaced: what is added now would be lost without a word.
        self._following.wall_us = self.wall_us
        answer = self._following.take(request)
        if answer is not None:
            self._outbox.send(answer)

    def tell_counts(self, index: int, counts: bytes) -> None:
        """From now on answers to heartbeats carry this digest of the state's counts at the marker `index`,
        which is committed (rule 5)."""
        self._following.counts = (index, counts)

    def refuse_marker(self, index: int) -> None:
        """The segment that this marker ends is another one here: it is taken out of the log again, and the
        leader is told so (rule 5). Call it in the turn in which it came, before anything of it is written."""
        self._following.refuse(index)

    def hold_marker(self, index: int) -> None:
        """It cannot be said yet whether this marker ends the bytes that are here: until 0 is said, it and
        what follows it stay in the log and are not confirmed."""
        self._following.unjudged_index = index

    @property
    def overruled_index(self) -> int:
        """A marker that was refused here and is committed in the group; 0: none."""
        return self._following.overruled_index

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
        if request.target == self.node_id:
            self._own_lines.read(request, lines)
            return
        message = self._leadership.lines_read(request, lines) if self._leadership is not None else None
        if message is not None:
            self._outbox.send(message)

    def _on_append_resp(self, answer: AppendResp) -> None:
        if self._leadership is not None and self._leadership.answered(answer, self.now_us):
            self._advance_commit(self._leadership)

    def _advance_commit(self, leadership: Leadership) -> None:
        self.log.commit_to(leadership.committed_index())
        if not leadership.is_voter and self.log.membership.index <= self.log.commit_index:
            # Thesis 4.2.2: a leader that was removed leads until that is committed, and not longer.
            heir = self._best_heir(leadership)
            if heir is not None:
                self._outbox.send(TimeoutNow(self.node_id, heir, self.term))
            self._become_follower()

    def peer_is_damaged(self, node_id: str) -> None:
        """This node lost lines that it may have confirmed: a leader no longer counts them for a majority."""
        progress = self._leadership.progress(node_id) if self._leadership is not None else None
        if progress is not None:
            progress.was_damaged(self.log.last_index + 1)

    # The machine's own lines, when they are no longer in memory

    def want_own_lines(self, first_index: int, last_index: int, *, lines_max: int) -> list[bytes] | None:
        """Lines from first_index on, some of those that were read; None: they are asked for with Ready."""
        bytes_max = self._settings.append_bytes_max
        request = ReadLines(self.node_id, self.term, first_index, last_index, bytes_max)
        return self._own_lines.take(request, lines_max)

    # Members (section 6; thesis 4)

    @property
    def members_problem(self) -> str | None:
        """Why the members cannot be changed now; None when they can."""
        leadership = self._leadership
        if leadership is None:
            return "this node does not lead"
        if leadership.term_start_index is None or self.log.commit_index < leadership.term_start_index:
            # Pitfall 34: before that, an unknown change of an earlier leader may still come into force.
            return "this leader is new and has not committed anything yet"
        if self.log.membership.index > self.log.commit_index:
            return "another change of members is not committed yet"  # Pitfall 33: one at a time.
        if leadership.transfer is not None:
            return "the leadership is being handed over"
        return None

    def members_proposed(self, index: int, configuration: Configuration) -> None:
        """The entry `index`, just proposed, says so: it is in force at once (pitfall 33)."""
        leadership = self._leadership
        assert leadership is not None, "only a leader proposes"
        self.log.membership.append(index, configuration)
        leadership.reconfigured(configuration)
        self._advance_commit(leadership)

    # Leadership transfer (thesis 3.10)

    def _best_heir(self, leadership: Leadership) -> str | None:
        """The follower that votes, answers and has most of the log."""
        heard = [each for each in leadership.voting if leadership.hears(each.node_id, self.now_us)]
        return max(heard, key=lambda each: (each.match_index, each.node_id)).node_id if heard else None

    def transfer(self, target: str | None = None) -> str | None:
        """Hand the leadership over, to the one that is furthest if none is named. Returns why not, if not.

        From now on nothing is proposed. Either this node is deposed, or after one election timeout it
        goes on leading as if nothing had been.
        """
        leadership = self._leadership
        if leadership is None:
            return "this node does not lead"
        heir = target or self._best_heir(leadership)
        if heir is None or not leadership.hears(heir, self.now_us) or heir not in self._voters:
            return f"{heir or 'no follower'} votes and answers"
        leadership.transfer = Transfer(target=heir, deadline_us=self.now_us + self._settings.election_us_max)
        return None

    def _carry_on_transfer(self, leadership: Leadership) -> None:
        """Once the heir has all of the log, ask it to stand for election."""
        transfer = leadership.transfer
        if transfer is None or transfer.is_asked:
            return
        progress = leadership.progress(transfer.target)
        if progress is None:
            leadership.transfer = None
        elif progress.match_index == self.log.last_index:
            transfer.is_asked = True
            self._outbox.send(TimeoutNow(self.node_id, transfer.target, self.term))

    # Reads (section 8; thesis 6.4)

    def request_read(self) -> ReadTicket | None:
        """Ask whether this node still leads, for an answer that depends on it. None: it does not."""
        leadership = self._leadership
        if leadership is None or leadership.term_start_index is None:
            return None
        # Pitfall 40: all that may have been committed before is at or before this term's first entry.
        index = max(self.log.commit_index, leadership.term_start_index)
        return ReadTicket(self.term, leadership.new_round(), index)

    def is_read_confirmed(self, ticket: ReadTicket) -> bool | None:
        """Whether a majority confirmed, after it was asked, that this node leads. None: it never will."""
        leadership = self._leadership
        if leadership is None or leadership.term != ticket.term:
            return None
        return leadership.confirmed_round() >= ticket.round and self.log.commit_index >= ticket.index

    # Snapshots (section 7)

    def _on_install_snapshot(self, request: InstallSnapshot) -> None:
        if self.role is Role.LEADER or request.last_index < 1 or request.last_term > request.term:
            self._ignored_count += 1
            return
        self._hears_leader(request.source)
        answer = self._receiving.take(request) if self.has_vote else None
        if answer is not None:
            self._outbox.send(answer)

    def _on_install_snap_resp(self, answer: InstallSnapResp) -> None:
        if self._leadership is not None and self._leadership.snapshot_answered(answer, self.now_us):
            self._advance_commit(self._leadership)

    def chunk_read(self, request: ReadChunk, data: bytes | None) -> None:
        """The host's answer to a ReadChunk; None when the snapshot is no longer kept."""
        message = self._leadership.chunk_read(request, data) if self._leadership is not None else None
        if message is not None:
            self._outbox.send(message)

    def chunk_written(self, chunk: WriteChunk) -> None:
        """The host has written it."""
        answer = self._receiving.chunk_written(chunk)
        if answer is not None:
            self._outbox.send(answer)

    def snapshot_installed(self, snapshot: SnapshotFacts, configuration: Configuration) -> None:
        """It is durable in place of the log, and the state was loaded from it; so says it who is a member."""
        answer = self._receiving.ended(installed=True)
        self.log.replace_by_snapshot(snapshot.last_index, snapshot.last_term, configuration)
        self._following.replaced_by_snapshot(snapshot.last_index)
        if answer is not None and answer.term == self.term:
            self._outbox.send(answer)

    def install_refused(self) -> None:
        """What was received is not what its digest says. Nothing was changed; it begins anew."""
        answer = self._receiving.ended(installed=False)
        if answer is not None and answer.term == self.term:
            self._outbox.send(answer)

    # The host's side of the work

    def _leaders_part(self, leadership: Leadership) -> tuple[tuple[ReadLines, ...], tuple[ReadChunk, ...]]:
        leadership.snapshot = self.snapshot
        if leadership.transfer is not None:
            self._carry_on_transfer(leadership)
        for message in leadership.appends():
            self._outbox.send(message)
        reads, chunk_reads = tuple(leadership.reads), tuple(leadership.chunk_reads)
        leadership.reads.clear()
        leadership.chunk_reads.clear()
        return reads, chunk_reads

    def _installing_part(self) -> SnapshotFacts | None:
        """Only when the disk has the log as it is: what comes after it is the snapshot."""
        is_quiet = not self._outbox.is_writing and not self.log.is_unwritten
        return self._receiving.begin_install() if is_quiet else None

    def ready(self) -> Ready | None:
        """What there is to do since the last call; None when there is nothing. See Ready for the duties."""
        reads: tuple[ReadLines, ...] = ()
        chunk_reads: tuple[ReadChunk, ...] = ()
        if self._leadership is not None:
            reads, chunk_reads = self._leaders_part(self._leadership)
        if self.log.cut_from is not None:
            self._own_lines.cut()
        if self._own_lines.reads:
            reads += tuple(self._own_lines.reads)
            self._own_lines.reads.clear()
        self._outbox.release(self._following)
        write = self._outbox.next_write(self.log, self._following)
        install = self._installing_part()
        chunk, self._receiving.chunk = self._receiving.chunk, None
        told = (self.term, self.role, self.leader_id, self.log.commit_index, self.needs_noop)
        cut_from = self.log.cut_from
        is_same = cut_from is None and told == self._told
        if is_same and not (write or reads or chunk_reads or chunk or install) and self._outbox.is_empty:
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
            chunk_reads=chunk_reads,
            chunk=chunk,
            install=install,
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

    @property
    def is_installing(self) -> bool:
        """The host puts a snapshot in place of the log: nothing of the log can be read meanwhile."""
        return self._receiving.is_installing

    def applied(self, index: int) -> None:
        """The host has applied entries up to `index` and released their effects; their lines may go."""
        self.log.applied_to(index)
