"""What the audience sees: lines with the time, and on a terminal a bar under them. It knows no plot."""

import time
from dataclasses import dataclass
from typing import Final

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

QUARTERS: Final = 4


@dataclass(frozen=True, slots=True)
class Line:
    """Something that happened."""

    at_s: float
    text: str


class Screen:
    """Lines for people: rich on a terminal, plain elsewhere; with `is_silent` they are only kept."""

    def __init__(self, *, is_silent: bool) -> None:
        self.lines: list[Line] = []
        self._begin_s = time.monotonic()
        self._is_silent = is_silent
        self._console = Console(highlight=False)
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._total = 0
        self._quarters_told = 0

    def say(self, text: str, style: str = "") -> None:
        """One line."""
        line = Line(round(time.monotonic() - self._begin_s, 3), text)
        self.lines.append(line)
        if self._is_silent:
            return
        console = self._bar.console if self._bar is not None else self._console
        if self._console.is_terminal:
            row = Table.grid(padding=(0, 2, 0, 0))  # so that a long text wraps under itself
            row.add_row(Text(f"{line.at_s:5.1f} s", "dim", no_wrap=True), Text(text, style))
            console.print(row)
        else:
            click.echo(f"{line.at_s:5.1f} s  {text}")

    def begin(self, total: int) -> None:
        """A bar for so many jobs."""
        self._total = total
        if self._is_silent or not self._console.is_terminal:
            return
        columns = (
            TextColumn("  jobs"),
            BarColumn(),
            TextColumn(
                "{task.completed:,.0f} of {task.total:,.0f} ended, {task.fields[accepted]:,} accepted"
            ),
            TimeElapsedColumn(),
        )
        self._bar = Progress(*columns, console=self._console, transient=True)
        self._task = self._bar.add_task("jobs", total=total, accepted=0)
        self._bar.start()

    def move(self, *, accepted: int, ended: int) -> None:
        """How far the jobs are. Without a terminal every quarter is a line."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=ended, accepted=accepted)
            return
        quarter = ended * QUARTERS // self._total
        if self._quarters_told < quarter < QUARTERS:
            self._quarters_told = quarter
            self.say(f"{ended:,} of {self._total:,} jobs have ended, {accepted:,} are accepted")

    def end(self) -> None:
        """The bar goes away; may be called twice."""
        bar, self._bar = self._bar, None
        if bar is not None:
            bar.stop()
