"""`rollmq jobs` and `rollmq explain`: which jobs there are, and why one is not running."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import click
from rich.text import Text

from rollmq.cli import looks
from rollmq.cli.connecting import as_exec, as_job, as_name, asks_a_node, understood
from rollmq.cli.describe import time_of
from rollmq.cli.looks import WHOLE_CHARS_MAX
from rollmq.library.operator import OperatorConnection
from rollmq.limits import QUERY_PLACE_MAX, QUERY_ROWS_MAX
from rollmq.wire.query import ErrorTold, ExplainReply, JobRow, JobsPage

ROWS_DEFAULT: Final = 50
LIMIT_OPTION = click.option(
    "--limit",
    type=click.IntRange(0),
    default=ROWS_DEFAULT,
    show_default=True,
    metavar="N",
    help="At most so many rows; 0 = all.",
)
STATE_STYLES: Final = (("inflight", "green"), ("delayed", "cyan"), ("dead", "red"))


@click.command(
    epilog="""\b
Examples:
  rollmq jobs
  rollmq jobs --state inflight --exec image.resize
  rollmq jobs --client webshop --limit 0 --json | jq -r .job_id

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 no leader."""
)
@asks_a_node
@click.option("--exec", "exec_name", type=as_exec, metavar="EXEC", help="Only of this exec.")
@click.option("--client", "client_id", type=as_name, metavar="ID", help="Only of this client.")
@click.option(
    "--state",
    type=click.Choice(["queued", "delayed", "inflight", "dead"]),
    help="Only in this state.  [default: all but dead]",
)
@LIMIT_OPTION
def jobs(
    node: OperatorConnection,
    exec_name: str | None,
    client_id: str | None,
    state: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """Jobs that are open (or dead), oldest first."""
    filters = {"exec": exec_name, "client_id": client_id, "state": state}
    what = "jobs" if state else "open jobs"
    show(Pages(node, "jobs", filters, limit), as_json=as_json, what=what)


@click.command(
    epilog="""\b
Examples:
  rollmq explain 019a982c8e3b7a51b2c04d5e6f708192
  rollmq explain 019a982c8e3b7a51b2c04d5e6f708192 --json | jq -r .reason

Exit codes: 0 done, 1 no such job is known, 2 wrong usage, 3 no leader."""
)
@asks_a_node
@click.argument("job_id", metavar="JOB", type=as_job)
@click.pass_context
def explain(ctx: click.Context, node: OperatorConnection, job_id: str, as_json: bool) -> None:
    """Where a job stands, and why it is not further."""
    answer = node.ask("explain", {"job_id": job_id})
    found = understood(answer, ExplainReply, node.server)
    if as_json:
        looks.say_json(answer)
    else:
        style = {"unknown": "red", "dead": "red", "done": "green"}.get(found.state, "bold")
        said = looks.text(found.text, chars_max=WHOLE_CHARS_MAX)
        looks.console().print(Text.assemble(looks.text(found.state, style), "  ", said), soft_wrap=True)
        if found.until_us:
            end = "its time is over at" if found.state == "inflight" else "not before"
            looks.console().print(Text(f"{end} {time_of(found.until_us)}", "dim"), soft_wrap=True)
        _say_errors(found.errors)
    ctx.exit(1 if found.state == "unknown" else 0)


def _say_errors(errors: Sequence[ErrorTold]) -> None:
    """A line for each, and the detail of the newest: they are often the same, and --json has them all."""
    out = looks.console()
    for error in errors:
        said = looks.text(f"{error.type}: {error.message}", chars_max=WHOLE_CHARS_MAX)
        when = Text(f"{time_of(error.at_us)}  attempt {error.attempt}  ", "dim")
        out.print(Text.assemble(when, said), soft_wrap=True)
    for line in errors[-1].detail.splitlines() if errors else ():
        out.print(Text.assemble("    ", looks.text(line, chars_max=WHOLE_CHARS_MAX)), soft_wrap=True)


class Pages:
    """A list of the node, page by page, a bounded number of rows each."""

    def __init__(
        self, node: OperatorConnection, name: str, filters: dict[str, str | None], limit: int
    ) -> None:
        self._node = node
        self._name = name
        self._arguments = {key: value for key, value in filters.items() if value}
        self._limit = limit
        self.is_filtered = bool(self._arguments)
        self.at_us = 0
        self.may_miss = False
        self.is_cut = False
        """There are more rows than were asked for."""

    def rows(self, on_page: Callable[[int], None] = lambda _count: None) -> Iterator[dict[str, Any]]:
        """The rows. `on_page` is told how many a page brought."""
        after, left = "", self._limit or None
        while True:
            wanted = QUERY_ROWS_MAX if left is None else min(left, QUERY_ROWS_MAX)
            answer = self._node.ask(self._name, {**self._arguments, "limit": wanted, "after": after})
            page = understood(answer, JobsPage, self._node.server)
            self.at_us, self.may_miss = page.at_us, self.may_miss or page.may_miss
            on_page(len(page.jobs))
            yield from answer["jobs"]
            after = page.after
            if left is not None:
                left -= len(page.jobs)
            if not after or left == 0:
                self.is_cut = bool(after)
                return


def show(pages: Pages, *, as_json: bool, what: str) -> None:
    """Print a list as it comes: JSON lines for programs, a table for people."""
    if as_json:
        looks.say_json_lines(pages.rows())
    else:
        with looks.progress(f"reading {what}", total=None) as advance:
            rows = [understood_row(row) for row in pages.rows(advance)]
        if rows:
            looks.console().print(_table(rows, pages.at_us))
        else:
            looks.note(f"no such {what}" if pages.is_filtered else f"no {what}")
        if pages.is_cut:
            looks.note(f"… and more than these {len(rows):,}: --limit 0 shows all")
    if pages.may_miss:
        looks.warn(
            f"rows may be missing: the list changed much meanwhile, or is longer than {QUERY_PLACE_MAX:,}"
        )


def understood_row(row: dict[str, Any]) -> JobRow:
    """A row as a struct; it was checked with its page."""
    return JobRow(**{name: row[name] for name in JobRow.__struct_fields__})


def _table(rows: list[JobRow], now_us: int) -> Any:
    is_dead = all(row.state == "dead" for row in rows)
    if is_dead:
        return looks.table(
            "!job",
            "exec",
            "client",
            ">tries",
            ">dead since",
            "reason",
            "…last error",
            rows=[
                (
                    row.job_id,
                    looks.text(row.exec),
                    looks.text(row.client_id),
                    f"{row.tries}/{row.tries_max}",
                    looks.ago(row.dead_us, now_us),
                    looks.text(row.dead_reason),
                    looks.text(f"{row.error_type} {row.error_message}".strip()),
                )
                for row in rows
            ],
        )
    return looks.table(
        "!job",
        "exec",
        "client",
        "state",
        ">pri",
        ">tries",
        ">age",
        "…note",
        rows=[
            (
                row.job_id,
                looks.text(row.exec),
                looks.text(row.client_id),
                Text(row.state, dict(STATE_STYLES).get(row.state, "")),
                str(row.priority),
                f"{row.tries}/{row.tries_max}",
                looks.ago(row.enqueued_us, now_us),
                _note(row, now_us),
            )
            for row in rows
        ],
    )


def _note(row: JobRow, now_us: int) -> Text:
    """What matters about it in its state."""
    if row.state == "inflight":
        left = f", {looks.span(row.until_us - now_us)} left" if row.until_us and row.is_started else ""
        return looks.text(f"{'runs on' if row.is_started else 'waits at'} {row.worker_id}{left}")
    wait = f"in {looks.span(row.until_us - now_us)}" if row.state == "delayed" else ""
    error = f"{row.error_type} {row.error_message}".strip()
    return looks.text("; ".join(filter(None, (wait, error))))
