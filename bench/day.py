"""Days of a busy queue as an archive: the real decisions and `apply`, in simulated time.

    python -m bench.day DIR --events 20000000        goes on where an earlier call was stopped

Clients of very different size submit to many execs; handlers succeed, fail, ask for a retry or a snooze,
reject, hang until their timeout; workers die and come back; some jobs kill their worker; clients cancel,
operators redrive and drop dead letters. Every PIECE_EVENTS events the leader falls: the state is put down,
and another term begins with it, here or in the next call. Segments end where the leader's own rule says.
"""

import argparse
import json
import math
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, Final

from rollmq.core.effects import AskedBack, Assigned, AttemptVoid
from rollmq.core.events import Fence, Settings
from rollmq.core.leader import Leader, SegmentFacts
from rollmq.core.liveness import Hello
from rollmq.core.machine import Machine
from rollmq.core.requests import REJECT, RETRY, SNOOZE, Outcome, Submit
from rollmq.core.segment_digest import SegmentDigest, header_line
from rollmq.core.state import dump_state, load_state
from rollmq.store.layout import sealed_name

GROUP: Final = "d" * 32
START_US: Final = 1_763_490_000_000_000
STEP_US: Final = 50_000
SECOND_US: Final = 1_000_000
PIECE_EVENTS: Final = 2_000_000
JOBS_PER_S: Final = 250
EXECS, CLIENTS, WORKERS, HANDS = 40, 60, 60, 16
PROGRESS: Final = "progress.json"
STATE: Final = "state.jsonl"


def job_id(at_us: int, chance: Random) -> str:
    """A UUIDv7 in log time; random as a client makes it."""
    return f"{at_us // 1000:012x}7{chance.getrandbits(76):019x}"


@dataclass(slots=True)
class Hand:
    """A worker's process: what it runs, and what it holds unstarted."""

    instance: str
    running: dict[str, Fence] = field(default_factory=dict)
    held: deque[Assigned] = field(default_factory=deque)
    seen: int = 0
    back_us: int = 0
    """When it comes back; 0 while it is there."""


class Day:
    """One term of a leader, and everybody around it."""

    def __init__(self, machine: Machine, *, term: int, now_us: int, submitted: int) -> None:
        self.chance = Random(f"day/{term}")
        self.leader = Leader(machine, term=term, jitter=self.chance.random, now_us=now_us)
        self.machine = machine
        self.now_us = now_us
        self.submitted = submitted
        if machine.members is None:
            self.leader.found_group(group=GROUP, node_ids=["1" * 32, "2" * 32, "3" * 32])
            self._settle()
        self.execs = [f"shop{number % 7}.task{number}" for number in range(EXECS)]
        self.clients = [f"tenant-{number:03}" for number in range(CLIENTS)]
        self.weights = [1 / (number + 1) for number in range(CLIENTS)]  # a few large ones, many small ones
        self.hands = {f"worker-{number:02}": Hand("") for number in range(WORKERS)}
        self.ends: list[tuple[int, int, str, str, Fence, str, int]] = []
        """When handlers end, and how."""
        self._count = 0
        self._owed = 0.0
        self._step = 0
        self._newest = ("", "")
        for name in self.hands:
            self._hello(name)

    def _settle(self) -> None:
        settings = Settings(0, 0, 0, results_max=50_000, finished_max=100_000)
        self.leader.operate.set_settings(settings, by="ops", to=None)
        for number, name in enumerate(("tenant-000", "tenant-001")):
            self.leader.operate.set_client(name, cap=200, weight=2 - number, by="ops", to=None)

    # -- one step of simulated time

    def step(self) -> None:
        """Everything that happens in a twentieth of a second."""
        self.now_us += STEP_US
        self._step += 1
        self.leader.tick(self.now_us)
        self._submit_some()
        self._end_due()
        if self._step % 20 == 0:
            self._fates()
        if self._step % (20 * 300) == 0:
            self._operate()
        self.leader.schedule()
        self._obey()

    def _submit_some(self) -> None:
        wave = 1 + 0.6 * math.sin(self.now_us / SECOND_US / 86_400 * 2 * math.pi)
        self._owed += JOBS_PER_S * wave * STEP_US / SECOND_US
        count = int(self._owed)
        self._owed -= count
        for client in self.chance.choices(self.clients, self.weights, k=count):
            self._submit(client)

    def _submit(self, client: str) -> None:
        chance, now_us = self.chance, self.now_us
        number = self.submitted
        self.submitted += 1
        name = self.execs[int(EXECS * chance.random() ** 2)]
        kind = chance.random()
        text = f'{{"order":{number},"sku":"{chance.getrandbits(48):012x}","note":"' + "x" * int(
            chance.expovariate(1 / 60)
        )
        submit = Submit(
            job_id(now_us, chance),
            client,
            name,
            (text + '"}').encode(),
            "application/json",
            key=f"order-{number}" if kind < 0.1 else "",
            content_digest=f"{number:016x}" if kind < 0.1 else "",
            headers={"trace": f"{chance.getrandbits(64):016x}"} if kind > 0.95 else None,
            priority=5 if kind > 0.9 else 0,
            not_before_us=now_us + 30 * SECOND_US if 0.5 < kind < 0.52 else 0,
            expires_at_us=now_us + 60 * SECOND_US if 0.6 < kind < 0.605 else 0,
            timeout_us=30 * SECOND_US,
            tries_max=3 if number % 2 else 5,
        )
        self.leader.intake.submit(submit, None)
        self._newest = (submit.job_id, client)

    # -- handlers

    def _start(self, worker: str, hand: Hand) -> None:
        while hand.held and len(hand.running) < HANDS:
            effect = hand.held.popleft()
            job, fence = effect.job, effect.job.fence
            if fence is None or fence[1] != effect.event.index:
                continue  # it was taken away meanwhile
            hand.running[job.id] = fence
            self.leader.attempts.begin(worker, job.id, fence)
            lucky = self.chance.random()
            slow = 0.02 + (hash_of(job.exec) % 40) / 40
            runs_us = int(SECOND_US * slow * self.chance.lognormvariate(-0.5, 1.0))
            how = "ok"
            if lucky < 0.000_004 or hash_of(job.id) % 200_000 == 0:
                how = "kill"
            elif lucky > 0.999:
                how = "hang"
            elif hash_of(job.id) % 1_000 == 1:
                how = "fail"  # whoever runs it, and however often
            elif lucky > 0.95:
                how = "fail" if lucky < 0.992 else "snooze" if lucky < 0.996 else "reject"
            if how != "hang":
                self._count += 1
                heappush(self.ends, (self.now_us + runs_us, self._count, worker, job.id, fence, how, runs_us))

    def _end_due(self) -> None:
        while self.ends and self.ends[0][0] <= self.now_us:
            _due, _number, worker, job, fence, how, runs_us = heappop(self.ends)
            hand = self.hands[worker]
            if hand.running.get(job) != fence:
                continue  # its worker died, or it was told to stop
            if how == "kill":
                self._die(worker)
                continue
            del hand.running[job]
            wants = {"snooze": SNOOZE, "reject": REJECT}.get(how, RETRY)
            error = "" if how == "ok" else ("ConnectionError", "ValueError", "KeyError")[fence[1] % 3]
            outcome = Outcome(
                job,
                fence,
                is_ok=how == "ok",
                result=b'{"done":true}' if how == "ok" else b"",
                run_us=runs_us,
                error_type=error,
                error_message=f"upstream {fence[1] % 17} did not answer" if error else "",
                error_detail=b"Traceback: ..." if error else b"",
                wants=wants,
                after_us=5 * SECOND_US if how == "snooze" else None,
            )
            self.leader.attempts.outcome(worker, outcome)
            self._start(worker, hand)
            self.leader.liveness.credit(
                worker, hand.seen, max(2 * HANDS - len(hand.running) - len(hand.held), 0)
            )

    # -- workers and operators

    def _hello(self, name: str) -> None:
        hand = self.hands[name] = Hand(f"{self.chance.getrandbits(64):016x}")
        patterns = ["job.assign.>"] if name < "worker-40" else ["job.assign.shop0.*", "job.assign.shop1.*"]
        hello = Hello(
            name, hand.instance, patterns, hands=HANDS, credit=2 * HANDS, host=f"box{name[-1]}", release="r7"
        )
        problem = self.leader.liveness.hello(hello)
        assert problem is None, problem

    def _die(self, name: str) -> None:
        hand = self.hands[name]
        hand.running.clear()
        hand.held.clear()
        hand.back_us = self.now_us + 8 * SECOND_US
        self.leader.liveness.broken(name)

    def _fates(self) -> None:
        """Once a second: who is there says so, some die, the dead come back; a client thinks better of it."""
        job, client = self._newest
        if job in self.machine.jobs and self.chance.random() < 0.3:
            self.leader.operate.cancel(job, by=client, why="order withdrawn", to=None)
        for name, hand in self.hands.items():
            if hand.back_us:
                if hand.back_us <= self.now_us:
                    self._hello(name)
            elif self.chance.random() < 1 / 7200:
                self._die(name)
            else:
                self.leader.liveness.heard(name)

    def _operate(self) -> None:
        """Every five minutes somebody looks after the dead letters."""
        operate, dead = self.leader.operate, list(islice(self.machine.dead, 400))
        operate.redrive(dead[: len(dead) // 2], by="ops", why="upstream is back", to=None)
        operate.drop(dead[len(dead) // 2 :], by="ops", why="too old to matter", to=None)

    def _obey(self) -> None:
        """What the leader says to workers."""
        woken: dict[str, Hand] = {}
        for effect in self.leader.desk.take_effects():
            if type(effect) is Assigned:
                name = effect.event.worker_id
                hand = self.hands[name]
                hand.seen += 1
                hand.held.append(effect)
                woken[name] = hand
            elif type(effect) is AttemptVoid:
                hand = self.hands[effect.worker_id]
                if hand.running.get(effect.job_id) == effect.fence:
                    del hand.running[effect.job_id]
                    woken[effect.worker_id] = hand
            elif type(effect) is AskedBack:
                hand = self.hands[effect.worker_id]
                kept = [each for each in hand.held if each.job.id != effect.job_id]
                if len(kept) < len(hand.held):
                    hand.held = deque(kept)
                    self.leader.attempts.give_back(
                        effect.worker_id, effect.job_id, effect.fence, "taken back"
                    )
        for name, hand in woken.items():
            if not hand.back_us:
                self._start(name, hand)
                self.leader.liveness.credit(
                    name, hand.seen, max(2 * HANDS - len(hand.running) - len(hand.held), 0)
                )


def hash_of(text: str) -> int:
    """The same in every process."""
    return int.from_bytes(text[-12:].encode(), "big") * 2_654_435_761 >> 7 & 0xFFFFFFF


class Archive:
    """Segments as a node ships them."""

    def __init__(self, folder: Path, first_index: int) -> None:
        self.folder = folder
        self.digest = SegmentDigest(group=GROUP, first_index=first_index)
        self._held: list[bytes] = []

    def add(self, lines: list[bytes]) -> None:
        """What was decided."""
        self._held += lines
        self.digest.add_all(lines)

    def seal(self, day: Day) -> None:
        """The leader ends the segment here."""
        digest = self.digest
        first = digest.first_index
        day.leader.mark(SegmentFacts(first, digest.byte_count, digest.hexdigest()))
        self.add(day.leader.desk.take_lines())
        path = self.folder / Path(sealed_name(first, self.digest.next_index - 1)).name
        beside = path.with_suffix(".tmp")
        with beside.open("wb") as file:
            file.write(header_line(group=GROUP, first_index=first))
            file.writelines(self._held)
        beside.rename(path)
        self._held = []


def make(root: Path, events: int, *, stop_at: float = math.inf) -> dict[str, Any]:
    """Write the archive up to so many events, or to where this clock says; returns how far it is."""
    folder = root / "archive" / GROUP
    folder.mkdir(parents=True, exist_ok=True)
    progress: dict[str, Any] = {"events": 0, "term": 0, "now_us": START_US, "submitted": 0}
    machine = Machine()
    if (root / PROGRESS).exists():
        progress = json.loads((root / PROGRESS).read_text())
        if progress["events"] >= events:
            return progress
        with (root / STATE).open("rb") as file:
            machine = load_state(file)
    for path in folder.iterdir():  # of a piece that was cut short
        if int(path.name.split("-")[1]) > progress["events"]:
            path.unlink()
    while progress["events"] < events and time.time() < stop_at:
        term = progress["term"] + 1
        day = Day(machine, term=term, now_us=progress["now_us"], submitted=progress["submitted"])
        archive = Archive(folder, progress["events"] + 1)
        goal = min(progress["events"] + PIECE_EVENTS, events)
        while machine.last_index < goal:
            day.step()
            archive.add(day.leader.desk.take_lines())
            digest = archive.digest
            due = day.leader.is_marker_due(
                segment_first_index=digest.first_index, segment_bytes=digest.byte_count
            )
            if due or machine.last_index >= goal:
                archive.seal(day)
        progress = {
            "events": machine.last_index, "term": term, "now_us": day.now_us, "submitted": day.submitted
        }  # fmt: skip
        _keep(root, machine, progress)
    return progress


def _keep(root: Path, machine: Machine, progress: dict[str, Any]) -> None:
    """Where another call goes on. The state first: without the progress beside it nobody looks at it."""
    beside = root / f"{STATE}.tmp"
    with beside.open("wb") as file:
        file.writelines(dump_state(machine))
    beside.rename(root / STATE)
    told = root / f"{PROGRESS}.tmp"
    told.write_text(json.dumps(progress))
    told.rename(root / PROGRESS)


def main(words: list[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench.day")
    parser.add_argument("root", type=Path)
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no piece after so long")
    chosen = parser.parse_args(words)
    began = time.time()
    progress = make(chosen.root, chosen.events, stop_at=began + chosen.seconds)
    size = sum(path.stat().st_size for path in (chosen.root / "archive" / GROUP).iterdir())
    print(f"{progress['events']:,} events, {size / 1e6:,.0f} MB, {time.time() - began:.0f} s now")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
