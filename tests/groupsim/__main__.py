"""The group simulator's command line.

python -m tests.groupsim seed N [--trace]     one seed, with everything that happened
python -m tests.groupsim storm [--seconds N] [--from N] [--both]
"""

import time
from collections import Counter
from itertools import count

import click

from tests.groupsim.check import run_seed
from tests.sim.check import SeedFailed
from tests.sim.check import run_seed as run_one_node


@click.group(help="Whole groups from one seed: nodes, disks, networks, clients, workers.")
def main() -> None:
    """Nothing by itself."""


@main.command(help="Replay one seed.")
@click.argument("number", type=int)
@click.option("--trace", is_flag=True, help="Print everything that happens.")
def seed(number: int, trace: bool) -> None:
    """One run."""
    try:
        report = run_seed(number, echo=click.echo if trace else None)
    except SeedFailed as error:
        raise click.ClickException(str(error)) from error
    for name, how_many in sorted(report.counts.items()):
        click.echo(f"{how_many:8,} {name}")
    click.echo(f"seed {number}: sound, {report.virtual_us / 1e6:,.0f} s, trace {report.digest[:16]}")


@main.command(help="Run seeds until stopped, or until one fails.")
@click.option("--seconds", type=float, default=None, help="Stop after so long.")
@click.option("--from", "first", type=int, default=None, help="The first seed; by default it is the time.")
@click.option("--both", is_flag=True, help="Each number twice: as a group, and as one node.")
@click.option("--keep-going", is_flag=True, help="Name the seeds that fail, and go on.")
def storm(seconds: float | None, first: int | None, both: bool, keep_going: bool) -> None:
    """Seeds in a row."""
    begin_s = time.monotonic()
    first = int(time.time()) * 1000 if first is None else first
    counts: Counter[str] = Counter()
    failed_count = 0
    for number in count(first):
        for run in (run_seed, run_one_node)[: 1 + both]:
            try:
                counts += run(number).counts
            except SeedFailed as error:
                failed_count += 1
                click.echo(str(error) if not keep_going else str(error).split("  trace")[0])
                if not keep_going:
                    raise click.exceptions.Exit(1) from error
        spent_s = time.monotonic() - begin_s
        is_over = seconds is not None and spent_s >= seconds
        if (number + 1 - first) % 100 == 0 or is_over:
            click.echo(
                f"{number + 1 - first:,} seeds from {first}{', each as a group and as one node' * both}, "
                f"{spent_s:,.0f} s: {counts['event Enqueue']:,} jobs, {counts['leaders']:,} leaders, "
                f"{counts['kills'] + counts['power cuts']:,} crashes, {failed_count} failed"
            )
        if is_over:
            return


if __name__ == "__main__":
    main()
