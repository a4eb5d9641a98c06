"""The judge of a group: one committed log for all, and a witness beside each node.

It knows what every node has confirmed to have on disk, so it can count a majority itself, and it keeps
every entry that any node ever had, by index and term. The laws of the paper's figure 3 are checked at each
turn: election safety, log matching, leader completeness, state-machine safety; and rule 4 beside them.
"""

import hashlib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rollmq.core.effects import Answer, AnyEffect, Assigned, Refused
from rollmq.core.events import Assign, Member, Members
from rollmq.core.line import decode_line
from rollmq.core.machine import Machine
from rollmq.core.members import Configuration, configuration_of
from rollmq.core.raft_election import quorum_of
from rollmq.core.raft_ready import HardState, Write
from rollmq.core.state import dump_state
from tests.sim.oracle import Oracle
from tests.sim.world import Violation, World

if TYPE_CHECKING:
    from tests.groupsim.node import GroupNode

TIME_FASTER_MAX = 1.4
"""Log time may go faster than time: a monotonic clock may be too fast by 30 %, and 5 % are slewed."""
TIME_SLACK_US = 11_000_000
"""How far a leader's own clock is followed by slewing, and a little."""
TERM = re.compile(rb'"index":\d+,"term":(\d+),')


class GroupOracle(Oracle):
    """What the group as a whole has decided for good. `lines` is the committed log."""

    def __init__(self, world: World, founders: Configuration) -> None:
        super().__init__(world)
        self.terms: list[int] = []
        """Of the committed entries."""
        self.configuration = founders
        """As of the last committed entry."""
        self.members_event: Members | None = None
        self._time_bound_us = 0
        """No clock but a single one was ever ahead of this, and time that went on since is in it."""
        self._bound_at_us = 0
        self.leaders: dict[int, tuple[str, int]] = {}
        """By term: who led, in which of its lives."""
        self.entries: dict[tuple[int, int], tuple[bytes, int]] = {}
        """(index, term) of every entry that a node ever had: its line, and the term of the one before."""
        self.files: dict[str, tuple[str, str]] = {}
        """Sealed segments and snapshots by name: digest, and who had it first."""
        self.states: dict[int, tuple[str, str]] = {}
        """Digests of states by index, and who had it first."""

    @property
    def members(self) -> list[Member]:
        """As of the last committed entry."""
        return self.members_event.members if self.members_event is not None else []

    # -- laws

    def leads(self, node: "GroupNode", term: int) -> None:
        """Election safety (5.2), and leader completeness (5.4): all that is committed is in its log."""
        me = (node.name, node.boot_number)
        if self.leaders.setdefault(term, me) != me:
            raise Violation(f"election safety: {me} and {self.leaders[term]} lead in term {term}")
        log = node.replica.raft.log
        first_index = log.snapshot_index + 1
        terms = [log.term_at(index) for index in range(first_index, len(self.lines) + 1)]
        if terms != self.terms[log.snapshot_index :]:
            raise Violation(
                f"leader completeness: {node.name} leads term {term} with {log.last_index} entries, "
                f"{len(self.lines)} are committed"
            )

    def look_at_clocks(self, nodes: Sequence["GroupNode"]) -> None:
        """What is known of the time at this moment, by the second of all clocks: no majority is smaller."""
        *_, second_us, _ = sorted(node.wall_us for node in nodes if not node.is_gone)
        elapsed_us = self.world.now_us - self._bound_at_us
        self._bound_at_us = self.world.now_us
        self._time_bound_us = max(self._time_bound_us + int(elapsed_us * TIME_FASTER_MAX), second_us)

    def is_in_time(self, node: "GroupNode", line: bytes) -> None:
        """Rule 2: no clock alone moves log time forward. (It takes two of three; of five it takes three.)"""
        at_us = decode_line(line).at_us
        if at_us > self._time_bound_us + TIME_SLACK_US:
            ahead_s = (at_us - self._time_bound_us) / 1e6
            raise Violation(
                f"log time: {node.name} decides at a time that is {ahead_s:.1f} s ahead of all but one"
            )

    def has_entries(self, node: "GroupNode", first_index: int, lines: Sequence[bytes]) -> None:
        """Log matching (5.3): an index and a term name one entry, with one entry before it."""
        log = node.replica.raft.log
        for index, line in enumerate(lines, start=first_index):
            term, term_before = log.term_at(index), log.term_at(index - 1)
            assert term is not None
            if term_before is None:
                term_before = self.terms[index - 2] if index > 1 else 0
            found = self.entries.setdefault((index, term), (line, term_before))
            if found != (line, term_before):
                raise Violation(f"log matching: entry {index} of term {term} is another on {node.name}")

    def commits(self, node: "GroupNode", first_index: int, lines: Sequence[bytes]) -> None:
        """State-machine safety (5.4.3): what is committed at an index is so for all, for ever."""
        known = self.lines[first_index - 1 : first_index - 1 + len(lines)]
        if known != list(lines[: len(known)]):
            raise Violation(f"state-machine safety: {node.name} commits others from entry {first_index} on")
        new = lines[len(known) :]
        if not new:
            return
        if first_index + len(known) != len(self.lines) + 1:
            raise Violation(f"{node.name} commits {first_index}, {len(self.lines)} are known to be committed")
        for line in new:
            self._commit(node, line)
        self.committed(len(self.lines))

    def _commit(self, node: "GroupNode", line: bytes) -> None:
        event = decode_line(line)
        index = len(self.lines) + 1
        if event.index != index:
            raise Violation(f"{node.name} commits entry {event.index} as entry {index}")
        self.lines.append(line)
        self.terms.append(event.term)
        if isinstance(event, Members):
            self._check_members(event)
            self.configuration, self.members_event = configuration_of(event), event

    def _check_members(self, event: Members) -> None:
        """Thesis 4.1: one server at a time, so that majorities of neighbours have a node in common."""
        before, after = self.configuration.voters, configuration_of(event).voters
        if len(before ^ after) > 1:
            raise Violation(f"entry {event.index} changes the votes of {sorted(before ^ after)} at once")

    def is_on_majority(self, node: "GroupNode", index: int, nodes: Sequence["GroupNode"]) -> None:
        """Rule 4: what a leader commits is on the disks of a majority, by the members that it has in its log.

        Or by those that were committed: it may have appended others between committing and this look."""
        log = node.replica.raft.log
        term = log.term_at(index)
        on_disk = {each.node_id for each in nodes if each.has_on_disk(index, term)}
        for voters in (log.membership.current.voters, self.configuration.voters):
            if len(on_disk & voters) >= quorum_of(len(voters)):
                return
        names = [each.name for each in nodes if each.node_id in on_disk]
        raise Violation(f"P1: {node.name} commits entry {index}, which is only on the disks of {names}")

    # -- replicas, byte for byte

    def has_file(self, node: "GroupNode", name: str, content: bytes) -> None:
        """P6: a sealed segment or snapshot of this name has the same bytes everywhere."""
        digest = hashlib.sha256(content).hexdigest()
        first = self.files.setdefault(name, (digest, node.name))
        if first[0] != digest:
            raise Violation(f"P6: {name} of {node.name} is not that of {first[1]}")

    def has_state(self, node: "GroupNode", machine: Machine) -> None:
        """P6: whoever applied the same entries has the same state."""
        index = machine.last_index
        digest = hashlib.sha256(b"".join(dump_state(machine))).hexdigest()
        first = self.states.setdefault(index, (digest, node.name))
        if first[0] != digest:
            raise Violation(f"P6: the state at {index} of {node.name} is not that of {first[1]}")
        if index == self.twin.last_index:
            self.same_state(machine, f"{node.name}'s")


class Witness(Oracle):
    """Sees one node: what it tells, what it decides as a leader, and what it has promised to keep."""

    def __init__(self, group: GroupOracle) -> None:
        super().__init__(group.world)
        self.group = group
        self.lines, self.ledger, self.twin = group.lines, group.ledger, group.twin
        self.runs, self.accepted_told, self.counts = group.runs, group.accepted_told, group.counts
        self.is_eager = False
        """Assigns may be told before their commit (rule 3)."""
        self.on_disk: list[int] = []
        """Terms of the entries that this node has confirmed to have on disk, from entry 1 on."""
        self.vote = HardState()
        """Term and vote that are known to be on its disk."""
        self.installing = 0
        """The snapshot that is being put in place of the log; 0: none."""
        self.node_id = ""
        self.was_end_sure = self.had_vote = True
        """As far as repairs that did not end had found."""
        self.writing: Write | None = None
        """What may be on disk in part."""
        self._stale: list[AnyEffect] = []
        """Answers of a leader that another one had replaced when it was asked: they must never leave."""

    def decided(self, lines: Sequence[bytes], *, first_index: int) -> None:
        """Its leader has just decided these. (Whether they follow each other is log matching's.)"""
        del first_index
        for line in lines:
            if b'"type":"assign"' in line[:40]:
                event = decode_line(line)
                assert isinstance(event, Assign)
                self._take_credit(event)

    def asked(self, effects: Sequence[AnyEffect], term: int) -> None:
        """What this node, which takes itself for the leader of `term`, has just decided to answer."""
        if self.group.terms and self.group.terms[-1] > term:
            stale = [effect for effect in effects if isinstance(effect, Refused | Answer)]
            self.counts["asked in vain"] += len(stale)
            self._stale += stale

    def told(self, effect: AnyEffect) -> None:
        """P5, by this node's own commit index, which never runs ahead of the group's; and section 8."""
        assert self.committed_index <= len(self.lines)
        if any(effect is stale for stale in self._stale):
            raise Violation(
                f"{type(effect).__name__} of a leader that another had replaced when it was asked"
            )
        if self.is_eager and isinstance(effect, Assigned) and effect.index > self.committed_index:
            if effect.job.enqueued_index > self.committed_index:
                raise Violation(f"P5: {effect.event.job_id} is assigned early, and is itself not committed")
            self.counts["told early"] += 1
            return
        super().told(effect)

    def wrote(self, write: Write) -> None:
        """A write is durable."""
        self.writing = None
        self.vote = write.hard_state or self.vote
        if write.truncate_from is not None:
            del self.on_disk[write.truncate_from - 1 :]
        # Term and vote alone may be written while a snapshot takes the log's place.
        if write.lines and write.first_index != len(self.on_disk) + 1:
            raise Violation(f"entry {write.first_index} is written after entry {len(self.on_disk)}")
        self.on_disk += [term_of(line) for line in write.lines]

    def installed(self, index: int) -> None:
        """A snapshot as of this entry is on disk in place of the log."""
        self.installing = 0
        self.on_disk = self.group.terms[:index]

    def found(self, name: str, terms: Sequence[int], vote: HardState) -> None:
        """What a recovery found: at least what was confirmed, and whatever else had arrived."""
        write, self.writing = self.writing, None
        installing, self.installing = self.installing, 0
        if installing and len(terms) == installing:
            self.installed(installing)
        kept_count = len(self.on_disk)
        if write is not None and write.truncate_from is not None:
            kept_count = min(kept_count, write.truncate_from - 1)
        if list(terms[:kept_count]) != self.on_disk[:kept_count]:
            raise Violation(f"P1: {name} had {kept_count} entries on disk and starts with {len(terms)}")
        if vote not in (self.vote, write.hard_state if write is not None else self.vote):
            raise Violation(f"{name} had voted {self.vote} and starts with {vote}")
        self.on_disk, self.vote = list(terms), vote

    def healed(self, name: str, terms: Sequence[int], vote: HardState) -> None:
        """What a repaired node starts with (P8): all that it had confirmed; if the end was lost, all of that
        which is committed. A lost vote is never given twice."""
        is_end_sure, had_vote = self.was_end_sure, self.had_vote
        self.was_end_sure = self.had_vote = True
        committed, kept = self.group.terms, self.on_disk
        if self.writing is not None and self.writing.truncate_from is not None:
            kept = kept[: self.writing.truncate_from - 1]
        agreed = [
            index for index, pair in enumerate(zip(kept, committed, strict=False)) if pair[0] == pair[1]
        ]
        if is_end_sure and len(agreed) == min(len(kept), len(committed)):
            agreed = list(range(len(kept)))
        lost = [index + 1 for index in agreed if index >= len(terms) or terms[index] != kept[index]]
        if lost:
            raise Violation(f"P8: {name} had confirmed entry {lost[0]}, and is repaired without it")
        if had_vote and vote.term < self.vote.term:
            raise Violation(f"P8: {name} was in term {self.vote.term} and is repaired in {vote.term}")
        is_same_term = vote.term == self.vote.term and self.vote.voted_for is not None
        if is_same_term and vote.voted_for not in (self.vote.voted_for, self.node_id):
            raise Violation(f"P8: {name} had voted {self.vote} and is repaired with {vote}")
        self.writing, self.installing = None, 0
        self.on_disk, self.vote = list(terms), vote

    def interrupted(self, is_end_sure: bool, had_vote: bool) -> None:
        """A repair ended before it was done; what was lost before is lost for the next one too."""
        self.was_end_sure &= is_end_sure
        self.had_vote &= had_vote

    def crashed(self) -> None:
        """The node is gone; who was connected is not any more."""
        self.allowed.clear()
        self._stale.clear()
        self.committed_index = 0


def term_of(line: bytes) -> int:
    """The term of a line, read without decoding all of it."""
    found = TERM.search(line)
    assert found is not None, line[:80]
    return int(found[1])
