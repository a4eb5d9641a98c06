"""Replicas in one process, with disks that are lists and links that tests cut and heal.

The host's part is played in the order in which `Ready` asks for it. Writes are durable at once, because
what a crash loses is the simulator's subject; here it is what a change of leader takes back.
"""

import random

from rollmq.core.effects import Accepted, AnyEffect
from rollmq.core.intake import Submit
from rollmq.core.line import decode_line
from rollmq.core.machine import Machine
from rollmq.core.raft import RaftCore
from rollmq.core.raft_log import RaftLog
from rollmq.core.raft_messages import PeerMessage
from rollmq.core.raft_ready import HardState, RaftSettings, ReadLines, Write
from rollmq.core.replica import Replica
from rollmq.core.segment_digest import SegmentDigest
from rollmq.core.state import dump_state

GROUP = "9" * 32
WALL_US = 1_763_490_000_000_000
STEP_US = 10_000
READ_LINES = 3
"""At once: more comes in further answers."""


class Member:
    """One replica with its host's part."""

    def __init__(self, node_id: str, node_ids: list[str], chance: random.Random, *, is_eager: bool) -> None:
        self.node_id = node_id
        self.lines: list[bytes] = []
        self.told: list[AnyEffect] = []
        self.rebuilt_count = 0
        self.wall_offset_us = 0
        """How wrong its wall clock is."""
        self.asked: list[ReadLines] = []
        self.is_slow_to_read = False
        """What is asked of its disk waits."""
        raft = RaftCore(
            node_id=node_id,
            voters=frozenset(node_ids),
            hard_state=HardState(),
            log=RaftLog(tail_bytes_max=1 << 20),
            settings=RaftSettings(),
            chance=chance.random,
            now_us=0,
        )
        self.replica = Replica(
            raft,
            Machine(),
            self._segment([]),
            group=GROUP,
            founders=node_ids,
            jitter=chance.random,
            is_eager=is_eager,
        )

    def _segment(self, lines: list[bytes]) -> SegmentDigest:
        segment = SegmentDigest(group=GROUP, first_index=1)
        segment.add_all(lines)
        return segment

    def turn(self) -> list[PeerMessage]:
        """Do all that there is to do; what it sends."""
        sent: list[PeerMessage] = []
        if not self.is_slow_to_read:
            self._read()
        while True:
            work = self.replica.ready()
            self.told += work.effects
            if work.raft is None:
                return sent
            sent += work.raft.messages
            self.asked += work.raft.reads
            if work.raft.write is not None:
                self._write(work.raft.write)
                sent += work.raft.write.messages_after
                self.replica.persisted(work.raft.write)
            if work.needs_rebuild:
                self._rebuild()

    def _write(self, write: Write) -> None:
        if write.truncate_from is not None:
            del self.lines[write.truncate_from - 1 :]
        assert len(self.lines) == write.first_index - 1
        self.lines += write.lines

    def _read(self) -> None:
        asked, self.asked = self.asked, []
        for request in asked:
            last_index = min(request.last_index, request.first_index + READ_LINES - 1)
            self.replica.raft.lines_read(request, self.lines[request.first_index - 1 : last_index])

    def _rebuild(self) -> None:
        """As a host does: what is committed, from the disk, through a new machine."""
        self.rebuilt_count += 1
        lines = self.lines[: self.replica.raft.commit_index]
        machine = Machine()
        for line in lines:
            machine.apply(decode_line(line))
        self.replica.rebuilt(machine, self._segment(lines))

    def accepted(self) -> set[str]:
        """The jobs whose submitters this node told that they are accepted."""
        return {effect.job_id for effect in self.told if isinstance(effect, Accepted)}


class Trio:
    """Members and the links between them."""

    def __init__(self, *, seed: int = 1, size: int = 3, is_eager: bool = False) -> None:
        self.chance = random.Random(seed)
        self.now_us = 0
        self.node_ids = [str(number) * 32 for number in range(size)]
        self.members = {
            node_id: Member(node_id, self.node_ids, self.chance, is_eager=is_eager)
            for node_id in self.node_ids
        }
        self.cut_off: set[str] = set()
        """Who hears nobody and is heard by nobody."""
        self.flying: list[PeerMessage] = []
        self._submitted_count = 0

    def run(self, milliseconds: int) -> None:
        """Let time pass: turns, and what was sent arrives a turn later."""
        for _ in range(milliseconds * 1000 // STEP_US):
            self.now_us += STEP_US
            arriving, self.flying = self.flying, []
            for member in list(self.members.values()):
                self.flying += self.serve(member, arriving)

    def serve(self, member: Member, arriving: list[PeerMessage]) -> list[PeerMessage]:
        """One turn of one member; what it sends."""
        wall_us = WALL_US + self.now_us + member.wall_offset_us
        member.replica.set_time(mono_us=self.now_us, wall_us=wall_us)
        for message in arriving:
            if message.target == member.node_id and self._is_linked(message):
                member.replica.step(message)
        member.replica.tick()
        return member.turn()

    def _is_linked(self, message: PeerMessage) -> bool:
        return not {message.source, message.target} & self.cut_off

    def leaders(self) -> list[Member]:
        """Those that lead, each in its own belief; more than one while an old one is cut off."""
        return [member for member in self.members.values() if member.replica.leader is not None]

    def leader(self) -> Member:
        """The one with the newest term, waited for."""
        for _ in range(100):
            reachable = [member for member in self.leaders() if member.node_id not in self.cut_off]
            if reachable:
                return max(reachable, key=lambda member: member.replica.raft.term)
            self.run(100)
        raise AssertionError("no leader within ten seconds")

    def submit(self, member: Member) -> str:
        """Submit one job to whoever believes to lead; its id."""
        self._submitted_count += 1
        assert member.replica.leader is not None
        job_id = f"{(WALL_US + self.now_us) // 1000:012x}7{self._submitted_count:019x}"
        member.replica.leader.intake.submit(Submit(job_id, "client", "exec", b"x"), "session")
        self.flying += member.turn()
        return job_id


def state_of(member: Member) -> bytes:
    """The canonical state, to be compared."""
    return b"".join(dump_state(member.replica.machine))
