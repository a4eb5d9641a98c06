"""`rollmq submit` against a real node and a real worker: payloads, options, endings and their exit codes."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rollmq.cli.exit_codes import ExitCode
from rollmq.client import Client
from rollmq.errors import SubmitUnknown
from tests.cli.running import PATIENCE_S, clean_env, free_port, rollmq, run, running_node
from tests.group.real_group import wait_for

WORKER = ("--exec", "echo=cat", "--exec", "fail=sh -c 'seq 900 999 >&2; echo no such street >&2; exit 3'")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_node(tmp_path_factory.mktemp("submit") / "state") as node:
        words = [sys.executable, "-m", "rollmq", "worker", "--server", node.server, *WORKER]
        worker = subprocess.Popen(words, env=clean_env(), stderr=subprocess.DEVNULL)
        try:
            yield node.server
        finally:
            worker.terminate()
            worker.wait(timeout=PATIENCE_S)


def _row(server: str, job_id: str) -> dict[str, object]:
    rows = map(json.loads, run("jobs", "--limit", 0, "--json", server=server).output.splitlines())
    return next(row for row in rows if row["job_id"] == job_id)


def test_a_payload_comes_from_the_argument_a_file_or_a_pipe(server: str, tmp_path: Path) -> None:
    (tmp_path / "order").write_bytes(b"from a file\0\xff")
    assert rollmq("submit", "echo", "from here", "--wait", ROLLMQ_SERVER=server).stdout == "from here"
    told = run("submit", "echo", "--file", tmp_path / "order", "--wait", "--json", server=server)
    assert json.loads(told.output)["result_base64"] == "ZnJvbSBhIGZpbGUA/w=="
    not_utf8 = json.loads(rollmq("submit", "echo", "\udcff", "--wait", "--json", ROLLMQ_SERVER=server).stdout)
    assert not_utf8["result_base64"] == "/w=="
    assert run("submit", "echo", "--wait", server=server, stdin="piped").output == "piped"
    assert run("submit", "echo", "--file", "-", "--wait", server=server, stdin="piped").output == "piped"


def test_it_prints_the_id_of_a_job_that_has_its_options(server: str) -> None:
    options = ("--priority", 7, "--tries", 2, "--delay", 3600, "--client", "shop")
    result = run("submit", "nobody.does.this", "x", *options, server=server)
    assert result.exit_code == 0
    row = _row(server, result.output.strip())
    assert (row["priority"], row["tries_max"], row["state"], row["client_id"]) == (7, 2, "delayed", "shop")


def test_labels_and_the_content_type_reach_the_handler(server: str) -> None:
    words = [sys.executable, "-m", "rollmq", "worker", "--server", server]
    worker = subprocess.Popen(
        [*words, "--exec", 'labels=sh -c "env"'], env=clean_env(), stderr=subprocess.DEVNULL
    )
    try:
        options = ("--header", "trace=7f3a", "--content-type", "text/plain", "--try-timeout", 30, "--wait")
        told = run("submit", "labels", "x", *options, server=server).output
        assert 'ROLLMQ_HEADERS={"trace":"7f3a"}' in told
        assert "ROLLMQ_CONTENT_TYPE=text/plain" in told
        assert "ROLLMQ_TIMEOUT_S=30" in told
    finally:
        worker.terminate()
        worker.wait(timeout=PATIENCE_S)


def test_a_key_is_accepted_once_and_a_conflict_is_refused(server: str) -> None:
    first = run("submit", "later", "x", "--key", "k1", server=server)
    again = run("submit", "later", "x", "--key", "k1", "--json", server=server)
    assert json.loads(again.stdout) == {"job_id": first.output.strip(), "is_repeat": True}
    other = run("submit", "later", "y", "--key", "k1", server=server)
    assert other.exit_code == ExitCode.FAILED
    assert "Nothing was queued" in other.stderr


def test_a_job_that_ends_badly_and_one_that_does_not_end_have_codes_of_their_own(server: str) -> None:
    dead = run("submit", "fail", "x", "--tries", 1, "--wait", server=server)
    assert dead.exit_code == ExitCode.ENDED_BADLY
    assert "is dead" in dead.stderr
    assert "no such street" in dead.stderr
    late = run("submit", "nobody.does.this", "x", "--wait", "--wait-max", 0.1, server=server)
    assert late.exit_code == ExitCode.NOT_ENDED
    assert "It goes on" in late.stderr
    assert "no connected worker has a pattern" in late.stderr


def test_of_a_payload_that_is_too_large_no_size_is_told_that_was_not_read(
    server: str, tmp_path: Path
) -> None:
    (tmp_path / "big").write_bytes(b"one\n" + bytes(9_000_000))
    for words in ((), ("--lines",)):
        result = run("submit", "later", "--file", tmp_path / "big", *words, server=server)
        assert result.exit_code == ExitCode.FAILED
        said = "refused (payload_too_large): the payload has more than 8,388,608 bytes, "
        assert ("line 2: " * bool(words)) + said in result.stderr


def test_explain_shows_why_a_job_died_whole_and_try_by_try(server: str) -> None:
    told = run("submit", "fail", "x", "--tries", 2, "--backoff", 0.01, "--wait", "--json", server=server)
    job_id = json.loads(told.output)["job_id"]
    shown = run("explain", job_id, server=server).stdout
    assert shown.startswith("dead  in the DLQ (tries) after 2 tries: ")
    tries = [line for line in shown.splitlines() if "  attempt " in line]
    assert [line.split()[3] for line in tries] == ["1", "2"]
    assert all(line.endswith("no such street") for line in tries)
    assert shown.splitlines()[-3:] == ["    998", "    999", "    no such street"]
    assert shown.count("    998\n") == 1, "of the last try alone"
    errors = json.loads(run("explain", job_id, "--json", server=server).stdout)["errors"]
    assert [error["attempt"] for error in errors] == [1, 2]
    assert all(error["detail"].endswith("999\nno such street\n") for error in errors)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("x", "--wait"), ExitCode.NOT_ENDED, "was accepted and goes on"),
        (("--lines",), ExitCode.UNKNOWN, "with --key it can be submitted again"),
    ],
)
def test_ctrl_c_says_what_is_true_then(
    server: str, words: tuple[str, ...], code: ExitCode, said: str
) -> None:
    command = [sys.executable, "-m", "rollmq", "submit", "interrupted", *words, "--client", "hasty"]
    hasty = ("--client", "hasty", "--json")
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_env(ROLLMQ_SERVER=server), text=True
    )
    try:
        assert process.stdin is not None
        process.stdin.write("one\n")
        process.stdin.flush()
        wait_for(lambda: run("jobs", *hasty, server=server).output, "the job is accepted")
        process.send_signal(signal.SIGINT)
        process.wait(timeout=PATIENCE_S)  # although its stdin is open
        _, errors = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    assert said in errors
    assert process.returncode == code
    (job,) = run("jobs", *hasty, server=server).output.splitlines()
    assert run("cancel", json.loads(job)["job_id"], server=server).exit_code == 0


def test_without_a_server_nothing_was_sent(server: str) -> None:
    del server
    result = run("submit", "echo", "x", server=f"127.0.0.1:{free_port()}")
    assert result.exit_code == ExitCode.NO_LEADER
    assert "Nothing was changed" in result.stderr


def test_unknown_is_not_failed(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def submit(*_: object, **__: object) -> object:
        raise SubmitUnknown(job_id="0" * 32, why="no answer for 10 s")

    monkeypatch.setattr(Client, "submit", submit)
    result = run("submit", "echo", "x", server=server)
    assert result.exit_code == ExitCode.UNKNOWN
    assert "it is unknown whether" in result.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("echo", "x", "--lines"), "PAYLOAD"),
        (("echo", "x", "--wait-max", "3"), "--wait-max goes with --wait"),
        (("echo", "x", "--header", "trace"), "NAME=VALUE"),
        (("echo", "x", "--not-before", "tomorrow"), "write a date"),
        (("echo", "x", "--not-before", "2030-12-24T18:00"), "zone"),
        (("no exec", "x"), "An exec is like"),
    ],
)
def test_a_wrong_call_says_what_to_write(server: str, words: tuple[str, ...], said: str) -> None:
    result = run("submit", *words, server=server)
    assert result.exit_code == ExitCode.USAGE
    assert said in result.stderr


# --- many -------------------------------------------------------------------------------------------


def test_a_job_per_line_and_their_results(server: str) -> None:
    lines = "".join(f"line {number}\n" for number in range(300))
    accepted = run("submit", "later", "--lines", server=server, stdin=lines + "\n\r\n")
    assert accepted.stderr == "300 accepted\n"
    assert len(set(accepted.stdout.splitlines())) == 300
    done = rollmq_piped("submit", "echo", "--lines", "--wait", "--json", server=server, stdin=lines)
    told = sorted((json.loads(line) for line in done.stdout.splitlines()), key=lambda row: row["line"])
    assert [row["result"] for row in told] == lines.splitlines()
    assert done.stderr == "300 accepted, 300 done\n"


def rollmq_piped(*words: str, server: str, stdin: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rollmq", *words]
    env = clean_env(ROLLMQ_SERVER=server)
    return subprocess.run(
        command, input=stdin, capture_output=True, text=True, env=env, timeout=PATIENCE_S, check=True
    )


def test_lines_with_a_key_are_accepted_once_however_often_they_are_read(server: str, tmp_path: Path) -> None:
    rows = tmp_path / "rows"
    rows.write_text("a\nb\nc")
    first = run("submit", "later", "--lines", "--file", rows, "--key", "rows", server=server)
    again = run("submit", "later", "--lines", "--file", rows, "--key", "rows", server=server)
    assert first.stdout == again.stdout
    assert "3 of them were submitted before" in again.stderr


def test_a_line_that_is_refused_is_named_and_stops_the_reading(server: str, tmp_path: Path) -> None:
    rows = tmp_path / "rows"
    rows.write_text("a\n\nb\n")
    assert run("submit", "later", "--lines", "--file", rows, "--key", "stop", server=server).exit_code == 0
    rows.write_text("a\n\nother\n")
    result = run("submit", "later", "--lines", "--file", rows, "--key", "stop", server=server)
    assert result.exit_code == ExitCode.FAILED
    assert "line 3: refused (key_conflict)" in result.stderr


def test_lines_that_end_badly_are_named_and_counted(server: str) -> None:
    result = run("submit", "fail", "--lines", "--wait", "--tries", 1, server=server, stdin="a\nb\n")
    assert result.exit_code == ExitCode.ENDED_BADLY
    assert "line 2: dead:" in result.stderr
    assert "2 accepted, 2 dead" in result.stderr


def test_a_pipe_that_does_not_end_is_served_line_by_line(server: str) -> None:
    words = [sys.executable, "-m", "rollmq", "submit", "echo", "--lines", "--wait"]
    env = clean_env(ROLLMQ_SERVER=server, PYTHONUNBUFFERED="1")
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for line in ("one\n", "two\n"):
            process.stdin.write(line)
            process.stdin.flush()
            assert process.stdout.readline() == line
        process.stdin.close()
        assert process.wait(timeout=PATIENCE_S) == 0
