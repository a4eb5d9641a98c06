"""A group of Raft cores in one process: disks, a network and clocks that tests hold in their hands.

It is the smallest honest host: it does what `Ready` says, in that order, and nothing by itself. Whatever
is written is lost in a crash until `persist`. Every step checks the safety properties of the paper's
figure 3; a broken one is an AssertionError that names it.
"""

import hashlib
import json
import random
from collections.abc import Callable, Iterable

from rollmq.core.events import Member, Members
from rollmq.core.line import encode_line
from rollmq.core.members import Membership, configuration_of, is_members_line, members_in
from rollmq.core.raft import RaftCore
from rollmq.core.raft_log import RaftLog
from rollmq.core.raft_messages import AppendEntries, PeerMessage, TermRun
from rollmq.core.raft_ready import (
    HardState,
    RaftSettings,
    ReadChunk,
    ReadLines,
    Ready,
    Role,
    SnapshotFacts,
    Write,
    WriteChunk,
)

Entry = tuple[int, bytes]
MS = 1000


class Disk:
    """What survives a crash: term and vote, and lines with their terms."""

    def __init__(self) -> None:
        self.hard_state = HardState()
        self.entries: list[Entry] = []
        self.snapshot: SnapshotFacts | None = None
        """The newest one. Its file is all entries up to it, so that a disk always tells the whole log."""
        self.file = b""

    def write(self, write: Write, terms: list[int], *, lines_count: int | None = None) -> None:
        """Carry out a Write, or what a crash left of it: all but the last lines."""
        if write.hard_state is not None:
            self.hard_state = write.hard_state
        if write.truncate_from is not None:
            del self.entries[write.truncate_from - 1 :]
        assert len(self.entries) == write.first_index - 1, "lines are appended without a gap"
        entries = list(zip(terms, write.lines, strict=True))
        self.entries += entries if lines_count is None else entries[:lines_count]

    def term_runs(self) -> list[TermRun]:
        """The terms of the lines after the snapshot, as a store finds them when it reads them back."""
        runs: list[TermRun] = []
        term_before = self.snapshot.last_term if self.snapshot is not None else 0
        for index, (term, _) in enumerate(self.entries, start=1):
            if index > self.snapshot_index and term != term_before:
                runs.append((index, term))
                term_before = term
        return runs

    @property
    def snapshot_index(self) -> int:
        """The last entry in the snapshot; 0 without one."""
        return self.snapshot.last_index if self.snapshot is not None else 0

    def fold(self, index: int) -> None:
        """A snapshot as of this entry."""
        self.file = json.dumps([[term, line.decode()] for term, line in self.entries[:index]]).encode()
        digest = hashlib.sha256(self.file).hexdigest()
        self.snapshot = SnapshotFacts(index, self.entries[index - 1][0], digest, len(self.file))

    def install(self, facts: SnapshotFacts, file: bytes) -> bool:
        """Replace everything by a snapshot that was received; False when it is not what its digest says."""
        if hashlib.sha256(file).hexdigest() != facts.digest:
            return False
        self.snapshot, self.file = facts, file
        self.entries = [(term, line.encode()) for term, line in json.loads(file)]
        return True


class Node:
    """One core with its host's part. `core` is None while it is down."""

    def __init__(self, node_id: str, disk: Disk) -> None:
        self.node_id = node_id
        self.disk = disk
        self.core: RaftCore | None = None
        self.writing: tuple[Write, list[int]] | None = None
        self.reads: list[ReadLines] = []
        self.chunk_reads: list[ReadChunk] = []
        self.chunk: WriteChunk | None = None
        self.received = b""
        """What has come of a snapshot."""
        self.installing: SnapshotFacts | None = None
        self.released: list[bytes] = []
        """Lines whose effects this node has let out: committed, in order, since its last start."""
        self.cuts: list[int] = []
        self.readies: list[Ready] = []

    @property
    def raft(self) -> RaftCore:
        """The core of a node that runs."""
        assert self.core is not None, f"{self.node_id} is down"
        return self.core

    def entry(self, index: int) -> Entry:
        """An entry of the log as the core sees it, from memory or else from disk."""
        log = self.raft.log
        term = log.term_at(index)
        if index < log.held_index or term is None:
            entry = self.disk.entries[index - 1]
            assert term in (None, entry[0]), "the disk has what the log describes"
            return entry
        assert term is not None, "what is in memory has a term"
        return term, log.lines(index, index)[0]

    def entries(self) -> list[Entry]:
        """The whole log as the core sees it."""
        return [self.entry(index) for index in range(1, self.raft.log.last_index + 1)]


class Group:
    """Nodes n1, n2, … and what lies between them."""

    def __init__(
        self,
        size: int,
        *,
        seed: int = 0,
        settings: RaftSettings | None = None,
        disks: dict[str, Disk] | None = None,
        chance: Callable[[], float] | None = None,
    ) -> None:
        self.chance = chance or random.Random(seed).random
        self.settings = settings or RaftSettings()
        self.now_us = 0
        self.voters = frozenset(f"n{number}" for number in range(1, size + 1))
        disks = disks or {}
        self.nodes = {node_id: Node(node_id, disks.get(node_id) or Disk()) for node_id in sorted(self.voters)}
        self.network: list[PeerMessage] = []
        self.cut_links: set[tuple[str, str]] = set()
        self.leaders: dict[int, str] = {}
        self.committed: list[Entry] = []
        self.on_ready: Callable[[Node, Ready], None] = lambda _node, _ready: None
        for node_id in self.nodes:
            self.start(node_id)

    def __getitem__(self, node_id: str) -> RaftCore:
        return self.nodes[node_id].raft

    # Life of a node

    def start(self, node_id: str, *, has_vote: bool = True) -> None:
        """Start from what is on disk; nothing else is remembered."""
        node = self.nodes[node_id]
        assert node.core is None, "it runs already"
        disk = node.disk
        node.released = [line for _, line in disk.entries[: disk.snapshot_index]]
        node.core = RaftCore(
            node_id=node_id,
            voters=self.voters if node_id in self.voters else frozenset(),
            hard_state=disk.hard_state,
            log=RaftLog(
                snapshot_index=disk.snapshot_index,
                snapshot_term=disk.snapshot.last_term if disk.snapshot is not None else 0,
                term_runs=disk.term_runs(),
                last_index=len(disk.entries),
                membership=self._membership_on(disk),
                tail_bytes_max=self.settings.tail_bytes_max,
            ),
            settings=self.settings,
            chance=self.chance,
            now_us=self.now_us,
            has_vote=has_vote,
        )
        node.core.snapshot = disk.snapshot
        self.work(node_id)

    def _membership_on(self, disk: Disk) -> Membership | None:
        """What the entries on a disk say of it."""
        membership = None
        for index, (_, line) in enumerate(disk.entries, start=1):
            if is_members_line(line):
                if membership is None or index <= disk.snapshot_index:
                    membership = Membership(members_in(line), index=index)
                else:
                    membership.append(index, members_in(line))
        return membership

    def crash(self, node_id: str, *, lines_count: int = 0, begun: bool = False) -> None:
        """Lose what is not synced: all of the Write that is out, or (begun) all but its first lines."""
        node = self.nodes[node_id]
        if node.writing is not None and begun:
            node.disk.write(*node.writing, lines_count=lines_count)
        node.core = node.writing = node.chunk = node.installing = None
        node.received = b""
        node.reads.clear()
        node.chunk_reads.clear()

    def persist(self, node_id: str) -> None:
        """The Write that is out is synced."""
        node = self.nodes[node_id]
        if node.core is None or node.writing is None:
            return
        write, terms = node.writing
        node.writing = None
        node.disk.write(write, terms)
        self._post(write.messages_after)
        node.raft.persisted(write)
        self.work(node_id)

    def read(self, node_id: str) -> None:
        """The store answers what the core asked it to read."""
        node = self.nodes[node_id]
        requests, node.reads = node.reads, []
        for request in requests:
            found = node.disk.entries[request.first_index - 1 : request.last_index]
            is_there = request.first_index > node.disk.snapshot_index
            node.raft.lines_read(request, [line for _, line in found] if is_there else [])
        chunk_reads, node.chunk_reads = node.chunk_reads, []
        for chunk in chunk_reads:
            is_kept = chunk.snapshot == node.disk.snapshot
            data = node.disk.file[chunk.offset : chunk.offset + chunk.bytes_max]
            node.raft.chunk_read(chunk, data if is_kept else None)
        self.work(node_id)

    def receive(self, node_id: str) -> None:
        """The disk writes a piece of a snapshot, or installs one that is complete."""
        node = self.nodes[node_id]
        chunk, node.chunk = node.chunk, None
        if chunk is not None:
            node.received = node.received[: chunk.offset] + chunk.data
            node.raft.chunk_written(chunk)
        facts, node.installing = node.installing, None
        if facts is not None:
            assert node.writing is None or not node.writing[0].lines, "the log is quiet while it is replaced"
            if node.disk.install(facts, node.received):
                membership = self._membership_on(node.disk)
                node.released = [line for _, line in node.disk.entries]
                node.raft.snapshot_installed(
                    facts, membership.current if membership is not None else node.raft.log.membership.current
                )
                node.raft.snapshot = facts
            else:
                node.raft.install_refused()
        self.work(node_id)

    def fold(self, node_id: str, index: int | None = None) -> None:
        """This node's disk keeps a snapshot instead of its entries up to here (by default all released)."""
        node = self.nodes[node_id]
        node.disk.fold(len(node.released) if index is None else index)
        node.raft.snapshot = node.disk.snapshot
        node.raft.log.compact_to(node.disk.snapshot_index)
        self.work(node_id)

    # What a host does

    def work(self, node_id: str) -> None:
        """Do what Ready says until there is nothing to do."""
        node = self.nodes[node_id]
        while node.core is not None and (ready := node.core.ready()) is not None:
            self._do(node, node.core, ready)

    def _do(self, node: Node, core: RaftCore, ready: Ready) -> None:
        node.readies.append(ready)
        self.on_ready(node, ready)
        if ready.cut_from is not None:
            node.cuts.append(ready.cut_from)
            assert ready.cut_from > len(node.released), "what was released is cut"
        if ready.write is not None:
            assert node.writing is None, "one Write is out at a time"
            write = ready.write
            terms = [core.log.term_at(write.first_index + n) or 0 for n in range(len(write.lines))]
            node.writing = write, terms
        self._post(ready.messages)
        node.reads += ready.reads
        node.chunk_reads += ready.chunk_reads
        node.chunk = ready.chunk or node.chunk
        node.installing = ready.install or node.installing
        if ready.role is Role.LEADER:
            self._check_leader(node, ready.term)
        self._release(node, core)
        if core.needs_noop:
            core.propose_noop(b"noop-%d\n" % core.term)

    def _release(self, node: Node, core: RaftCore) -> None:
        for index in range(len(node.released) + 1, core.commit_index + 1):
            entry = node.entry(index)
            if index <= len(self.committed):
                assert self.committed[index - 1] == entry, f"state-machine safety at {index}"
            else:
                self.committed.append(entry)
            node.released.append(entry[1])
        core.applied(core.commit_index)

    def _check_leader(self, node: Node, term: int) -> None:
        if term in self.leaders:
            assert self.leaders[term] == node.node_id, f"election safety: two leaders in term {term}"
            return
        self.leaders[term] = node.node_id
        log = node.entries()
        assert log[: len(self.committed)] == self.committed, f"leader completeness in term {term}"

    def check_logs(self) -> None:
        """Log matching: two logs with an entry of the same index and term are equal up to it."""
        logs = [node.entries() for node in self.nodes.values() if node.core is not None]
        for number, one in enumerate(logs):
            for other in logs[number + 1 :]:
                last = max(
                    (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a[0] == b[0]), default=-1
                )
                assert one[: last + 1] == other[: last + 1], "log matching"

    # Network

    def _post(self, messages: Iterable[PeerMessage]) -> None:
        self.network += messages

    def cut(self, source: str, target: str) -> None:
        """From now on nothing gets from source to target."""
        self.cut_links.add((source, target))

    def isolate(self, node_id: str) -> None:
        """Nothing gets to or from this node."""
        for other in set(self.nodes) - {node_id}:
            self.cut(node_id, other)
            self.cut(other, node_id)

    def heal(self) -> None:
        """Every link works again."""
        self.cut_links.clear()

    def hand_over(self, message: PeerMessage) -> bool:
        """Give one message to its target. False when it is lost: a cut link, or the target is down."""
        target = self.nodes.get(message.target)
        is_cut = (message.source, message.target) in self.cut_links
        if is_cut or target is None or target.core is None:
            return False
        target.core.step(message)
        self.work(message.target)
        return True

    def deliver(self) -> int:
        """Hand over what is under way now, in order. Returns how many messages there were."""
        messages, self.network = self.network, []
        for message in messages:
            self.hand_over(message)
        return len(messages)

    # Shortcuts

    def tick(self, passed_us: int, *node_ids: str) -> None:
        """Time passes; these nodes (by default all that run) look at the clock."""
        self.now_us += passed_us
        for node_id in node_ids or tuple(self.nodes):
            if self.nodes[node_id].core is not None:
                self[node_id].tick(self.now_us)
                self.work(node_id)

    def settle(self) -> None:
        """Persist, read and deliver until nothing is left to do."""
        for _ in range(10_000):
            is_quiet = not self.deliver()
            for node_id, node in self.nodes.items():
                if node.writing is not None:
                    is_quiet = False
                    self.persist(node_id)
                if node.reads or node.chunk_reads:
                    is_quiet = False
                    self.read(node_id)
                if node.chunk is not None or node.installing is not None:
                    is_quiet = False
                    self.receive(node_id)
            if is_quiet:
                self.check_logs()
                return
        raise AssertionError("the group never comes to rest")

    def campaign(self, node_id: str) -> None:
        """This node stands for election now; the others forget that they heard a leader."""
        self.now_us += self.settings.election_us_max
        for other, node in self.nodes.items():
            if node.core is not None and other != node_id and node.core.role is not Role.LEADER:
                node.core.now_us = self.now_us
        self[node_id].now_us = self.now_us
        self[node_id].campaign()
        self.work(node_id)

    def elect(self, node_id: str) -> None:
        """Make this node leader, with its noop committed as far as the network allows."""
        self.campaign(node_id)
        self.settle()
        assert self[node_id].role is Role.LEADER, f"{node_id} was not elected"

    def propose(self, node_id: str, *lines: bytes) -> int:
        """A leader decides lines. Returns the first's index."""
        index = self[node_id].propose(lines)
        self.work(node_id)
        return index

    def join(self, node_id: str) -> None:
        """A node that knows nobody starts, with an empty disk."""
        self.nodes[node_id] = Node(node_id, Disk())
        self.start(node_id)

    def change_members(self, leader: str, *voters: str, learners: Iterable[str] = ()) -> int:
        """The leader decides who is a member, if it may; it holds from when it is in the log."""
        core = self[leader]
        problem = core.members_problem
        assert problem is None, problem
        members = [Member(v) for v in voters] + [Member(each, voter=False) for each in learners]
        event = Members(core.next_index, core.term, 0, "g", members)
        index = core.propose([encode_line(event)])
        core.members_proposed(index, configuration_of(event))
        self.work(leader)
        return index

    def sent(self, kind: type[PeerMessage], *, source: str | None = None) -> list[PeerMessage]:
        """The messages of a kind that are under way."""
        return [m for m in self.network if isinstance(m, kind) and source in (None, m.source)]

    def appends_from(self, source: str) -> list[AppendEntries]:
        """The AppendEntries of one node that are under way."""
        return [m for m in self.network if isinstance(m, AppendEntries) and m.source == source]


def disk_of(*terms: int, term: int | None = None, voted_for: str | None = None) -> Disk:
    """A disk whose log has entries of these terms; the term on it is by default the last entry's."""
    disk = Disk()
    disk.entries = [(t, b"%d.%d\n" % (t, index)) for index, t in enumerate(terms, start=1)]
    disk.hard_state = HardState(max(terms, default=0) if term is None else term, voted_for)
    return disk


def terms_of(node: Node) -> list[int]:
    """The terms of a node's log, in order."""
    return [term for term, _ in node.entries()]


def append(
    target: str, term: int, prev: tuple[int, int], *terms: int, source: str = "n2", commit: int = 0
) -> AppendEntries:
    """Lines of these terms after the entry prev = (index, term)."""
    first = prev[0] + 1
    runs = tuple((i, t) for i, t in enumerate(terms, start=first) if i == first or t != terms[i - first - 1])
    lines = [b"%d.%d\n" % (t, i) for i, t in enumerate(terms, start=first)]
    return AppendEntries(
        source,
        target,
        term,
        prev_index=prev[0],
        prev_term=prev[1],
        commit_index=commit,
        term_runs=runs,
        lines=lines,
    )
