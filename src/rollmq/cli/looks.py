"""How things look on a terminal: tables, numbers, ages. Everything plain where it is no terminal.

Whatever users named themselves (execs, clients, errors) goes through `text`, so that it can neither move the
cursor nor be taken for markup. It asks nobody anything.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import click
from rich import box
from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from rollmq.cli.describe import TEXT_CHARS_MAX, one_line

PIPE_COLUMNS: Final = 200
"""Width of tables that go into a file or pipe: nothing is cut that a person would want to grep."""
WHOLE_CHARS_MAX: Final = 8_192
"""Of what stands for itself, as a warning or an error: what to do is at its end."""
GAP_WIDE: Final = 2
GAP_NARROW: Final = 1
DIVIDER: Final = 1
"""What the box draws between two columns, besides the gap."""
CUT_WIDTH_MIN: Final = 7
NONE: Final = "–"
US: Final = 1_000_000
SPANS: Final = ((86_400 * US, "d"), (3_600 * US, "h"), (60 * US, "min"), (US, "s"))


def console(*, stderr: bool = False) -> Console:
    """For people: colours only on terminals."""
    out = Console(stderr=stderr, highlight=False)
    return out if out.is_terminal else Console(stderr=stderr, highlight=False, width=PIPE_COLUMNS)


def table(*columns: str, rows: Iterable[Iterable[str | Text]]) -> Table:
    """A table. A column `>name` holds numbers, `!name` ids that people copy: neither is ever cut. On a
    terminal that is too narrow `…name` is cut first, then the others."""
    cells = [[Text(cell) if isinstance(cell, str) else cell for cell in row] for row in rows]
    names = [column.lstrip(">!…") for column in columns]
    widths = [
        max([cell_len(name), *(row[at].cell_len for row in cells)], default=0)
        for at, name in enumerate(names)
    ]
    gap = fit(columns, widths, console().width)
    made = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold", show_edge=False
    )
    for column, name, width in zip(columns, names, widths, strict=True):
        justify: JustifyMethod = "right" if column.startswith(">") else "left"
        made.add_column(
            name if width else "", justify=justify, no_wrap=True, overflow="ellipsis", width=width
        )
    for row in cells:
        made.add_row(*(cell if width else "" for cell, width in zip(row, widths, strict=True)))
    return made


def fit(columns: Sequence[str], widths: list[int], room: int) -> int:
    """Make the widths small enough, as far as that may be; returns the gap between two columns."""
    if _excess(widths, GAP_WIDE, room) <= 0:
        return GAP_WIDE
    loose = [at for at, column in enumerate(columns) if column.startswith("…")]
    names = [at for at, column in enumerate(columns) if not column.startswith((">", "!", "…"))]
    for candidates in (loose, names):
        for at in sorted(candidates, key=lambda at: -widths[at]):
            least = min(widths[at], CUT_WIDTH_MIN)
            widths[at] -= max(min(_excess(widths, GAP_NARROW, room), widths[at] - least), 0)
    for at in loose:
        if _excess(widths, GAP_NARROW, room) > 0:
            widths[at] = 0  # what is left of it would say nothing
    return GAP_NARROW


def _excess(widths: Sequence[int], gap: int, room: int) -> int:
    return sum(widths) + (gap + DIVIDER) * (len(widths) - 1) - room


def text(value: object, style: str = "", *, chars_max: int = TEXT_CHARS_MAX) -> Text:
    """What a user wrote, on one line and without effects."""
    return Text(one_line(str(value), chars_max=chars_max), style=style)


def number(value: int | None) -> str:
    """With separators; unknown is a dash."""
    return NONE if value is None else f"{value:,}"


def counted(value: int | None, noun: str) -> str:
    """How many of what, in the right number."""
    return f"{number(value)} {noun}{'' if value == 1 else 's'}"


def size(count: int | None) -> str:
    """Bytes, as people say them."""
    if count is None:
        return NONE
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if amount < 1000 or unit == "TB":
            return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    raise AssertionError("the loop ends at TB")


def span(us: int) -> str:
    """A span of time, in the largest unit of which it has two."""
    for unit_us, unit in SPANS:
        if us >= 2 * unit_us or (us >= unit_us and unit == "s"):
            return f"{us // unit_us} {unit}"
    return f"{max(us, 0) // 1000} ms"


def ago(then_us: int, now_us: int) -> str:
    """How long since a point of log time; a dash when either is not known."""
    return span(now_us - then_us) if then_us and now_us else NONE


def say_json(value: object) -> None:
    """One object, laid out."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def say_json_line(value: object) -> None:
    """One object on one line."""
    click.echo(json.dumps(value, ensure_ascii=False))


def say_json_lines(rows: Iterable[object]) -> None:
    """One object per line."""
    for row in rows:
        say_json_line(row)


def note(message: str) -> None:
    """Something beside the answer: on stderr, so that it is in no file."""
    click.echo(message, err=True)


def warn(message: str) -> None:
    """Something that somebody should look at: on stderr."""
    told = one_line(message, chars_max=WHOLE_CHARS_MAX)
    console(stderr=True).print(Text.assemble(("warning ", "yellow"), told), soft_wrap=True)


@contextmanager
def progress(label: str, *, total: int | None, is_shown: bool = True) -> Iterator[Any]:
    """A bar on stderr, if that is a terminal; nothing anywhere else. Yields `advance(count)`."""
    out = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=out, transient=True, disable=not (is_shown and out.is_terminal)) as bar:
        task = bar.add_task(label, total=total)
        yield lambda count=1: bar.advance(task, count)


def is_person_there() -> bool:
    """Whether a question could be answered."""
    return sys.stdin.isatty() and sys.stderr.isatty()
