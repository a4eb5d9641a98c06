"""The simulator's command line.

python -m tests.sim seed N [--trace]     one seed, with everything that happened
python -m tests.sim storm [--seconds N] [--from N]
"""

import time
from itertools import count

import click

from tests.sim.check import SeedFailed, run_seed


@click.group(help="Whole systems from one seed: node, disk, network, clients, workers.")
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
@click.option(
    "--from", "first", type=int, default=None, help="The first seed; by default it follows the clock."
)
def storm(seconds: float | None, first: int | None) -> None:
    """Seeds in a row."""
    begin_s = time.monotonic()
    first = int(time.time()) * 1000 if first is None else first
    virtual_us = jobs_count = crashes_count = 0
    for done_count in count(1):
        try:
            report = run_seed(first + done_count - 1)
        except SeedFailed as error:
            raise click.ClickException(str(error)) from error
        virtual_us += report.virtual_us
        jobs_count += report.counts["event Enqueue"]
        crashes_count += report.counts["kills"] + report.counts["power cuts"]
        spent_s = time.monotonic() - begin_s
        is_over = seconds is not None and spent_s >= seconds
        if done_count % 100 == 0 or is_over:
            click.echo(
                f"{done_count:,} seeds from {first}, {spent_s:,.0f} s: {virtual_us / 3.6e9:,.0f} hours, "
                f"{jobs_count:,} jobs, {crashes_count:,} crashes, nothing broken"
            )
        if is_over:
            return


if __name__ == "__main__":
    main()
