"""`rollmq workers`, `rollmq clients`, `rollmq settings`: who is there, and by which rules the group works."""

from typing import Any

import click
from rich.text import Text

from rollmq.cli import looks
from rollmq.cli.connecting import as_name, asks_a_node, understood
from rollmq.cli.control import CODES
from rollmq.core.sanity import NUMBER_MAX
from rollmq.library.operator import OperatorConnection
from rollmq.limits import QUERY_ROWS_MAX, WEIGHT_MAX
from rollmq.wire.query import ClientRow, ClientsPage, DoneReply, WorkerRow, WorkersPage


@click.command(
    epilog="""\b
Examples:
  rollmq workers
  rollmq workers --json | jq 'select(.credit == 0).worker_id'

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 no leader."""
)
@asks_a_node
def workers(node: OperatorConnection, as_json: bool) -> None:
    """Connected workers, and those that may come back in the next seconds."""
    rows = _rows(node, "workers", WorkersPage)
    if as_json:
        looks.say_json_lines(rows)
    elif not rows:
        looks.note("no worker is connected")
    else:
        columns = ("worker", "state", ">held", ">hands", ">credit", ">silent", "host", "release", "…takes")
        looks.console().print(
            looks.table(*columns, rows=[_worker(understood(row, WorkerRow, node.server)) for row in rows])
        )


def _worker(row: WorkerRow) -> list[str | Text]:
    takes = " ".join(pattern.removeprefix("job.assign.") for pattern in row.patterns)
    more = f" and {row.patterns_count - len(row.patterns)} more"
    return [
        looks.text(row.worker_id),
        Text(row.state, "" if row.state == "ready" else "yellow"),
        *map(looks.number, (row.held, row.hands, row.credit)),
        looks.span(row.silent_us),
        looks.text(row.host),
        looks.text(row.release),
        looks.text(takes + more * (row.patterns_count > len(row.patterns))),
    ]


@click.group()
def clients() -> None:
    """Clients: who submits, with which cap and weight."""


@clients.command(
    name="list",
    epilog="""\b
Examples:
  rollmq clients list

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 no leader.""",
)
@asks_a_node
def list_(node: OperatorConnection, as_json: bool) -> None:
    """Clients that are remembered."""
    rows = _rows(node, "clients", ClientsPage)
    if as_json:
        looks.say_json_lines(rows)
    elif not rows:
        looks.note("no client is known")
    else:
        columns = ("client", ">queued", ">in flight", ">cap", ">weight", ">keys", "…set by")
        looks.console().print(
            looks.table(*columns, rows=[_client(understood(row, ClientRow, node.server)) for row in rows])
        )


def _client(row: ClientRow) -> list[str | Text]:
    numbers = (row.queued, row.inflight, row.cap_in_force, row.weight, row.keys)
    return [looks.text(row.client_id), *map(looks.number, numbers), looks.text(row.by or "itself")]


@clients.command(
    name="set",
    epilog=f"""\b
Examples:
  rollmq clients set webshop --cap 50              at most 50 of its jobs in flight
  rollmq clients set webshop --cap 0 --weight 3    the group's default cap, three turns for one

{CODES}""",
)
@asks_a_node
@click.argument("client_id", metavar="CLIENT", type=as_name)
@click.option(
    "--cap",
    type=click.IntRange(0, NUMBER_MAX),
    metavar="N",
    help="Most of its jobs in flight; 0 = the group's default.",
)
@click.option(
    "--weight", type=click.IntRange(1, WEIGHT_MAX), metavar="N", help="Its share of turns among the clients."
)
def set_(
    node: OperatorConnection, client_id: str, cap: int | None, weight: int | None, as_json: bool
) -> None:
    """Set a client's cap or weight. From then on this beats its own wish. What is not named stays."""
    if cap is None and weight is None:
        raise click.UsageError("name --cap, --weight or both.")
    arguments = {"client_id": client_id, "cap": cap, "weight": weight}
    answer = node.ask("client_set", arguments, is_command=True)
    understood(answer, DoneReply, node.server)
    looks.say_json(answer) if as_json else click.echo(f"{client_id} is set")


@click.group()
def settings() -> None:
    """Settings of the group. They are in the log, and so the same on every node."""


@settings.command(
    name="list",
    epilog="""\b
Examples:
  rollmq settings list

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 no leader.""",
)
@asks_a_node
def settings_list(node: OperatorConnection, as_json: bool) -> None:
    """All settings with their values."""
    answer = understood(node.ask("settings"), dict[str, int], node.server)
    if as_json:
        looks.say_json(answer)
    else:
        rows = [
            (looks.text(name), looks.number(value), _meaning(name, value)) for name, value in answer.items()
        ]
        looks.console().print(looks.table("setting", ">value", "", rows=rows))


def _meaning(name: str, value: int) -> str:
    if name.endswith("_us"):
        return looks.span(value)
    return looks.size(value) if "bytes" in name else ""


@settings.command(
    name="set",
    epilog=f"""\b
Examples:
  rollmq settings set crashes_max=5
  rollmq settings set results_keep_us=3600000000 results_max=100000

{CODES}""",
)
@asks_a_node
@click.argument("changes", metavar="NAME=VALUE…", nargs=-1, required=True)
def settings_set(node: OperatorConnection, changes: tuple[str, ...], as_json: bool) -> None:
    """Change settings of the group. docs/log-format.md says what each means."""
    answer = node.ask("settings_set", {"changes": dict(map(_change, changes))}, is_command=True)
    changed = understood(answer, DoneReply, node.server).changed_count
    looks.say_json(answer) if as_json else click.echo("done" if changed else "all was so already")


def _change(text: str) -> tuple[str, int]:
    name, _, value = text.partition("=")
    if (
        not name.isidentifier()
        or not (value.isascii() and value.isdecimal())
        or len(value) > len(str(NUMBER_MAX))
    ):
        raise click.UsageError(f"{text!r}: write NAME=NUMBER, e.g. crashes_max=5.")
    return name, int(value)


def _rows(
    node: OperatorConnection, query: str, kind: type[WorkersPage] | type[ClientsPage]
) -> list[dict[str, Any]]:
    """All pages of a list that is small beside the jobs."""
    found: list[dict[str, Any]] = []
    after = ""
    while True:
        answer = node.ask(query, {"limit": QUERY_ROWS_MAX, "after": after})
        page = understood(answer, kind, node.server)
        found += answer[query]
        if not page.after:
            return found
        after = page.after
