"""The oracle: sees what is decided, what is committed and what is told, and says when these disagree.

It keeps the whole log as it was decided (`lines`), a twin of the machine that applies only what is committed,
and a ledger that shares no code with either. A submit that nobody answered is *unknown*: it may be in the
log or not, and both are right.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from rollmq.core.effects import (
    Accepted,
    AckDone,
    AnyEffect,
    Assigned,
    Ended,
)
from rollmq.core.events import Ack, AnyEvent, Assign, Cancel, Fence, SnapshotMarker
from rollmq.core.leader import Leader
from rollmq.core.line import decode_line
from rollmq.core.machine import Machine
from rollmq.core.state import dump_state, load_state
from tests.sim.invariants import Broken, audit, audit_leader
from tests.sim.ledger import Ledger
from tests.sim.world import Violation, World


class Oracle:
    """One run's judge."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.lines: list[bytes] = []
        """The log as it was decided, from entry 1 on; cut back to what was recovered after a crash."""
        self.told_index = 0
        """The highest entry on which something that was told depends."""
        self.committed_index = 0
        self.ledger = Ledger()
        self.twin = Machine()
        """Applies what is committed, like a follower; never restarts."""
        self.allowed: dict[str, tuple[int, int]] = {}
        """By connected worker: assigns that it still allows, and how many were decided on its connection."""
        self.runs: dict[tuple[str, Fence], bytes] = {}
        """What each attempt's handler returned, as its worker saw it; b"" while it runs."""
        self.accepted_told: dict[str, str] = {}
        """By job id that was asked for: the id that the answer named."""
        self.counts: Counter[str] = Counter()
        self.uncut_index = 0

    # -- what the node decides

    def decided(self, lines: Sequence[bytes], *, first_index: int) -> None:
        """The leader has just decided these lines."""
        if first_index != len(self.lines) + 1:
            raise Violation(f"the leader decides entry {first_index} after entry {len(self.lines)}")
        self.lines += lines
        for line in lines:
            if b'"type":"assign"' in line[:40]:
                event = decode_line(line)
                assert isinstance(event, Assign)
                self._take_credit(event)

    def _take_credit(self, event: Assign) -> None:
        allowed = self.allowed.get(event.worker_id)
        if allowed is None:
            raise Violation(f"P4: entry {event.index} assigns to {event.worker_id}, which is not connected")
        left, sent_count = allowed
        if left <= 0:
            raise Violation(
                f"P4: entry {event.index} assigns to {event.worker_id}, which allows nothing more"
            )
        self.allowed[event.worker_id] = (left - 1, sent_count + 1)

    def worker_came(self, worker_id: str, credit: int) -> None:
        """A worker said hello, with this credit."""
        self.allowed[worker_id] = (credit, 0)

    def worker_went(self, worker_id: str) -> None:
        """It is not connected any more."""
        self.allowed.pop(worker_id, None)

    def worker_allows(self, worker_id: str, seen_count: int, more: int) -> None:
        """It has seen so many assigns, and takes so many more."""
        allowed = self.allowed.get(worker_id)
        if allowed is not None and seen_count <= allowed[1]:
            self.allowed[worker_id] = (max(more - (allowed[1] - seen_count), 0), allowed[1])

    def asked(self, effects: Sequence[AnyEffect], term: int) -> None:
        """What a leader of this term has just decided to answer; alone it is always the only one."""

    # -- what is committed and told

    def committed(self, index: int) -> None:
        """Everything up to here will never be taken back."""
        for line in self.lines[self.committed_index : index]:
            event = decode_line(line)
            self.ledger.read(event)
            self.twin.apply(event)
            self._check_committed(event)
            self.committed_index += 1
        if self.committed_index < index:
            raise Violation(f"P5: {index} is committed, but only {len(self.lines)} entries were decided")

    def _check_committed(self, event: AnyEvent) -> None:
        if isinstance(event, Ack):
            result = self.runs.get((event.job_id, event.fence))
            if result is None:
                raise Violation(f"entry {event.index} acks an attempt of {event.job_id} that never ran")
            if result != event.result:
                raise Violation(f"entry {event.index} acks {event.job_id} with another result than its run's")
        elif isinstance(event, SnapshotMarker) and self.twin.counts() != event.counts:
            raise Violation(f"P6: marker {event.index} counts {event.counts}, the log {self.twin.counts()}")

    def told(self, effect: AnyEffect) -> None:
        """The node lets this out."""
        if effect.index > self.committed_index:
            raise Violation(f"P5: {type(effect).__name__} of entry {effect.index} is told before its commit")
        self.told_index = max(self.told_index, effect.index)
        self.counts[f"told {type(effect).__name__}"] += 1
        if isinstance(effect, Accepted):
            self._told_accepted(effect)
        elif isinstance(effect, Ended):
            self._told_ended(effect)
        elif isinstance(effect, Assigned) and decode_line(self.lines[effect.index - 1]) != effect.event:
            raise Violation(f"P5: an assign is told that is not entry {effect.index}")
        elif isinstance(effect, AckDone) and not effect.is_late:
            self._told_ack_done(effect)

    def _told_accepted(self, effect: Accepted) -> None:
        if effect.first_id not in self.ledger.jobs:
            raise Violation(f"P1: {effect.job_id} is accepted as {effect.first_id}, which is not in the log")
        before = self.accepted_told.setdefault(effect.job_id, effect.first_id)
        if before == effect.first_id:
            return
        # Another answer than before: right only if the key of the first one had been forgotten, for its age.
        first = self.ledger.jobs[before].enqueue
        if first.at_us + self.ledger.settings.keys_keep_us > self.twin.last_at_us:
            raise Violation(f"P1: {effect.job_id} was accepted as {before} and now as {effect.first_id}")

    def _told_ended(self, effect: Ended) -> None:
        event = effect.event
        state = "done" if isinstance(event, Ack) else "cancelled" if isinstance(event, Cancel) else "dead"
        job = self.ledger.jobs[event.job_id]
        result = event.result if isinstance(event, Ack) else b""
        found = [final for final in job.finals if final[1:] == (state, result)]
        if not found or decode_line(self.lines[effect.index - 1]) != event:
            raise Violation(f"P2: {event.job_id} is told to be {state}, the log says {job.finals}")

    def _told_ack_done(self, effect: AckDone) -> None:
        if effect.job_id not in self.ledger.jobs:
            raise Violation(f"an ack of {effect.job_id} is confirmed, and the log does not know it")

    # -- what the others see

    def final_received(self, job_id: str, state: str, result: bytes | None) -> None:
        """A client was told how its job ended; null: that the result is not kept any more."""
        job = self.ledger.jobs.get(job_id)
        if job is None:
            raise Violation(f"P2: a client is told that {job_id} is {state}, and the log does not know it")
        ends = [(end, what if result is not None else None) for _, end, what in job.finals]
        if job.state == "dropped":
            ends.append(("dropped", b"" if result is not None else None))
        if (state, result) not in ends:
            raise Violation(f"P2: a client is told that {job_id} is {state} {result!r}, the log says {ends}")

    def run_began(self, job_id: str, fence: Fence) -> None:
        """A worker's handler begins."""
        if (job_id, fence) in self.runs:
            raise Violation(f"one worker runs attempt {fence} of {job_id} twice")
        self.runs[job_id, fence] = b""

    def run_ended(self, job_id: str, fence: Fence, result: bytes) -> None:
        """It returned."""
        self.runs[job_id, fence] = result

    # -- crashes

    def crashed(self) -> None:
        """The node is gone; who was connected is not any more."""
        self.allowed.clear()

    def recovered(self, machine: Machine, lines: Iterable[bytes], *, first_index: int) -> None:
        """What a recovery found: the state, and the entries after its snapshot."""
        found = list(lines)
        last_index = first_index + len(found) - 1
        if last_index != machine.last_index:
            raise Violation(
                f"P6: {last_index} entries are recovered, the state is as of {machine.last_index}"
            )
        if last_index < self.told_index:
            raise Violation(
                f"P1/P5: entry {self.told_index} was told and {last_index} are left after a crash"
            )
        if last_index < self.committed_index:
            raise Violation(f"P5: {self.committed_index} entries were committed, {last_index} are left")
        if found != self.lines[first_index - 1 : last_index]:
            raise Violation("P1: the log that was recovered is not the one that was decided")
        self.uncut_index = last_index
        del self.lines[last_index:]
        self.committed(last_index)  # a single voter commits all that it finds
        self.same_state(machine, "recovered")
        self.counts["recoveries"] += 1

    def same_state(self, machine: Machine, name: str) -> None:
        """P6: this state, byte for byte, is the one that the log makes."""
        self.audit(machine)
        mine, twin = list(dump_state(machine)), list(dump_state(self.twin))
        if mine != twin:
            differing = [pair for pair in zip(mine, twin, strict=False) if pair[0] != pair[1]][:2]
            raise Violation(f"P6: the {name} state differs from the log's: {differing or 'in length'}")

    def audit(self, machine: Machine) -> None:
        """The machine is sound, and it lives through its own snapshot."""
        try:
            audit(machine)
        except Broken as error:
            raise Violation(f"audit: {error}") from error

    # -- the end

    def dispose(self) -> None:
        """Let the memory go: jobs and lanes are cycles."""
        assert self.twin.queues is not None
        self.twin.queues.dispose()

    def final_check(self) -> None:
        """After the calm: the whole log once more, through a fresh machine, and through a snapshot."""
        fresh = Machine(is_indexed=False)
        middle = self.world.random.randint(0, len(self.lines))
        through: Machine | None = None
        for index, line in enumerate(self.lines, start=1):
            event = decode_line(line)
            fresh.apply(event)
            if through is not None:
                through.apply(event)
            if index == middle:
                through = load_state(list(dump_state(fresh)))
        self.same_state(self.twin, "twin's")
        if list(dump_state(fresh)) != list(dump_state(self.twin)):
            raise Violation("P6: folding without indexes gives another state")
        if through is not None:
            self.same_state(through, f"state through a snapshot at {middle}: its")
        for job_id, first_id in self.accepted_told.items():
            if first_id not in self.ledger.jobs:
                raise Violation(f"P1: {job_id} was accepted as {first_id} and is lost")


def audit_node(oracle: Oracle, leader: Leader) -> None:
    """The leader's own books, between two turns."""
    oracle.audit(leader.desk.machine)
    try:
        audit_leader(leader)
    except Broken as error:
        raise Violation(f"audit of the leader: {error}") from error
