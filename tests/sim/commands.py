"""The commands that both simulators have: replay a seed, run a storm of seeds."""

import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import count
from typing import Final, Protocol

import click

from tests.sim.check import Report, SeedFailed

TELL_EVERY_S: Final = 10.0


class RunSeed(Protocol):
    """One run of one seed. Raises SeedFailed."""

    def __call__(self, seed: int, *, echo: Callable[[str], None] | None = None) -> Report: ...


class Storm:
    """Seeds in a row, and what came of them."""

    def __init__(self, runs: Mapping[str, RunSeed], first: int | None) -> None:
        self._runs = runs
        self._first = int(time.time()) * 1000 if first is None else first
        self._begin_s = time.monotonic()
        self._done_count = self._failed_count = 0
        self._virtual_us = 0
        self._counts: Counter[str] = Counter()

    def run(self, *, seconds: float | None, keep_going: bool) -> int:
        """Until it is stopped, or one fails. The exit code: 1 when one failed."""
        click.echo(
            f"storm: seeds from {self._first} on, each as {' and as '.join(self._runs)}"
            f"{'' if seconds else '; Ctrl-C stops'}"
        )
        told_s = self._begin_s
        try:
            for seed in count(self._first):
                if not self._try(seed, is_short=keep_going) and not keep_going:
                    break
                now_s = time.monotonic()
                if seconds is not None and now_s - self._begin_s >= seconds:
                    break
                if now_s - told_s >= TELL_EVERY_S:
                    told_s = now_s
                    self._tell()
        except KeyboardInterrupt:
            click.echo("stopped", err=True)
        self._tell()
        return 1 if self._failed_count else 0

    def _try(self, seed: int, *, is_short: bool) -> bool:
        """Whether every run of this seed is sound."""
        is_sound = True
        for run in self._runs.values():
            try:
                report = run(seed)
            except SeedFailed as error:
                is_sound = False
                self._failed_count += 1
                click.echo(str(error).split("  trace")[0] if is_short else str(error))
                continue
            self._counts += report.counts
            self._virtual_us += report.virtual_us
        self._done_count += 1
        return is_sound

    def _tell(self) -> None:
        counts = self._counts
        changes_count = sum(count for name, count in counts.items() if name.startswith("members "))
        click.echo(
            f"{self._done_count:,} seeds, {time.monotonic() - self._begin_s:,.0f} s: "
            f"{self._virtual_us / 6e7:,.0f} simulated minutes, {counts['event Enqueue']:,} jobs, "
            f"{counts['leaders']:,} leaders, {counts['kills'] + counts['power cuts']:,} crashes, "
            f"{f'{changes_count:,} changes of members, ' * bool(changes_count)}"
            f"{self._failed_count} failed"
        )


def simulator(module: str, what: str, runs: Mapping[str, RunSeed]) -> click.Group:
    """`seed` and `storm` for the first of these runs; `storm --both` for all of them."""
    run_seed = next(iter(runs.values()))

    @click.group(
        help=f"{what}\n\nA seed decides everything: which faults, when, and what everybody does.",
        epilog=f"Example: .venv/bin/python -m {module} seed 42 --trace | less",
    )
    def main() -> None:
        """Nothing by itself."""

    @main.command(help="Replay one seed: the same run every time. Exit code 1 when it breaks a promise.")
    @click.argument("number", type=int)
    @click.option("--trace", is_flag=True, help="Print everything that happens.")
    def seed(number: int, trace: bool) -> None:
        try:
            report = run_seed(number, echo=click.echo if trace else None)
        except SeedFailed as error:
            raise click.ClickException(str(error)) from error
        for name, how_many in sorted(report.counts.items()):
            click.echo(f"{how_many:8,} {name}")
        click.echo(f"seed {number}: sound, {report.virtual_us / 1e6:,.0f} s, trace {report.digest[:16]}")

    @main.command(
        help="Run seeds until stopped, or until one fails; it is printed with the command that replays it."
    )
    @click.option("--seconds", type=float, default=None, help="Stop after so long.")
    @click.option(
        "--from", "first", type=int, default=None, help="The first seed; by default it is the time."
    )
    @click.option("--keep-going", is_flag=True, help="Name the seeds that fail, and go on.")
    @click.option("--both", is_flag=True, hidden=len(runs) < 2, help=f"Each as {' and as '.join(runs)}.")
    def storm(seconds: float | None, first: int | None, keep_going: bool, both: bool) -> None:
        chosen = runs if both else dict([next(iter(runs.items()))])
        sys.exit(Storm(chosen, first).run(seconds=seconds, keep_going=keep_going))

    return main
