"""What goes wrong is one line that says what to do, and an exit code. Never a traceback."""

import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from rollmq.cli.exit_codes import ExitCode, code_of
from rollmq.cli.main import main
from rollmq.errors import AnswerUnknown, NoLeader, QueryRefused, ServerUnreachable
from tests.cli.running import RunningNode, answers_http, free_port, listening, rollmq, run, running_node

JOB = "019a982c8e3b7a51b2c04d5e6f708192"


def every_command(command: click.Command = main, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command and group."""
    yield words
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from every_command(inner, (*words, name))


@pytest.mark.parametrize("words", list(every_command()), ids=" ".join)
def test_every_help_says_what_it_does_with_examples_and_exit_codes(words: tuple[str, ...]) -> None:
    result = run(*words, "--help")
    assert result.exit_code == 0
    assert result.output.startswith("Usage: ")
    command: click.Command = main
    for word in words:
        assert isinstance(command, click.Group)
        command = command.commands[word]
    if not isinstance(command, click.Group):
        assert "Examples:" in result.output
        assert "Exit codes: 0 " in result.output


@pytest.mark.parametrize(
    "words",
    [
        ["status"],
        ["jobs", "--server", "nowhere"],
        ["jobs", "--server", ""],
        ["jobs", "--server", "h:0"],
        ["jobs", "--server", "h:99999999999999999999"],
        ["jobs", "--limit", "-1", "--server", "h:1"],
        ["jobs", "--state", "lost", "--server", "h:1"],
        ["jobs", "--exec", "a..b", "--server", "h:1"],
        ["jobs", "--exec", "x" * 300, "--server", "h:1"],
        ["jobs", "--client", "", "--server", "h:1"],
        ["jobs", "--client", "\x1b[2J", "--server", "h:1"],
        ["jobs", "--client", "\udcff", "--server", "h:1"],
        ["jobs", "--timeout", "0", "--server", "h:1"],
        ["jobs", "--timeout", "nan", "--server", "h:1"],
        ["explain", "42", "--server", "h:1"],
        ["explain", "\udcff" * 32, "--server", "h:1"],
        ["explain", "--server", "h:1"],
        ["pause", "*", "--server", "h:1"],
        ["pause", "", "--server", "h:1"],
        ["pause", "a", "--why", "two\nlines", "--server", "h:1"],
        ["cancel", "--server", "h:1"],
        ["cancel", JOB, "nonsense", "--server", "h:1"],
        ["drain", "--server", "h:1"],
        ["drain", "--node", "--worker", "w1", "--server", "h:1"],
        ["dlq", "redrive", "--server", "h:1"],
        ["dlq", "redrive", JOB, "--all", "--server", "h:1"],
        ["dlq", "drop", JOB, "--exec", "a", "--server", "h:1"],
        ["dlq", "list", "--reason", "sad", "--server", "h:1"],
        ["clients", "set", "a", "--server", "h:1"],
        ["clients", "set", "a", "--weight", "101", "--server", "h:1"],
        ["clients", "set", "a", "--cap", "9" * 30, "--server", "h:1"],
        ["settings", "set", "--server", "h:1"],
        ["settings", "set", "crashes_max", "--server", "h:1"],
        ["settings", "set", "crashes_max=-1", "--server", "h:1"],
        ["settings", "set", "crashes_max=" + "9" * 400, "--server", "h:1"],
        ["settings", "set", "crashes_max=\u0664", "--server", "h:1"],
        ["serve"],
        ["serve", "0"],
        ["serve", "port"],
        ["serve", "70000"],
        ["serve", "5000", "--role", "follower"],
        ["serve", "5000", "--leader", "h:1"],
        ["serve", "5000", "--role", "follower", "--leader", "nowhere"],
        ["serve", "5000", "--role", "follower", "--leader", "127.0.0.1:5000"],
        ["serve", "5000", "--peers", "a b:5000"],
        ["serve", "5000", "--peers", "nowhere"],
        ["serve", "5000", "--advertise", "nowhere"],
        ["serve", "5000", "--advertise", "h:0"],
        ["serve", "5000", "--host", ""],
        ["serve", "5000", "--host", "0.0.0.0", "--peers", "10.0.0.1:5000,10.0.0.2:5000"],
        ["serve", "5000", "--group", ""],
        ["serve", "5000", "--group", "a\nb"],
        ["no-such-command"],
        ["status", "--no-such-option"],
    ],
    ids=str,
)
def test_a_wrong_call_is_told_before_anything_is_asked(words: list[str]) -> None:
    result = run(*words)
    assert result.exit_code == ExitCode.USAGE, result.output
    assert "Error: " in result.stderr
    assert result.stdout == ""


def _hang_up(connection: socket.socket) -> None:
    connection.recv(4096)


@pytest.mark.parametrize("talk", [answers_http, _hang_up])
def test_what_is_no_rollmq_server_is_named_as_such(talk: Callable[[socket.socket], None]) -> None:
    with listening(talk) as server:
        for words in (["status"], ["jobs"], ["pause", "a"]):
            result = run(*words, server=server)
            assert result.exit_code == ExitCode.FAILED
            assert f"{server} is not a rollmq server" in result.stderr
            assert "Check the host and port" in result.stderr


def test_nobody_listening_is_told_with_what_to_do() -> None:
    server = f"127.0.0.1:{free_port()}"
    for words in (["status"], ["jobs"], ["cancel", JOB], ["explain", JOB], ["workers"]):
        result = run(*words, server=server)
        assert result.exit_code == ExitCode.NO_LEADER
        assert f"cannot reach {server}: connection refused" in result.stderr
        assert "--server HOST:PORT or ROLLMQ_SERVER" in result.stderr
    unresolved = run("status", server="no-such-host.invalid:5000")
    assert (unresolved.exit_code, "cannot reach" in unresolved.stderr) == (ExitCode.NO_LEADER, True)


def test_a_server_that_hangs_is_given_up_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = f"127.0.0.1:{silent.getsockname()[1]}"
        result = run("jobs", "--timeout", "0.3", server=server)
    assert result.exit_code == ExitCode.NO_LEADER
    assert "does not answer" in result.stderr


def test_the_exit_code_tells_refused_unreachable_and_unknown_apart() -> None:
    unknown = AnswerUnknown(name="pause", server="h:1", reason="it went away", is_command=True)
    question = AnswerUnknown(name="jobs", server="h:1", reason="it went away", is_command=False)
    assert code_of(unknown) == ExitCode.UNKNOWN
    assert code_of(question) == ExitCode.FAILED
    assert code_of(NoLeader(servers=["h:1"], term=3)) == ExitCode.NO_LEADER
    assert code_of(ServerUnreachable(servers=["h:1"], reason="x")) == ExitCode.NO_LEADER
    assert code_of(QueryRefused(name="pause", code="bad_command", text="no")) == ExitCode.FAILED


def test_a_token_that_is_missing_or_wrong_is_told(tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("s3cret\n")
    with running_node(tmp_path / "state", "--token-file", str(secret)) as node:
        for token in ("", "wrong"):
            result = run("jobs", server=node.server, env={"ROLLMQ_TOKEN": token})
            assert result.exit_code == ExitCode.FAILED
            assert "Set ROLLMQ_TOKEN" in result.stderr
        assert run("jobs", server=node.server, env={"ROLLMQ_TOKEN": "s3cret"}).exit_code == 0
        binary = run("jobs", server=node.server, env={"ROLLMQ_TOKEN": "\udcff"})
        assert binary.exit_code == ExitCode.USAGE


def test_a_full_disk_under_the_output_is_told_without_a_traceback() -> None:
    result = rollmq_to_full_disk("--help")
    assert "Traceback" not in result
    assert "No space left on device" in result


def rollmq_to_full_disk(*words: str) -> str:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "rollmq", *words]
        return subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False).stderr


# --- serve ------------------------------------------------------------------------------------------


def test_serve_says_ready_on_stderr_and_ends_politely_on_both_signals(tmp_path: Path) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        node = RunningNode(tmp_path / "state")
        assert any("event=ready" in line and f"address={node.server}" in line for line in node.lines)
        assert node.stop(number) == 0
        assert any("event=stopped" in line for line in node.lines)


def test_a_port_in_use_is_told_and_nothing_was_changed(tmp_path: Path) -> None:
    with running_node(tmp_path / "one") as node:
        result = rollmq("serve", node.port, "--state", tmp_path / "two")
    assert result.returncode == 1
    assert f"cannot listen at {node.server}: another process listens there" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_directory_in_use_is_told_with_its_holder(tmp_path: Path) -> None:
    with running_node(tmp_path / "state") as node:
        result = rollmq("serve", free_port(), "--state", tmp_path / "state")
        assert result.returncode == 1
        assert f"is in use by another node (process {node.process.pid})" in result.stderr


@pytest.mark.parametrize(
    ("prepare", "says"),
    [
        (lambda root: (root / "state").write_text("x"), "is not a state directory"),
        (lambda root: _made(root / "state" / "photo.jpg"), "is not a state directory"),
    ],
)
def test_what_is_no_state_directory_is_not_served(
    prepare: Callable[[Path], object], says: str, tmp_path: Path
) -> None:
    prepare(tmp_path)
    result = rollmq("serve", free_port(), "--state", tmp_path / "state")
    assert result.returncode == 1
    assert says in result.stderr
    assert "Traceback" not in result.stderr


def _made(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("x")


def test_an_address_that_is_not_ours_is_told(tmp_path: Path) -> None:
    for host in ("203.0.113.7", "no-such-host.invalid"):
        result = rollmq("serve", free_port(), "--host", host, "--state", tmp_path / "state")
        assert result.returncode == 1
        assert f"cannot listen at {host}" in result.stderr
        assert "Traceback" not in result.stderr


def test_leader_is_serve_by_another_name(tmp_path: Path) -> None:
    assert main.commands["leader"] is main.commands["serve"]
    assert rollmq("leader", "0", "--state", tmp_path).returncode == 2
