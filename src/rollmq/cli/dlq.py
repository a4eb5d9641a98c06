"""`rollmq dlq`: look at dead letters, give them a new life, or let them go."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from rollmq.cli import looks
from rollmq.cli.connecting import WHY_OPTION, as_exec, as_job, as_name, asks_a_node, understood
from rollmq.cli.exit_codes import ExitCode
from rollmq.cli.jobs import LIMIT_OPTION, Pages, show
from rollmq.errors import AnswerUnknown
from rollmq.library.operator import OperatorConnection
from rollmq.wire.query import DoneReply

PART: Final = 1_000
"""Jobs that one command names: a bounded piece of work for the leader, and a step of the bar."""

EXEC_FILTER = click.option("--exec", "exec_name", type=as_exec, metavar="EXEC", help="Only of this exec.")
CLIENT_FILTER = click.option("--client", "client_id", type=as_name, metavar="ID", help="Only of this client.")
ERROR_FILTER = click.option(
    "--error",
    type=as_name,
    metavar="TYPE",
    help="Only those whose last error has this type, like TimeoutError.",
)
REASON_FILTER = click.option(
    "--reason",
    type=click.Choice(["tries", "starts", "rejected", "expired", "poison"]),
    help="Only those that died for this reason.",
)
ALL_FLAG = click.option(
    "--all", "is_all", is_flag=True, help="Not some jobs, but all that the filters let through."
)
YES_FLAG = click.option("--yes", is_flag=True, help="Do not ask first.")

Command = TypeVar("Command", bound=Callable[..., Any])


def filtered(command: Command) -> Command:
    """The command asks about some dead letters."""
    return EXEC_FILTER(CLIENT_FILTER(ERROR_FILTER(REASON_FILTER(command))))


def moves_letters(command: Command) -> Command:
    """The command takes dead letters out of the DLQ: those named, or all that the filters let through."""
    named = click.argument("job_ids", metavar="[JOB]…", nargs=-1, type=as_job)
    return named(ALL_FLAG(filtered(WHY_OPTION(YES_FLAG(command)))))


@click.group()
def dlq() -> None:
    """Dead letters: jobs that used up their tries, were rejected, expired, or kill their workers."""


@dlq.command(
    name="list",
    epilog="""\b
Examples:
  rollmq dlq list
  rollmq dlq list --reason poison --json

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 no leader.""",
)
@asks_a_node
@filtered
@LIMIT_OPTION
def list_(
    node: OperatorConnection,
    exec_name: str | None,
    client_id: str | None,
    error: str | None,
    reason: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """Dead letters, those that died first on top. `rollmq explain JOB` shows all errors of one."""
    filters = {"exec": exec_name, "client_id": client_id, "error": error, "reason": reason}
    show(Pages(node, "dlq_list", filters, limit), as_json=as_json, what="dead letters")


@dlq.command(
    epilog="""\b
Examples:
  rollmq dlq redrive 019a982c8e3b7a51b2c04d5e6f708192 --why "storage is back"
  rollmq dlq redrive --all --exec image.resize --error FileNotFoundError

Exit codes: 0 done, 1 failed, or a JOB was not in the DLQ, 2 wrong usage, 3 no leader,
4 unknown (repeating it is safe)."""
)
@asks_a_node
@moves_letters
def redrive(node: OperatorConnection, /, **options: Any) -> None:
    """Queue dead letters again, in a new life: their tries begin at zero."""
    _act(node, "dlq_redrive", done="queued again", **options)


@dlq.command(
    epilog="""\b
Examples:
  rollmq dlq drop 019a982c8e3b7a51b2c04d5e6f708192 --why "order was withdrawn"
  rollmq dlq drop --all --reason expired --yes

Exit codes: 0 done, 1 failed, or a JOB was not in the DLQ, 2 wrong usage, 3 no leader,
4 unknown (repeating it is safe)."""
)
@asks_a_node
@moves_letters
def drop(node: OperatorConnection, /, **options: Any) -> None:
    """Let dead letters go for good. Their story stays in the history."""
    _act(node, "dlq_drop", done="dropped", **options)


def _act(
    node: OperatorConnection,
    command: str,
    *,
    done: str,
    job_ids: tuple[str, ...],
    is_all: bool,
    exec_name: str | None,
    client_id: str | None,
    error: str | None,
    reason: str | None,
    why: str,
    yes: bool,
    as_json: bool,
) -> None:
    filters = {"exec": exec_name, "client_id": client_id, "error": error, "reason": reason}
    if bool(job_ids) == is_all or (job_ids and any(filters.values())):
        raise click.UsageError("name JOBs, or --all with or without filters; not both and not neither.")
    wanted = list(job_ids) or _find(node, filters, is_shown=not as_json)
    if is_all and wanted:
        _confirm(f"{len(wanted):,} dead letters will be {done}. Go on?", is_agreed=yes)
    changed = _send(node, command, wanted, why=why, done=done, is_shown=not as_json)
    if as_json:
        looks.say_json({"asked_count": len(wanted), "changed_count": changed})
    else:
        passed = len(wanted) - changed
        more = f"; {passed:,} {'was' if passed == 1 else 'were'} not in the DLQ" if passed else ""
        click.echo(f"{changed:,} {done}{more}")
    if changed < len(job_ids):
        raise click.exceptions.Exit(ExitCode.FAILED)


def _find(node: OperatorConnection, filters: dict[str, str | None], *, is_shown: bool) -> list[str]:
    pages = Pages(node, "dlq_list", filters, 0)
    with looks.progress("reading dead letters", total=None, is_shown=is_shown) as advance:
        return [row["job_id"] for row in pages.rows(advance)]


def _confirm(question: str, *, is_agreed: bool) -> None:
    if is_agreed:
        return
    if not looks.is_person_there():
        raise click.UsageError("nobody is there to be asked: add --yes.")
    click.confirm(question, abort=True, err=True)


def _send(
    node: OperatorConnection, command: str, wanted: list[str], *, why: str, done: str, is_shown: bool
) -> int:
    """In parts. If one is not answered the parts before it are done, and that is said."""
    changed = 0
    with looks.progress(command.replace("_", " "), total=len(wanted), is_shown=is_shown) as advance:
        for start in range(0, len(wanted), PART):
            part = wanted[start : start + PART]
            try:
                answer = node.ask(command, {"job_ids": part, "why": why}, is_command=True)
            except AnswerUnknown as error:
                reason = f"{error.reason} ({changed:,} were {done} before)"
                raise AnswerUnknown(
                    name=command, server=error.server, reason=reason, is_command=True
                ) from error
            changed += understood(answer, DoneReply, node.server).changed_count
            advance(len(part))
    return changed
