"""`rollmq submit`: one job, or a job per line of a file or pipe; with --wait how they end.

It reads payloads and options; submitting is the library's, many of them are submit_lines'.
"""

import asyncio
import os
import sys
from collections.abc import Awaitable
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

import click
import uvloop
from rich.text import Text

from rollmq import limits
from rollmq.cli import looks
from rollmq.cli.connecting import (
    JSON_OPTION,
    SERVER_OPTION,
    TIMEOUT_OPTION,
    Seconds,
    as_exec,
    as_line,
    as_name,
    connect,
)
from rollmq.cli.describe import one_line
from rollmq.cli.errand import Errand, outcome_json, too_large
from rollmq.cli.exit_codes import ExitCode
from rollmq.cli.submit_lines import submit_lines
from rollmq.client import CLIENT_ID
from rollmq.errors import ResultTimeout, RollmqError
from rollmq.library.call import Outcome
from rollmq.library.client_job import Job
from rollmq.library.submit_options import TIMEOUT_DEFAULT_S, TRIES_MAX_DEFAULT

STDIN: Final = "-"
EXPLAIN_EVERY_S: Final = 1.5
EXPLAIN_CHARS_MAX: Final = 500
T = TypeVar("T")
SECONDS: Final = Seconds(min=0)


@click.command(
    epilog="""\b
Examples:
  rollmq submit mail.send '{"to": "olga"}' --key order-4711
  rollmq submit image.resize --file cat.png --wait > small.png
  seq 1000 | rollmq submit count --lines                    a job per line, pipelined
  rollmq submit import --lines --file rows.csv --key rows-2026-11 --wait --json > outcomes.jsonl
  rollmq submit report.daily --delay 3600 --priority 9 --tries 3 --header trace=7f3a

\b
It prints the job's id; with --wait the result. A submit has three endings, each with a code of its own.
Exit codes: 0 accepted: committed, it cannot get lost (with --wait: done)
            1 refused: nothing was queued; the message says why, and whether later may help
            4 unknown: no answer came, it may have been accepted; with --key repeating it is safe
            2 wrong usage, 3 no leader: nothing was sent
            with --wait: 5 accepted and ended without success, 6 accepted and not ended in --wait-max"""
)
@click.argument("exec_name", metavar="EXEC", type=as_exec)
@click.argument("payload", metavar="[PAYLOAD]", required=False)
@click.option(
    "--file",
    "path",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    metavar="FILE",
    help="Read it from here; - is stdin, which is read too when there is no PAYLOAD and no terminal.",
)
@click.option("--lines", is_flag=True, help="A job per line; empty lines are left out.")
@click.option(
    "--key", default="", metavar="TEXT", help="Accepted once per key; with --lines TEXT:NUMBER of the line."
)
@click.option("--delay", type=SECONDS, metavar="SECONDS", help="Not to be run before.")
@click.option(
    "--not-before", metavar="TIME", help="The same, as a date with its zone: 2026-12-24T18:00+01:00."
)
@click.option("--expires-in", type=SECONDS, metavar="SECONDS", help="Dead if no worker got it by then.")
@click.option(
    "--priority",
    type=click.IntRange(0, limits.PRIORITY_MAX),
    metavar="N",
    default=0,
    show_default=True,
    help="Higher first; who waits long rises.",
)
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="A label for the handler.")
@click.option(
    "--try-timeout",
    type=SECONDS,
    default=TIMEOUT_DEFAULT_S,
    show_default=True,
    metavar="SECONDS",
    help="For one try.",
)
@click.option(
    "--tries",
    type=click.IntRange(1, limits.TRIES_MAX_MAX),
    metavar="N",
    default=TRIES_MAX_DEFAULT,
    show_default=True,
    help="Then it is a dead letter.",
)
@click.option(
    "--backoff", type=SECONDS, metavar="SECONDS", help="Between tries.  [default: 1 s, doubling to 10 min]"
)
@click.option(
    "--content-type", default="", type=as_line, metavar="TYPE", help="Of the payload, for the handler."
)
@click.option(
    "--client",
    "client_id",
    type=as_name,
    metavar="ID",
    default=CLIENT_ID,
    show_default=True,
    help="Who submits.",
)
@click.option("--wait", is_flag=True, help="Wait until it has ended, and print the result.")
@click.option("--wait-max", type=SECONDS, metavar="SECONDS", help="With --wait: not longer than this.")
@SERVER_OPTION
@TIMEOUT_OPTION
@JSON_OPTION
@click.pass_context
def submit(
    ctx: click.Context,
    /,
    exec_name: str,
    payload: str | None,
    path: Path | None,
    lines: bool,
    servers: str,
    timeout_s: float,
    as_json: bool,
    key: str,
    client_id: str,
    wait: bool,
    wait_max: float | None,
    **options: Any,
) -> None:
    """Submit a job, or many.

    The payload is the argument, the content of --file, or what comes from a pipe. The command returns when
    the job is committed: on the disks of a majority of the nodes.
    """
    if payload is not None and (path is not None or lines):
        raise click.UsageError("give a PAYLOAD, or something to read: --file or a pipe.")
    if wait_max is not None and not wait:
        raise click.UsageError("--wait-max goes with --wait.")
    errand = Errand(
        servers, exec_name, client_id, timeout_s, key, wait, wait_max, as_json, _options(**options)
    )
    with connect(servers, timeout_s) as node:
        node.ask("settings")  # finds the leader, or says in whole sentences what is wrong with the server
    try:
        code = _done(errand, payload, path, lines)
    except KeyboardInterrupt:
        code = _stopped(errand)
    ctx.exit(code)


def _done(errand: Errand, payload: str | None, path: Path | None, lines: bool) -> int:
    if lines:
        return _run(submit_lines(errand, path if path is not None and str(path) != STDIN else None))
    return _run(_one(errand, os.fsencode(payload) if payload is not None else _read(path)))


def _stopped(errand: Errand) -> int:
    """By Ctrl-C: what is true then."""
    if errand.job_id:
        looks.note(f"stopped waiting: job {errand.job_id} was accepted and goes on")
        return ExitCode.NOT_ENDED
    looks.note(
        "stopped: what was under way may have been accepted; with --key it can be submitted again safely"
    )
    return ExitCode.UNKNOWN


def _options(
    *,
    delay: float | None,
    not_before: str | None,
    expires_in: float | None,
    priority: int,
    headers: tuple[str, ...],
    try_timeout: float,
    tries: int,
    backoff: float | None,
    content_type: str,
) -> dict[str, Any]:
    return {
        "delay": delay,
        "not_before": _time(not_before) if not_before else None,
        "expires_in": expires_in,
        "priority": priority,
        "headers": dict(map(_header, headers)) or None,
        "timeout": try_timeout,
        "tries_max": tries,
        "backoff": backoff,
        "content_type": content_type,
    }


def _header(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.UsageError(f"--header {text}: write NAME=VALUE.")
    return name, value


def _time(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise click.UsageError(f"--not-before {text}: write a date like 2026-12-24T18:00+01:00.") from error
    if found.tzinfo is None:
        raise click.UsageError(f"--not-before {text}: say its zone too, like 2026-12-24T18:00+01:00.")
    return found


def _read(path: Path | None) -> bytes:
    """The payload, from a file or a pipe; none on a terminal is an empty one."""
    if path is None and sys.stdin.isatty():
        return b""
    if path is None or str(path) == STDIN:
        return _bounded(sys.stdin.buffer)
    with path.open("rb") as file:
        return _bounded(file)


def _bounded(file: BinaryIO) -> bytes:
    """One byte more than is allowed is enough to be refused."""
    payload = file.read(limits.PAYLOAD_BYTES_MAX + 1)
    if len(payload) > limits.PAYLOAD_BYTES_MAX:
        raise too_large()
    return payload


def _run(work: Awaitable[T]) -> T:
    async def run() -> T:
        return await work

    return uvloop.run(run())


async def _one(errand: Errand, payload: bytes) -> int:
    async with errand.client() as client:
        job = await client.submit(errand.exec, payload, key=errand.key or None, **errand.options)
        errand.job_id = job.id
        if job.is_repeat:
            looks.note("the key was used before: this is its first job, nothing new was queued")
        if not errand.is_waiting:
            said = {"job_id": job.id, "is_repeat": job.is_repeat}
            looks.say_json(said) if errand.as_json else click.echo(job.id)
            return 0
        try:
            outcome = await _ended(errand, job)
        except ResultTimeout as error:
            looks.note(f"Error: {error} It is {await _explained(job)}")
            return ExitCode.NOT_ENDED
        except RollmqError as error:  # it was accepted, so this is no failed submit
            looks.note(f"Error: job {job.id} was accepted; how it ended is not known: {error}")
            return ExitCode.NOT_ENDED
    return _tell(errand, outcome)


async def _ended(errand: Errand, job: Job) -> Outcome:
    """Its end. Meanwhile a terminal shows why it has not ended: perhaps nobody does such jobs."""
    result = asyncio.create_task(job.result(errand.wait_max_s))
    with looks.console(stderr=True).status(f"waiting for job {job.id}") as shown:
        while not (await asyncio.wait((result,), timeout=EXPLAIN_EVERY_S))[0]:
            why = await _explained(job)
            shown.update(Text(f"waiting for job {job.id}, {why}"))
    return await result


async def _explained(job: Job) -> str:
    try:
        found = await job.explain()
    except RollmqError as error:
        return f"not known how far: {one_line(str(error))}"
    return f"{found.state}: {one_line(found.text, chars_max=EXPLAIN_CHARS_MAX)}"


def _tell(errand: Errand, outcome: Outcome) -> int:
    if errand.as_json:
        looks.say_json(outcome_json(outcome))
    elif outcome.ok:
        click.echo(outcome.result, nl=sys.stdout.isatty() and not outcome.result.endswith(b"\n"))
    else:
        why = one_line(outcome.error, chars_max=looks.WHOLE_CHARS_MAX)
        looks.note(f"Error: job {outcome.job_id} is {outcome.state}: {why}")
    return 0 if outcome.ok else ExitCode.ENDED_BADLY
