"""`rollmq top`: the queues, the workers and the rates, live."""

import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from rollmq.cli import looks
from rollmq.cli.connecting import Seconds, asks_a_node, understood
from rollmq.cli.describe import one_line
from rollmq.errors import AnswerUnknown, NoLeader, ServerUnreachable
from rollmq.library.operator import OperatorConnection
from rollmq.wire.query import ExecRow, ExecsPage, Status, WorkerRow, WorkersPage

ROWS_ASKED: Final = 200
"""Of each list and frame: more than fits a screen, and little work for the node."""
ROWS_SHOWN: Final = 15
EVERY_S: Final = 1.0


class Sample(NamedTuple):
    """What the node said at one moment."""

    at_s: float
    server: str
    status: Status
    execs: ExecsPage
    workers: WorkersPage
    answer: dict[str, Any]


@click.command(
    epilog="""\b
Examples:
  rollmq top                          until Ctrl-C
  rollmq top --every 5
  rollmq top --frames 1 | cat         one picture, for a report
  rollmq top --json --frames 60 | jq .rates.ended

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 no leader (a live screen waits for one)."""
)
@asks_a_node
@click.option(
    "--every",
    "every_s",
    type=Seconds(0.1, 3600),
    default=EVERY_S,
    show_default=True,
    metavar="SECONDS",
    help="Pause between two frames.",
)
@click.option(
    "--frames",
    type=click.IntRange(1),
    metavar="N",
    help="Stop after so many.  [default: never on a terminal, else 1]",
)
def top(node: OperatorConnection, every_s: float, frames: int | None, as_json: bool) -> None:
    """Watch queues, workers and rates. Each frame is a few small questions to the leader."""
    out = looks.console()
    try:
        if as_json:
            _run(node, every_s, frames or 1, lambda now, before: looks.say_json_line(_json(now, before)))
        elif not out.is_terminal or frames is not None:
            _run(node, every_s, frames or 1, lambda now, before: out.print(picture(now, before)))
        else:
            with Live(console=out, screen=True, auto_refresh=False) as live:
                _run(
                    node,
                    every_s,
                    None,
                    lambda now, before: live.update(picture(now, before), refresh=True),
                    live,
                )
    except KeyboardInterrupt:
        return


def _run(
    node: OperatorConnection,
    every_s: float,
    frames: int | None,
    show: Callable[[Sample, Sample | None], None],
    live: Live | None = None,
) -> None:
    before: Sample | None = None
    shown = 0
    while True:
        try:
            now = _sample(node)
            show(now, before)
            before, shown = now, shown + 1
        except (ServerUnreachable, NoLeader, AnswerUnknown) as error:
            if live is None:
                raise
            live.update(_trouble(error, before), refresh=True)
        if frames is not None and shown >= frames:
            return
        time.sleep(every_s)


def _sample(node: OperatorConnection) -> Sample:
    page = {"limit": ROWS_ASKED}
    execs = understood(node.ask("execs", page), ExecsPage, node.server)  # asked first: it leads to the leader
    answer = node.ask("status")
    return Sample(
        time.monotonic(),
        node.server,
        understood(answer, Status, node.server),
        execs,
        understood(node.ask("workers", page), WorkersPage, node.server),
        answer,
    )


class Rates(NamedTuple):
    """Per second, since the frame before."""

    accepted: float
    assigned: float
    ended: float
    entries: float


def rates(now: Sample, before: Sample | None) -> Rates | None:
    """Nothing to compare with, or another process: no rates."""
    if (
        before is None
        or now.status.node != before.status.node
        or now.status.uptime_us < before.status.uptime_us
    ):
        return None
    seconds = max(now.at_s - before.at_s, 1e-3)
    names = ("accepted_count", "assigned_count", "ended_count", "last_index")
    return Rates(*((getattr(now.status, name) - getattr(before.status, name)) / seconds for name in names))


def _json(now: Sample, before: Sample | None) -> dict[str, Any]:
    found = rates(now, before)
    return {**now.answer, "server": now.server, "rates": found._asdict() if found else None}


# --- for people -------------------------------------------------------------------------------------


def picture(now: Sample, before: Sample | None) -> RenderableType:
    """One frame."""
    status = now.status
    parts: list[RenderableType] = [_head(now), _jobs_line(status), _rates_line(rates(now, before)), Text()]
    busiest = sorted(now.execs.execs, key=lambda row: -(row.queued + row.inflight))[:ROWS_SHOWN]
    execs = ("exec", ">queued", ">delayed", ">in flight", ">workers", ">credit", "")
    parts.append(
        looks.table(*execs, rows=map(_exec, busiest)) if busiest else Text("no exec is known", "dim")
    )
    parts.append(Text())
    fullest = sorted(now.workers.workers, key=lambda row: -row.held)[:ROWS_SHOWN]
    workers = ("worker", "state", ">held", ">hands", ">credit", ">silent", "…host")
    parts.append(
        looks.table(*workers, rows=map(_worker, fullest))
        if fullest
        else Text("no worker is connected", "dim")
    )
    parts += [
        Text.assemble(("warning ", "yellow"), one_line(text, chars_max=looks.WHOLE_CHARS_MAX))
        for text in status.warnings
    ]
    return Group(*parts)


def _head(now: Sample) -> Text:
    status = now.status
    return Text.assemble(
        ("rollmq top  ", "bold"),
        f"{now.server} leads in term {status.term}, {looks.counted(len(status.members), 'member')}, "
        f"{looks.counted(status.connections, 'connection')}, entry {status.last_index:,}",
    )


def _jobs_line(status: Status) -> Text:
    return Text.assemble(
        (looks.number(status.queued), "bold"), " queued   ",
        (looks.number(status.inflight), "bold"), " in flight   ",
        (looks.number(status.dlq), "bold red" if status.dlq else "bold"), f" dead letter{_s(status.dlq)}   ",
        (looks.number(status.workers), "bold" if status.workers else "bold red"),
        f" worker{_s(status.workers)}",
    )  # fmt: skip


def _s(count: int | None) -> str:
    return "" if count == 1 else "s"


def _rates_line(found: Rates | None) -> Text:
    if found is None:
        return Text("rates follow with the next frame", "dim")
    return Text(
        f"{found.accepted:,.0f}/s accepted   {found.assigned:,.0f}/s handed out   "
        f"{found.ended:,.0f}/s ended   {found.entries:,.0f}/s log entries"
    )


def _exec(row: ExecRow) -> list[str | Text]:
    numbers = (row.queued, row.delayed, row.inflight)
    is_stuck = row.queued > row.delayed and not row.workers
    note = "paused" if row.paused else "no worker takes it" if is_stuck else ""
    return [
        looks.text(row.exec),
        *map(looks.number, numbers),
        Text(looks.number(row.workers), "red" if is_stuck else ""),
        looks.number(row.credit),
        Text(note, "yellow"),
    ]


def _worker(row: WorkerRow) -> list[str | Text]:
    return [
        looks.text(row.worker_id),
        Text(row.state, "" if row.state == "ready" else "yellow"),
        *map(looks.number, (row.held, row.hands, row.credit)),
        looks.span(row.silent_us),
        looks.text(row.host),
    ]


def _trouble(error: Exception, before: Sample | None) -> RenderableType:
    told = Text.assemble(("no answer ", "bold red"), str(error), "\ntrying again…")
    return Group(told, Text(), picture(before, None)) if before is not None else told
