"""Storms with real processes, one after the other.

python -m tests.system storm [--seconds N] [--each N] [--nodes 1|3] [--from SEED]
"""

import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from itertools import count
from pathlib import Path

import click

from tests.system.storm import run_storm

EACH_S = 30.0


@click.group(help="Real nodes, clients and workers, killed, stopped and cut off at random.")
def main() -> None:
    """Nothing by itself."""


@main.command(help="Storms until stopped, or until something is not as promised.")
@click.option("--seconds", type=float, default=None, help="Begin no other after so long.")
@click.option("--each", type=float, default=EACH_S, show_default=True, help="Seconds of weather in each.")
@click.option("--nodes", type=click.Choice(["1", "3", "both"]), default="both", show_default=True)
@click.option("--from", "first", type=int, default=None, help="The first seed; by default it is the time.")
@click.option("--verbose", is_flag=True, help="Tell every round.")
def storm(seconds: float | None, each: float, nodes: str, first: int | None, verbose: bool) -> None:
    """Seeds in a row."""
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM)
    )  # all processes end with this one
    first = int(time.time()) if first is None else first
    sizes = [1, 3] if nodes == "both" else [int(nodes)]
    begin_s, total, rounds = time.monotonic(), Counter[str](), 0
    for seed in count(first):
        for size in sizes:
            folder = Path(tempfile.mkdtemp(prefix=f"rollmq-storm-{seed}-{size}-"))
            try:
                report = run_storm(
                    folder, seed=seed, size=size, seconds=each, echo=click.echo if verbose else lambda _: None
                )
            except AssertionError as error:
                click.echo(f"seed {seed}, {size} node(s) FAILED; everything is in {folder}\n{error}")
                click.echo(
                    f"again: python -m tests.system storm --from {seed} --nodes {size} --each {each:g}"
                )
                raise click.exceptions.Exit(1) from error
            shutil.rmtree(folder)
            total += report.counts
            rounds += report.rounds
            click.echo(str(report))
        if seconds is not None and time.monotonic() - begin_s >= seconds:
            break
    said = ", ".join(f"{number:,} {name}" for name, number in sorted(total.items()))
    click.echo(f"in all: {rounds:,} rounds, lost 0: {said}")


if __name__ == "__main__":
    main()
