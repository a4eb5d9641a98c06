"""Workers: processes that host the library's WorkerCore, and whose handlers run, fail, hang and die.

What a handler does follows from the first word of its payload, so that a job can be a poison for whoever
runs it. A worker's process may die and come back as another instance under the same id. What the core says
and is told passes a tap that counts for itself, so that a wrong book of the core is seen.
"""

from dataclasses import dataclass
from functools import partial

from rollmq.library.held_job import RUNNING, HeldJob, Outcome
from rollmq.library.worker_core import WorkerCore, WorkerProfile
from rollmq.wire.headers import Fence
from rollmq.wire.message import MsgType
from tests.sim.party import Party, Town
from tests.sim.swarm import MS, Swarm
from tests.sim.tap import WorkerTap
from tests.sim.world import SECOND_US, Timer, Violation, World


@dataclass(slots=True, eq=False)
class Run:
    """A handler that runs."""

    held: HeldJob
    kind: str
    timer: Timer | None = None
    is_hanging: bool = False
    is_told_to_stop: bool = False


class SimWorker(Party):
    """One worker: the same id for ever, one instance after the other."""

    core: WorkerCore

    def __init__(self, world: World, town: Town, swarm: Swarm, name: str) -> None:
        super().__init__(world, town, swarm, name)
        self.hands = world.random.choice((1, 2, 4))
        self.capacity = world.random.choice((None, self.hands, 2 * self.hands, 4 * self.hands))
        self.patterns = self._draw_patterns()
        self.runs: dict[Fence, Run] = {}
        self._be_born()
        for every_us, fate in (
            (swarm.workers.die_every_us, self._die_by_chance),
            (swarm.workers.drain_every_us, self._drain_by_chance),
        ):
            if every_us:
                world.after(world.rarely(every_us), fate)

    def _draw_patterns(self) -> list[str]:
        execs, random = self.swarm.traffic.execs, self.world.random
        if self.world.happens(self.swarm.traffic.unmatched):
            return [f"job.assign.exec{n}" for n in range(execs) if random.random() < 0.5] or [
                "job.assign.none"
            ]
        return random.choice(
            (["job.assign.>"], ["job.assign.*"], [f"job.assign.exec{n}" for n in range(execs)])
        )

    # -- life and death

    def _be_born(self) -> None:
        profile = WorkerProfile(
            worker_id=self.name,
            instance=f"{self.world.random.getrandbits(64):016x}",
            patterns=tuple(self.patterns),
            hands=self.hands,
            credit=self.capacity,
            host="sim",
        )
        self.core = WorkerCore(profile, takes=self._takes)
        self.runs.clear()
        self.begin(self.core)
        self._main.tap = self.tap = WorkerTap(self.name, self.oracle, self._running)
        if self.swarm.workers.drop_started:
            self._main.drops = self._main.drops | {int(MsgType.STARTED)}

    def _takes(self, _exec: str) -> bool:
        return self.world.is_calm or not self.world.happens(self.swarm.workers.hand_back)

    def die(self, why: str) -> None:
        """The process is gone, with all that it held."""
        if not self.is_alive:
            return
        self.world.say(self.name, f"dies: {why}")
        self.oracle.counts["dead workers"] += 1
        self._stop_all()
        is_silent = self.world.happens(self.swarm.workers.silent) and not self.world.is_calm
        self.vanish(is_silent=is_silent)
        self.world.after(self.world.between((10 * MS, 20 * SECOND_US)), self._be_born)

    def _stop_all(self) -> None:
        for run in self.runs.values():
            if run.timer is not None:
                run.timer.cancel()
        self.runs.clear()

    def _die_by_chance(self) -> None:
        if not self.world.is_calm:
            self.die("by chance")
            self.world.after(self.world.rarely(self.swarm.workers.die_every_us), self._die_by_chance)

    def _drain_by_chance(self) -> None:
        if not self.world.is_calm:
            self.drain()
            self.world.after(self.world.rarely(self.swarm.workers.drain_every_us), self._drain_by_chance)

    def drain(self) -> None:
        """A polite end: hand back what has not started, finish what runs, go when all is confirmed."""
        if self.is_alive and not self.core.is_draining:
            self.world.say(self.name, "drains")
            self.core.drain()
            self.turn()

    def _leave(self) -> None:
        self.world.say(self.name, "leaves")
        self._stop_all()
        self.leave()
        self.world.after(self.world.between((10 * MS, 20 * SECOND_US)), self._be_born)

    def calm_down(self) -> None:
        """The storm is over. A handler that hangs does so until it is stopped for its timeout."""
        for run in list(self.runs.values()):
            if run.is_hanging and run.is_told_to_stop:
                run.timer = self.world.after(SECOND_US, partial(self._end, run, Outcome()))

    # -- what the core wants done

    def turned(self) -> None:
        for held in self.core.take_starts():
            self._start(held)
        for held in self.core.take_stops():
            run = self.runs.get(held.fence)
            if run is not None:
                self._told_to_stop(run)
        if len(self.core.held) > (self.capacity or 2 * self.hands):
            raise Violation(f"P4: {self.name} holds {len(self.core.held)} jobs, more than it has room for")
        if self.core.is_drained and self.is_alive:
            self._leave()

    def _start(self, held: HeldJob) -> None:
        """The handler runs."""
        world, faults = self.world, self.swarm.workers
        self.oracle.run_began(held.job_id.hex(), held.fence)
        if len(self.runs) >= self.hands:
            raise Violation(f"{self.name} runs more than its {self.hands} hands can")
        if held.fence not in self.tap.started and not faults.drop_started:
            raise Violation(f"P3: {self.name} begins {held.fence} and has not said so")
        run = self.runs[held.fence] = Run(held, held.payload.split(b" ")[0].decode())
        run_us = world.between(faults.run_us)
        if run.kind == "slow":
            run_us += world.between((SECOND_US, 20 * SECOND_US))
        if run.kind == "poison":
            run.timer = world.after(run_us, lambda: self.die(f"of {held.job_id.hex()}"))
        elif not world.is_calm and world.happens(faults.hang):
            run.is_hanging = True
        else:
            if run.kind == "patient":
                world.after(run_us // 2, lambda: self._extend(run))
            run.timer = world.after(run_us, lambda: self._return(run))

    def _look_at_complaints(self) -> None:
        complaints, self.core.complaints = self.core.complaints, []
        for complaint in complaints:
            if self.swarm.net.is_orderly and not complaint.startswith("there is no handler"):
                raise Violation(f"the node did not like what {self.name} said: {complaint}")

    def _running(self) -> set[Fence]:
        return {fence for fence, run in self.runs.items() if run.held.state == RUNNING}

    def _is_running(self, run: Run) -> bool:
        return self.is_alive and self.runs.get(run.held.fence) is run

    def _told_to_stop(self, run: Run) -> None:
        run.is_told_to_stop = True
        ignores = self.world.happens(self.swarm.workers.ignores_stop)
        if ignores and not (run.is_hanging and self.world.is_calm):
            return  # a thread cannot be stopped: its answer comes late, or never
        if run.timer is not None:
            run.timer.cancel()
        run.timer = self.world.after(1, partial(self._end, run, Outcome(what="retry", error_type="Stopped")))

    def _extend(self, run: Run) -> None:
        if self._is_running(run):
            self.core.progress(run.held, b"half")
            self.core.extend(run.held, 5 * SECOND_US)
            self.turn()

    def _return(self, run: Run) -> None:
        """The handler returned or raised; that may take its time to get through."""
        if not self._is_running(run):
            return
        outcome = self._outcome_of(run)
        faults = self.swarm.workers
        if self.world.happens(faults.late_ack) and not self.world.is_calm:
            late_us = self.world.between((SECOND_US, 30 * SECOND_US))
            run.timer = self.world.after(late_us, partial(self._end, run, outcome))
        else:
            self._end(run, outcome)

    def _end(self, run: Run, outcome: Outcome) -> None:
        if not self._is_running(run):
            return
        del self.runs[run.held.fence]
        if run.held.state == RUNNING:
            if self.swarm.net.is_orderly:
                self.tap.ended.add(run.held.fence)
            result = b"" if outcome.what else outcome.payload
            self.oracle.run_ended(run.held.job_id.hex(), run.held.fence, result)
        self.core.finished(run.held, outcome)
        self.core.settle()
        self.turn()
        self._look_at_complaints()
        if self.world.happens(self.swarm.workers.repeat_ack) and not self.world.is_calm:
            self.world.after(self.world.between((0, 5 * SECOND_US)), self._say_again)

    def _say_again(self) -> None:
        if self.is_alive:
            self.core.say_outcomes_again()
            self.turn()

    def _outcome_of(self, run: Run) -> Outcome:
        random, calm = self.world.random, self.world.is_calm
        run_us = self.world.now_us - run.held.started_us
        kind = run.kind
        if kind == "failing" or (kind == "flaky" and random.random() < 0.5):
            after_us = random.choice((None, 0, 3 * SECOND_US))
            return Outcome(b"detail", run_us, "retry", after_us, error_type="Bad")
        if kind == "rejecting":
            return Outcome(b"", run_us, "reject", error_type="No")
        if kind == "snoozing" and not calm and random.random() < 0.7:
            return Outcome(b"", run_us, "snooze", self.world.between((0, 5 * SECOND_US)))
        instance = self.core.profile.instance
        return Outcome(
            f"{run.held.job_id.hex()[-8:]} {run.held.fence} {self.name} {instance}".encode(), run_us
        )
