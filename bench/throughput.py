"""Jobs per second and per processor second, submit to result, beside another system in alternating pairs.

    python -m bench.throughput                             a quick look, the real client and worker
    python -m bench.throughput --pairs 10 --prototype FILE beside a prototype of the same path
    python -m bench.throughput --driver raw                bare frames instead of the library
    python -m bench.throughput --backlog 1000000           with so many jobs queued, beside none
    python -m bench.throughput --many 100                  so many execs, clients and workers, beside one

A pair is one run of each, one after the other, first the one, next time the other: what else the machine
does hits both. The ratio is of the pair; the interval is of the middle eight tenths of the ratios. The
prototype's file takes `leader PORT LOG`, `worker PORT` and `client PORT JOBS OUTSTANDING`, as ours do.
"""

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from bench.machine_limits import Row, describe
from bench.processes import cpu_seconds, free_port, node, process, python, said_by, wait_for

JOBS: Final = {1: 1_000, 64: 10_000, 1024: 40_000}
JOBS_OTHERWISE: Final = 20_000
WARM_JOBS: Final = 500


class Running(NamedTuple):
    """A system that runs: whose processor time counts, and the command of its client."""

    pids: tuple[int, ...]
    client: Callable[[int, int], list[str]]


class Run(NamedTuple):
    """One measurement."""

    jobs_per_s: float
    node_us: float
    """Processor time of the node for a job."""
    all_us: float
    """And of node, worker and client together."""


@contextmanager
def ours(driver: str = "driver", *, backlog: int = 0, many: int = 1) -> Iterator[Running]:
    """A node with a worker."""
    port = free_port()
    with node(port) as pid:
        if backlog:
            said_by(python("-m", "bench.raw_driver", "fill", port, backlog))
        rest = [many] if many > 1 else []
        with process(python("-m", f"bench.{driver}", "worker", port, *rest)) as worker:
            yield warmed(
                Running(
                    (pid, worker),
                    lambda jobs, outstanding: python(
                        "-m", f"bench.{driver}", "client", port, jobs, outstanding, *rest
                    ),
                )
            )


@contextmanager
def theirs(prototype: Path) -> Iterator[Running]:
    """The prototype."""
    port = free_port()
    with (
        tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as folder,
        process(python(prototype, "leader", port, Path(folder, "log"))) as leader,
    ):
        wait_for(port)
        with process(python(prototype, "worker", port)) as worker:
            yield warmed(
                Running(
                    (leader, worker),
                    lambda jobs, outstanding: python(prototype, "client", port, jobs, outstanding),
                )
            )


def warmed(system: Running) -> Running:
    """Some jobs first: they wait until the worker is there, and every part has run once."""
    said_by(system.client(WARM_JOBS, WARM_JOBS))
    return system


def measured(system: Running, outstanding: int) -> Run:
    """One run of its client."""
    jobs = JOBS.get(outstanding, JOBS_OTHERWISE)
    before, children = [cpu_seconds(pid) for pid in system.pids], os.times()
    speed = float(said_by(system.client(jobs, outstanding)).split()[-1])
    spent = [cpu_seconds(pid) - was for pid, was in zip(system.pids, before, strict=True)]
    after = os.times()
    client = after.children_user + after.children_system - children.children_user - children.children_system
    return Run(speed, spent[0] / jobs * 1e6, (sum(spent) + client) / jobs * 1e6)


def pairs(
    first: Callable[[], Iterator[Running]],
    second: Callable[[], Iterator[Running]],
    outstanding: int,
    count: int,
) -> Iterator[tuple[Run, Run]]:
    """Alternating: who begins changes with each pair."""
    with first() as one, second() as other:  # type: ignore[attr-defined]
        for number in range(count):
            systems = (one, other) if number % 2 == 0 else (other, one)
            found = [measured(system, outstanding) for system in systems]
            yield (found[0], found[1]) if number % 2 == 0 else (found[1], found[0])


def table(title: str, outstanding: int, found: list[tuple[Run, Run]]) -> str:
    """One line of medians."""
    ratios = sorted(mine.jobs_per_s / other.jobs_per_s for mine, other in found)
    low, high = ratios[len(ratios) // 10], ratios[-1 - len(ratios) // 10]
    one = Run(*(statistics.median(values) for values in zip(*(pair[0] for pair in found), strict=True)))
    two = Run(*(statistics.median(values) for values in zip(*(pair[1] for pair in found), strict=True)))
    cpu = statistics.median(mine.node_us / other.node_us for mine, other in found)
    return (
        f"{title:<28} {outstanding:>5,} | {one.jobs_per_s:>8,.0f} {two.jobs_per_s:>8,.0f} jobs/s"
        f" | ratio {statistics.median(ratios):.2f} ({low:.2f} to {high:.2f})"
        f" | node {one.node_us:.0f} and {two.node_us:.0f} us a job, {cpu:.1f} times"
        f" | all {one.all_us:.0f} and {two.all_us:.0f} us"
    )


def run() -> list[Row]:
    """Without anything to compare with: the real client and worker, one run each."""
    rows: list[Row] = []
    with ours() as system:
        for outstanding in JOBS:
            found = measured(system, outstanding)
            rows.append((f"submit to result, {outstanding:,} outstanding", found.jobs_per_s, "jobs/s"))
            rows.append(("  processor time of node, worker and client", found.all_us, "us a job"))
    return rows


def main() -> int:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench.throughput")
    parser.add_argument("--prototype", type=Path, help="what to compare with")
    parser.add_argument("--driver", choices=["library", "raw"], default="library")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--outstanding", default="1,64,1024")
    parser.add_argument("--backlog", type=int, default=0)
    parser.add_argument("--many", type=int, default=1)
    chosen = parser.parse_args()
    print(describe(), flush=True)
    driver = "raw_driver" if chosen.driver == "raw" or chosen.many > 1 else "driver"
    one, title = (lambda: ours(driver, backlog=chosen.backlog, many=chosen.many)), chosen.driver
    if chosen.prototype is not None:
        other, title = (lambda: theirs(chosen.prototype)), f"{title} : prototype"
    elif chosen.backlog or chosen.many > 1:
        other = lambda: ours(driver)  # noqa: E731
        title = f"{chosen.backlog:,} queued : none" if chosen.backlog else f"{chosen.many} of each : one"
    else:
        for name, value, unit in run():
            print(f"  {name:<50} {value:>10,.1f} {unit}")
        return 0
    for outstanding in map(int, chosen.outstanding.split(",")):
        found = list(pairs(one, other, outstanding, chosen.pairs))
        print(table(title, outstanding, found), flush=True)
    print(f"load now {os.getloadavg()[0]:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
