"""`rollmq worker`: run jobs with any program, or with the handlers and tasks of a Python module.

The process' own matters are here: signals, logging to stderr, exit codes. What a worker does is in
rollmq.worker.
"""

import asyncio
import logging
import signal
import sys
import time
from typing import Final

import click
import uvloop

from rollmq import limits
from rollmq.cli.connecting import SERVER_OPTION, Seconds
from rollmq.cli.loading import load
from rollmq.errors import HandlerProblem
from rollmq.library.command import Command, parse_command
from rollmq.library.handlers import Handler, Where
from rollmq.tasks import App
from rollmq.worker import Worker

HANDS_DEFAULT: Final = 8


@click.command(
    epilog="""\b
Examples:
  rollmq worker --exec resize='convert - -resize 300 png:-'     payload on stdin, result from stdout
  rollmq worker --exec report=./report.sh --exec mail=./mail.py --hands 2
  rollmq worker --app shop.tasks:app --hands 32                 typed tasks, or a Worker, of a module

A program finds the job's facts in ROLLMQ_JOB_ID, ROLLMQ_EXEC, ROLLMQ_CLIENT_ID, ROLLMQ_ATTEMPT, ROLLMQ_TRIES,
ROLLMQ_TRIES_MAX, ROLLMQ_TIMEOUT_S, ROLLMQ_CONTENT_TYPE and ROLLMQ_HEADERS (JSON). Any exit code but 0 is a
failed try, and the end of stderr its error. It is killed, with all that it started, when its job is over its
time or cancelled.

\b
SIGTERM or SIGINT: take nothing more, hand back what has not begun, finish what runs. A second one, or
--grace, does not wait for what runs: it is stopped and handed back.
Exit codes: 0 stopped politely, 1 it failed (the message says why), 2 wrong usage."""
)
@SERVER_OPTION
@click.option(
    "--exec", "commands", multiple=True, metavar="NAME=COMMAND", help="Run jobs of an exec with a program."
)
@click.option(
    "--app", "app", default="", metavar="MODULE:NAME", help="Run the tasks or handlers of a Python module."
)
@click.option(
    "--hands",
    type=click.IntRange(1, limits.WORKER_HANDS_MAX),
    metavar="N",
    default=HANDS_DEFAULT,
    show_default=True,
    help="How many jobs run at once.",
)
@click.option(
    "--credit",
    type=click.IntRange(1, limits.WORKER_HELD_MAX),
    metavar="N",
    help="How many it holds, running ones included.  [default: twice the hands, for short jobs]",
)
@click.option(
    "--id", "worker_id", default="", metavar="ID", help="Unique in the group.  [default: host and process]"
)
@click.option("--release", default="", metavar="TEXT", help="Version of the code that it runs, for reports.")
@click.option(
    "--grace",
    type=Seconds(min=0),
    metavar="SECONDS",
    help="How long a stop waits for what runs.  [default: until it has ended]",
)
@click.option("--verbose", is_flag=True, help="Log what handlers raise, too.")
def worker(
    servers: str,
    commands: tuple[str, ...],
    app: str,
    hands: int,
    credit: int | None,
    worker_id: str,
    release: str,
    grace: float | None,
    verbose: bool,
) -> None:
    """Run jobs, with any program or with the tasks of a Python module."""
    if not commands and not app:
        raise click.UsageError("give it something to run: --exec NAME=COMMAND, or --app MODULE:NAME.")
    _log_to_stderr(verbose)
    made = Worker(servers, worker_id=worker_id or None, hands=hands, credit=credit, release=release)
    for text in commands:
        made.handlers.add(_command_handler(text))
    if app:
        found = app_of(app)
        made.codec = found.codec
        for handler in found.handlers:
            made.handlers.add(handler)
    uvloop.run(_run(made, grace))


def _command_handler(text: str) -> Handler:
    name, equals, command = text.partition("=")
    if not equals or not name:
        raise click.UsageError(
            f"--exec {text}: write NAME=COMMAND, for example --exec resize='convert - png:-'."
        )
    return Handler(name, Command(parse_command(command)), Where.THREAD)


def app_of(app: str) -> Worker:
    """The Worker that is meant, or one with the tasks of the App that is."""
    found = load(app)
    if isinstance(found, App):
        found = found.worker(servers="")
    elif not isinstance(found, Worker):
        raise HandlerProblem(f"--app {app} is {type(found).__name__}, not an App or a Worker.")
    if not found.handlers:
        raise HandlerProblem(f"--app {app} has no tasks and no handlers.")
    return found


async def _run(made: Worker, grace_s: float | None) -> None:
    loop = asyncio.get_running_loop()
    stops_count = 0

    def stop() -> None:
        nonlocal stops_count
        stops_count += 1
        made.stop(now=stops_count > 1)
        if grace_s is not None and stops_count == 1:
            loop.call_later(grace_s, lambda: made.stop(now=True))

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    await made.run()


def _log_to_stderr(is_verbose: bool) -> None:
    formatter = logging.Formatter("%(asctime)sZ %(message)s", datefmt="%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.gmtime
    to_stderr = logging.StreamHandler(sys.stderr)
    to_stderr.setFormatter(formatter)
    log = logging.getLogger("rollmq")
    log.addHandler(to_stderr)
    log.setLevel(logging.DEBUG if is_verbose else logging.INFO)
