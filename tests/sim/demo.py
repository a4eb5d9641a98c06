"""A story for people: thousands of jobs, workers that die, a node that loses power, and nothing lost.

It is a run like any other, with a mixture chosen to be eventful. Everything that it claims at the end is what
the oracle counted, not what the queue says of itself.
"""

from collections.abc import Callable
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from rollmq.core.events import Settings
from rollmq.core.raft_ready import RaftSettings
from tests.sim.check import Run
from tests.sim.swarm import MS, NetFaults, NodeFaults, Swarm, Traffic, WorkerFaults
from tests.sim.world import SECOND_US

JOBS: Final = 4_200
TOLD: Final = ("loses power", "is killed", "stops", "was in the middle", "dies: of", "the power goes")
STORIES_MAX: Final = 40


def eventful() -> Swarm:
    """A busy queue on a bad day."""
    return Swarm(
        storm_us=120 * SECOND_US,
        net=NetFaults(break_every_us=40 * SECOND_US, half_open=0.2),
        node=NodeFaults(
            sync_us=(2 * MS, 20 * MS),
            stall=0.0005,
            crash_every_us=4 * SECOND_US,
            power_cut=0.6,
            in_call=0.8,
            boot_crash=0.2,
        ),
        workers=WorkerFaults(
            run_us=(2 * MS, 300 * MS), die_every_us=25 * SECOND_US, late_ack=0.01, repeat_ack=0.05
        ),
        traffic=Traffic(
            clients=3,
            workers=6,
            execs=3,
            jobs_max=JOBS,
            submit_every_us=150 * MS,
            burst=20,
            kinds={"ok": 0.9, "flaky": 0.08, "failing": 0.015, "poison": 0.0007, "rejecting": 0.005},
            prioritised=0.2,
            payload_bytes=2_000,
        ),
        settings=Settings(0, 0, 0),
        mark_every_us=5 * SECOND_US,
        snapshot_every_entries=3_000,
        keep_history_bytes=1 << 40,
        tick_us=100 * MS,
        turn_us=1 * MS,
        raft=RaftSettings(),
    )


def tell(seed: int, console: Console | None = None) -> None:
    """Run it, and say what happens."""
    out = console or Console()
    out.print(
        f"[bold]rollmq demo[/]: one node, 3 clients, 6 workers, {JOBS:,} jobs, on a bad day.\n"
        "Simulated from one seed: the disk loses what was not synced, connections break at any byte.\n"
        "The code that decides, stores and recovers is the real one.\n"
    )
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=out) as progress:
        run = Run(f"demo/{seed}", eventful(), echo=_narrator(progress))
        task = progress.add_task("jobs ended", total=JOBS)
        _advance(run, lambda done, total: progress.update(task, completed=done, total=total))
        progress.update(task, completed=_ended(run), total=len(run.oracle.ledger.jobs))
    report = run.accounts()
    out.print(_table(run))
    out.print(
        f"\nThe same again, bit for bit: [bold].venv/bin/python -m tests.sim demo --seed {seed}[/] "
        f"(trace {report.digest[:12]})\n"
        "Try next: [bold]make storm SECONDS=60[/] (other seeds, all kinds of faults), "
        "[bold].venv/bin/python -m tests.sim seed 1 --trace[/] (one run, line by line), "
        "[bold]docs/architecture.md[/] (why it holds)"
    )


def _narrator(progress: Progress) -> Callable[[str], None]:
    """Print what is worth telling, and not too much of it."""
    left = [STORIES_MAX]

    def narrate(line: str) -> None:
        if left[0] > 0 and any(what in line for what in TOLD):
            left[0] -= 1
            progress.console.print(f"[dim]{line}[/]", highlight=False)
            if left[0] == 0:
                progress.console.print("[dim]             … and so on[/]")

    return narrate


def _advance(run: Run, show: Callable[[int, int], None]) -> None:
    """The storm in small steps, then the calm."""
    for second in range(1, run.swarm.storm_us // SECOND_US + 1):
        run.storm(second * SECOND_US)
        show(_ended(run), max(JOBS, len(run.oracle.ledger.jobs)))
    run.calm()


def _ended(run: Run) -> int:
    return sum(job.state not in ("queued", "inflight") for job in run.oracle.ledger.jobs.values())


def _table(run: Run) -> Table:
    jobs, counts = run.oracle.ledger.jobs, run.oracle.counts
    told = set(run.oracle.accepted_told.values())
    rows = (
        ("jobs accepted", f"{len(told):,}", "each client was told so"),
        ("finished", f"{sum(j.state == 'done' for j in jobs.values()):,}", "with a result"),
        ("retried", f"{sum(j.attempt > 1 for j in jobs.values()):,}", "more than one attempt"),
        (
            "dead letters",
            f"{sum(j.state == 'dead' for j in jobs.values()):,}",
            "always failing, rejected, poison",
        ),
        ("[bold]lost[/]", f"[bold]{len(told - jobs.keys())}[/]", "accepted and not in the log"),
        (
            "[bold]told twice[/]",
            f"[bold]{sum(len(j.finals) > 1 for j in jobs.values())}[/]",
            "two final states",
        ),
        ("node killed", f"{counts['kills']:,}", "the process, at any instant"),
        ("power cut", f"{counts['power cuts']:,}", "the machine: unsynced pages are gone"),
        ("torn writes found", f"{counts['torn writes']:,}", "cut off at the next start, a copy kept"),
        ("workers died", f"{counts['dead workers']:,}", "their jobs went to others"),
        (
            "segments sealed",
            f"{counts['sealed segments']:,}",
            f"and {counts['snapshots']:,} snapshots folded",
        ),
    )
    table = Table(title=f"after {run.world.now_us / 1e6:,.0f} simulated seconds", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_column(style="dim")
    for row in rows:
        table.add_row(*row)
    return table
