"""`rollmq history`: the log as tables, answers and proof, on Spark.

Options, what is printed and exit codes are here; the work is the pipeline's, which is not imported before it
is known to be installed.
"""

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from rollmq.cli.connecting import SERVER_ENV, Seconds, as_job, as_servers, token
from rollmq.cli.history_told import print_audit, print_life, print_report, report_json
from rollmq.cli.rows import csv_rows, json_rows, parquet_rows, table_rows
from rollmq.cli.shell import statements

if TYPE_CHECKING:
    from rollmq.pipeline.runs import History, Sources

R = TypeVar("R")

FOUND_SOMETHING = 1
"""Exit code when something was rejected, missing or violated: as for anything that is not as it should be."""


def as_json_too(command: Callable[..., R]) -> Callable[..., R]:
    """The option --json."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")(command)


def on_warehouse(command: Callable[..., R]) -> Callable[..., R]:
    """The option --warehouse."""
    return click.option(
        "--warehouse",
        type=click.Path(path_type=Path),
        default=Path("warehouse"),
        show_default=True,
        help="The folder with the tables.",
    )(command)


def on_spark(command: Callable[..., R]) -> Callable[..., R]:
    """The options that every command has which runs on Spark."""
    for option in (
        as_json_too,
        click.option(
            "--conf",
            multiple=True,
            metavar="K=V",
            help="A setting of Spark's, as for spark-submit; may be given again.",
        ),
        click.option(
            "--master",
            default="local[*]",
            show_default=True,
            help="Where Spark runs: spark://…, yarn, k8s://…",
        ),
        on_warehouse,
    ):
        command = option(command)
    return command


def with_sources(command: Callable[..., R]) -> Callable[..., R]:
    """The options that say where history comes from."""
    for option in (
        click.option("--group", default="", metavar="UUID", help="Only this group's history."),
        click.option(
            "--source",
            "places",
            multiple=True,
            metavar="DIR|URL",
            help="A state directory, its history/, or an archive; may be given again.",
        ),
        click.option(
            "--server",
            default="",
            metavar="H:P[,H:P…]",
            envvar=SERVER_ENV,
            callback=lambda _ctx, _option, value: as_servers(value) if value else "",
            help="Live nodes of one group: for what no file holds yet.",
            show_envvar=True,
        ),
    ):
        command = option(command)
    return command


@click.group()
def history() -> None:
    """The log as tables, answers and proof, on Spark.

    Needs the extra: pip install 'rollmq[spark]'. Nothing here changes a queue.
    """


@history.command(
    epilog="""\b
Examples:
  rollmq history ingest --source archive
  rollmq history ingest --source s3://bucket/archive --warehouse /data/rollmq --master spark://10.0.0.9:7077

Exit codes: 0 all was taken, 1 it failed, or something was rejected or is missing, 2 wrong usage."""
)
@with_sources
@on_spark
@click.option(
    "--skip-missing", is_flag=True, help="Go on behind entries that no file holds; they are rejected."
)
@click.option(
    "--confirm",
    metavar="NAME",
    default="",
    help="Tell the nodes at --server what was taken, as this pipeline.",
)
@click.pass_context
def ingest(ctx: click.Context, /, **options: Any) -> None:
    """Take new entries into the tables events, payloads and rejects."""
    _update(ctx, builds=False, **options)


@history.command(
    epilog="""\b
Examples:
  rollmq history build --source archive                   what is new, and all tables of jobs
  rollmq history build --server 127.0.0.1:5000 --confirm nightly
  rollmq history build --warehouse /data/rollmq           only from what was ingested

Exit codes: 0 done, 1 it failed, or something was rejected or is missing, 2 wrong usage."""
)
@with_sources
@on_spark
@click.option(
    "--skip-missing", is_flag=True, help="Go on behind entries that no file holds; they are rejected."
)
@click.option(
    "--confirm",
    metavar="NAME",
    default="",
    help="Tell the nodes at --server what was taken, as this pipeline.",
)
@click.pass_context
def build(ctx: click.Context, /, **options: Any) -> None:
    """Take new entries and bring the tables of jobs and attempts up to date, all at once."""
    _update(ctx, builds=True, **options)


def _update(
    ctx: click.Context,
    *,
    builds: bool,
    server: str,
    places: tuple[str, ...],
    group: str,
    skip_missing: bool,
    confirm: str,
    as_json: bool,
    **where: Any,
) -> None:
    if places and not confirm and ctx.get_parameter_source("server") is ParameterSource.ENVIRONMENT:
        server = ""  # who names files means these: the environment's nodes may be of another group
    if not builds and not (places or server):
        raise click.UsageError("where does the history come from? Give --source or --server.")
    if confirm and not server:
        raise click.UsageError("--confirm needs --server: the nodes that are told")
    take = partial(_sources, server, places, group, skips_missing=skip_missing)
    with _history(is_quiet=as_json, places=places, take=take, **where) as pipeline:
        from rollmq.pipeline.watching import confirm as tell

        sources = take()
        report = pipeline.update(sources if places or server else None, builds=builds)
        confirmed = tell(sources, confirm, report.reached) if confirm else None
    if as_json:
        click.echo(json.dumps(report_json(report) | {"confirmed": confirmed}, indent=2))
    else:
        print_report(report, confirmed)
    ctx.exit(0 if report.is_clean else FOUND_SOMETHING)


@history.command(
    epilog="""\b
Examples:
  rollmq history watch --server 127.0.0.1:5000,127.0.0.1:5001
  rollmq history watch --server 127.0.0.1:5000 --source archive --every 10 --confirm live

It runs until it is interrupted. Exit codes: 0 interrupted, or all rounds done, 1 it failed, 2 wrong usage."""
)
@with_sources
@on_spark
@click.option(
    "--every",
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    type=Seconds(0.1),
    help="Pause between two rounds.",
)
@click.option("--rounds", type=click.IntRange(1), metavar="N", help="End after so many rounds.")
@click.option(
    "--confirm", metavar="NAME", default="", help="Tell the nodes what was taken, as this pipeline."
)
def watch(
    server: str,
    places: tuple[str, ...],
    group: str,
    every: float,
    rounds: int | None,
    confirm: str,
    as_json: bool,
    **where: Any,
) -> None:
    """Keep the tables up to date from live nodes, and show how far they are behind."""
    if not server:
        raise click.UsageError("which nodes? Give --server.")
    with _history(is_quiet=True, **where) as pipeline:
        from rollmq.pipeline.watching import Lag
        from rollmq.pipeline.watching import watch as run

        def told(lag: Lag) -> None:
            if as_json:
                click.echo(json.dumps(asdict(lag)))
            else:
                click.echo(
                    f"group {lag.group[:8]}…  taken up to {lag.taken:,}, its newest {lag.age_s:,.1f} s old; "
                    f"{lag.behind:,} more since; round of {lag.seconds:.1f} s"
                )

        with contextlib.suppress(KeyboardInterrupt):
            run(
                pipeline,
                _sources(server, places, group),
                every_s=every,
                rounds=rounds,
                on_lag=told,
                on_silence=lambda why: click.echo(f"waiting: {why}", err=True),
                confirm_as=confirm,
            )


@history.command(
    epilog="""\b
Examples:
  rollmq history job 019a982c8e3b7a51b2c04d5e6f708192
  rollmq history job 019a982c8e3b7a51b2c04d5e6f708192 --json | jq .type

Exit codes: 0 done, 1 the tables do not know the job, 2 wrong usage."""
)
@click.argument("job_id", metavar="ID", type=as_job)
@on_warehouse
@as_json_too
def job(job_id: str, warehouse: Path, as_json: bool) -> None:
    """A job's whole life, event by event. It reads the tables' files itself: no Spark is started."""
    from rollmq.pipeline.session import check_extra

    check_extra()
    from rollmq.pipeline.lookup import event_of, job_life, said
    from rollmq.pipeline.warehouse import Warehouse

    rows = job_life(Warehouse(warehouse), job_id)
    if as_json:
        for row in rows:
            click.echo(json.dumps(said(row, job_id), default=str))
    else:
        print_life([event_of(row) for row in rows], job_id)


@history.command(
    epilog="""\b
Examples:
  rollmq history at --time 2026-11-18T14:00
  rollmq history at --index 4711 --json

Exit codes: 0 done, 1 the tables do not reach there, 2 wrong usage."""
)
@click.option("--index", type=click.IntRange(1), metavar="N", help="As of this entry.")
@click.option(
    "--time", "time_text", metavar="T", help="As of this time (ISO 8601; UTC unless it says otherwise)."
)
@click.option("--group", default="", metavar="UUID", help="Only this group.")
@on_spark
def at(index: int | None, time_text: str | None, group: str, as_json: bool, **where: Any) -> None:
    """How the queues stood then: queued, in flight and dead jobs of each exec."""
    if (index is None) == (time_text is None):
        raise click.UsageError("give either --index or --time")
    moment = _moment(time_text) if time_text is not None else None
    with _history(is_quiet=as_json, needs=("events", "jobs_open"), **where) as pipeline:
        from rollmq.pipeline.answers import queues_at, rows_of

        indexes, rows = queues_at(pipeline, index=index, time=moment, group=group)
        found = list(rows_of(rows))
    if as_json:
        click.echo(json.dumps({"as_of": indexes, "queues": found}, indent=2))
        return
    for name, last in sorted(indexes.items()):
        click.echo(f"group {name}, as of entry {last:,}")
    counts = ["queued", "inflight", "dead"]
    total = {"group": "", "exec": "all", **{name: sum(row[name] for row in found) for name in counts}}
    table_rows(iter([*found, total]), [*(["group"] * (len(indexes) > 1)), "exec", *counts])


@history.command(
    short_help="Ask the tables in SQL.",
    epilog="""\b
Examples:
  rollmq history sql "select exec, count(*) n, avg(run_us) from attempts group by exec order by n desc"
  rollmq history sql --csv "select * from jobs_open" > open.csv
  rollmq history sql --parquet slow.parquet "select * from jobs_closed where attempts > 3"
  rollmq history sql                                      asks for statements; each ends with ;

Exit codes: 0 done, 1 a statement failed, 2 wrong usage.""",
)
@click.argument("statement", required=False)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@click.option("--parquet", type=click.Path(path_type=Path), metavar="FILE", help="Write one Parquet file.")
@on_spark
def sql(statement: str | None, as_csv: bool, parquet: Path | None, as_json: bool, **where: Any) -> None:
    """Ask the tables in SQL: events, payloads, rejects, attempts, jobs (open and closed ones), violations."""
    with _history(is_quiet=as_json or as_csv or statement is None, needs=("events",), **where) as pipeline:
        from rollmq.pipeline.answers import open_views, query, rows_of

        open_views(pipeline)

        def ask(text: str) -> None:
            frame = query(pipeline, text)
            if parquet is not None:
                parquet_rows(frame, parquet)
            elif as_csv:
                csv_rows(rows_of(frame), frame.columns)
            elif as_json:
                json_rows(rows_of(frame))
            else:
                table_rows(rows_of(frame), frame.columns)

        if statement is not None:
            ask(statement)
        else:
            _shell(ask)


def _shell(ask: Callable[[str], None]) -> None:
    """What is wrong with one statement does not end the others."""
    from rollmq.pipeline.answers import table_names
    from rollmq.pipeline.errors import HistoryError

    for text in statements(
        f"Tables: {', '.join(table_names())}. End a statement with ; and the shell with Ctrl-D."
    ):
        try:
            ask(text)
        except HistoryError as error:
            click.echo(f"Error: {error}", err=True)


@history.command(
    epilog="""\b
Examples:
  rollmq history audit
  rollmq history audit --source node1/state --source node2/state     and that the replicas' files are equal
  rollmq history audit --receipts receipts.jsonl                     and what clients were told

Exit codes: 0 nothing was found, 1 there are violations (the table has them all), 2 wrong usage."""
)
@with_sources
@click.option(
    "--receipts",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help='What clients were told: lines of {"job_id": …, "told": "accepted", "refused" or a final state}.',
)
@on_spark
@click.pass_context
def audit(
    ctx: click.Context,
    /,
    server: str,
    places: tuple[str, ...],
    group: str,
    receipts: str | None,
    as_json: bool,
    **where: Any,
) -> None:
    """Prove the queue's promises on the whole history that was taken, or show where they were broken."""
    del server, group  # the same options as its neighbours; only files have copies to compare
    with _history(is_quiet=as_json, needs=("events", "jobs_open"), places=places, **where) as pipeline:
        from rollmq.pipeline.auditing import run_audit

        report = run_audit(pipeline, places=places, receipts=receipts or "")
    if as_json:
        click.echo(json.dumps(asdict(report), indent=2, default=str))
    else:
        print_audit(report)
    ctx.exit(FOUND_SOMETHING if report.violations else 0)


# --- Spark ------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _history(
    *,
    warehouse: Path,
    master: str,
    conf: tuple[str, ...],
    is_quiet: bool = False,
    needs: tuple[str, ...] = (),
    places: tuple[str, ...] = (),
    take: "Callable[[], Sources] | None" = None,
) -> "Iterator[History]":
    """Spark and a warehouse, with a progress bar on a terminal. What can be known to be wrong is told before
    Spark is started: no warehouse, none of the tables that are needed, a place without history. `take` says
    from where a run will take entries: Java is started in the way that suits how many there are."""
    from rollmq.pipeline.session import SparkRun, check_extra

    settings = dict(each.split("=", 1) for each in conf if "=" in each)
    if len(settings) != len(conf):
        raise click.UsageError("--conf takes NAME=VALUE, each name once")
    check_extra()
    from rollmq.pipeline.amount import is_little
    from rollmq.pipeline.places import find_segments
    from rollmq.pipeline.runs import History
    from rollmq.pipeline.tables import TABLES
    from rollmq.pipeline.warehouse import Warehouse

    house = Warehouse(warehouse)
    house.require(*(TABLES[name] for name in needs))
    find_segments(places)
    is_short = take is not None and is_little(house, take())
    with (
        _progress(is_shown=not is_quiet) as bar,
        SparkRun(master=master, conf=settings, on_progress=bar.tasks, is_short=is_short) as run,
    ):
        bar.step("Asking Spark")
        yield History(run.spark, house, on_step=bar.step)


class _Bar:
    """What is being done, and how many of its tasks are."""

    def __init__(self, bar: Progress | None) -> None:
        self._bar = bar
        self._task = bar.add_task("Starting Spark", total=None) if bar is not None else None

    def step(self, name: str) -> None:
        """Another step begins."""
        if self._bar is not None and self._task is not None:
            self._bar.reset(self._task, total=None, description=name)

    def tasks(self, done: int, total: int) -> None:
        """So many of the running step's tasks are done."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done, total=total)


@contextlib.contextmanager
def _progress(*, is_shown: bool) -> Iterator[_Bar]:
    console = Console(stderr=True)
    if not (is_shown and console.is_terminal):
        yield _Bar(None)
        return
    name, unit = TextColumn("{task.description}"), TextColumn("tasks")
    columns = (name, BarColumn(), MofNCompleteColumn(), unit, TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        yield _Bar(bar)


def _sources(server: str, places: tuple[str, ...], group: str, *, skips_missing: bool = False) -> "Sources":
    from rollmq.pipeline.runs import Sources

    return Sources(places=places, server=server, token=token(), group=group, skips_missing=skips_missing)


def _moment(text: str) -> datetime:
    from rollmq.pipeline.session import check_extra

    check_extra()
    from rollmq.pipeline.answers import parse_time

    try:
        return parse_time(text)
    except ValueError as error:
        raise click.UsageError(f"--time {text!r} is no time: write 2026-11-18T14:00 or the like") from error
