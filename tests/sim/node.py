"""The simulated host: a replica on a disk that loses what it may lose, run as a node will run it.

One store thread does one thing at a time; what is decided meanwhile goes into the next write. The machine
may stop at any call of the store, and starts again with the real recovery. It decides nothing.
"""

import hashlib
from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

from rollmq.core.leader import Leader
from rollmq.core.machine import Machine
from rollmq.core.raft import RaftCore
from rollmq.core.raft_log import RaftLog
from rollmq.core.raft_messages import TermRun
from rollmq.core.raft_ready import Write
from rollmq.core.replica import Replica
from rollmq.core.segment_digest import is_marker_line
from rollmq.core.state import load_state
from rollmq.errors import StateError, StoreFailed
from rollmq.store.opening import Recovered, StoreOptions
from rollmq.store.store import Store
from tests.sim.door import SimDoor
from tests.sim.net import Link
from tests.sim.oracle import Oracle, audit_node
from tests.sim.sim_disk import PowerCut, SimDisk
from tests.sim.swarm import Swarm
from tests.sim.upkeep import Upkeep
from tests.sim.world import SECOND_US, Violation, World

WALL_US: Final = 1_763_490_000_000_000
ADDRESS: Final = "10.0.0.1:5000"
STALL_US: Final = (SECOND_US, 30 * SECOND_US)
AUDIT_EVERY: Final = 40


class SimNode:
    """One machine, and the node process on it while it runs."""

    def __init__(self, world: World, oracle: Oracle, swarm: Swarm) -> None:
        self.name = "node"
        self.world = world
        self.oracle = oracle
        self.swarm = swarm
        self.faults = swarm.node
        self.disk = SimDisk()
        self.disk_random = Random(f"disk/{world.seed}")
        self.wall_offset_us = 0
        self.replica: Replica
        self.store: Store
        self.door: SimDoor
        self.upkeep: Upkeep
        self.is_up = False
        self.is_drained = False
        self.is_settled = False
        """An operator has set this run's settings."""
        self._boot_number = 0
        self._mono_base_us = 0
        self._turn_is_due = False
        self._ticks = 0
        self._queue: deque[tuple[str, Callable[[], object], Callable[[], None]]] = deque()
        self._busy: tuple[str, Callable[[], object], Callable[[], None]] | None = None

    # -- clocks

    @property
    def mono_us(self) -> int:
        """This process' monotonic clock."""
        return self.world.now_us - self._mono_base_us

    @property
    def wall_us(self) -> int:
        """What this machine takes for the time."""
        return WALL_US + self.world.now_us + self.wall_offset_us

    @property
    def leader(self) -> Leader | None:
        """The leader while this node is up and leads."""
        return self.replica.leader if self.is_up else None

    def leader_address(self) -> str | None:
        """Where clients and workers are to go."""
        return ADDRESS if self.leader is not None else None

    def set_time(self) -> None:
        """Once before each input."""
        self.replica.set_time(mono_us=self.mono_us, wall_us=self.wall_us)

    def later(self, delay_us: int, call: Callable[[], None]) -> None:
        """Something that this process does later, if it still lives then."""
        number = self._boot_number

        def do() -> None:
            if self.is_up and number == self._boot_number:
                self._guard(call)

        self.world.after(delay_us, do)

    def _guard(self, call: Callable[[], object]) -> None:
        """Whatever this process does may stop it: the power in any call of the disk, a failed write."""
        try:
            call()
        except PowerCut as cut:
            self.world.say(self.name, f"stops at {cut}")
            self._busy = None
            self.crash(is_power_cut=self.world.happens(self.faults.power_cut))
        except StoreFailed as error:
            self.world.say(self.name, f"stops: {error.path}: {error.__cause__}")
            self.oracle.counts["failed writes"] += 1
            self._busy = None
            self.crash(is_power_cut=False)

    # -- starting

    def boot(self) -> None:
        """Start the process: recover what the disk holds, and go on."""
        assert not self.is_up
        if not self.world.is_calm and self.world.happens(self.faults.boot_crash):
            self.disk.stop_at = self.disk.calls + self.world.random.randrange(40)
        try:
            self._open()
        except PowerCut as cut:
            self.world.say(self.name, f"the power goes during recovery, at {cut}")
            self._lose_power()
            self.world.after(self.world.between(self.faults.down_us), self.boot)
            return
        except StoreFailed as error:
            self.world.say(self.name, f"cannot start: {error.path}: {error.__cause__}")
            self.disk.kill()
            self.world.after(SECOND_US, self.boot)
            return
        except StateError as error:
            self.disk.stop_at = None
            self._refused(error)
            return
        self.disk.stop_at = None
        self.is_up, self.is_drained = True, False
        self._boot_number += 1
        self.later(0, self._tick)

    def _refused(self, error: StateError) -> None:
        """The directory is damaged, it says."""
        raise Violation(f"P1: recovery refuses to start: {error}") from error

    def _open(self) -> None:
        self.store, recovered = Store.open(
            self.disk,
            fresh_node_id=f"{self.world.random.getrandbits(128):032x}",
            holder="sim",
            options=self._options(),
        )
        node_id = self.store.identity.node_id
        if not self.store.identity.group:
            self.store.set_group(hashlib.sha256(node_id.encode()).hexdigest()[:32])
        machine, lines, runs = self._load(recovered)
        if recovered.torn is not None:
            self.oracle.counts["torn writes"] += 1
        self.world.say(
            self.name, f"is up: {machine.last_index} entries, {recovered.state_index} in a snapshot"
        )
        self.oracle.recovered(machine, lines, first_index=recovered.state_index + 1)
        self._mono_base_us = self.world.now_us - self.world.random.randrange(SECOND_US)
        raft = RaftCore(
            node_id=node_id,
            voters=frozenset([node_id]),
            hard_state=self.store.hard_state,
            log=RaftLog(
                snapshot_index=recovered.state_index,
                snapshot_term=recovered.state.last_term if recovered.state is not None else 0,
                term_runs=runs,
                last_index=recovered.last_index,
                tail_bytes_max=self.swarm.raft.tail_bytes_max,
            ),
            settings=self.swarm.raft,
            chance=self.world.random.random,
            now_us=self.mono_us,
        )
        self.replica = Replica(
            raft,
            machine,
            self.store.segment_digest(),
            group=self.store.identity.group,
            founders=[node_id],
            jitter=self.world.random.random,
        )
        self.door = SimDoor(self)
        self.upkeep = Upkeep(self)

    def _options(self) -> StoreOptions:
        is_tight = self.faults.full_every_us > 0
        return StoreOptions(
            disk_free_bytes_min=20_000 if is_tight else 0,
            ballast_bytes=10_000 if is_tight else 0,
            snapshot_every_entries=self.swarm.snapshot_every_entries,
            keep_history_bytes=self.swarm.keep_history_bytes,
        )

    @staticmethod
    def _load(recovered: Recovered) -> tuple[Machine, list[bytes], list[TermRun]]:
        machine = load_state(recovered.state_lines()) if recovered.state is not None else Machine()
        lines: list[bytes] = []
        runs: list[TermRun] = []
        for entry in recovered.entries():
            if entry.event.term != machine.last_term:
                runs.append((entry.event.index, entry.event.term))
            machine.apply(entry.event)
            lines.append(entry.line)
        return machine, lines, runs

    # -- running

    def _tick(self) -> None:
        self.later(self.swarm.tick_us, self._tick)
        self._ticks += 1
        self.set_time()
        self.replica.tell_disk(is_low=self.store.is_disk_low())
        leader = self.replica.leader
        if leader is not None:
            self._settle(leader)
        self.replica.tick()
        self.door.tick()
        self.upkeep.tick()
        self.turn()
        leader = self.leader
        if leader is not None and self._ticks % AUDIT_EVERY == 0:
            self._audit(leader)

    def _audit(self, leader: Leader) -> None:
        audit_node(self.oracle, leader)

    def _settle(self, leader: Leader) -> None:
        """An operator sets what this run is to be like."""
        if not self.is_settled and leader.desk.machine.is_settled:
            self.is_settled = True
            leader.operate.set_settings(self.swarm.settings, by="sim", to=None)

    def wake(self) -> None:
        """Something came: decide soon."""
        if not self._turn_is_due and self.is_up:
            self._turn_is_due = True
            self.later(self.world.random.randint(0, self.swarm.turn_us), self._turn_now)

    def _turn_now(self) -> None:
        self.set_time()
        self.turn()

    def turn(self) -> None:
        """Do what the replica says until it says nothing more."""
        self._turn_is_due = False
        while True:
            work = self.replica.ready()
            self._watch()
            assert not work.needs_rebuild, "a single voter cuts nothing"
            if work.raft is None and not work.effects:
                break
            if work.raft is not None:
                self.oracle.committed(work.raft.commit_index)
                if work.raft.write is not None:
                    self._persist(work.raft.write)
            self.door.tell_all(work.effects)
        self.door.flush()

    def _watch(self) -> None:
        """Show the oracle what was decided just now."""
        log, first_index = self.replica.raft.log, len(self.oracle.lines) + 1
        if log.last_index >= first_index:
            self.oracle.decided(log.lines(first_index, log.last_index), first_index=first_index)

    def _persist(self, write: Write) -> None:
        self.do(
            f"write of {len(write.lines)}", partial(self.store.persist, write), partial(self._written, write)
        )

    def _written(self, write: Write) -> None:
        self.set_time()
        self.replica.persisted(write)
        has_marker = any(is_marker_line(line) for line in write.lines)
        if has_marker and self.world.happens(0.5):
            self.upkeep.seal()
            has_marker = False
        self.turn()
        if has_marker:
            self.upkeep.seal()

    # -- the store thread

    def do(self, what: str, work: Callable[[], object], then: Callable[[], None]) -> None:
        """Let the store thread do something, after what it has to do already."""
        self._queue.append((what, work, then))
        self._begin_next()

    def _begin_next(self) -> None:
        if self._busy is not None or not self._queue:
            return
        self._busy = self._queue.popleft()
        delay_us = self.world.between(self.faults.sync_us)
        if not self.world.is_calm and self.world.happens(self.faults.stall):
            delay_us += self.world.between(STALL_US)
            self.world.say("disk", f"stalls for {delay_us / 1e6:.1f} s")
        self.later(delay_us, self._finish)

    def _finish(self) -> None:
        assert self._busy is not None
        _, work, then = self._busy
        work()
        self._busy = None
        then()
        self._begin_next()

    # -- ending

    def crash(self, *, is_power_cut: bool) -> None:
        """The machine, or only the process, ends at this instant."""
        if not self.is_up:
            return
        if self._busy is not None and self.world.happens(self.faults.in_call):
            self._half_do(self._busy[1])
        self._end()
        if is_power_cut:
            self._lose_power()
        else:
            self.world.say(self.name, "is killed")
            self.disk.kill()
        self.oracle.counts["power cuts" if is_power_cut else "kills"] += 1
        for end in self.door.ends():
            if is_power_cut and self.world.happens(0.3):
                end.vanish()
            else:
                end._link.snap()
                end.is_open = False
        self.world.after(self.world.between(self.faults.down_us), self.boot)

    def _half_do(self, work: Callable[[], object]) -> None:
        """Some of the calls of what the disk is doing are done, the next one half."""
        self.disk.stop_at = self.disk.calls + self.world.random.randrange(12)
        try:
            work()
        except PowerCut as cut:
            self.world.say(self.name, f"was in the middle of: {cut}")
        except StoreFailed as error:
            self.world.say(self.name, f"had just failed: {error.__cause__}")
        self.disk.stop_at = None

    def _lose_power(self) -> None:
        self.world.say(self.name, "loses power")
        self.disk.crash(self.disk_random)

    def _end(self) -> None:
        self.is_up = False
        self._queue.clear()
        self._busy = None
        self._turn_is_due = False
        self.dispose()
        self.oracle.crashed()

    def dispose(self) -> None:
        """Jobs and lanes are cycles that no collector frees: a process' end does, and here nobody ends."""
        queues = self.replica.machine.queues
        assert queues is not None
        queues.dispose()

    def drain(self) -> None:
        """A polite restart: nothing new is accepted, what runs may finish, the store is closed."""
        if self.leader is None or self.is_drained:
            return
        self.world.say(self.name, "drains")
        self.is_drained = True
        self.leader.intake.is_draining = True
        self.door.say_goodbye()
        self.wake()
        self.later(self.world.between((0, 3 * SECOND_US)), self._close)

    def _close(self) -> None:
        if self._busy is not None or self._queue:
            self.later(1_000, self._close)
            return
        try:
            self.store.close()
        except StoreFailed as error:
            self.world.say(self.name, f"fails to close: {error.__cause__}")
        except PowerCut as cut:
            self.world.say(self.name, f"stops while closing, at {cut}")
        self.door.flush()
        for end in self.door.ends():
            end.close()
        self._end()
        self.disk.kill()
        self.world.say(self.name, "is closed")
        self.oracle.counts["drains"] += 1
        self.world.after(self.world.between(self.faults.down_us), self.boot)

    # -- rot

    def rotten_copy_is_seen(self) -> None:
        """P8: one byte of a copy of the disk changes. A start refuses, or it finds the very same state."""
        random, disk = self.disk_random, self.disk.copy()
        name = random.choice([name for name, content in disk.files().items() if content])
        offset = random.randrange(len(disk.content(name)))
        disk.rot(name, offset, 1 << random.randrange(8))
        try:
            _, recovered = Store.open(disk, fresh_node_id="0" * 32, options=self._options())
            machine, _, _ = self._load(recovered)
        except StateError:
            self.oracle.counts["rot refused"] += 1
            return
        if recovered.identity != self.store.identity or recovered.hard_state != self.store.hard_state:
            raise Violation(f"P8: {name} is damaged at byte {offset}, and this is another node now")
        self.oracle.counts["rot harmless"] += 1
        self.oracle.same_state(machine, f"state with {name} damaged at byte {offset}: its")

    # -- the way in

    def dial(self, link: Link) -> bool:
        """Somebody connects; False: nobody listens."""
        if not self.is_up:
            return False
        self.door.dialed(link.b)
        return True
