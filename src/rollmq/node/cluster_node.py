"""The host of one replica on an event loop: time and bytes in, writes and frames out.

Only it touches the Raft core and the machine, all on one loop, so there are no locks. Nothing here blocks:
the disk is the store thread's, reading the log back is another's. A turn does what the replica says, and
tells what is committed; what arrives while a write runs goes into the next one.
"""

import asyncio
import random
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from rollmq.core import regroup
from rollmq.core.events import Member
from rollmq.core.leader import Leader
from rollmq.core.operate import Refusal
from rollmq.core.raft_messages import PeerMessage
from rollmq.core.raft_ready import Ready, Role, Write
from rollmq.core.repair_messages import RepairMessage
from rollmq.limits import TURN_GAP_MAX_US, UNSENT_BYTES_ALL_MAX
from rollmq.node.archive import Shipper
from rollmq.node.conn import Conn
from rollmq.node.dialing import Dialer
from rollmq.node.door import Door
from rollmq.node.installing import Installer
from rollmq.node.log_reader import LogServer
from rollmq.node.logs import EventLog
from rollmq.node.peer_hello import PeerFacts, PeerIdentity
from rollmq.node.peers import Peers
from rollmq.node.problems import problems_of
from rollmq.node.query_status import NodeFacts
from rollmq.node.rebuilding import Rebuilder
from rollmq.node.repair_help import RepairHelp
from rollmq.node.starting import Started, mono_us, wall_us
from rollmq.node.store_thread import StoreThread
from rollmq.node.upkeep import Upkeep
from rollmq.wire.error_codes import ErrorCode
from rollmq.wire.message import Frame
from rollmq.wire.peer_headers import LeaderHelloHeader

TICK_S: Final = 0.02
"""How often due things are looked at: delays and timeouts are this exact, and a quiet node sleeps."""
TICK_US: Final = int(TICK_S * 1e6)
CHECKS_PER_TICK: Final = 256
"""Connections whose silence is looked at in one tick: ten thousand are through in a second."""


class ClusterNode:
    """One node: a replica, its store, its connections."""

    def __init__(
        self,
        started: Started,
        directory: Path,
        *,
        log: EventLog,
        me: PeerIdentity,
        peers: Sequence[str],
        archive: str = "",
        on_stop: Callable[[str], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.store = started.store
        self.replica = started.replica
        self.token = me.token
        self.node_id = self.store.identity.node_id
        self.group = self.store.identity.group
        self._address = me.address
        self._log = log
        self._on_stop = on_stop
        self._began_us = mono_us()
        self._mono_us = self._began_us
        self._turn_is_due = False
        self._alarm_us = 0
        """When the loop begins a turn because Raft has something to do before the next tick."""
        self._told_leader: tuple[int, str | None] = (0, None)
        """Term and address, as watchers were told."""
        self._told_role: tuple[int, Role, str | None] | None = None
        self._sealed_index = 0
        """The newest marker for which sealing was asked."""
        self._checked: list[Conn] = []
        self._ticker: asyncio.TimerHandle | None = None
        self._store_thread = StoreThread(self.loop, on_failure)
        shipper = self._shipper(archive, directory) if archive else None
        free_bytes = started.disk.free_bytes
        self.upkeep = Upkeep(
            self.store, self._store_thread, directory, log=log, free_bytes=free_bytes, archive=shipper
        )
        self.door = Door(self, holds_confirmations=True)
        self.reader = LogServer(
            self.loop,
            self.store,
            commit_index=lambda: min(self.replica.raft.commit_index, self.store.next_index - 1),
            flush=self.door.flush,
            group=self.group,
        )
        parts = (self.replica, self.store, self._store_thread)
        self._rebuilder = Rebuilder(*parts, log=log, done=self.begin_turn, on_failure=on_failure)
        self._installer = Installer(*parts, log=log, begin_turn=self.begin_turn, on_failure=on_failure)
        self._help = RepairHelp(self.replica.raft, self.store, log=log, send=self._send_help)
        self._dialer = Dialer()
        self.peers = Peers(
            self,
            me,
            addresses=peers,
            dial=self._dialer.dial,
            chance=random.random,
            new_id=lambda: secrets.token_bytes(16),
        )
        self._told_refusals: dict[str, str] = {}
        self._tick()

    def _shipper(self, archive: str, directory: Path) -> Shipper:
        return Shipper(
            archive,
            directory,
            group=self.group,
            node_id=self.node_id,
            sealed=self.store.sealed,
            log=self._log,
        )

    # -- what the door asks

    @property
    def leader(self) -> Leader | None:
        """The leader, while this node leads."""
        return self.replica.leader

    @property
    def term(self) -> int:
        """Raft's term."""
        return self.replica.raft.term

    def leader_address(self) -> str | None:
        """Where clients and workers are to go."""
        if self.replica.leader is not None:
            return self._address
        leader_id = self.replica.raft.leader_id
        return self.peers.address_of(leader_id) if leader_id not in (None, self.node_id) else None

    def why_no_leader(self) -> str:
        """For people: whom a majority lacks."""
        if self.leader_address() is not None:
            return ""
        unreached = [f"{address} ({why})" for address, why in self.peers.unreached()]
        lacking = f"; not reached: {', '.join(unreached)}" if unreached else ""
        return f"no leader is known in term {self.term}, an election may be under way{lacking}"

    def mono_us(self) -> int:
        """The monotonic clock as of this turn."""
        return self._mono_us

    def log_us(self) -> int:
        """Log time as of this turn."""
        leader = self.replica.leader
        return leader.desk.now_us if leader is not None else self.replica.machine.last_at_us

    def begin_turn(self) -> None:
        """Something came: read the clocks once, and decide when all that is there has been read."""
        if not self._turn_is_due:
            self._turn_is_due = True
            self._read_clocks()
            self.loop.call_soon(self.turn)

    def read_log(self, conn: Conn, frame: Frame) -> None:
        """A ReadLog."""
        self.reader.read(conn, frame)

    # -- what the peers ask

    def step(self, message: PeerMessage) -> None:
        """A message for Raft."""
        damaged_count = self.replica.damaged_count
        self.replica.step(message)
        if self.replica.damaged_count > damaged_count:
            self._log("damaged_message_dropped", node=message.source, count=self.replica.damaged_count)

    def repair(self, message: RepairMessage) -> None:
        """Of a peer that repairs itself."""
        self._help.take(message)

    def _send_help(self, message: RepairMessage) -> None:
        self.begin_turn()
        self.peers.send([message])

    def peer_broken(self, node_id: str) -> None:
        """Its process is likely to be gone: if it led, an election begins soon."""
        self.replica.raft.peer_reset(node_id)

    def peer_facts(self) -> PeerFacts:
        """What this node tells of itself. A new node believes that it is a member, and for good: so only what
        is committed is told."""
        log = self.replica.raft.log
        ids = tuple(sorted(log.membership.committed.all)) if log.membership.index else ()
        return PeerFacts(self.replica.raft.term, log.last_index, ids, wall_us())

    def peer_said_hello(self, hello: LeaderHelloHeader, *, dialed: str) -> None:
        """A node is there."""
        self._told_refusals.pop(hello.address, None)
        if dialed:
            self._log("peer_connected", node=hello.node_id, address=dialed)

    def peer_refused(self, address: str, code: str, text: str) -> None:
        """An operator should know; once is enough."""
        if self._told_refusals.get(address) != code:
            self._told_refusals[address] = code
            self._log("peer_refused", address=address, code=code, reason=text)

    def facts(self) -> NodeFacts:
        """What `status` says of this node."""
        raft = self.replica.raft
        return NodeFacts(
            node_id=self.node_id,
            group=self.group,
            role="leader" if self.leader is not None else raft.role.value,
            leader=self.leader_address(),
            term=raft.term,
            last_index=raft.log.last_index,
            commit_index=raft.commit_index,
            applied_index=raft.log.applied_index,
            machine=None if self.replica.is_rebuilding else self.replica.machine,
            uptime_us=self._mono_us - self._began_us,
            connections_count=len(self.door.conns),
            accepted_count=self.door.teller.accepted_count,
            assigned_count=self.door.teller.assigned_count,
            ended_count=self.door.teller.ended_count,
            is_disk_low=self.replica.is_disk_low,
            disk_free_bytes=self.upkeep.disk_free_bytes,
            fold_failures_count=self.upkeep.fold_failures_in_row,
            fold_failure=self.upkeep.fold_failure,
            archive=self.upkeep.archive.facts if self.upkeep.archive is not None else None,
            addresses=self.peers.addresses(),
            behind=self._behind(),
            asking=self.peers.asking,
            problems=problems_of(
                self.replica, addresses=self.peers.addresses(), why_no_leader=self.why_no_leader()
            ),
            step_time=self._step_time,
            regroup=self._regroup,
            drain_worker=self.door.drain_worker,
            stop=self._on_stop,
            mark=self._mark,
        )

    def _step_time(self) -> Refusal | bool:
        """An operator says that this clock is right; in a group of several a majority's clocks say so."""
        log_time = self.replica.log_time
        if len(self.replica.raft.log.membership.current.voters) > 1:
            text = "log time steps by itself once the clocks of a majority of the group are ahead of it"
            return Refusal(ErrorCode.BAD_COMMAND, f"{text}. Nothing was changed: set the clocks right.")
        if log_time is None or not log_time.step_wanted_us:
            return False
        self._log("time_stepped", seconds=log_time.step_wanted_us // 1_000_000)
        self.replica.step_time()
        return True

    def _behind(self) -> dict[str, int]:
        raft = self.replica.raft
        leadership, last_index = raft.leadership, raft.log.last_index
        if leadership is None:
            return {}
        found = {self.node_id: 0}
        for node_id in raft.log.membership.current.all:
            progress = leadership.progress(node_id)
            if progress is not None and leadership.hears(node_id, raft.now_us):
                found[node_id] = last_index - progress.match_index
        return found

    def _regroup(self, what: str, node: str, replaces: str) -> Refusal | None:
        """An operator changes who is a member."""
        raft, members = self.replica.raft, self.replica.members
        node_id, old_id = self.peers.find(node), self.peers.find(replaces)
        changed: list[Member] | Refusal
        is_member = node_id in {member.node_id for member in members}
        if is_member != (what == "remove") and node_id in self.peers.addresses():
            return None  # As it is already: a command that was repeated after a change of leader.
        if what == "remove":
            changed = regroup.remove(raft, members, node_id)
        elif node_id not in self.peers.asking:
            if node_id in self.peers.addresses():
                text = f"{node} was a member once: it comes back as a new node, with an empty directory"
            else:
                text = f"no new node {node} has said hello: start it with --peers that name a member"
            changed = Refusal(ErrorCode.BAD_COMMAND, f"{text}. Nothing was changed.")
        elif what == "replace" and not old_id:
            changed = Refusal(ErrorCode.BAD_COMMAND, f"no member {replaces}. Nothing was changed.")
        else:
            changed = regroup.add(raft, members, node_id, replaces=old_id if what == "replace" else "")
        if isinstance(changed, Refusal):
            return changed
        self._log("members_changed", what=what, node=node_id, replaces=old_id)
        self.replica.set_members(changed)
        return None

    def _mark(self) -> bool:
        leader = self.leader
        if leader is None or leader.desk.news_index < self.replica.segment_first_index:
            return False
        self.replica.mark()
        return True

    # -- turns

    def _read_clocks(self) -> None:
        now_us = mono_us()
        if now_us - self._mono_us > TURN_GAP_MAX_US:
            self._log("process_stood_still", seconds=round((now_us - self._mono_us) / 1e6, 1))
            self._mono_us = now_us
            self.door.forgive_silence()
        self._mono_us = now_us
        self.replica.set_time(mono_us=now_us, wall_us=wall_us())

    def turn(self) -> None:
        """Do what the replica says until it says nothing more, then send what was said."""
        self._turn_is_due = False
        replica, door = self.replica, self.door
        commit_index = replica.raft.commit_index
        while True:
            work = replica.ready()
            raft = work.raft
            if raft is None and not work.effects:
                break
            if raft is not None:
                self._do(raft)
            door.tell(work.effects)
            if replica.is_settled:
                break
        if work.is_unfinished:
            self.begin_turn()
        if replica.is_rebuilding:
            self._rebuilder.look()
        if replica.raft.commit_index != commit_index:
            self.reader.committed()
        known = (replica.raft.term, self.leader_address())
        if known != self._told_leader:
            # Not with the role: a node that was elected leads when it has applied its whole log.
            self._told_leader = known
            door.announce_leader()
        self._wake_for_raft()
        self._seal_what_is_due()
        self.peers.flush()
        door.flush()

    def _wake_for_raft(self) -> None:
        """An election that is due soon does not wait for the next tick."""
        due_us = self.replica.raft.deadline_us
        if self._alarm_us != due_us < self._mono_us + TICK_US:
            self._alarm_us = due_us
            # The loop counts in milliseconds and may ring early.
            self.loop.call_later(max(due_us - self._mono_us, 0) / 1e6 + 0.001, self.begin_turn)

    def _do(self, raft: Ready) -> None:
        """What Raft asks for: the write begins first, and messages leave beside it."""
        if raft.write is not None:
            self._persist(raft.write)
        if raft.messages:
            self.peers.send(raft.messages)
        for request in raft.reads:
            self.reader.read_lines(request, self.replica.raft.lines_read, self.begin_turn)
        for chunk_request in raft.chunk_reads:
            self._installer.read(chunk_request)
        if raft.chunk is not None:
            self._installer.write(raft.chunk)
        if raft.install is not None:
            self._installer.install(raft.install)
        if raft.role_changed:
            self._role_changed(raft)

    def _persist(self, write: Write) -> None:
        self._store_thread.do(lambda: self.store.persist(write), lambda _: self._persisted(write))

    def _persisted(self, write: Write) -> None:
        if not self._turn_is_due:
            self._read_clocks()
        self.peers.send(write.messages_after)
        self.replica.persisted(write)
        self.turn()

    def _seal_what_is_due(self) -> None:
        """A marker that is on disk here and committed ends its segment."""
        if self.replica.is_rebuilding:
            return  # what its machine says of segments is about to be forgotten
        log, marker_index = self.replica.raft.log, self.replica.segment_first_index - 1
        if self._sealed_index < marker_index <= min(log.commit_index, log.persisted_index):
            self._sealed_index = marker_index
            self.upkeep.seal(log.commit_index)

    def _role_changed(self, raft: Ready) -> None:
        told, self._told_role = self._told_role, (raft.term, raft.role, raft.leader_id)
        if told == self._told_role:
            return
        was_leader = told is not None and told[1] is Role.LEADER
        if told is None or told[:2] != (raft.term, raft.role):
            self._log("role_changed", role=raft.role.value, term=raft.term)
        elif raft.leader_id is not None:
            self._log("leader_known", leader=raft.leader_id, term=raft.term)
        if was_leader and raft.role is not Role.LEADER:
            self.door.send_away()

    # -- time

    def _tick(self) -> None:
        self._ticker = self.loop.call_later(TICK_S, self._tick)
        self._read_clocks()
        self.replica.tick()
        if self.replica.offered_to is not None:
            self._log("leadership_offered", node=self.replica.offered_to, reason="this node's clock is off")
            self.replica.offered_to = None
        self._check_connections()
        self.peers.tick(self.replica.raft.log.membership.current.all)
        self.upkeep.look(self.replica, now_us=self._mono_us)
        self.turn()

    def _check_connections(self) -> None:
        """Some of them: all come round within a second or so."""
        if not self._checked:
            self._checked = list(self.door.conns)
            self._cut_the_slowest()
        some = self._checked[-CHECKS_PER_TICK:]
        del self._checked[-CHECKS_PER_TICK:]
        self.door.check(conn for conn in some if not conn.is_closed)

    def _cut_the_slowest(self) -> None:
        """All together may hold back only so much."""
        for size, conn in self.door.slowest_beyond(UNSENT_BYTES_ALL_MAX):
            self._log("connection_cut", reason="it does not read", bytes=size, client=conn.client_id)
            self.door.cut(conn)

    # -- the end

    def hand_over(self) -> bool:
        """Let another node lead, if there is one that can. Whether that has begun."""
        raft = self.replica.raft
        if raft.role is not Role.LEADER or self.is_alone:
            return False
        problem = raft.transfer()
        self._log(
            "leadership_offered" if problem is None else "leadership_kept", reason=problem or "stopping"
        )
        self.begin_turn()
        return problem is None

    @property
    def is_alone(self) -> bool:
        """Whether nobody else votes."""
        return self.replica.raft.log.membership.current.voters <= {self.node_id}

    @property
    def is_leading(self) -> bool:
        """Whether Raft takes this node for the leader."""
        return self.replica.raft.role is Role.LEADER

    def drain(self) -> None:
        """Nothing new is accepted; workers are told, and keep what they run: they reclaim it later."""
        leader = self.leader
        if leader is not None:
            leader.intake.is_draining = True
        self.door.say_goodbye()
        self.begin_turn()

    @property
    def is_quiet(self) -> bool:
        """Everything that was decided here is committed and said."""
        if not self.is_leading:
            return True
        log = self.replica.raft.log
        return log.applied_index == log.last_index

    def close(self) -> None:
        """Give everything back. Blocks for the last write."""
        if self._ticker is not None:
            self._ticker.cancel()
        self._dialer.close()
        self.peers.close()
        for conn in list(self.door.conns):
            self.door.drop(conn)
        self.reader.close()
        self._rebuilder.close()
        self._installer.close()
        self._help.close()
        self._store_thread.stop()
        self.upkeep.stop()
        self.store.close()
