"""How operators' commands reach a node: the options that all of them share, and the words they may take.

It opens no socket itself and knows no command.
"""

import functools
import getpass
import math
import os
import socket
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click
import msgspec

from rollmq import limits
from rollmq.core.sanity import is_text
from rollmq.core.subject import BadSubject, check_subject
from rollmq.errors import OperatorError
from rollmq.library.operator import TIMEOUT_S, OperatorConnection, parse_servers

SERVER_ENV: Final = "ROLLMQ_SERVER"
TOKEN_ENV: Final = "ROLLMQ_TOKEN"
TIMEOUT_S_MIN: Final = 0.1
TIMEOUT_S_MAX: Final = 3600.0
ID_DIGITS: Final = 32

R = TypeVar("R")
T = TypeVar("T")


class Seconds(click.FloatRange):
    """A finite number of seconds: `nan` is in every range, for it is neither below nor above anything."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds: float = super().convert(value, param, ctx)
        if not math.isfinite(seconds):
            self.fail(f"{value} is no number of seconds.", param, ctx)
        return seconds


class AnswerNotUnderstood(OperatorError):
    """The node's answer is not what this release expects. A question changed nothing; a command was done."""

    def __init__(self, *, server: str, reason: str) -> None:
        super().__init__(
            f"{server} answered what this release of rollmq does not understand: {reason}. A question "
            f"changed nothing, a command was carried out. Use the release that the node runs."
        )


def as_servers(value: str) -> str:
    """host:port, several with commas between them."""
    try:
        parse_servers(value)
    except ValueError as error:
        raise click.BadParameter(f"{error}.") from error
    return value


def as_job(value: str) -> str:
    """A job's id, as `submit` and the lists print it."""
    job_id = value.strip().lower().replace("-", "")
    if len(job_id) != ID_DIGITS or any(digit not in "0123456789abcdef" for digit in job_id):
        raise click.BadParameter(f"{value!r} is no job id: those have {ID_DIGITS} hex digits.")
    return job_id


def as_exec(value: str) -> str:
    """The name of what is to be run."""
    try:
        check_subject(value)
    except BadSubject as error:
        raise click.BadParameter(f"{error}. An exec is like image.resize.") from error
    if not is_text(value, limits.SUBJECT_BYTES_MAX):
        raise click.BadParameter(f"{value!r} is no UTF-8.")
    return value


def as_line(value: str) -> str:
    """A text that may stand in the log, without control characters."""
    if not is_text(value, limits.ERROR_TEXT_CHARS_MAX):
        raise click.BadParameter(f"it must be UTF-8 of at most {limits.ERROR_TEXT_CHARS_MAX} characters.")
    if not value.isprintable():
        raise click.BadParameter("it holds control characters.")
    return value


def as_seconds(value: str | float) -> float:
    """How long to wait."""
    try:
        seconds = float(value)
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is no number of seconds.") from error
    if not TIMEOUT_S_MIN <= seconds <= TIMEOUT_S_MAX:  # also what is no number at all
        raise click.BadParameter(f"it must be {TIMEOUT_S_MIN:g} to {TIMEOUT_S_MAX:g} seconds.")
    return seconds


def as_name(value: str) -> str:
    """An id that people choose: of a client, a worker."""
    if len(value) > limits.ID_CHARS_MAX:
        raise click.BadParameter(f"it must have at most {limits.ID_CHARS_MAX} characters.")
    if not value:
        raise click.BadParameter("it is empty.")
    return as_line(value)


def _named(_ctx: click.Context, _option: click.Parameter, servers: str | None) -> str:
    if servers is None:
        raise click.UsageError(
            f"which node? Name it with --server, for example --server 127.0.0.1:5000, or set {SERVER_ENV}."
        )
    return servers


SERVER_OPTION = click.option(
    "--server",
    "servers",
    metavar="H:P[,H:P…]",
    type=as_servers,
    envvar=SERVER_ENV,
    callback=_named,
    show_envvar=True,
    help="Nodes to ask; any of the group will do.",
)
TIMEOUT_OPTION = click.option(
    "--timeout",
    "timeout_s",
    metavar="SECONDS",
    type=as_seconds,
    default=TIMEOUT_S,
    show_default=True,
    help="How long to wait for an answer, an election included.",
)
JSON_OPTION = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
WHY_OPTION = click.option(
    "--why", default="", metavar="TEXT", type=as_line, help="Stands in the log, with who did it."
)


def asks_a_node(command: Callable[..., R]) -> Callable[..., R]:
    """Gives a command --server, --timeout and --json, and a connection as its argument `node`."""

    @SERVER_OPTION
    @TIMEOUT_OPTION
    @JSON_OPTION
    @functools.wraps(command)
    def run(*args: Any, servers: str, timeout_s: float, **options: Any) -> R:
        with connect(servers, timeout_s) as node:
            return command(*args, node, **options)  # click's own context, when asked for, comes first

    return run


def connect(servers: str, timeout_s: float = TIMEOUT_S) -> OperatorConnection:
    """A connection that says who asks."""
    return OperatorConnection(servers, by=who(), token=token(), timeout_s=timeout_s)


def token() -> str:
    """The secret that the environment names."""
    text = os.environ.get(TOKEN_ENV, "").strip()
    if not is_text(text, limits.TOKEN_CHARS_MAX):
        raise click.UsageError(f"{TOKEN_ENV} must be UTF-8 of at most {limits.TOKEN_CHARS_MAX} characters.")
    return text


def who() -> str:
    """user@host: what stands in the log beside what an operator did."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):
        user = str(os.getuid())
    text = f"{user}@{socket.gethostname()}"
    return "".join(char for char in text if char.isprintable() and char.isascii())[: limits.ID_CHARS_MAX]


def understood(answer: object, kind: type[T], server: str) -> T:
    """A node's answer as what it should be. Raises AnswerNotUnderstood."""
    try:
        return msgspec.convert(answer, kind)
    except msgspec.ValidationError as error:
        raise AnswerNotUnderstood(server=server, reason=str(error)) from error
