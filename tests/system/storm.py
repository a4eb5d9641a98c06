"""One storm with real processes: weather over a group, clients and workers at work; then calm, and the proof.

The verdict depends on no clock: after one fault of each kind it goes on until the time is over, and whatever
is waited for is a fact.
"""

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.group.real_group import RealGroup, RealNode, wait_for
from tests.system.crew import SETTLE_S, Crew, running_crew
from tests.system.nodes import STORM_OPTIONS, running_gated
from tests.system.proof import Books, prove
from tests.system.weather import Weather

EAGER_EVERY = 4
"""One seed in so many is with `--assign eager`."""
TOLD_BYTES = 4_000
"""Some twenty jobs: it works again."""


@dataclass(slots=True)
class Report:
    """What a storm was."""

    seed: int
    size: int
    rounds: int = 0
    counts: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        said = ", ".join(f"{count:,} {name}" for name, count in sorted(self.counts.items()))
        return f"seed {self.seed}, {self.size} node(s): {self.rounds} rounds, lost 0: {said}"


def run_storm(
    folder: Path, *, seed: int, size: int, seconds: float, echo: Callable[[str], None] = lambda _text: None
) -> Report:
    """Raise AssertionError with what was not as promised; the folder has everything that was written."""
    chance = random.Random(seed)
    report = Report(seed, size)
    is_eager = seed % EAGER_EVERY == 0
    options = [*STORM_OPTIONS, *(["--assign", "eager"] if is_eager else [])]
    with (
        running_gated(folder, size, options=options) as (group, network),
        running_crew(folder, group.servers) as crew,
    ):
        weather = Weather(group, network, crew, chance)
        goes_on(group, crew)
        begin_s = time.monotonic()
        while weather.has_unseen or time.monotonic() < begin_s + seconds:
            fault = weather.draw()
            spent_s = time.monotonic() - begin_s
            echo(f"{spent_s:6.2f} s, round {report.rounds}: {fault.name}")
            fault.happen()
            report.rounds += 1
            all_run(group.nodes)
            if chance.random() < 0.6:
                goes_on(group, crew)
        goes_on(group, crew)
        settle(group, crew)
        report.counts.update(weather.counts)
    for name in ("snapshot_installed", "snapshot_folded"):
        report.counts[name] = sum(node.log_text().count(f"event={name}") for node in group.nodes)
    states, kept = [node.state for node in group.nodes], sorted(folder.glob("kept-*"))
    report.counts.update(prove(states, Books.in_folder(folder), kept=kept, is_eager=is_eager))
    return report


def all_run(nodes: Sequence[RealNode]) -> None:
    """No node has ended but by our hand."""
    for node in nodes:
        assert node.is_running, node.log_text()[-3000:]


def goes_on(group: RealGroup, crew: Crew, *, among: Sequence[RealNode] = ()) -> None:
    """Clients are told more of their jobs' ends from now on, and all nodes run, or those named."""
    goal = crew.told_bytes() + TOLD_BYTES

    def look() -> bool:
        all_run(among or group.nodes)
        return crew.told_bytes() >= goal

    wait_for(look, f"it goes on; {[node.status() for node in group.nodes]}", limit_s=SETTLE_S)


def settle(group: RealGroup, crew: Crew) -> None:
    """Everything accepted ends; everybody stops politely, nodes when they are even."""
    crew.finish()
    leader = group.leader()

    def is_done() -> bool:
        status = leader.status()
        return status is not None and status["queued"] == status["inflight"] == 0

    wait_for(is_done, "no job is left", limit_s=SETTLE_S)
    group.wait_until_even()
    for node in group.nodes:
        assert node.stop() == 0, node.log_text()[-2000:]
