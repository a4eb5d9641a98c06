"""A node without sockets, threads and disk: bytes in at the door, bytes out, in one process.

What is left is what the node itself costs: codec, session, decisions, lines, effects, frames. Steady
enough to profile: `python -m bench.node [OUTSTANDING]`.
"""

import asyncio
import cProfile
import gc
import pstats
import sys
import time
from typing import Final

from bench.machine_limits import Row
from bench.raw_driver import CREDIT, Raw, RawClient, RawWorker
from rollmq.core.leader import Leader
from rollmq.core.machine import Machine
from rollmq.core.raft import RaftCore
from rollmq.core.raft_log import RaftLog
from rollmq.core.raft_ready import HardState, RaftSettings
from rollmq.core.replica import Replica
from rollmq.core.segment_digest import SegmentDigest
from rollmq.limits import TAIL_BYTES_MAX
from rollmq.node.conn import Conn
from rollmq.node.door import Door
from rollmq.node.query_status import NodeFacts
from rollmq.wire.message import Frame

NODE: Final = "1" * 32
GROUP: Final = "0" * 32


class Loop:
    """The host of one replica whose disk is as fast as a call. It is the door's `Host` too."""

    token = ""
    node_id = NODE
    group = GROUP

    def __init__(self) -> None:
        raft = RaftCore(
            node_id=NODE,
            voters=frozenset([NODE]),
            hard_state=HardState(),
            log=RaftLog(tail_bytes_max=TAIL_BYTES_MAX),
            settings=RaftSettings(),
            chance=lambda: 0.5,
            now_us=0,
        )
        self.replica = Replica(
            raft,
            Machine(),
            SegmentDigest(group=GROUP, first_index=1),
            group=GROUP,
            founders=[NODE],
            jitter=lambda: 0.5,
        )
        self.door = Door(self)
        self.turn()

    @property
    def leader(self) -> Leader | None:
        return self.replica.leader

    @property
    def term(self) -> int:
        return self.replica.raft.term

    def leader_address(self) -> str | None:
        return None

    def mono_us(self) -> int:
        return time.monotonic_ns() // 1000

    def log_us(self) -> int:
        return self.leader.desk.now_us if self.leader is not None else 0

    def begin_turn(self) -> None:
        self.replica.set_time(mono_us=self.mono_us(), wall_us=time.time_ns() // 1000)

    def facts(self) -> NodeFacts:
        raise NotImplementedError

    def read_log(self, conn: Conn, frame: Frame) -> None:
        raise NotImplementedError

    def turn(self) -> None:
        """Decide, write at once, tell, send."""
        self.begin_turn()
        while True:
            work = self.replica.ready()
            if work.raft is None and not work.effects:
                break
            self.door.tell(work.effects)
            write = work.raft.write if work.raft is not None else None
            if write is not None:
                self.replica.persisted(write)
            elif self.replica.is_settled:
                break
        self.door.flush()


class Party(asyncio.Transport):
    """A raw client or worker at the other end of a connection that is a pair of lists."""

    def __init__(self, loop: Loop, raw: Raw) -> None:
        super().__init__()
        self.raw = raw
        self.to_node: list[bytes] = []
        self.from_node: list[bytes] = []
        self.conn = loop.door.accept(Pipe(self))
        raw.connection_made(self)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.to_node.append(bytes(data))

    def take(self) -> bytes:
        """What it has said."""
        said, self.to_node = b"".join(self.to_node), []
        return said

    def hear(self) -> bool:
        """Hand it what the node has said; whether that was anything."""
        heard, self.from_node = self.from_node, []
        if heard:
            self.raw.data_received(b"".join(heard))
        return bool(heard)


class Pipe:
    """The node's end of it."""

    def __init__(self, party: Party) -> None:
        self.party = party

    def write(self, data: bytes) -> None:
        self.party.from_node.append(data)

    def close(self) -> None:
        raise AssertionError("nobody closes here")

    abort = close

    def unsent_bytes(self) -> int:
        return 0


def microseconds_per_job(jobs: int, outstanding: int, *, profile: cProfile.Profile | None = None) -> float:
    """CPU time that one job costs the node, submit to result; the parties' own time is not counted."""
    loop = Loop()
    done: list[float] = []
    client = RawClient(jobs, outstanding, done.append)
    parties = [Party(loop, RawWorker(CREDIT)), Party(loop, client)]
    spent = 0.0
    while not done:
        said = [(party.conn, party.take()) for party in parties]
        begin = time.process_time()
        if profile is not None:
            profile.enable()
        for conn, data in said:
            if data:
                loop.door.receive(conn, data)
        loop.turn()
        if profile is not None:
            profile.disable()
        spent += time.process_time() - begin
        heard = [party.hear() for party in parties]
        assert any(heard), "nobody says anything any more"
    return spent / jobs * 1e6


def run() -> list[Row]:
    """By the jobs that are outstanding."""
    gc.disable()  # as on a node
    return [
        (f"a job at the node, no socket, no disk, {outstanding:,} outstanding", best_of(outstanding), "us")
        for outstanding in (1, 64, 1024)
    ]


def best_of(outstanding: int, *, jobs: int = 30_000, rounds: int = 3) -> float:
    """The best of a few rounds: what else runs on the machine only ever slows it."""
    return min(microseconds_per_job(jobs, outstanding) for _ in range(rounds))


def main() -> None:
    """Profile a round."""
    gc.disable()
    profile = cProfile.Profile()
    microseconds_per_job(30_000, int(sys.argv[1]) if len(sys.argv) > 1 else 1024, profile=profile)
    pstats.Stats(profile).sort_stats("tottime").print_stats(60)


if __name__ == "__main__":
    main()
