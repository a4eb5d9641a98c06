"""Jobs per second and per processor second, submit to result, beside another system in alternating pairs.

    python -m bench.throughput                             a quick look, the real client and worker
    python -m bench.throughput --pairs 10 --prototype FILE beside a prototype of the same path
    python -m bench.throughput --nodes 3                   a group, beside the prototype's if it is given
    python -m bench.throughput --driver raw                bare frames instead of the library
    python -m bench.throughput --backlog 1000000           with so many jobs queued, beside none
    python -m bench.throughput --many 100                  so many execs, clients and workers, beside one

A pair is one run of each, one after the other, first the one, next time the other: what else the machine
does hits both. The ratio is of the pair; the interval is of the middle eight tenths of the ratios. The
prototype's file takes `leader PORT LOG FOLLOWERS…`, `follower PORT LOG`, `worker PORT` and `client PORT JOBS
OUTSTANDING`. All nodes run on this machine and share its disk.
"""

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from bench.machine_limits import Row, describe
from bench.processes import cpu_seconds, free_ports, group, process, python, said_by, wait_for

JOBS: Final = {1: 1_000, 64: 10_000, 1024: 40_000}
JOBS_OTHERWISE: Final = 20_000
WARM_JOBS: Final = 500


class Running(NamedTuple):
    """A system that runs: whose processor time counts, and the command of its client."""

    nodes: tuple[int, ...]
    worker: int
    client: Callable[[int, int], list[str]]


class Run(NamedTuple):
    """One measurement."""

    jobs_per_s: float
    nodes_us: float
    """Processor time of all nodes for a job."""
    all_us: float
    """And of node, worker and client together."""


@contextmanager
def ours(driver: str = "driver", *, nodes: int = 1, backlog: int = 0, many: int = 1) -> Iterator[Running]:
    """Our nodes with a worker."""
    with group(nodes) as running:
        pids, ports = running
        if backlog:
            said_by(python("-m", "bench.raw_driver", "fill", ports, backlog))
        rest = [many] if many > 1 else []
        with process(python("-m", f"bench.{driver}", "worker", ports, *rest)) as worker:
            yield warmed(
                Running(
                    pids,
                    worker,
                    lambda jobs, outstanding: python(
                        "-m", f"bench.{driver}", "client", ports, jobs, outstanding, *rest
                    ),
                )
            )


@contextmanager
def theirs(prototype: Path, *, nodes: int = 1) -> Iterator[Running]:
    """The prototype."""
    port, *followers = free_ports(nodes)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-"))
        pids = [
            stack.enter_context(process(python(prototype, "follower", each, Path(folder, f"log-{each}"))))
            for each in followers
        ]
        for each in followers:
            wait_for(each)
        leader = python(prototype, "leader", port, Path(folder, "log"), *followers)
        pids.append(stack.enter_context(process(leader)))
        wait_for(port)
        worker = stack.enter_context(process(python(prototype, "worker", port)))
        yield warmed(
            Running(
                tuple(pids),
                worker,
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
    nodes_before, worker_before, before = cpu_of(system.nodes), cpu_seconds(system.worker), os.times()
    speed = float(said_by(system.client(jobs, outstanding)).split()[-1])
    nodes, worker = cpu_of(system.nodes) - nodes_before, cpu_seconds(system.worker) - worker_before
    after = os.times()
    client = after.children_user + after.children_system - before.children_user - before.children_system
    return Run(speed, nodes / jobs * 1e6, (nodes + worker + client) / jobs * 1e6)


def cpu_of(pids: tuple[int, ...]) -> float:
    """Processor time of some processes together."""
    return sum(map(cpu_seconds, pids))


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
    cpu = statistics.median(mine.nodes_us / other.nodes_us for mine, other in found)
    return (
        f"{title:<28} {outstanding:>5,} | {one.jobs_per_s:>8,.0f} {two.jobs_per_s:>8,.0f} jobs/s"
        f" | ratio {statistics.median(ratios):.2f} ({low:.2f} to {high:.2f})"
        f" | nodes {one.nodes_us:.0f} and {two.nodes_us:.0f} us a job, {cpu:.1f} times"
        f" | all {one.all_us:.0f} and {two.all_us:.0f} us"
    )


def run(nodes: int = 1) -> list[Row]:
    """Without anything to compare with: the real client and worker, one run each."""
    rows: list[Row] = []
    with ours(nodes=nodes) as system:
        for outstanding in JOBS:
            found = measured(system, outstanding)
            rows.append((f"submit to result, {outstanding:,} outstanding", found.jobs_per_s, "jobs/s"))
            rows.append(("  processor time of nodes, worker and client", found.all_us, "us a job"))
    return rows


def main() -> int:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench.throughput")
    parser.add_argument("--prototype", type=Path, help="what to compare with")
    parser.add_argument("--driver", choices=["library", "raw"], default="library")
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--outstanding", default="1,64,1024")
    parser.add_argument("--backlog", type=int, default=0)
    parser.add_argument("--many", type=int, default=1)
    chosen = parser.parse_args()
    print(describe(), flush=True)
    driver = "raw_driver" if chosen.driver == "raw" or chosen.many > 1 else "driver"
    nodes = chosen.nodes
    one = lambda: ours(driver, nodes=nodes, backlog=chosen.backlog, many=chosen.many)  # noqa: E731
    title = f"{nodes} {'nodes' if nodes > 1 else 'node'}, {chosen.driver}"
    if chosen.prototype is not None:
        other = lambda: theirs(chosen.prototype, nodes=nodes)  # noqa: E731
        title = f"{title} : prototype"
    elif chosen.backlog or chosen.many > 1:
        other = lambda: ours(driver, nodes=nodes)  # noqa: E731
        title = f"{chosen.backlog:,} queued : none" if chosen.backlog else f"{chosen.many} of each : one"
    else:
        for name, value, unit in run(nodes):
            print(f"  {name:<50} {value:>10,.1f} {unit}")
        return 0
    for outstanding in map(int, chosen.outstanding.split(",")):
        found = list(pairs(one, other, outstanding, chosen.pairs))
        print(table(title, outstanding, found), flush=True)
    print(f"load now {os.getloadavg()[0]:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
