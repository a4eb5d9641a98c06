"""The plot of the demo, act by act: a group under load, and what is done to it.

Everything is real: processes, sockets, signals, disks. What it tells it has just seen; what is true at the
end is for the proof to say.
"""

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rollmq.cli.demo.cast import LOOK_S, PATIENCE_S, RISKY, Cast, DemoFailed, Node, until
from rollmq.cli.demo.handlers import POISON
from rollmq.cli.demo.load import Load, Part, Receipt, ask_again, plan
from rollmq.cli.demo.proof import Figures, Replicas, compare, compare_replicas, read_log
from rollmq.cli.demo.screen import Screen
from rollmq.client import Client
from rollmq.limits import WORKER_GRACE_US

GENERAL_WORKERS: Final = 3
SHOW_EVERY_S: Final = 0.1
STORY_S: Final = 200.0
JOBS_PER_S_MIN: Final = 100
"""How long it may take at most: a hang is told, and not waited for."""
HELD_MIN: Final = 2
"""Jobs in the hands of the worker that is killed: it is to be killed at work."""
PACED_SHARE: Final = 0.75
"""Of the jobs; the rest is submitted at once, in the moment in which the leader is killed."""


@dataclass(frozen=True, slots=True)
class Script:
    """How long a story is told."""

    jobs: int
    spread_s: float
    """Over which the jobs before the leader's end are submitted."""
    worker_killed_after_s: float | None
    """None: none is killed but by the poison. With it the group must allow a job more than one crash."""
    crashes_max: int
    """Workers that a job may bring down before it is set aside; each costs the grace of a lost worker."""


FULL: Final = Script(jobs=8_000, spread_s=15.0, worker_killed_after_s=3.0, crashes_max=3)
QUICK: Final = Script(jobs=1_000, spread_s=5.0, worker_killed_after_s=None, crashes_max=1)


@dataclass(frozen=True, slots=True)
class Ending:
    """What was found."""

    figures: Figures
    replicas: Replicas

    @property
    def is_sound(self) -> bool:
        """Nothing was lost, nothing untrue was told, and the nodes agree to the byte."""
        return self.figures.is_sound and self.replicas.are_equal and not self.replicas.damages


class Story:
    """Played once."""

    def __init__(self, folder: Path, script: Script, screen: Screen) -> None:
        self.cast = Cast(folder)
        self._script = script
        self._screen = screen
        self._say = screen.say
        self._takeover_ms = 0
        self._probes: list[Receipt] = []
        """The job that told when the takeover was over."""
        self._risky = asyncio.Event()
        """The poison has been set aside: its worker will not be brought down again."""

    async def play(self) -> Ending:
        """From the first process to the verdict. Raises DemoFailed."""
        limit_s = STORY_S + self._script.jobs / JOBS_PER_S_MIN
        try:
            async with asyncio.timeout(limit_s):
                return await self._play()
        except TimeoutError as error:
            told = self._screen.lines[-1].text
            raise DemoFailed(
                f"it did not come to its end within {limit_s:g} s. The last was: {told}."
            ) from error

    async def _play(self) -> Ending:
        script = self._script
        await self._open()
        load = Load(
            self.cast.servers,
            plan(script.jobs),
            paced_count=int(script.jobs * PACED_SHARE),
            spread_s=script.spread_s,
        )
        self._screen.begin(script.jobs)
        self._say(f"three clients begin to submit {script.jobs:,} jobs of four execs")
        async with asyncio.TaskGroup() as group:
            shown = group.create_task(self._show(load))
            group.create_task(self._watch_risky_worker(load))
            running = group.create_task(load.run())
            await self._kill_worker()
            await self._risky.wait()
            dead = await self._kill_leader(load, running)
            await running
            shown.cancel()
        self._screen.end()
        self._say(f"all {script.jobs:,} jobs have ended")
        await self._come_back(dead)
        return await self._prove(load)

    async def _open(self) -> None:
        """Nodes, a leader, workers."""
        cast = self.cast
        ports = ", ".join(str(node.port) for node in cast.nodes)
        self._say(f"three nodes start, at 127.0.0.1 ports {ports}; their state is in {cast.folder}")
        for node in cast.nodes:
            node.start()
        leader = await cast.leader()
        self._say(f"they have found each other and elected {leader.name}")
        changes = {"crashes_max": self._script.crashes_max}
        await cast.ask("settings_set", {"changes": changes}, is_command=True)
        for _ in range(GENERAL_WORKERS):
            cast.start_worker()
        cast.start_worker(RISKY, hands=1)
        await self._wait_for_workers(len(cast.workers))
        names = ", ".join(worker.name for worker in cast.workers)
        self._say(f"workers {names} are connected, each a process of its own")

    async def _wait_for_workers(self, count: int) -> None:
        end_s = time.monotonic() + PATIENCE_S
        while len(await self.cast.workers_connected()) < count:
            self.cast.check((*self.cast.nodes, *self.cast.workers))
            if time.monotonic() > end_s:
                raise DemoFailed(f"of {count} workers not all were connected within {PATIENCE_S:g} s.")
            await asyncio.sleep(SHOW_EVERY_S)

    async def _show(self, load: Load) -> None:
        while True:
            self._screen.move(accepted=load.accepted_count, ended=load.ended_count)
            await asyncio.sleep(SHOW_EVERY_S)

    # --- what is done to them -------------------------------------------------------------------------

    async def _watch_risky_worker(self, load: Load) -> None:
        """One job kills whatever process runs it. A supervisor starts a new one, as systemd would."""
        worker, count = self.cast.workers[-1], 0
        while not load.ends_of(POISON):
            if worker.fell:
                count += 1
                how = worker.how_it_ended()
                old, worker = worker, self.cast.start_worker(RISKY, hands=1)
                self._say(
                    f"a job brings down its worker ({count}): {old.name} {how}; {worker.name} starts instead"
                )
            await asyncio.sleep(SHOW_EVERY_S)
        state = load.ends_of(POISON)[0]
        self._say(f"that job is poison, and {state} now: a dead letter; its neighbours run on")
        self._risky.set()

    async def _kill_worker(self) -> None:
        """SIGKILL in the middle of its jobs: they come back when the grace of a lost worker is over."""
        if self._script.worker_killed_after_s is None:
            return
        await asyncio.sleep(self._script.worker_killed_after_s)
        victim = self.cast.workers[1]
        while (held := (await self.cast.workers_connected()).get(victim.name, 0)) < HELD_MIN:
            self.cast.check()
            await asyncio.sleep(LOOK_S)
        victim.kill()
        new = self.cast.start_worker()
        self._say(
            f"SIGKILL to worker {victim.name}, which held {held} jobs; {new.name} starts in its place",
            "yellow",
        )
        while victim.name in await self.cast.workers_connected():
            await asyncio.sleep(SHOW_EVERY_S)
        grace_s = WORKER_GRACE_US / 1e6
        self._say(f"{victim.name} did not come back within {grace_s:g} s: its jobs go to the others")

    async def _kill_leader(self, load: Load, running: asyncio.Task[None]) -> Node:
        """SIGKILL with submits on their way; how long until a new submit is confirmed?"""
        cast = self.cast
        async with Client(cast.servers, client_id="probe") as probe:
            leader = await cast.leader()
            await probe.status()  # it is connected
            load.let_go.set()
            before = load.accepted_count
            while load.accepted_count == before and not running.done():
                await asyncio.sleep(0.001)  # some of it is answered now, and some is not
            unanswered, unended = load.unanswered_count, load.accepted_count - load.ended_count
            killed_s = time.monotonic()
            leader.kill()
            part = Part("probe", "image.resize", b"probe")
            job = await probe.submit(part.exec, part.payload)
            self._takeover_ms = round((time.monotonic() - killed_s) * 1000)
            receipt = Receipt(part, job.id)
            self._say(
                f"SIGKILL to the leader, {leader.name}, with {unanswered:,} submits unanswered and "
                f"{unended:,} jobs queued or running",
                "yellow",
            )
            new = await cast.leader([node for node in cast.nodes if node is not leader])
            self._say(
                f"{new.name} took over by itself: the next submit was confirmed {self._takeover_ms} ms "
                f"after the kill",
                "green",
            )
            receipt.told.append((await job.result()).state)
            self._probes.append(receipt)
        return leader

    # --- the end --------------------------------------------------------------------------------------

    async def _come_back(self, dead: Node) -> None:
        """The dead node starts on its old directory, and learns what it missed."""
        last = int((await self.cast.ask("status"))["last_index"])
        began_s = time.monotonic()
        dead.start()
        await until(lambda: _applied(dead) >= last, f"{dead.name} has caught up", is_slow=True)
        self._say(
            f"{dead.name} is back, on its old directory, and has caught up: it holds all {last:,} entries, "
            f"{time.monotonic() - began_s:.1f} s after its start",
            "green",
        )

    async def _prove(self, load: Load) -> Ending:
        """Every end is asked for once more, the log is sealed, every node stops, and the files are read."""
        cast = self.cast
        receipts = [*load.receipts, *self._probes]
        await ask_again(cast.servers, receipts)
        last = int((await cast.ask("status"))["last_index"])
        await cast.ask("marker", is_command=True)
        folders = [node.state / "history" for node in cast.nodes]
        await until(lambda: all(_sealed_up_to(folder) >= last for folder in folders), "all nodes have sealed")
        for player in (*cast.workers, *cast.nodes):
            await player.stop()
        self._say(
            "everybody has stopped politely; now the clients' receipts are compared with the nodes' logs"
        )
        states = [node.state for node in cast.nodes]
        log = await asyncio.to_thread(read_log, states[0])
        replicas = await asyncio.to_thread(compare_replicas, states)
        return Ending(compare(receipts, log, takeover_ms=self._takeover_ms), replicas)


def _applied(node: Node) -> int:
    status = node.ask("status")
    return int(status["applied_index"]) if status is not None else 0


def _sealed_up_to(history: Path) -> int:
    """The last entry in the sealed segments of a folder."""
    ends = [int(path.stem.rpartition("-")[2]) for path in history.glob("events-*-*.jsonl")]
    return max(ends, default=0)
