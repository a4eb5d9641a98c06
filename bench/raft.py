"""The consensus core alone: propose, ready, persisted, commit; no disk, no network, no machine."""

import random
import time
from collections.abc import Callable

from bench.machine_limits import Row
from rollmq import limits
from rollmq.core.raft import RaftCore
from rollmq.core.raft_log import RaftLog
from rollmq.core.raft_messages import PeerMessage
from rollmq.core.raft_ready import HardState, RaftSettings, Ready

ENTRIES_COUNT = 200_000
LINE = b"x" * 299 + b"\n"
ROUNDS = 3


def run() -> list[Row]:
    """All figures of this part."""
    rows: list[Row] = []
    for size in (1, 3):
        for batch in (1, 64, 1024):
            voters = "one voter" if size == 1 else f"{size} voters, all in this process"
            best = max(_entries_per_second(size, batch) for _ in range(ROUNDS))
            rows.append((f"propose to commit, {voters}, {batch} in a batch", best, "entries/s"))
    rows.append(("propose one line at a time, one voter, 1024 in a batch", _one_by_one(), "entries/s"))
    return rows


class Trio:
    """One or more cores, wired together without a network; every write is done at once."""

    def __init__(self, size: int) -> None:
        ids = [f"n{number}" for number in range(size)]
        settings = RaftSettings()
        chance = random.Random(1).random
        self.cores = {
            node_id: RaftCore(
                node_id=node_id,
                voters=frozenset(ids),
                hard_state=HardState(),
                log=RaftLog(tail_bytes_max=limits.TAIL_BYTES_MAX),
                settings=settings,
                chance=chance,
                now_us=0,
            )
            for node_id in ids
        }
        self.leader = self.cores["n0"]
        self.leader.campaign()
        self.settle()
        self.leader.propose_noop(LINE)
        self.settle()
        assert self.leader.can_propose

    def settle(self) -> None:
        """Persist and deliver until nothing is left to do."""
        is_busy = True
        while is_busy:
            is_busy = False
            for core in self.cores.values():
                while (ready := core.ready()) is not None:
                    is_busy = True
                    self._do(core, ready)

    def _do(self, core: RaftCore, ready: Ready) -> None:
        self._post(ready.messages)
        if ready.write is not None:
            self._post(ready.write.messages_after)
            core.persisted(ready.write)
        if core.commit_index > core.log.applied_index:
            core.applied(core.commit_index)

    def _post(self, messages: tuple[PeerMessage, ...]) -> None:
        for message in messages:
            self.cores[message.target].step(message)


def _timed(work: Callable[[], None]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def _entries_per_second(size: int, batch: int) -> float:
    trio = Trio(size)
    rounds_count = max(ENTRIES_COUNT // batch // (20 if batch == 1 else 1), 1)
    lines = [LINE] * batch

    def work() -> None:
        for _ in range(rounds_count):
            trio.leader.propose(lines)
            trio.settle()

    seconds = _timed(work)
    assert trio.leader.commit_index == 1 + rounds_count * batch
    return rounds_count * batch / seconds


def _one_by_one() -> float:
    trio = Trio(1)

    def work() -> None:
        for number in range(ENTRIES_COUNT):
            trio.leader.propose((LINE,))
            if number % 1024 == 0:
                trio.settle()
        trio.settle()

    return ENTRIES_COUNT / _timed(work)
