"""One node's brain: the Raft core, the machine, and the leader while it leads. No IO, no clock.

The host hands in time and messages, does what `ready` says, and tells when it is on disk. This is where
"decide early, speak late" is kept: effects wait here for their commit, and are dropped with their leader.
"""

from collections import deque
from collections.abc import Callable, Iterable

from rollmq.core import clocks, regroup
from rollmq.core.agreement import Agreement, LookBack, is_another_segment
from rollmq.core.ahead import Ahead, events_of
from rollmq.core.effects import AnyEffect, split_early
from rollmq.core.events import AnyEvent, Member, SnapshotMarker
from rollmq.core.leader import Leader, SegmentFacts
from rollmq.core.line import LineDamaged, decode_line
from rollmq.core.log_time import LogTime
from rollmq.core.machine import Machine
from rollmq.core.members import configuration_of
from rollmq.core.raft import RaftCore
from rollmq.core.raft_messages import AppendEntries, PeerMessage
from rollmq.core.raft_ready import ReadTicket, Role, SnapshotFacts, Write
from rollmq.core.segment_digest import SegmentDigest, is_marker_line
from rollmq.core.work import Work
from rollmq.errors import ReplicaDiverged
from rollmq.limits import APPLIES_PER_TURN, ASSIGNS_PER_TURN, TURN_GAP_MAX_US


class Replica:
    """One member of one group, in one process. Only one task may touch it."""

    def __init__(
        self,
        raft: RaftCore,
        machine: Machine,
        segment: SegmentDigest,
        *,
        group: str,
        founders: list[str],
        jitter: Callable[[], float],
        is_eager: bool = False,
        log_end: SegmentDigest | None = None,
    ) -> None:
        """`log_end` is the digest of the log that was found at the start, if its end is not applied yet.

        With `is_eager` an assign of a job whose enqueue is committed is told before it is committed
        itself: faster by an fsync, and a crash in between may run the job twice (rule 3)."""
        self.raft = raft
        self.machine = machine
        assert segment.next_index == machine.last_index + 1
        self.leader: Leader | None = None
        """Invariant: set exactly while this node leads and its noop is proposed."""
        self.snapshot: tuple[int, str] = (0, "")
        """Index and digest of the newest snapshot on this node's disk; the host tells."""
        self.is_disk_low = False
        """A leader refuses submits meanwhile; the host tells, with `tell_disk`."""
        self._segment = segment
        """Invariant: its next index is the machine's."""
        self._log_end: tuple[SegmentDigest, ...] = (log_end,) if log_end is not None else ()
        """By this a marker is judged that comes before the end of the log that was found is applied."""
        self._group = group
        self._founders = founders
        self._jitter = jitter
        self._log_time: LogTime | None = None
        self._led_until_us = 0
        """Log time as of this node's last term: its queues have been moved that far."""
        self._waiting: deque[AnyEffect | ReadTicket] = deque()
        """In the order of their indexes; what stands behind a ticket waits for that read index too."""
        self._is_eager = is_eager
        self._early: list[AnyEffect] = []
        self._is_all_handed_out = False
        """No job that could be handed out was left by the last `ready`, a leader's."""
        self._is_rebuilding = False
        self._unjudged: list[int] = []
        """Markers that nobody can judge yet."""
        self._back = LookBack()
        self._ahead = Ahead()
        self._applied_in_turn = 0
        self._waits_for_lines = False
        """What is to be applied next is being read from the store."""
        self.offered_to: str | None = None
        """The node to which this one, as a leader, offered its office because of its clock; for the log."""
        self.damaged_count = 0
        """Messages of peers with a line that was not what its sender said: dropped, and sent again."""
        self.doubt = ""
        """A marker in the log that counted otherwise than this node does; for its operator."""
        self._mono_us = 0
        self._wall_us = 0
        self.agreement = Agreement()
        self._clocks = clocks.Clocks()

    @property
    def segment_first_index(self) -> int:
        """The first entry of the segment that is being filled: the one before it is a marker."""
        return self._segment.first_index

    @property
    def log_time(self) -> LogTime | None:
        """The clock of this term; null while this node does not lead."""
        return self._log_time

    def set_time(self, *, mono_us: int, wall_us: int) -> None:
        """Once per turn, before the turn's messages. Raft's timers and the leader's clock go on.

        A turn that comes very late (the process or its machine was paused) finds the workers' pings unread:
        they are given that time, or every pause would look like the death of all workers.
        """
        gap_us = mono_us - self._mono_us
        self._mono_us, self._wall_us = mono_us, wall_us
        self.raft.wall_us = wall_us
        self._before_raft()
        self.raft.tick(mono_us)
        self._after_raft()
        if self.leader is not None and self._log_time is not None:
            self.leader.desk.set_time(self._log_time.read(mono_us=mono_us, wall_us=wall_us))
            if gap_us > TURN_GAP_MAX_US:
                self.leader.liveness.was_deaf(gap_us)

    def step_time(self) -> None:
        """An operator says that the wall clock is right: log time goes there at once."""
        self._step_to(self._wall_us)

    def _step_to(self, wall_us: int) -> None:
        """A majority's clocks, or an operator, say that it is so late.

        Delays and expiries follow. Workers and handlers have not slept meanwhile: what is left of their time,
        and of their silence, stays as it was.
        """
        assert self.leader is not None
        assert self._log_time is not None
        desk = self.leader.desk
        before_us = desk.now_us
        self._log_time.step(wall_us)
        desk.set_time(self._log_time.read(mono_us=self._mono_us, wall_us=self._wall_us))
        self.leader.liveness.time_stepped(desk.now_us - before_us)

    def tell_disk(self, *, is_low: bool) -> None:
        """What the host found; it holds from here on, also for a leader that is yet to come."""
        self.is_disk_low = is_low
        if self.leader is not None:
            self.leader.intake.is_disk_low = is_low

    def tick(self) -> None:
        """Carry out what is due at the leader, and end the segment if it is time. A few times a second."""
        if self.leader is None or self._log_time is None:
            return
        self.agreement.judge(self.raft)
        if self._clocks.is_due(self._mono_us):
            self._look_at_clocks(self._log_time)
        self.leader.tick(self.leader.desk.now_us)
        members = regroup.next_change(self.raft, self.members)
        if members is not None:
            self.set_members(members)
        segment_bytes = self._segment.byte_count
        if self.leader.is_marker_due(
            segment_first_index=self._segment.first_index, segment_bytes=segment_bytes
        ):
            self.mark()

    def _look_at_clocks(self, log_time: LogTime) -> None:
        """Step log time if a majority's clocks allow it; hand over if this clock is the wrong one."""
        agreed_us = clocks.step_us(self.raft) if log_time.step_wanted_us else None
        if agreed_us is not None and log_time.is_far_behind(agreed_us):
            self._step_to(agreed_us)
        self.offered_to = self._clocks.hand_over(self.raft, self._mono_us) or self.offered_to

    # -- members

    @property
    def members(self) -> list[Member]:
        """As the machine knows them: on a leader, as decided."""
        return self.machine.members.members if self.machine.members is not None else []

    def set_members(self, members: list[Member]) -> None:
        """These are the members from now on; `regroup` made the list, after asking whether it may."""
        assert self.leader is not None
        assert self.raft.members_problem is None
        self._take_lines(self.leader)
        self.leader.set_members(self._group, members)
        self._take_lines(self.leader)
        self._members_decided()

    def _members_decided(self) -> None:
        """Pitfall 33: in force from when the entry is in the log."""
        members = self.machine.members
        assert members is not None
        if members.index > self.raft.log.membership.index:
            self.raft.members_proposed(members.index, configuration_of(members))

    def mark(self) -> None:
        """End the segment now: by time, by size, or because an operator said so."""
        assert self.leader is not None
        self._take_lines(self.leader)
        segment = self._segment
        facts = SegmentFacts(segment.first_index, segment.byte_count, segment.hexdigest(), *self.snapshot)
        self.leader.mark(facts)
        marker = self.leader.desk.take_lines()
        assert len(marker) == 1
        segment.add(marker[0])
        self.raft.propose(marker)
        self.agreement.counted(self.machine.last_index, self.machine.counts())

    def ready(self) -> Work:
        """What there is to do. Call it after each turn's inputs, and again after `persisted`."""
        self._applied_in_turn, self._waits_for_lines = 0, False
        is_cut = self.raft.log.cut_from is not None  # what is applied may be what was cut
        if self._unjudged and not (is_cut or self._is_rebuilding) and self.raft.role is not Role.LEADER:
            self._look_back()
        self._follow_role()
        if self.leader is not None:
            self.leader.intake.is_overloaded = not self.raft.can_propose
            self._is_all_handed_out = not self.raft.can_propose or self.leader.schedule() < ASSIGNS_PER_TURN
            self._take_lines(self.leader)
        ready = self.raft.ready()
        needs_rebuild = False
        if ready is not None:
            if ready.cut_from is not None:
                needs_rebuild = self._cut(ready.cut_from)
            if ready.role is not Role.LEADER:
                self._step_down()
        if ready is not None or self.machine.last_index < self.raft.commit_index:
            self._apply_committed()
            self.agreement.tell(self.raft)
        return Work(ready, self._release(), needs_rebuild, self._is_unfinished)

    @property
    def is_settled(self) -> bool:
        """Whether this leader has decided nothing since `ready`, which handed out all that could be handed
        out: then `ready` would say nothing new, and a host may save the call."""
        leader = self.leader
        if leader is None or not self._is_all_handed_out:
            return False
        return not leader.desk.lines and not leader.desk.effects

    @property
    def _is_unfinished(self) -> bool:
        if self._is_rebuilding or self._waits_for_lines:
            return False
        goal = self.raft.log.last_index if self.raft.needs_noop else self.raft.commit_index
        return self.machine.last_index < goal

    def persisted(self, write: Write) -> None:
        """All of this write is synced."""
        self._before_raft()
        self.raft.persisted(write)
        self._after_raft()

    @property
    def is_rebuilding(self) -> bool:
        """The machine is being loaded anew: it holds entries that were cut."""
        return self._is_rebuilding

    def step(self, message: PeerMessage) -> None:
        """One message of a peer. Lines are checked before anything is done with them, and decoded once."""
        events: list[AnyEvent] = []
        if isinstance(message, AppendEntries) and message.lines:
            try:
                events = events_of(message)
            except LineDamaged:
                self.damaged_count += 1
                return
        self._before_raft()
        self.raft.step(message)
        self._after_raft()
        if isinstance(message, AppendEntries):
            if events:
                self._followed(message, events)
            self._heed(message)

    def _heed(self, message: AppendEntries) -> None:
        """Rule 5: the group goes on without a replica that is another one than its own."""
        if self.raft.overruled_index:
            raise ReplicaDiverged(index=self.raft.overruled_index, what="the segment that this marker ends")
        is_meant = self.agreement.is_meant(message.differs_index, message.differs_counts)
        if message.source == self.raft.leader_id and is_meant:
            what = "the counts of the state as of this marker"
            raise ReplicaDiverged(index=message.differs_index, what=what)

    def _followed(self, message: AppendEntries, events: list[AnyEvent]) -> None:
        """Raft has taken these lines, or has not: what they mean is kept for when they are committed."""
        log = self.raft.log
        last_index = message.prev_index + len(events)
        if log.last_index == last_index and log.matches(last_index, events[-1].term):
            self._ahead.add(message.prev_index + 1, events)
        if log.new_markers:
            markers, log.new_markers = log.new_markers, []
            self._judge(markers)

    def _judge(self, markers: list[int]) -> None:
        """Rule 5: a marker over other bytes than ours is refused before it is confirmed, and not confirmed
        before it is known: with it a leader that differs would have a majority."""
        known = (self._segment, *self._log_end)
        for number, at in enumerate(markers):
            # While the state is loaded anew its digest is of what was cut.
            is_held = bool(self._is_rebuilding or self._unjudged)
            is_other = None if is_held else is_another_segment(self.raft.log, known, at)
            if is_other is None:
                self._unjudged = sorted({*self._unjudged, *markers[number:]})
                self.raft.hold_marker(self._unjudged[0])
                return
            if is_other:
                self.raft.refuse_marker(at)
                return

    def _judge_late(self) -> None:
        """What those that were held are held against is there now."""
        markers, self._unjudged, log = self._unjudged, [], self.raft.log
        self.raft.hold_marker(0)
        found = [at for at in markers if self.machine.last_index < at <= log.last_index]
        self._judge([at for at in found if is_marker_line(log.lines(at, at)[0])])  # or it was cut since

    def _look_back(self) -> None:
        digest = self._back.go_on(self.raft, self._segment)
        if digest is not None:
            self._log_end = (digest,)
            self._judge_late()

    # -- leading

    def _before_raft(self) -> None:
        """Whatever moves the Raft core may depose this leader. What it has decided is in the log before that:
        the machine has applied it, and only what is in the log can be cut, and so noticed."""
        if self.leader is not None and self.leader.desk.lines:
            self._take_lines(self.leader)

    def _after_raft(self) -> None:
        """A deposed leader decides nothing more, not even in the turn in which it fell."""
        if self.leader is not None and self.raft.role is not Role.LEADER:
            self._step_down()

    def _follow_role(self) -> None:
        if self.raft.role is not Role.LEADER:
            self._step_down()
        elif self.raft.needs_noop and not self._is_rebuilding:
            self._lead()

    def _lead(self) -> None:
        """Apply the whole log, then decide; what is decided is spoken once the noop is committed."""
        if not self._apply_to(self.raft.log.last_index):
            return  # the rest in the next turns
        is_alone = self.raft.log.membership.current.voters == {self.raft.node_id}
        begin_us = self._wall_us if is_alone else clocks.step_us(self.raft)
        if self.machine.last_index == 0 and begin_us is None:
            return  # The first answers bring the clocks of a majority, with which a new group's time begins.
        self._ahead.clear()
        # Delays that ended while this node led, in a term that may have left nothing in the log, have ended.
        last_us = max(self.machine.last_at_us, self._led_until_us)
        self._log_time = LogTime(last_at_us=last_us, mono_us=self._mono_us, wall_us=self._wall_us)
        if begin_us is not None and (is_alone or self.machine.last_index == 0):
            # Alone, starting the node is the operator's word.
            self._log_time.step(begin_us)
        now_us = self._log_time.read(mono_us=self._mono_us, wall_us=self._wall_us)
        leader = Leader(self.machine, term=self.raft.term, jitter=self._jitter, now_us=now_us)
        leader.intake.is_disk_low = self.is_disk_low
        self._segment.add_all(leader.desk.lines)
        self.raft.propose_noop(leader.desk.take_lines()[0])
        leader.found_group(group=self._group, node_ids=self._founders)
        self._take_lines(leader)
        self.leader = leader
        self._members_decided()

    def _step_down(self) -> None:
        """Whatever this leader wanted to say may come to nothing: it is not said."""
        if self.leader is not None:
            assert not self.leader.desk.lines, "what was decided is in the log"
            self._led_until_us = max(self._led_until_us, self.leader.desk.now_us)
            self.leader = self._log_time = None
            self._waiting.clear()
            self._early.clear()

    def _take_lines(self, leader: Leader) -> None:
        lines = leader.desk.take_lines()
        if lines:
            self._segment.add_block(b"".join(lines), lines_count=len(lines))
            self.raft.propose(lines)
        if leader.desk.effects:
            if leader.desk.has_reads:
                # Section 8, rule 3: another one may lead by now, and have decided otherwise.
                ticket = self.raft.request_read()
                assert ticket is not None, "a leader whose noop is proposed may ask"
                self._waiting.append(ticket)
            effects = leader.desk.take_effects()
            if self._is_eager:
                early, effects = split_early(effects, self.raft.commit_index)
                self._early += early
            self._waiting.extend(effects)

    # -- the log goes on

    def _apply_committed(self) -> None:
        if self._is_rebuilding:
            return  # this machine holds entries that were cut: nothing of what is committed is applied in it
        commit_index = self.raft.commit_index
        if self.leader is None:
            self._apply_to(commit_index)
        applied_index = min(commit_index, self.machine.last_index)
        if applied_index > self.raft.log.applied_index:
            self.raft.applied(applied_index)

    def _apply_to(self, index: int) -> bool:
        """Apply entries up to this one, as many as a turn may. Whether all are."""
        log, machine = self.raft.log, self.machine
        while machine.last_index < index:
            if self._applied_in_turn >= APPLIES_PER_TURN:
                return False
            first_index = machine.last_index + 1
            last_index = min(index, machine.last_index + APPLIES_PER_TURN - self._applied_in_turn)
            lines: list[bytes] | None
            if first_index < log.held_index:
                lines = self.raft.want_own_lines(
                    first_index, min(index, log.held_index - 1), lines_max=last_index + 1 - first_index
                )
                if lines is None:
                    self._waits_for_lines = True
                    return False
                last_index = first_index + len(lines) - 1
            else:
                lines = log.lines(first_index, last_index)
            events = self._ahead.take(first_index, last_index)
            self._apply_lines(lines, events if events is not None else map(decode_line, lines))
            self._applied_in_turn += len(lines)
        return True

    def _apply_lines(self, lines: list[bytes], events: Iterable[AnyEvent]) -> None:
        apply, segment = self.machine.apply, self._segment
        begin = 0
        for at, event in enumerate(events):
            if type(event) is SnapshotMarker:
                segment.add_block(b"".join(lines[begin:at]), lines_count=at - begin)
                begin = at + 1
                if event.segment_digest != segment.hexdigest():
                    # What is committed here and what its leader had must be the same bytes.
                    raise ReplicaDiverged(index=event.index, what="the segment that this marker ends")
                segment.add(lines[at])
                apply(event)
                self.agreement.counted(event.index, self.machine.counts())
                continue
            apply(event)
        segment.add_block(b"".join(lines[begin:]), lines_count=len(lines) - begin)

    def _cut(self, cut_from: int) -> bool:
        """Entries from here on came to nothing. Whether the machine had applied one of them.

        While it is being rebuilt another cut changes nothing: what is loaded is committed, and is never cut.
        """
        self._step_down()
        self._ahead.cut(cut_from)
        self._back.cut()
        self.agreement.cut(cut_from)
        self._log_end = tuple(digest for digest in self._log_end if digest.next_index <= cut_from)
        if self._is_rebuilding or cut_from > self.machine.last_index:
            return False
        self._is_rebuilding = True
        self.raft.hold_campaign(True)
        return True

    def rebuilt(self, machine: Machine, segment: SegmentDigest) -> None:
        """The host loaded the state anew, from snapshot and log: all that was committed when the cut was on
        disk, and nothing that is not committed, for the next leader may cut that too."""
        assert self._is_rebuilding
        assert self.raft.log.applied_index <= machine.last_index <= self.raft.commit_index
        assert segment.next_index == machine.last_index + 1
        if self.machine.queues is not None:
            self.machine.queues.dispose()
        self.machine, self._segment = machine, segment
        self._ahead.clear()
        self._is_rebuilding = False
        self._judge_late()
        self.raft.hold_campaign(False)

    def installed(self, snapshot: SnapshotFacts, machine: Machine) -> None:
        """A leader's snapshot is durable in place of the log, and this is the state that it holds."""
        assert machine.last_index == snapshot.last_index
        assert machine.members is not None, "a group says who is in it before it makes a snapshot"
        self.raft.snapshot_installed(snapshot, configuration_of(machine.members))
        if self.machine.queues is not None:
            self.machine.queues.dispose()
        self.machine = machine
        self._segment = SegmentDigest(group=self._group, first_index=machine.last_index + 1)
        self._ahead.clear()
        if self._is_rebuilding:
            self._is_rebuilding = False
            self._judge_late()
            self.raft.hold_campaign(False)

    def _release(self) -> list[AnyEffect]:
        """The effects whose entries are committed."""
        waiting, commit_index = self._waiting, self.raft.commit_index
        released, self._early = self._early, []
        while waiting:
            first = waiting[0]
            if isinstance(first, ReadTicket):
                if not self.raft.is_read_confirmed(first):
                    break
            elif first.index > commit_index:
                break
            else:
                released.append(first)
            waiting.popleft()
        return released
