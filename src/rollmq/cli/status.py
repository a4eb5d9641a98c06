"""`rollmq status`: the nodes and their queues at a glance."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import click
from rich.console import Console
from rich.text import Text

from rollmq.cli import looks
from rollmq.cli.connecting import JSON_OPTION, SERVER_OPTION, TIMEOUT_OPTION, connect, understood
from rollmq.cli.describe import one_line
from rollmq.errors import RollmqError, ServerUnreachable
from rollmq.library.operator import parse_servers, server_text
from rollmq.wire.query import ArchiveStatus, ExecStatus, Status

LEADS: Final = "leader"
EXIT_NO_LEADER: Final = 3
EXECS_SHOWN: Final = 40
"""Execs in the table for people, those with the most jobs first; `--json` has up to 1,000."""

DUTIES: Final = {
    "leader": "leads",
    "follower": "follows",
    "pre-candidate": "wants to lead",
    "candidate": "wants to lead",
}


@click.command(
    epilog="""\b
Examples:
  rollmq status --server 127.0.0.1:5000
  rollmq status --server 10.0.0.1:5000,10.0.0.2:5000,10.0.0.3:5000   each of them, and the leader's queues
  rollmq status --json | jq .queued

Exit codes: 0 a leader answered, 1 failed, 2 wrong usage, 3 no leader (what was heard is printed)."""
)
@SERVER_OPTION
@TIMEOUT_OPTION
@JSON_OPTION
@click.pass_context
def status(ctx: click.Context, servers: str, timeout_s: float, as_json: bool) -> None:
    """Nodes, their log, and how many jobs are where.

    Asks every node of --server, and the leader that they name. The queues are the leader's; without one they
    are as of what the first node that answered has applied.
    """
    heard = ask_all([server_text(server) for server in parse_servers(servers)], timeout_s)
    server, answer = pick(heard)
    if answer is None:
        raise gave_up(heard)
    if as_json:
        looks.say_json({**answer, "server": server, "nodes": {name: _brief(heard[name]) for name in heard}})
    else:
        _print(server, answer, heard)
    ctx.exit(0 if answer["role"] == LEADS else EXIT_NO_LEADER)


Heard = Mapping[str, dict[str, Any] | RollmqError]


def ask_all(servers: Sequence[str], timeout_s: float) -> Heard:
    """What each server says of itself, and the leader that they name; asked side by side, so that one that
    hangs holds nobody up twice."""
    with ThreadPoolExecutor(max_workers=min(len(servers), 16)) as pool:
        heard = dict(zip(servers, pool.map(lambda server: _ask(server, timeout_s), servers), strict=True))
    named = {answer["leader"] for answer in heard.values() if isinstance(answer, dict)} - {None, *heard}
    if not any(isinstance(answer, dict) and answer["role"] == LEADS for answer in heard.values()):
        heard |= {server: _ask(server, timeout_s) for server in sorted(named)}
    return heard


def _ask(server: str, timeout_s: float) -> dict[str, Any] | RollmqError:
    try:
        with connect(server, timeout_s) as node:
            answer = node.ask("status")
            understood(answer, Status, server)
            return dict(answer)
    except RollmqError as error:
        return error


def pick(heard: Heard) -> tuple[str, dict[str, Any] | None]:
    """The leader's answer, or the first that came, or none."""
    answers = {server: answer for server, answer in heard.items() if isinstance(answer, dict)}
    leaders = [server for server, answer in answers.items() if answer["role"] == LEADS]
    newest = max(leaders, key=lambda server: int(answers[server]["term"]), default=None)
    server = newest or next(iter(answers), None) or next(iter(heard))
    return server, answers.get(server)


def gave_up(heard: Heard) -> RollmqError:
    """The error when nobody answered."""
    errors = [answer for answer in heard.values() if isinstance(answer, RollmqError)]
    if len(errors) == 1:
        return errors[0]
    return ServerUnreachable(servers=list(heard), reason="; ".join(map(str, errors)))


def _brief(answer: dict[str, Any] | RollmqError) -> dict[str, Any]:
    if isinstance(answer, RollmqError):
        return {"error": str(answer)}
    names = ("node", "role", "leader", "term", "last_index", "commit_index", "applied_index", "version")
    return {name: answer.get(name) for name in names}


# --- for people -------------------------------------------------------------------------------------


def _print(server: str, answer: dict[str, Any], heard: Heard) -> None:
    out = looks.console()
    status = understood(answer, Status, server)
    out.print(_title(server, status), soft_wrap=True)
    for line in _facts(status):
        out.print(line, soft_wrap=True)
    if len(heard) > 1:
        out.print()
        _print_nodes(out, heard)
    if status.execs:
        out.print()
        _print_execs(out, status)
    for warning in status.warnings:
        looks.warn(warning)


def _title(server: str, status: Status) -> Text:
    duty = DUTIES.get(status.role)
    leader = f" {status.leader}" if status.role != LEADS and status.leader else ""
    style = "green" if status.role == LEADS else "yellow"
    return Text.assemble(
        (server, "bold"),
        "  ",
        (f"{duty or one_line(status.role)}{leader}", style),
        f" in term {status.term}, rollmq {one_line(status.version)}, up {looks.span(status.uptime_us)}",
    )


def _facts(status: Status) -> list[Text]:
    facts = [("group", f"{status.group or 'not formed'}, {_members(status)}")]
    if status.last_index:
        behind = status.last_index - status.commit_index
        wait = f", {behind:,} not yet committed" if behind else ", all committed"
        facts.append(("log", f"{status.last_index:,} entries{wait}, applied up to {status.applied_index:,}"))
    if status.queued is not None:
        jobs = (
            f"{looks.number(status.queued)} queued ({looks.size(status.queued_bytes)}), "
            f"{looks.number(status.inflight)} in flight, {looks.counted(status.dlq, 'dead letter')}, "
            f"{looks.number(status.finished)} finished and remembered"
        )
        facts.append(("jobs", jobs))
    clients = f"{looks.number(status.clients)} known"
    if status.workers is not None:
        facts.append(("workers", f"{looks.number(status.workers)} connected; clients: {clients}"))
    elif status.clients is not None:
        facts.append(("clients", clients))
    if status.disk_free_bytes is not None:
        facts.append(("disk", f"{looks.size(status.disk_free_bytes)} free"))
    if status.archive is not None:
        facts.append(("archive", _archive(status.archive)))
    if status.role != LEADS:
        known = f"the leader is at {status.leader}" if status.leader else "it knows of no leader"
        facts.append(("leader", known))
    return [Text.assemble((f"{name:<9}", "dim"), value) for name, value in facts]


def _archive(archive: ArchiveStatus) -> str:
    missed = f", {archive.missed:,} dropped before" if archive.missed else ""
    return (
        f"{one_line(archive.place)}: {archive.shipped:,} segments shipped from here, "
        f"{archive.waiting:,} wait{missed}"
    )


def _members(status: Status) -> str:
    voters = sum(member.voter for member in status.members)
    learners = len(status.members) - voters
    more = f" and {learners} learning" if learners else ""
    return f"{voters} voting member{'s' * (voters != 1)}{more}"


def _print_nodes(out: Console, heard: Heard) -> None:
    rows: list[list[str | Text]] = []
    for server, answer in heard.items():
        if isinstance(answer, RollmqError):
            rows.append([looks.text(server), Text("does not answer", "red"), *[looks.NONE] * 4])
            continue
        indexes = (answer["term"], answer["last_index"], answer["commit_index"], answer["applied_index"])
        role = looks.text(answer["role"], "green" if answer["role"] == LEADS else "")
        rows.append([looks.text(server), role, *map(looks.number, indexes)])
    out.print(looks.table("node", "role", ">term", ">last", ">committed", ">applied", rows=rows))
    for server, answer in heard.items():
        if isinstance(answer, RollmqError):
            why = answer.reason if isinstance(answer, ServerUnreachable) else str(answer)
            out.print(Text.assemble((f"{server}  ", "dim"), why), soft_wrap=True)


def _print_execs(out: Console, status: Status) -> None:
    busiest = sorted(status.execs.items(), key=lambda each: -(each[1].queued + each[1].inflight))
    rows: list[list[str | Text]] = [
        [looks.text(name), *map(looks.number, (row.queued, row.delayed, row.inflight)), _pause_of(row)]
        for name, row in busiest[:EXECS_SHOWN]
    ]
    out.print(looks.table("exec", ">queued", ">delayed", ">in flight", "", rows=rows))
    if status.execs_count > len(rows):
        out.print(f"and {status.execs_count - len(rows):,} more execs")


def _pause_of(row: ExecStatus) -> Text:
    if not row.paused:
        return Text("")
    return Text("paused, submits too" if row.refuses_submits else "paused", "yellow")
