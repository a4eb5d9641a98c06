"""Rows of an answer as a table for people, CSV, JSON lines or a Parquet file. It asks nothing."""

import csv
import itertools
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rollmq.cli.describe import one_line

SHOWN_MAX: Final = 1000
"""Rows of a table for people; who wants more wants a file."""


def table_rows(rows: Iterator[dict[str, Any]], columns: Sequence[str]) -> None:
    """For people."""
    table = Table(box=None, pad_edge=False)
    shown = list(itertools.islice(rows, SHOWN_MAX))
    for name in columns:
        are_numbers = all(isinstance(row[name], int | float | None) for row in shown)
        table.add_column(escape(name), overflow="fold", justify="right" if are_numbers else "left")
    for row in shown:
        table.add_row(*("" if row[name] is None else escape(one_line(str(row[name]))) for name in columns))
    Console(soft_wrap=not sys.stdout.isatty()).print(table)
    if next(rows, None) is not None:
        click.echo(f"the first {SHOWN_MAX:,} rows; --csv, --json and --parquet give all", err=True)


def csv_rows(rows: Iterator[dict[str, Any]], columns: Sequence[str]) -> None:
    """For spreadsheets."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow(["" if row[name] is None else row[name] for name in columns])


def json_rows(rows: Iterator[dict[str, Any]]) -> None:
    """For programs: one object a line."""
    for row in rows:
        click.echo(json.dumps(row, default=str))


def parquet_rows(frame: Any, path: Path) -> None:
    """One file, with the frame's own types; it appears when it is whole."""
    with tempfile.TemporaryDirectory(dir=path.absolute().parent) as folder:
        frame.coalesce(1).write.parquet(f"{folder}/rows")
        (part,) = Path(folder, "rows").glob("*.parquet")
        shutil.move(part, path)
    click.echo(f"wrote {path}", err=True)
