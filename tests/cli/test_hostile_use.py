"""Every command, used badly: never a traceback, and the message says what to do.

Commands are found, not listed: a new one is tested, or this file says that it is missing here.
"""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import click
import pytest

from rollmq.cli.exit_codes import ExitCode
from rollmq.cli.main import main
from tests.cli.running import answers_http, clean_env, free_port, listening, run

JOB = "019a982c8e3b7a51b2c04d5e6f708192"
ASKING: Final[Mapping[str, tuple[str, ...]]] = {
    "submit": ("image.resize", "cat"),
    "status": (),
    "top": ("--frames", "1"),
    "explain": (JOB,),
    "jobs": (),
    "dlq list": (),
    "dlq redrive": (JOB,),
    "dlq drop": (JOB, "--yes"),
    "pause": ("image.resize",),
    "resume": ("image.resize",),
    "cancel": (JOB,),
    "drain": ("--worker", "w1"),
    "workers": (),
    "clients list": (),
    "clients set": ("shop", "--cap", "5"),
    "settings list": (),
    "settings set": ("crashes_max=2",),
    "seal": (),
    "step-time": (),
    "members list": (),
    "members add": ("127.0.0.1:1",),
    "members remove": ("127.0.0.1:1",),
    "members replace": ("127.0.0.1:1", "127.0.0.1:2"),
}
"""Commands that ask a node and end, each with words that make it a proper call."""
OTHERS: Final = {"worker", "history ingest", "history build", "history watch", "history audit"}
"""They have a server too, and go on without one, or need Spark: their own tests have these."""
NASTY: Final = (
    "",
    "nan",
    "inf",
    "-1",
    "1e400",
    "9" * 30,
    "\u0664",
    "\x1b[2J",
    "\udcff",
    "a b",
    "../..",
)


def leaves(command: click.Command = main, words: str = "") -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, with the words that call it."""
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from leaves(inner, f"{words} {name}".strip())
    else:
        yield words, command


def options_of(command: click.Command) -> Iterator[str]:
    """Its options that take a value, but for who is asked and how long."""
    for param in command.params:
        if isinstance(param, click.Option) and not param.is_flag:
            names = set(param.opts) - {"--server", "--timeout"}
            yield from (name for name in names if name.startswith("--"))


def test_every_command_that_asks_a_node_is_tried_here() -> None:
    asking = {words for words, command in leaves() if any("--server" in p.opts for p in command.params)}
    assert asking - OTHERS == set(ASKING)


@pytest.mark.parametrize("words", ASKING)
def test_without_a_server_it_says_how_to_name_one(words: str) -> None:
    result = run(*words.split(), *ASKING[words], server=f"127.0.0.1:{free_port()}")
    assert result.exit_code == ExitCode.NO_LEADER
    assert "connection refused" in result.stderr
    assert "--server HOST:PORT" in result.stderr


@pytest.mark.parametrize("words", ASKING)
def test_something_else_on_the_port_is_told_from_a_node(words: str) -> None:
    with listening(answers_http) as server:
        result = run(*words.split(), *ASKING[words], server=server)
    assert result.exit_code == ExitCode.FAILED
    assert f"{server} is not a rollmq server" in result.stderr


def _babbles(connection: socket.socket) -> None:
    connection.recv(4096)
    connection.sendall(bytes(range(256)) * 8)


def _stops_in_a_frame(connection: socket.socket) -> None:
    connection.recv(4096)
    connection.sendall(b"\x00\x00\x00\x40\x08")


def _is_gone(_connection: socket.socket) -> None:
    """Hangs up without a word."""


@pytest.mark.parametrize("talk", [_babbles, _stops_in_a_frame, _is_gone])
def test_a_server_that_makes_no_sense_is_named(talk: Callable[[socket.socket], None]) -> None:
    with listening(talk) as server:
        for words, more in ASKING.items():
            result = run(*words.split(), *more, "--timeout", "1", server=server)
            assert result.exit_code in (ExitCode.FAILED, ExitCode.NO_LEADER), words
            assert server in result.stderr


@pytest.mark.parametrize("words", ASKING)
def test_no_value_of_an_option_brings_more_than_a_message(words: str) -> None:
    server = f"127.0.0.1:{free_port()}"
    command = dict(leaves())[words]
    for option in options_of(command):
        for value in NASTY:
            result = run(*words.split(), *ASKING[words], f"{option}={value}", server=server)
            assert result.exit_code in (ExitCode.USAGE, ExitCode.NO_LEADER), (option, value, result.output)
            assert "Error: " in result.stderr
    for value in NASTY:
        result = run(*words.split(), value, server=server)
        assert result.exit_code in (ExitCode.USAGE, ExitCode.NO_LEADER), (value, result.output)


# --- as somebody who may not -------------------------------------------------------------------------


def as_nobody(*words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The command without root's privileges, so that a closed door is closed."""
    drop = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
    command = [*drop, sys.executable, "-m", "rollmq", *map(str, words)]
    return subprocess.run(
        command, capture_output=True, text=True, env=clean_env(), timeout=60, cwd=cwd, check=False
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("serve", "{port}", "--state", "closed"), "'closed' is not readable"),
        (("serve", "{port}", "--state", "closed/state"), "Give this user the right"),
        (("serve", "{port}", "--state", "no-writing"), "Give this user the right"),
        (("serve", "{port}", "--state", "no-writing/state"), "Give this user the right"),
        (("serve", "{port}", "--state", "state", "--token-file", "secret"), "'secret' is not readable"),
        (("serve", "{port}", "--archive", "closed/archive"), "this user may not look at"),
        (("serve", "{port}", "--archive", "no-writing"), "this user may not write in"),
        (("serve", "{port}", "--archive", "no-writing/archive"), "this user may not write in"),
        (("serve", "80", "--state", "state"), "ports below 1024 need a privilege"),
        (("log", "verify", "closed"), "'closed' is not readable"),
        (("log", "show", "closed"), "'closed' is not readable"),
        (("submit", "a", "--file", "secret", "--server", "127.0.0.1:1"), "'secret' is not readable"),
        (("worker", "--exec", "a=./secret", "--server", "127.0.0.1:1"), "could be run"),
    ],
    ids=str,
)
def test_a_door_that_is_closed_is_named(words: tuple[str, ...], says: str, tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o000)
    (tmp_path / "no-writing").mkdir(mode=0o555)
    (tmp_path / "secret").write_text("s3cret")
    (tmp_path / "secret").chmod(0o000)
    result = as_nobody(*(word.format(port=free_port()) for word in words), cwd=tmp_path)
    assert result.returncode in (ExitCode.FAILED, ExitCode.USAGE), result.stderr
    assert says in result.stderr
    assert "Traceback" not in result.stderr


# --- a worker goes on -------------------------------------------------------------------------------


@pytest.mark.parametrize("is_somebody_there", [False, True])
def test_a_worker_without_a_node_says_so_and_stops_when_asked(is_somebody_there: bool) -> None:
    with listening(answers_http) as there:
        server = there if is_somebody_there else f"127.0.0.1:{free_port()}"
        worker = subprocess.Popen(
            [sys.executable, "-m", "rollmq", "worker", "--server", server, "--exec", "a=cat"],
            stderr=subprocess.PIPE,
            env=clean_env(),
        )
        try:
            assert worker.stderr is not None
            line = worker.stderr.readline().decode()
            assert "event=worker_not_connected" in line
            assert server in line
            worker.send_signal(signal.SIGTERM)
            rest = worker.communicate(timeout=60)[1].decode()
        finally:
            worker.kill()
            worker.wait()
    assert worker.returncode == 0
    assert "Traceback" not in rest
