"""One node in memory, under a clock that goes only when it is told to: the real replica and the real door.

What a node has and this one has not is a disk, a network and peers. Every decision (scheduling, retries,
timeouts, caps, dead letters) and every message is the product's own. Its time never waits for anything.
"""

import hashlib
import random
from typing import Any, Final

from rollmq.core.effects import Answer, AnyEffect
from rollmq.core.events import AnyEvent
from rollmq.core.leader import Leader
from rollmq.core.line import decode_line
from rollmq.core.machine import Machine
from rollmq.core.queues import NEVER_US
from rollmq.core.raft import RaftCore
from rollmq.core.raft_log import RaftLog
from rollmq.core.raft_ready import HardState, RaftSettings
from rollmq.core.replica import Replica
from rollmq.core.segment_digest import SegmentDigest
from rollmq.limits import TURN_GAP_MAX_US
from rollmq.node.conn import Conn
from rollmq.node.door import Door
from rollmq.node.queries import answer
from rollmq.node.query_status import NodeFacts
from rollmq.node.telling import put_error
from rollmq.wire.error_codes import ErrorCode
from rollmq.wire.message import Frame

ADDRESS: Final = "in-process:1"
STEP_US: Final = TURN_GAP_MAX_US // 2
"""Longer steps would be taken for a process that stood still, and absent workers be given that time."""


RAISES_US_MAX: Final = 86_400_000_000
"""How long a skip may be and still stop wherever a job that waits rises in priority."""


class Question:
    """Who asks the node something from outside of any connection."""

    def __init__(self) -> None:
        self.value: Any = None


class VirtualNode:
    """The host of one replica, as a node's process is, without the process."""

    token = ""
    peers = None

    def __init__(self, *, wall_us: int, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        self.node_id = f"{chance.getrandbits(128):032x}"
        self.group = hashlib.sha256(self.node_id.encode()).hexdigest()[:32]
        self.lines: list[bytes] = []
        """The log, line by line."""
        self.now_us = 0
        """The monotonic clock of everything in here."""
        self._wall_us = wall_us
        self._is_turn_due = False
        settings = RaftSettings()
        raft = RaftCore(
            node_id=self.node_id,
            voters=frozenset([self.node_id]),
            hard_state=HardState(),
            log=RaftLog(tail_bytes_max=settings.tail_bytes_max),
            settings=settings,
            chance=chance.random,
            now_us=0,
        )
        self.replica = Replica(
            raft,
            Machine(),
            SegmentDigest(group=self.group, first_index=1),
            group=self.group,
            founders=[self.node_id],
            # Backoffs of exactly their length: a test says after how many seconds it expects what.
            jitter=lambda: 0.0,
        )
        self.door = Door(self)
        while self.leader is None or self.replica.raft.commit_index == 0:
            self.pass_time(settings.heartbeat_us)
            self.turn()

    # -- what the door asks

    @property
    def leader(self) -> Leader | None:
        """It leads from its first moment on."""
        return self.replica.leader

    @property
    def term(self) -> int:
        """Raft's term."""
        return self.replica.raft.term

    def leader_address(self) -> str | None:
        """Itself."""
        return ADDRESS

    def mono_us(self) -> int:
        """The monotonic clock."""
        return self.now_us

    def log_us(self) -> int:
        """Log time."""
        return self._wall_us + self.now_us

    def begin_turn(self) -> None:
        """Something came."""
        self._is_turn_due = True

    def read_log(self, conn: Conn, frame: Frame) -> None:
        """There are no segments to read from."""
        put_error(conn, frame.msg_id, ErrorCode.HISTORY_GONE, "this node lives in a test and keeps no files")

    def why_no_leader(self) -> str:
        """It leads."""
        return ""

    def facts(self) -> NodeFacts:
        """What `status` says."""
        raft = self.replica.raft
        return NodeFacts(
            node_id=self.node_id,
            group=self.group,
            role="leader",
            leader=ADDRESS,
            term=raft.term,
            last_index=raft.log.last_index,
            commit_index=raft.commit_index,
            applied_index=raft.log.applied_index,
            machine=self.replica.machine,
            uptime_us=self.now_us,
            connections_count=len(self.door.conns),
            drain_worker=self.door.drain_worker,
            stop=_cannot_stop,
            mark=lambda: False,
        )

    # -- turns

    def turn(self) -> bool:
        """Decide and say what there is to decide and say. Whether there was anything."""
        if not self._is_turn_due:
            return False
        self._is_turn_due = False
        while True:
            work = self.replica.ready()
            if work.raft is None and not work.effects:
                break
            if work.raft is not None and work.raft.write is not None:
                self.lines += work.raft.write.lines
                self.replica.persisted(work.raft.write)
            self._tell(work.effects)
        self.door.flush()
        return True

    def _tell(self, effects: list[AnyEffect]) -> None:
        for effect in effects:
            if isinstance(effect, Answer) and isinstance(effect.to, Question):
                effect.to.value = effect.value
            else:
                self.door.tell((effect,))

    def ask(self, name: str, arguments: bytes = b"", *, by: str = "test") -> Any:
        """An operator's question or command, by its name on the wire."""
        question = Question()
        value = answer(name, arguments, by=by, to=question, leader=self.leader, node=self.facts())
        if value is None:
            self.begin_turn()
            self.turn()
            value = question.value
        return value

    def events(self) -> list[AnyEvent]:
        """The log so far."""
        return [decode_line(line) for line in self.lines]

    # -- time

    def pass_time(self, us: int) -> None:
        """Let this much time pass at once. Nobody is silent in here, however long it is."""
        self.now_us += us
        self.door.forgive_silence()
        self.replica.set_time(mono_us=self.now_us, wall_us=self.log_us())
        leader = self.leader
        if leader is not None:
            for worker_id in self.door.workers:
                leader.liveness.heard(worker_id)
        self.replica.tick()
        self.begin_turn()

    def next_due_us(self) -> int:
        """The next moment at which something may happen by itself; NEVER_US: none."""
        leader = self.leader
        assert leader is not None
        queues, liveness = leader.desk.queues, leader.liveness
        # Of log time:
        dues = [queues.next_delay_us, queues.expiries.next_due_us or NEVER_US]
        dues += [running.earliest_us for running in leader.attempts.running.values()]
        is_somebody_away = False
        for presence in liveness.present.values():
            if presence.slot is None:
                is_somebody_away = True
                dues.append(presence.absent_until_us)
            elif self._has_unstarted(presence.hello.worker_id):
                dues.append(presence.look_again_us)
        due_us = min(dues)
        if due_us >= NEVER_US:
            return NEVER_US
        ahead_us = leader.desk.now_us - self.now_us
        due_us = max(due_us - ahead_us, self.now_us)
        if is_somebody_away:
            return min(due_us, self.now_us + STEP_US)
        # On the way there jobs that wait rise in priority, one level at a time; not on a long way.
        raise_us = queues.next_due_us - ahead_us
        return raise_us if self.now_us < raise_us < due_us < self.now_us + RAISES_US_MAX else due_us

    def _has_unstarted(self, worker_id: str) -> bool:
        held = self.replica.machine.inflight.held_by(worker_id).values()
        return any(not job.is_started for job in held)


def _cannot_stop(_why: str) -> None:
    """A node in a test ends with its test."""
