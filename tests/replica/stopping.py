"""A trio of which a node that differs stops, and what makes it differ."""

from rollmq.core.line import decode_line
from rollmq.core.machine import Machine
from rollmq.core.raft import RaftCore
from rollmq.core.raft_log import RaftLog
from rollmq.core.raft_messages import PeerMessage
from rollmq.core.raft_ready import HardState, RaftSettings
from rollmq.core.replica import Replica
from rollmq.errors import ReplicaDiverged
from tests.replica.trio import GROUP, Member, Trio


class Stopping(Trio):
    """A trio of which a node that differs stops, as its process would."""

    def __init__(self, *, size: int = 3) -> None:
        super().__init__(size=size)
        self.stopped: dict[str, str] = {}

    def serve(self, member: Member, arriving: list[PeerMessage]) -> list[PeerMessage]:
        try:
            return super().serve(member, arriving)
        except ReplicaDiverged as error:
            self.stopped[member.node_id] = str(error)
            del self.members[member.node_id]
            return []


def led(*, size: int = 3) -> tuple[Stopping, Member, list[Member]]:
    trio = Stopping(size=size)
    leader = trio.leader()
    trio.submit(leader)
    trio.run(500)
    return trio, leader, [member for member in trio.members.values() if member is not leader]


def change_a_line(member: Member) -> None:
    """Its segment is another one from now on, as if its disk had given back other bytes."""
    member.replica._segment.add_block(b"x", lines_count=0)


def restarted(trio: Stopping, member: Member) -> None:
    """Its process is a new one: the log is on its disk, nothing of it is applied or in memory."""
    old, runs = member.replica.raft, list[tuple[int, int]]()
    for index, line in enumerate(member.lines, start=1):
        term = decode_line(line).term
        if not runs or runs[-1][1] != term:
            runs.append((index, term))
    log = RaftLog(term_runs=runs, last_index=len(member.lines), tail_bytes_max=1 << 20)
    raft = RaftCore(
        node_id=member.node_id,
        voters=frozenset(trio.node_ids),
        hard_state=HardState(old.term, old.voted_for),
        log=log,
        settings=RaftSettings(),
        chance=trio.chance.random,
        now_us=trio.now_us,
    )
    member.replica = Replica(
        raft,
        Machine(),
        member._segment([]),
        group=GROUP,
        founders=trio.node_ids,
        jitter=trio.chance.random,
        log_end=member._segment(member.lines),
    )
