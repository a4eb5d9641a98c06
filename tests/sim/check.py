"""One run: a storm from a seed, then a calm in which every job must end, then the final accounts."""

import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from rollmq.core.job import INFLIGHT
from rollmq.core.subject import ASSIGN_PREFIX, matches
from rollmq.errors import RollmqError
from rollmq.library.operator import Address
from rollmq.library.route import name_of
from tests.sim.client import SimClient
from tests.sim.net import Link
from tests.sim.node import ADDRESS, SimNode
from tests.sim.oracle import Oracle, audit_node
from tests.sim.swarm import Swarm, draw
from tests.sim.weather import Weather
from tests.sim.worker import SimWorker
from tests.sim.world import SECOND_US, Violation, World

CALM_MAX_US: Final = 3_600 * SECOND_US
"""The longest that a job may take once nothing goes wrong: its delays, backoffs, timeouts and graces."""
CALM_STEP_US: Final = 5 * SECOND_US


@dataclass(frozen=True, slots=True)
class Report:
    """What a run was like."""

    seed: int | str
    digest: str
    counts: Counter[str]
    virtual_us: int
    events_count: int


class SeedFailed(AssertionError):
    """A seed broke a promise. The message says which, how to replay it, and what happened last."""


class OneNode:
    """A town with a single node."""

    def __init__(self, node: SimNode) -> None:
        self.node = node
        self.oracle = node.oracle
        self.servers = ADDRESS

    def dial(self, address: Address, link: Link) -> bool:
        """There is only one address."""
        assert name_of(address) == ADDRESS
        return self.node.dial(link)


class Run:
    """All parties of one run."""

    def __init__(self, seed: int | str, swarm: Swarm, *, echo: Callable[[str], None] | None = None) -> None:
        self.swarm = swarm
        self.world = World(seed, echo=echo)
        self.oracle = Oracle(self.world)
        self.node = SimNode(self.world, self.oracle, swarm)
        town = OneNode(self.node)
        traffic = swarm.traffic
        sessions = [(c, s) for c in range(traffic.clients) for s in range(traffic.sessions)]
        share = -(-traffic.jobs_max // len(sessions))
        self.clients = [
            SimClient(self.world, town, swarm, f"client{c}.{s}", f"client{c}", share) for c, s in sessions
        ]
        self.workers = [SimWorker(self.world, town, swarm, f"worker{n}") for n in range(traffic.workers)]
        self.weather = Weather(self.world, self.node, swarm)

    def storm(self, until_us: int | None = None) -> None:
        """Faults, until the storm is over."""
        if self.world.now_us == 0:
            self.node.boot()
        self.world.run(self.swarm.storm_us if until_us is None else until_us)

    def calm(self) -> None:
        """No new faults; what was broken is mended, and every job must end in bounded time."""
        world = self.world
        world.say("world", "the storm is over")
        world.is_calm = True
        self.weather.calm_down()
        for party in (*self.clients, *self.workers):
            party.hang_up()
        for worker in self.workers:
            worker.calm_down()
        for client in self.clients:
            client.submits_left = min(client.submits_left, 20)
        is_resumed = world.happens(0.8)
        begin_us = world.now_us
        while world.now_us < begin_us + CALM_MAX_US:
            if is_resumed:
                self.weather.resume_all()
            world.run(world.now_us + CALM_STEP_US)
            if self._is_over():
                return
        raise Violation(f"P7: after an hour of calm {self._what_is_open()}")

    def _is_over(self) -> bool:
        return self.node.leader is not None and not self._what_is_open()

    def _what_is_open(self) -> list[str]:
        """Jobs that should have ended, submits that should have been answered."""
        found = []
        ledger = self.oracle.ledger
        for job_id, job in ledger.jobs.items():
            if job.state in ("queued", "inflight") and job.enqueue.exec not in ledger.paused:
                subject = ASSIGN_PREFIX + job.enqueue.exec
                if job.state == INFLIGHT or any(
                    matches(p, subject) for w in self.workers for p in w.patterns
                ):
                    found.append(f"{job_id} of {job.enqueue.exec} is {job.state}")
        for client in self.clients:
            found += client.waits_for()
        return found[:5]

    def accounts(self) -> Report:
        """The final comparison of everything with everything."""
        leader = self.node.leader
        assert leader is not None
        audit_node(self.oracle, leader)
        for _ in range(120_000):
            # Between two writes there is a moment in which all that is decided is committed; a stalled
            # disk may need its time for the last one.
            if self.oracle.committed_index == self.node.replica.machine.last_index:
                break
            self.world.run(self.world.now_us + 500)
        self.oracle.same_state(self.node.replica.machine, "leader's")
        self.oracle.final_check()
        for _ in range(3):
            self.node.rotten_copy_is_seen()
        self.check_clients()
        counts = self.oracle.counts + Counter(
            {f"event {name}": count for name, count in self.oracle.ledger.counts.items()}
        )
        world = self.world
        return Report(world.seed, world.digest(), counts, world.now_us, world.events_count)

    def dispose(self) -> None:
        """Let the memory go."""
        if self.node.is_up:
            self.node.dispose()
        self.oracle.dispose()

    def check_clients(self) -> None:
        """What each client was told, against the whole log."""
        ids_by_payload: dict[bytes, list[str]] = {}
        for job_id, job in self.oracle.ledger.jobs.items():
            ids_by_payload.setdefault(job.enqueue.payload, []).append(job_id)
        for client in self.clients:
            client.check(ids_by_payload)


def run_seed(
    seed: int | str, *, echo: Callable[[str], None] | None = None, swarm: Swarm | None = None
) -> Report:
    """One whole run. Raises SeedFailed."""
    return judged(Run(seed, swarm or draw(Random(f"swarm/{seed}")), echo=echo), f"tests.sim seed {seed}")


def judged(run: Run, replay: str) -> Report:
    """Storm, calm, accounts. Raises SeedFailed, which says how to `replay` the run."""
    try:
        run.storm()
        run.calm()
        return run.accounts()
    except (AssertionError, RollmqError, LookupError, ValueError, AttributeError, TypeError) as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        last = "\n".join(list(run.world.lines)[-40:])
        raise SeedFailed(
            f"{replay}: {type(error).__name__}: {error}\n"
            f"  at {where.filename}:{where.lineno}\n"
            f"  replay: .venv/bin/python -m {replay} --trace\n"
            f"  trace {run.world.digest()[:16]}, its last lines:\n{last}"
        ) from error
    finally:
        run.dispose()
