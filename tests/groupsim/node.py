"""One node of a simulated group: the host of a replica that has peers, run as a node will run it.

It does what `Ready` says, over the real store on a disk that forgets. It decides nothing; what one voter
needs of a host is inherited from the simulator of one node.
"""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from rollmq.core.leader import Leader
from rollmq.core.raft_ready import ReadChunk, ReadLines, Ready, Role, SnapshotFacts, Write, WriteChunk
from rollmq.core.repair_messages import RepairAsk, RepairFetch, RepairHas, RepairPiece
from rollmq.errors import EntriesGone, SnapshotRefused
from rollmq.node.assembling import assemble, rebuild
from rollmq.store.layout import snapshot_name
from rollmq.store.opening import Recovered
from rollmq.store.store import Store
from rollmq.wire.peer import NodeMessage
from tests.groupsim.odd import OddNode
from tests.groupsim.oracle import GroupOracle, Witness
from tests.groupsim.patient import Patient
from tests.groupsim.swarm import GroupSwarm
from tests.groupsim.upkeep import GroupUpkeep
from tests.groupsim.ward import give_help
from tests.sim.door import SimDoor
from tests.sim.net import Link
from tests.sim.world import SECOND_US, Violation

if TYPE_CHECKING:
    from tests.groupsim.group import Group

LOAD_US: Final = (100, 200_000)
HELP_US: Final = (100, 20_000)
MS: Final = 1_000


def address_of(number: int) -> str:
    """Where the machine of this number listens."""
    return f"10.0.0.{number}:5000"


class GroupNode(OddNode, Patient):
    """One machine of a group, and the node process on it while it runs."""

    oracle: Witness
    swarm: GroupSwarm

    def __init__(self, group: "Group", name: str, node_id: str) -> None:
        super().__init__(group.world, Witness(group.oracle), group.swarm)
        self.group = group
        self.oracle.is_eager = group.swarm.is_eager
        self.name = name
        self.node_id = self.oracle.node_id = node_id
        self.disk_random = Random(f"disk/{group.world.seed}/{name}")
        self.drift = 1.0
        """How fast its monotonic clock goes."""
        self.is_paused = False
        self._held: list[Callable[[], None]] = []
        """What comes in while the process is stopped."""
        self._seen_index = 0
        self._sealed_index = 0
        self._raft_timer_us: int | None = None
        self._is_rebuild_due = self._was_leader = False
        self._told_leader: tuple[int, str | None] = (0, None)
        self.is_gone = False
        """Its disk was emptied, so this node is no more: the machine came back as another one."""

    @property
    def boot_number(self) -> int:
        """Which of its lives this is."""
        return self._boot_number

    @property
    def mono_us(self) -> int:
        return int((self.world.now_us - self._mono_base_us) * self.drift)

    @property
    def leader(self) -> Leader | None:
        return self.replica.leader if self.is_up and not self.is_paused else None

    @property
    def address(self) -> str:
        """Where it listens."""
        return address_of(int(self.name[1:]))

    def leader_address(self) -> str | None:
        leader_id = self.replica.raft.leader_id if self.is_up else None
        return self.group.by_id[leader_id].address if leader_id is not None else None

    @property
    def law(self) -> GroupOracle:
        """The group's judge."""
        return self.group.oracle

    def has_on_disk(self, index: int, term: int | None) -> bool:
        """Whether it has confirmed to have this entry on disk."""
        on_disk = self.oracle.on_disk
        return index <= len(on_disk) and on_disk[index - 1] == term

    # -- pauses

    def later(self, delay_us: int, call: Callable[[], None]) -> None:
        number = self._boot_number

        def do() -> None:
            if self.is_up and number == self._boot_number:
                self.input(call)

        self.world.after(delay_us, do)

    def input(self, call: Callable[[], None]) -> None:
        """Something happens in this process, or will once it goes on."""
        if self.is_paused:
            self._held.append(call)
        elif self.is_up:
            self._guard(call)

    def pause(self, for_us: int) -> None:
        """SIGSTOP, and SIGCONT later."""
        if not self.is_up or self.is_paused:
            return
        self.world.say(self.name, f"stands still for {for_us / 1e6:.2f} s")
        self.oracle.counts["pauses"] += 1
        self.is_paused = True
        number = self._boot_number

        def go_on() -> None:
            if self.is_paused and number == self._boot_number:
                self.go_on()

        self.world.after(for_us, go_on)

    def go_on(self) -> None:
        """All that came meanwhile is found at once."""
        self.is_paused = False
        held, self._held = self._held, []
        for call in held:
            self.input(call)

    def committed_count(self) -> int:
        return len(self.law.lines)

    # -- starting

    def boot(self) -> None:
        self.odd = ""
        if not self.is_gone:
            super().boot()

    def lose_everything(self) -> None:
        """The machine is gone with its disk, for good."""
        self.world.say(self.name, "loses its disk")
        self.oracle.counts["emptied disks"] += 1
        self.is_gone = True
        self.crash(is_power_cut=False)

    def _open(self) -> None:
        self.store, recovered = Store.open(
            self.disk, fresh_node_id=self.node_id, holder="sim", options=self._options()
        )
        assert self.store.identity.node_id == self.node_id
        if not self.store.identity.group:
            is_founder = self.node_id in self.group.founders
            self.store.set_group(self.group.uuid, sorted(self.group.founders) if is_founder else ())
        if recovered.torn is not None:
            self.oracle.counts["torn writes"] += 1
        self._mono_base_us = self.world.now_us - self.world.random.randrange(SECOND_US)
        self._show_what_was_found(recovered)
        self.is_ill, self.healed = False, None
        self.replica = assemble(
            self.store,
            recovered,
            settings=self.swarm.raft,
            chance=self.world.random.random,
            jitter=self.world.random.random,
            now_us=self.mono_us,
            is_eager=self.swarm.is_eager,
        )
        log = self.replica.raft.log
        self.world.say(self.name, f"is up: {log.last_index} entries, {log.applied_index} surely committed")
        self._seen_index = log.last_index
        self._sealed_index = 0
        self._raft_timer_us = None
        self._is_rebuild_due = self._was_leader = False
        self._told_leader = (0, None)
        self._held.clear()
        self.is_paused = False
        self.oracle.counts["recoveries"] += 1
        self.door = SimDoor(self)
        self.upkeep = GroupUpkeep(self)

    def _show_what_was_found(self, recovered: Recovered) -> None:
        """P1: what was confirmed is there, and nothing that no leader ever decided."""
        entries = [(entry.event.index, entry.event.term, entry.line) for entry in recovered.entries()]
        for index, term, line in entries:
            found = self.law.entries.get((index, term))
            if found is None or found[0] != line:
                raise Violation(f"P8: {self.name} starts with another entry {index} of term {term}")
        terms = self.law.terms[: recovered.state_index] + [term for _, term, _ in entries]
        if self.was_repaired:
            self.oracle.healed(self.name, terms, self.store.hard_state)
        else:
            self.oracle.found(self.name, terms, self.store.hard_state)

    # -- running

    def _tick(self) -> None:
        self.law.look_at_clocks(self.group.nodes)
        super()._tick()
        if self.world.happens(0.01) and self.is_up and not self.is_rebuilding and not self.odd:
            machine = self.replica.machine
            if machine.last_index <= self.replica.raft.commit_index:
                self.law.has_state(self, machine)

    def _settle(self, leader: Leader) -> None:
        """An operator sets what this run is to be like; a leader that falls may take it along."""
        if not self.group.is_settled and leader.desk.machine.is_settled:
            self.group.is_settled = True
            leader.operate.set_settings(self.swarm.settings, by="sim", to=None)

    @property
    def is_rebuilding(self) -> bool:
        """Its machine holds entries that were cut."""
        return self.replica.is_rebuilding

    @property
    def is_at_rest(self) -> bool:
        """Nothing that came is still to be acted upon."""
        if not self.is_up or self.is_rebuilding or self._turn_is_due or self.oracle.writing is not None:
            return False
        log = self.replica.raft.log
        return log.cut_from is None and not log.is_unwritten

    def receive(self, message: NodeMessage) -> None:
        """A peer's message arrives."""
        if self.ward is not None:
            if isinstance(message, RepairAsk | RepairFetch | RepairHas | RepairPiece):
                self.ward.take(message)
            return
        self.input(lambda: self._take(message))

    def _take(self, message: NodeMessage) -> None:
        self.set_time()
        if isinstance(message, RepairAsk | RepairFetch | RepairHas | RepairPiece):
            give_help(self, message)
            self.wake()
        else:
            self.replica.step(message)
            self.wake()

    def peer_was_reset(self, node_id: str) -> None:
        """The connection to a peer broke, and this side heard of it."""

        def take() -> None:
            self.set_time()
            self.replica.raft.peer_reset(node_id)
            self.wake()

        self.input(take)

    def turn(self) -> None:
        """Do what the replica says until it says nothing more."""
        self._turn_is_due = False
        while True:
            self._look()
            work = self.replica.ready()
            self._watch()
            if work.raft is None and not work.effects:
                break
            self._is_rebuild_due |= work.needs_rebuild
            if work.raft is not None:
                self._do(work.raft)
            self.door.tell_all(work.effects)
        known = (self.replica.raft.term, self.leader_address())
        if known != self._told_leader:
            self._told_leader = known
            self.door.announce_leader()
        self.door.flush()
        if work.is_unfinished:
            self.wake()
        self._rebuild_if_due()
        self._seal_what_is_due()
        self._arm_raft_timer()

    def _do(self, ready: Ready) -> None:
        if ready.write is not None:
            self._persist(ready.write)
        for message in ready.messages:
            self.group.peers.send(message)
        for request in ready.reads:
            self.do("read", partial(self._read, request), self.turn)
        for asked in ready.chunk_reads:
            self.later(self.world.between(LOAD_US), partial(self._read_chunk, asked))
        if ready.chunk is not None:
            self.do(
                "chunk", partial(self.store.write_chunk, ready.chunk), partial(self._has_chunk, ready.chunk)
            )
        if ready.install is not None:
            self.do(
                "install", partial(self._install, ready.install), partial(self._load_installed, ready.install)
            )
        is_leader = ready.role is Role.LEADER
        if is_leader and ready.role_changed:
            self.world.say(self.name, f"leads in term {ready.term}")
            self.law.leads(self, ready.term)
            if self.odd == "state":
                # What it would decide is out of a wrong state, and nothing in the log would say so.
                self.later(0, lambda: self.crash(is_power_cut=False))
            self.oracle.counts["leaders"] += 1
        elif self._was_leader and not is_leader:
            self.world.say(self.name, f"leads no more, term {ready.term}")
            self.oracle.allowed.clear()
            self.door.send_away()
        self._was_leader = is_leader

    def _look(self) -> None:
        """Show the oracle what has become committed. Nothing of it is applied yet, so it is in memory."""
        log = self.replica.raft.log
        first_index = self.oracle.committed_index + 1
        if log.commit_index < first_index:
            return
        if first_index <= log.applied_index:
            first_index = log.applied_index + 1  # It has just started: that was checked in an earlier life.
        if first_index <= log.commit_index:
            self.law.commits(self, first_index, self._lines(first_index, log.commit_index))
            if self.replica.raft.role is Role.LEADER:
                self.law.is_on_majority(self, log.commit_index, self.group.nodes)
        self.oracle.committed_index = log.commit_index

    def _lines(self, first_index: int, last_index: int) -> list[bytes]:
        """From memory, or what is older from the store."""
        held_index, lines = self.replica.raft.log.held_index, list[bytes]()
        while first_index + len(lines) < min(held_index, last_index + 1):
            lines += self.store.read_lines(first_index + len(lines), 1 << 20)
        del lines[max(min(held_index, last_index + 1) - first_index, 0) :]
        if held_index <= last_index:
            lines += self.replica.raft.log.lines(max(first_index, held_index), last_index)
        return lines

    def _watch(self) -> None:
        """Show the oracle what is new in this node's log, and what its leader has decided."""
        log = self.replica.raft.log
        self._seen_index = min(self._seen_index, (log.truncate_from or log.last_index + 1) - 1)
        first_index = max(self._seen_index + 1, log.held_index)
        if first_index <= log.last_index:
            lines = log.lines(first_index, log.last_index)
            self.law.has_entries(self, first_index, lines)
            if self.leader is not None:
                own = [n for n in range(first_index, log.last_index + 1) if log.term_at(n) == log.last_term]
                self.oracle.decided(lines[len(lines) - len(own) :], first_index=own[0])
                self.law.look_at_clocks(self.group.nodes)
                self.law.is_in_time(self, lines[-1])
            self._seen_index = log.last_index

    def _arm_raft_timer(self) -> None:
        """Heartbeats and elections are finer than the host's tick."""
        due_us = self.world.now_us + max(
            int((self.replica.raft.deadline_us - self.mono_us) / self.drift) + 1, MS
        )
        if self._raft_timer_us is not None and self._raft_timer_us <= due_us:
            return
        self._raft_timer_us = due_us

        def ring() -> None:
            if self._raft_timer_us == due_us:
                self._raft_timer_us = None
                self._turn_now()

        self.later(due_us - self.world.now_us, ring)

    # -- the disk

    def _persist(self, write: Write) -> None:
        self.oracle.writing = write
        super()._persist(write)

    def _written(self, write: Write) -> None:
        self.set_time()
        self.oracle.wrote(write)
        for message in write.messages_after:
            self.group.peers.send(message)
        self.replica.persisted(write)
        self.turn()

    def _read(self, request: ReadLines) -> None:
        """Lines that are no longer in memory."""
        count = request.last_index + 1 - request.first_index
        try:
            lines = self.store.read_lines(request.first_index, request.bytes_max)[:count]
        except EntriesGone:
            lines = []
        self.set_time()
        self.replica.raft.lines_read(request, lines)

    # -- snapshots of other nodes

    def _read_chunk(self, request: ReadChunk) -> None:
        """A piece of this node's snapshot for a follower."""
        data = self.store.read_chunk(request.snapshot.last_index, request.offset, request.bytes_max)
        self.set_time()
        self.replica.raft.chunk_read(request, data)
        self.turn()

    def _has_chunk(self, chunk: WriteChunk) -> None:
        self.set_time()
        self.replica.raft.chunk_written(chunk)
        self.turn()

    def _install(self, facts: SnapshotFacts) -> None:
        self.oracle.installing = facts.last_index
        try:
            self.store.install(facts)
        except SnapshotRefused as error:
            raise Violation(f"P8: {self.name} received another snapshot than was sent: {error}") from error
        self.oracle.installed(facts.last_index)
        self.law.has_file(
            self, f"snapshot {facts.last_index}", self.disk.content(snapshot_name(facts.last_index))
        )
        self._sealed_index = facts.last_index

    def _load_installed(self, facts: SnapshotFacts) -> None:
        self.later(self.world.between(LOAD_US), partial(self._installed, facts))

    def _installed(self, facts: SnapshotFacts) -> None:
        machine = rebuild(self.store, facts.last_index)
        self.law.has_state(self, machine)
        self.set_time()
        self.replica.installed(facts, machine)
        self.odd = ""
        self._is_rebuild_due = False
        self._seen_index = facts.last_index
        self.world.say(self.name, f"has installed a snapshot of {facts.last_index} entries")
        self.oracle.counts["installed snapshots"] += 1
        self.upkeep._tell_snapshot()
        self.turn()

    def _seal_what_is_due(self) -> None:
        log, marker_index = self.replica.raft.log, self.replica.segment_first_index - 1
        if not self.is_rebuilding and self._sealed_index < marker_index <= min(
            log.commit_index, log.persisted_index
        ):
            self._sealed_index = marker_index
            self.upkeep.seal()

    # -- rebuilding

    def _rebuild_if_due(self) -> None:
        """Once the cut is on disk: what is loaded must be the log's."""
        log = self.replica.raft.log
        last_index = min(log.persisted_index, log.commit_index)
        is_cut = log.truncate_from is None and self.oracle.writing is None
        if self._is_rebuild_due and is_cut and last_index >= log.applied_index:
            self._is_rebuild_due = False
            self.later(self.world.between(LOAD_US), lambda: self.do("rebuild", self._load_anew, self.turn))

    def _load_anew(self) -> None:
        """The newest snapshot, then the log after it, at least to the end of what is sealed. (As the node's
        Rebuilder: not while a snapshot takes the log's place, which brings the state with it.)"""
        log = self.replica.raft.log
        if not self.is_rebuilding or self.replica.raft.is_installing:
            self._is_rebuild_due = self.is_rebuilding
            return
        last_index = min(log.persisted_index, log.commit_index)
        self.world.say(self.name, f"rebuilds its state up to {last_index}")
        self.oracle.counts["rebuilds"] += 1
        self.replica.rebuilt(rebuild(self.store, last_index), self.store.segment_digest(last_index + 1))
        self.odd = ""

    # -- a polite end

    def drain(self) -> None:
        """A polite restart: the leadership is handed over, what runs may finish, the store is closed."""
        if not self.is_up or self.is_drained or self.is_paused:
            return
        self.world.say(self.name, "drains")
        self.is_drained = True
        self.set_time()
        if self.leader is not None:
            self.leader.intake.is_draining = True
            self.replica.raft.transfer()
        self.door.say_goodbye()
        self.wake()
        self.later(self.world.between((0, 3 * SECOND_US)), self._close)

    def _end(self) -> None:
        super()._end()
        self.is_paused = False
        self._held.clear()
        self.group.was_reset(self)

    def dial(self, link: Link) -> bool:
        if not self.is_up or self.is_paused:
            return False
        self.door.dialed(link.b)
        end, on_data, on_closed = link.b, link.b.on_data, link.b.on_closed
        end.on_data = lambda data: self.input(lambda: on_data(data))
        end.on_closed = lambda: self.input(on_closed)
        return True
