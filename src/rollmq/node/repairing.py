"""A damaged node while it repairs itself from its peers: `core.repair`'s plan, carried out on the disk.

Sans-IO but for the disk: the host hands in time and messages and sends what `outbox` holds. There is no Raft
and no machine here, so this node cannot vote, confirm or serve anything but what a peer needs for its own
repair: lines and snapshots that are sound on this disk. When `is_done`, a plain start finds nothing wrong.
"""

from collections.abc import Callable, Iterable
from itertools import takewhile

from rollmq.core.raft_ready import HardState, SnapshotFacts
from rollmq.core.repair import CutBehind, EndIsSure, LeaveHistory, Repair, SpendTerm, TakeChunk, TakeLines
from rollmq.core.repair_messages import RepairAsk, RepairFetch, RepairHas, RepairMessage, RepairPiece
from rollmq.errors import SnapshotRefused
from rollmq.limits import REPAIR_BYTES_MAX, REPAIR_RUNS_MAX, SNAPSHOT_CHUNK_BYTES_MAX
from rollmq.node.repair_source import piece_for
from rollmq.store.disk import Disk
from rollmq.store.install import SnapshotSource
from rollmq.store.node_file import Identity
from rollmq.store.patch import Patch, PatchRefused
from rollmq.store.surgery import Surgeon, extent_with
from rollmq.store.survey import Surveyor

Told = Callable[..., None]
"""The node's log: an event and its fields."""


class Repairing:
    """One damaged directory, and what becomes of it."""

    def __init__(self, disk: Disk, identity: Identity, *, first_round: int, now_us: int, log: Told) -> None:
        """The directory must be locked by this process. Raises StateError for what no peer can repair."""
        self.node_id = identity.node_id
        self.outbox: list[RepairMessage] = []
        """What to send; the host takes it away."""
        self.is_done = False
        self._disk = disk
        self._identity = identity
        self._log = log
        self._now_us = now_us
        self._surgeon = Surgeon(disk)
        self._surgeon.prepare()
        self._surveyor = Surveyor(disk, identity)
        self._found = self._surveyor.look()
        if not self._found.survey.is_end_sure:
            self._surgeon.end_is_lost()
        self.has_lost_end = not self._found.survey.is_end_sure
        """At some time the end of the log was lost: what was confirmed and not committed may be."""
        self._snapshots = SnapshotSource(disk)
        self._patch: Patch | None = None
        self._helpers: set[str] = set()
        """Whose lines are in the patch."""
        self._lines_count = 0
        self.plan = Repair(
            self._found.survey, node_id=identity.node_id, first_round=first_round, now_us=now_us
        )
        log("repair_began", node=self.node_id, damages=len(self.places), first=self.places[0])

    @property
    def places(self) -> list[str]:
        """What is damaged, for people."""
        return self._found.places or ["nothing that is still to be seen: a repair was not ended"]

    @property
    def voters(self) -> frozenset[str]:
        """Who votes, as far as this node knows; with itself."""
        return self._found.survey.voters

    @property
    def term(self) -> int:
        """Its term, 0 if that is what is damaged."""
        hard_state = self.plan.survey.hard_state
        return hard_state.term if hard_state is not None else 0

    @property
    def last_index(self) -> int:
        """The end of what is sound."""
        return self._found.survey.last_index

    # -- what comes

    def tick(self, now_us: int) -> None:
        """Time passes: ask, ask again, and do what can be done."""
        self._now_us = now_us
        self.outbox += self.plan.asks(now_us)
        self._go_on()

    def take(self, message: RepairMessage) -> None:
        """A message of a peer."""
        if message.target != self.node_id or self.is_done:
            return
        if isinstance(message, RepairAsk):
            self.outbox.append(self._has(message))
        elif isinstance(message, RepairFetch):
            self.outbox.append(self._piece(message))
        elif isinstance(message, RepairHas):
            self.plan.has(message)
            self._go_on()
        else:
            taken = self.plan.piece(message)
            if isinstance(taken, TakeLines):
                self._take_lines(taken, message.source)
            elif taken is not None:
                self._take_chunk(taken)
            self._go_on()

    def close(self) -> None:
        """Leave what is not in its place."""
        if self._patch is not None:
            self._patch.abandon()

    # -- a peer that is damaged too

    def _has(self, ask: RepairAsk) -> RepairHas:
        survey, snapshot = self._found.survey, self._found.snapshot
        runs = [(each.first_index, each.term) for each in survey.ranges[-REPAIR_RUNS_MAX:]]
        hard_state = survey.hard_state
        return RepairHas(
            self.node_id,
            ask.source,
            hard_state.term if hard_state is not None else 0,
            round=ask.round,
            last_index=survey.last_index,
            last_term=survey.last_term,
            commit_index=survey.sealed_index,
            has_vote=hard_state is not None,
            is_end_sure=survey.is_end_sure,
            is_whole=survey.is_end_sure and next(survey.holes(), None) is None,
            ranges=survey.covered()[:REPAIR_RUNS_MAX],
            runs=tuple(runs) if next(survey.holes(), None) is None else (),
            snapshot_index=snapshot.last_index if snapshot is not None else 0,
            snapshot_term=snapshot.last_term if snapshot is not None else 0,
            snapshot_digest=snapshot.digest if snapshot is not None else "",
            snapshot_bytes=snapshot.total_bytes if snapshot is not None else 0,
            members_index=survey.members_index,
            voters=tuple(sorted(survey.voters)),
        )

    def _piece(self, fetch: RepairFetch) -> RepairPiece:
        data: bytes | None
        if fetch.snapshot_index:
            data = self._snapshots.read(fetch.snapshot_index, fetch.offset, SNAPSHOT_CHUNK_BYTES_MAX)
        else:
            data = self._lines_for(fetch)
        return piece_for(fetch, data)

    def _lines_for(self, fetch: RepairFetch) -> bytes | None:
        survey = self._found.survey
        is_committed = not fetch.check_index and fetch.last_index <= survey.sealed_index
        is_same = fetch.check_index > 0 and survey.term_at(fetch.check_index) == fetch.check_term
        if not is_committed and not (is_same and fetch.last_index <= fetch.check_index):
            return None
        lines = self._surveyor.lines(self._found, fetch.first_index, fetch.last_index)
        in_a_row = takewhile(lambda each: each[1][0] == each[0], enumerate(lines, start=fetch.first_index))
        return within(line for _, (_, line) in in_a_row)

    # -- the plan, carried out

    def _go_on(self) -> None:
        while not self.is_done:
            step = self.plan.next_step(self._now_us)
            if isinstance(step, RepairFetch):
                self.outbox.append(step)
                return
            if step is None:
                if not self.plan.survey.needs_repair:
                    self._complete()
                return
            if isinstance(step, SpendTerm):
                self._spend(step.term)
            elif isinstance(step, CutBehind):
                self._cut_behind(step.index)
            elif isinstance(step, LeaveHistory):
                self._leave_history()
            else:
                assert isinstance(step, EndIsSure)
                self._finish_patch()
                self._look_again()
                self.plan.survey.is_end_sure = True

    def _look_again(self, *changed: str) -> None:
        """What is on the disk now is what the plan goes on with."""
        is_end_sure = self.plan.survey.is_end_sure
        self._surveyor.forget(*changed)
        self._found = self._surveyor.look()
        self.plan.updated(self._found.survey)
        self.plan.survey.is_end_sure = is_end_sure and self.plan.survey.is_end_sure

    def _spend(self, term: int) -> None:
        """For itself: so it can give this term's vote to nobody."""
        self._surgeon.save_vote(HardState(term, self.node_id))
        self.plan.survey.hard_state = HardState(term, self.node_id)
        self._log("repair_spent_term", term=term)

    def _raise_term(self, term: int) -> None:
        """The term of a line is on disk before the line is."""
        hard_state = self.plan.survey.hard_state
        if hard_state is not None and hard_state.term < term:
            self._surgeon.save_vote(HardState(term, None))
            self.plan.survey.hard_state = HardState(term, None)

    # -- lines

    def _take_lines(self, taken: TakeLines, source: str) -> None:
        if self._patch is not None and self._patch.next_index > taken.first_index:
            self._abandon_patch()
        patch = self._patch or self._begin_patch(taken)
        patch.until_index = max(patch.until_index, self._end_of_file(taken.until_index))
        self._helpers.add(source)
        self._lines_count += len(taken.lines)
        self._raise_term(self.plan.survey.term_at(taken.first_index + len(taken.lines) - 1) or 0)
        try:
            self._copy_own(patch, taken.first_index - 1)
            patch.add(taken.lines)
            hole = next(self.plan.survey.holes(), None)
            is_filled = patch.next_index > taken.until_index
            if is_filled and (hole is None or hole.first_index > patch.until_index):
                self._copy_own(patch, patch.until_index)
                self._finish_patch()
                self._look_again()
        except PatchRefused as error:
            self._refused(error)

    def _begin_patch(self, taken: TakeLines) -> Patch:
        """From the beginning of the file that the first line belongs to."""
        first = extent_with(self._found.extents, taken.first_index)
        if first is not None and first.scan.marker is not None and first.last_index is None:
            first = None  # it is complete: what follows is the next file's
        self._helpers.clear()
        first_index = first.first_index if first is not None else taken.first_index
        self._patch = self._new_patch(first_index, taken.until_index)
        return self._patch

    def _end_of_file(self, index: int) -> int:
        """The last entry of the file that this one belongs to, as far as it is known."""
        extent = extent_with(self._found.extents, index)
        if extent is None or not extent.ranges:
            return index
        return max(index, extent.last_index or extent.ranges[-1].last_index)

    def _copy_own(self, patch: Patch, until_index: int) -> None:
        """What is sound of the files that are replaced, up to this entry."""
        if patch.next_index > until_index:
            return
        held: list[bytes] = []
        size_bytes = 0
        for _, line in self._surveyor.lines(self._found, patch.next_index, until_index):
            held.append(line)
            size_bytes += len(line)
            if size_bytes > REPAIR_BYTES_MAX:
                patch.add(held)
                held, size_bytes = [], 0
        patch.add(held)
        if patch.next_index != until_index + 1:
            raise PatchRefused("wal", f"entry {patch.next_index} was sound and is not any more")

    def _finish_patch(self) -> None:
        patch, self._patch = self._patch, None
        if patch is None:
            return
        patch.finish()
        self._surveyor.forget(*patch.written)
        for name in patch.written:
            self._log("segment_repaired", segment=name, sources=",".join(sorted(self._helpers)))

    def _abandon_patch(self) -> None:
        patch, self._patch = self._patch, None
        if patch is not None:
            patch.abandon()
            self._look_again(*patch.written)

    def _refused(self, error: PatchRefused) -> None:
        """Whole lines, and the file that they make is another: first this node's own are suspected."""
        self._log("repair_refused", reason=error, sources=",".join(sorted(self._helpers)))
        is_suspected = self._surveyor.distrust(error.name)
        if is_suspected:
            for helper in self._helpers:
                self.plan.distrust(helper)
        self._abandon_patch()
        self._look_again()

    def _cut_behind(self, index: int) -> None:
        """It ends here: what is behind is not in the log that counts, or cannot be had."""
        self._end_is_lost()
        if self._patch is not None and self._patch.next_index > index + 1:
            self._abandon_patch()
            return  # what the plan goes by was not on disk yet: it begins from what is
        self._log("repair_cut", last_index=index, was=self._found.survey.last_index)
        if self._patch is not None:
            self._copy_own(self._patch, index)
            self._finish_patch()
            self._look_again()
        names = [extent.name for extent in self._found.extents]
        rest = self._surgeon.remove_behind(self._found, index)
        if rest is not None and (rest.is_damaged or rest.ranges[-1].last_index > index):
            patch = self._new_patch(rest.first_index, index)
            self._copy_own(patch, index)
            patch.finish()
        self._look_again(*names)

    def _mend_frames(self) -> None:
        """Files that lack no entry and are damaged all the same: in the header, or behind their last line."""
        for extent in self._found.extents:
            if not extent.is_damaged:
                continue
            if not extent.ranges:
                self._surgeon.remove(extent)
                continue
            patch = self._new_patch(extent.first_index, extent.ranges[-1].last_index)
            self._copy_own(patch, patch.until_index)
            patch.finish()
            self._log("segment_repaired", segment=extent.name, sources="itself")
            self._surveyor.forget(extent.name)

    def _new_patch(self, first_index: int, until_index: int) -> Patch:
        return Patch(
            self._disk,
            group=self._identity.group,
            first_index=first_index,
            until_index=until_index,
            sealed_index=self._found.survey.sealed_index,
        )

    def _end_is_lost(self) -> None:
        self._surgeon.end_is_lost()
        self.plan.survey.is_end_sure = False
        self.has_lost_end = True

    # -- snapshots

    def _take_chunk(self, taken: TakeChunk) -> None:
        if taken.offset == 0:
            self._abandon_patch()
        source = taken.source
        facts = SnapshotFacts(
            source.snapshot_index, source.snapshot_term, source.snapshot_digest, source.snapshot_bytes
        )
        self._surgeon.write_chunk(facts, taken.offset, taken.data)
        next_offset = taken.offset + len(taken.data)
        if next_offset < facts.total_bytes:
            self.outbox.append(self.plan.fetch_chunk(source, next_offset, self._now_us))
            return
        try:
            self._put_snapshot(facts)
        except SnapshotRefused as error:
            self._log("repair_refused", reason=error, sources=source.source)
            self.plan.refuse(source.source, -facts.last_index)
            return
        self._log("snapshot_repaired", index=facts.last_index, source=source.source)
        self._look_again(*(extent.name for extent in self._found.extents))

    def _put_snapshot(self, facts: SnapshotFacts) -> None:
        """The log goes on behind it if it is known to be the same there; else it is replaced as a whole."""
        survey, index = self.plan.survey, facts.last_index
        self._raise_term(facts.last_term)
        is_same = index <= survey.sealed_index or survey.term_at(index) == facts.last_term
        if is_same and survey.last_index >= index:
            self._surgeon.take_beside(facts)
            return
        if survey.last_index > index:
            self._end_is_lost()
        self._surgeon.take_instead(facts)

    def _leave_history(self) -> None:
        self._abandon_patch()
        holes = ",".join(f"{hole.first_index}-{hole.last_index}" for hole in self.plan.survey.holes())
        names = [extent.name for extent in self._found.extents]
        self._surgeon.leave_history(self._found)
        self._log("history_lost", entries=holes, reason="no node has them any more: the gap is declared")
        self._look_again(*names)

    # -- the end

    def _complete(self) -> None:
        """Look at everything once more; what is whole counts from the next start on."""
        self._finish_patch()
        is_end_sure = self.plan.survey.is_end_sure
        self._mend_frames()
        self._surveyor = Surveyor(self._disk, self._identity)
        self._look_again()
        self.plan.survey.is_end_sure = is_end_sure
        if self.plan.survey.needs_repair:
            return
        self._surgeon.complete(self._found)
        self.is_done = True
        self._log("repair_done", node=self.node_id, last_index=self.last_index, lines=self._lines_count)


def within(lines: Iterable[bytes]) -> bytes:
    """The first of these lines, as many as go into one message."""
    found: list[bytes] = []
    size_bytes = 0
    for line in lines:
        size_bytes += len(line)
        if found and size_bytes > REPAIR_BYTES_MAX:
            break
        found.append(line)
    return b"".join(found)
