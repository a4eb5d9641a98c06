"""`rollmq pause`, `resume`, `cancel`, `drain`, `seal`: what operators command.

Each is in the log with who and why, except those that only ask somebody to stop.
"""

import time
from collections.abc import Callable, Mapping
from typing import Final

import click

from rollmq.cli import looks
from rollmq.cli.connecting import WHY_OPTION, as_exec, as_job, as_name, asks_a_node, understood
from rollmq.errors import NoLeader, QueryRefused, ServerUnreachable
from rollmq.library.operator import OperatorConnection
from rollmq.wire.query import DoneReply, WorkersPage

LOOK_EVERY_S: Final = 0.25
CODES: Final = "Exit codes: 0 done, 1 refused, 2 wrong usage, 3 no leader, 4 unknown (repeating it is safe)."


@click.command(
    epilog=f"""\b
Examples:
  rollmq pause mail.send --why "provider is down"
  rollmq pause mail.send --submits

{CODES}"""
)
@asks_a_node
@click.argument("exec_name", metavar="EXEC", type=as_exec)
@click.option("--submits", is_flag=True, help="Refuse its submits too.")
@WHY_OPTION
def pause(node: OperatorConnection, exec_name: str, submits: bool, why: str, as_json: bool) -> None:
    """Hand out no more jobs of an exec. What runs, runs on; submits are still taken."""
    arguments = {"exec": exec_name, "submits": submits, "why": why}
    _command(node, "pause", arguments, as_json, f"{exec_name} is paused", f"{exec_name} was so already")


@click.command(
    epilog=f"""\b
Examples:
  rollmq resume mail.send

{CODES}"""
)
@asks_a_node
@click.argument("exec_name", metavar="EXEC", type=as_exec)
@WHY_OPTION
def resume(node: OperatorConnection, exec_name: str, why: str, as_json: bool) -> None:
    """Hand out the jobs of a paused exec again."""
    arguments = {"exec": exec_name, "why": why}
    _command(node, "resume", arguments, as_json, f"{exec_name} goes on", f"{exec_name} was not paused")


@click.command(
    epilog=f"""\b
Examples:
  rollmq cancel 019a982c8e3b7a51b2c04d5e6f708192 --why "order was withdrawn"

{CODES}"""
)
@asks_a_node
@click.argument("job_ids", metavar="JOB…", nargs=-1, required=True, type=as_job)
@WHY_OPTION
@click.pass_context
def cancel(
    ctx: click.Context, node: OperatorConnection, job_ids: tuple[str, ...], why: str, as_json: bool
) -> None:
    """End open jobs as cancelled. A worker that runs one is told; its late answer changes nothing."""
    problems: dict[str, str] = {}
    with looks.progress("cancelling", total=len(job_ids), is_shown=not as_json) as advance:
        for job_id in job_ids:
            try:
                node.ask("cancel", {"job_id": job_id, "why": why}, is_command=True)
            except QueryRefused as error:
                problems[job_id] = str(error)
            advance()
    if as_json:
        looks.say_json({"changed_count": len(job_ids) - len(problems), "refused": problems})
    else:
        for problem in problems.values():
            looks.note(problem)
        click.echo(f"{len(job_ids) - len(problems):,} cancelled")
    ctx.exit(1 if problems else 0)


@click.command(
    epilog=f"""\b
Examples:
  rollmq drain --worker w1 --wait            it finishes what runs and hands back the rest
  rollmq drain --node --server 10.0.0.2:5000  this node stops politely, like on SIGTERM

{CODES}"""
)
@asks_a_node
@click.option("--worker", "worker_id", type=as_name, metavar="ID", help="This worker.")
@click.option("--node", "is_node", is_flag=True, help="The node named by --server, which must name one only.")
@click.option("--wait", is_flag=True, help="Return when it is gone.")
@WHY_OPTION
def drain(
    node: OperatorConnection, worker_id: str | None, is_node: bool, wait: bool, why: str, as_json: bool
) -> None:
    """Ask a worker, or a node, to stop politely."""
    if (worker_id is None) is not is_node:
        raise click.UsageError("name --worker ID or --node, one of them.")
    if is_node and node.servers_count != 1:
        raise click.UsageError("--node stops one node: name that one alone with --server.")
    who = f"worker {worker_id}" if worker_id else "the node"
    _command(node, "drain", {"worker_id": worker_id or "", "why": why}, as_json, f"{who} is stopping", "")
    if wait:
        _wait(
            f"waiting for {who}", (lambda: _is_gone(node, worker_id)) if worker_id else lambda: _is_down(node)
        )


@click.command(
    epilog=f"""\b
Examples:
  rollmq seal        before copying history/ away, or to give a pipeline everything up to now

{CODES}"""
)
@asks_a_node
def seal(node: OperatorConnection, as_json: bool) -> None:
    """End the log's open segment now, instead of within a minute."""
    _command(node, "marker", {}, as_json, "the segment is sealed", "there was nothing new to seal")


@click.command(
    name="step-time",
    epilog=f"""\b
Examples:
  rollmq step-time        after the clock of a node alone was set right, and `rollmq status` warns of it

{CODES}""",
)
@asks_a_node
def step_time(node: OperatorConnection, as_json: bool) -> None:
    """Say that the clock of a node alone is right: log time goes there at once."""
    _command(node, "step_time", {}, as_json, "log time was stepped", "log time follows the clock already")


def _command(
    node: OperatorConnection,
    query: str,
    arguments: Mapping[str, object],
    as_json: bool,
    done: str,
    already: str,
) -> None:
    answer = node.ask(query, arguments, is_command=True)
    changed = understood(answer, DoneReply, node.server).changed_count
    if as_json:
        looks.say_json(answer)
    else:
        click.echo(done if changed else already)


def _wait(label: str, is_over: Callable[[], bool]) -> None:
    with looks.progress(label, total=None):
        while not is_over():
            time.sleep(LOOK_EVERY_S)


def _is_gone(node: OperatorConnection, worker_id: str) -> bool:
    after = ""
    while True:
        page = understood(node.ask("workers", {"after": after, "limit": 1000}), WorkersPage, node.server)
        if any(row.worker_id == worker_id for row in page.workers):
            return False
        if not page.after:
            return True
        after = page.after


def _is_down(node: OperatorConnection) -> bool:
    try:
        node.ask("status")
    except ServerUnreachable:
        return True
    except (NoLeader, QueryRefused):
        return False
    return False
