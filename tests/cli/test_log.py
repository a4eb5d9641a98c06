"""`rollmq log` says what is in a directory and what is wrong with it, in words and in JSON."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from rollmq.cli.describe import describe, duration, one_line, time_of
from rollmq.cli.main import main
from rollmq.core.events import (
    Ack,
    AnyEvent,
    Assign,
    Cancel,
    Client,
    Dlq,
    Drop,
    FailRequeue,
    Member,
    Members,
    Noop,
    Pause,
    Pipeline,
    Redrive,
    Resume,
    Settings,
    SnapshotMarker,
    TimeoutRequeue,
    Worker,
    WorkerDownRequeue,
)
from rollmq.core.line import seal
from rollmq.core.raft_ready import HardState
from rollmq.store import layout
from rollmq.store.disk import OsDisk
from rollmq.store.fold import fold_snapshot
from rollmq.store.store import Store
from tests.store.making import GROUP, NODE, SMALL, LogMaker

JOB = f"{1:08x}{2:024x}"

ENDING: Mapping[str, Any] = {
    "job_id": JOB,
    "fence": (1, 2),
    "attempt": 1,
    "worker_id": "w1",
    "started": True,
    "tries": 1,
    "held_us": 5,
    "run_us": 9,
}


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A sealed segment with a snapshot and an open one, in which one job lives and ends."""
    root, log = tmp_path / "state", LogMaker()
    store, _ = Store.open(OsDisk(root), fresh_node_id=NODE, options=SMALL)
    store.set_group(GROUP)
    store.save_vote(HardState(term=1))
    store.write([log.members(), *log.enqueues(3), log.marker()], 1)
    store.seal(5)
    result = fold_snapshot(OsDisk(root))
    assert result is not None
    store.adopt_snapshot(result)
    assign = Assign(*log._stamp(), job_id=JOB, worker_id="w1", attempt=1, ready_us=2_000_000, credit_left=1)
    lines = [log._add(assign)]
    ending: dict[str, Any] = {**ENDING, "fence": (1, 6)}
    failed = FailRequeue(*log._stamp(), **ending, error_type="ValueError", error_message="no\x1b[2J")
    lines.append(log._add(failed))
    lines.append(log.enqueue())
    lines.append(log._add(Cancel(*log._stamp(), job_id=JOB, by="ops", why="not needed")))
    store.write(lines, 6)
    store.close()
    return root


def rot(path: Path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(bytes(content))


def test_a_sound_directory_is_told_to_be_sound(state: Path) -> None:
    before = {path: path.read_bytes() for path in state.rglob("*") if path.is_file()}
    result = run("log", "verify", state)
    assert result.exit_code == 0, result.output
    assert "9 (1 to 9)" in result.output
    assert "1 proven by the digest" in result.output
    assert result.output.endswith("sound\n")
    assert {path: path.read_bytes() for path in state.rglob("*") if path.is_file()} == before


def test_verify_can_answer_in_json(state: Path) -> None:
    result = run("log", "verify", "--json", state)
    told = json.loads(result.stdout)
    assert result.exit_code == 0
    assert told["is_clean"] is True
    assert (told["node_id"], told["group"], told["term"]) == (NODE, GROUP, 1)
    assert (told["first_index"], told["last_index"], told["entries"]) == (1, 9, 9)
    assert told["damages"] == []


def test_damage_is_told_with_file_line_and_what_to_do(state: Path) -> None:
    path = state / layout.open_name(6)
    header_bytes = len(path.read_bytes().splitlines(keepends=True)[0])
    rot(path, header_bytes + 50)
    result = run("log", "verify", state)
    assert result.exit_code == 1
    assert f"damaged {path}:2: the crc does not match the line" in result.output
    assert "restore the directory from a backup" in result.output
    assert "A member of a group: start it, it repairs itself from the others." in result.output
    told = json.loads(run("log", "verify", "--json", state).stdout)
    assert told["is_clean"] is False
    assert told["damages"] == [
        {
            "path": str(path),
            "line": 2,
            "offset": header_bytes,
            "reason": "the crc does not match the line",
        }
    ]


def test_an_unfinished_end_is_told_and_is_no_damage(state: Path) -> None:
    with (state / layout.open_name(6)).open("ab") as file:
        file.write(b'{"crc":"0')
    result = run("log", "verify", state)
    assert result.exit_code == 0
    assert "unfinished" in result.output
    assert "No damage" in result.output
    assert run("log", "show", state).exit_code == 0


def test_verify_does_not_need_the_node_to_be_down(state: Path) -> None:
    store, _ = Store.open(OsDisk(state), fresh_node_id=NODE, holder="1", options=SMALL)
    assert run("log", "verify", state).exit_code == 0
    assert run("log", "show", state).exit_code == 0
    store.close()


def test_a_damaged_identity_vote_or_mark_is_told(state: Path) -> None:
    for name in (layout.NODE_FILE, layout.VOTE_FILE, layout.SYNCED_FILE):
        content = (state / name).read_bytes()
        rot(state / name, 30)
        result = run("log", "verify", state)
        assert result.exit_code == 1
        assert f"damaged {state / name}" in result.output
        (state / name).write_bytes(content)


def test_an_unreadable_file_is_told_without_a_traceback(state: Path) -> None:
    path = state / layout.open_name(6)
    path.unlink()
    path.mkdir()  # also root cannot read this
    result = run("log", "verify", state)
    assert result.exit_code == 1
    assert str(path) in result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert run("log", "show", state).exit_code == 2


@pytest.mark.parametrize("command", ["verify", "show"])
def test_what_is_no_state_directory_is_an_error_of_the_call(command: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    for root in (tmp_path, tmp_path / "nowhere", file):
        result = run("log", command, root)
        assert result.exit_code == 2
        assert "is not a state directory of rollmq" in result.output
        assert "Name the directory" in result.output


def test_another_format_version_is_named(state: Path) -> None:
    (state / layout.NODE_FILE).write_bytes(seal(b'{"node_id":"aa","format_version":7}'))
    result = run("log", "verify", state)
    assert result.exit_code == 1
    assert "format version 7" in result.output
    assert "Error: " in result.output


def test_show_prints_one_line_per_event(state: Path) -> None:
    result = run("log", "show", state)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines] == [str(index) for index in range(1, 10)]
    assert "image.resize from c1, 10 bytes" in lines[1]


def test_show_follows_a_job_through_its_life(state: Path) -> None:
    result = run("log", "show", state, "--job", JOB)
    assert [line.split()[3] for line in result.stdout.splitlines()] == [
        "enqueue",
        "assign",
        "fail_requeue",
        "cancel",
    ]
    assert "waited 4.000 s" in result.stdout
    assert "cancelled by ops (not needed)" in result.stdout
    assert "\x1b" not in result.stdout, "a user's text must not reach the terminal as it is"


def test_show_takes_a_range_across_segments(state: Path) -> None:
    result = run("log", "show", state, "--from", 4, "--to", 7)
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["4", "5", "6", "7"]


def test_show_as_json_prints_the_very_lines(state: Path) -> None:
    result = run("log", "show", state, "--json", "--from", 6, "--to", 6)
    segment = (state / layout.open_name(6)).read_text().splitlines()
    assert result.stdout.splitlines() == [segment[1]]


def test_a_job_that_is_not_there_is_told_with_what_is(state: Path) -> None:
    result = run("log", "show", state, "--job", "ff" * 16)
    assert result.exit_code == 1
    assert "is not in this log, which holds entries 1 to 9" in result.stderr


def test_show_leaves_out_a_damaged_line_and_says_so(state: Path) -> None:
    rot(state / layout.open_name(6), 300)
    result = run("log", "show", state)
    assert result.exit_code == 1
    assert len(result.stdout.splitlines()) == 8
    assert "damaged:" in result.stderr
    assert "rollmq log verify" in result.stderr


def test_a_range_that_ends_before_it_begins_is_a_usage_error(state: Path) -> None:
    result = run("log", "show", state, "--from", 5, "--to", 2)
    assert result.exit_code == 2
    assert "--to 2 lies before --from 5" in result.output


def test_a_reader_that_has_enough_gets_no_complaint(tmp_path: Path) -> None:
    log = LogMaker()
    store, _ = Store.open(OsDisk(tmp_path), fresh_node_id=NODE, options=SMALL)
    store.set_group(GROUP)
    store.save_vote(HardState(term=1))
    store.write(log.enqueues(5000), 1)
    store.close()
    command = [sys.executable, "-c", "from rollmq.cli.main import main; main()", "log", "show", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""


@pytest.mark.parametrize("command", ["verify", "show"])
def test_a_folder_that_may_not_be_read_is_an_error_of_the_call(
    command: str, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: object) -> list[str]:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "listdir", refuse)
    result = run("log", command, state)
    assert result.exit_code == 2
    assert "Permission denied" in result.output
    assert "Give this user the right to read" in result.output


def test_every_command_has_examples_in_its_help() -> None:
    for command in ("verify", "show"):
        result = run("log", command, "--help")
        assert result.exit_code == 0
        assert f"rollmq log {command} ./state" in result.output
        assert "Exit codes:" in result.output


def test_a_wrong_call_is_a_usage_error() -> None:
    assert run("log", "verify").exit_code == 2
    assert run("log", "show", ".", "--from", "x").exit_code == 2
    assert run("nothing").exit_code == 2


# -- words


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (Ack(1, 1, 1, **ENDING, result_bytes=7), "attempt 1 on w1 (ran 0.0 ms, tries 1): finished, 7 bytes"),
        (FailRequeue(1, 1, 1, **ENDING, counted=False), "snoozed"),
        (TimeoutRequeue(1, 1, 1, **ENDING), "over its time"),
        (WorkerDownRequeue(1, 1, 1, **ENDING, reason="drained"), "worker drained"),
        (Dlq(1, 1, 1, job_id=JOB, reason="expired"), "while queued: dead letter (expired)"),
        (Redrive(1, 1, 1, job_ids=["a", "b", "c", "d"], by="ops"), "a, b, c and 1 more by ops"),
        (Drop(1, 1, 1, job_ids=["a"]), "a"),
        (Client(1, 1, 1, client_id="c1", cap=5), "c1 cap 5 weight 1"),
        (Worker(1, 1, 1, worker_id="w1", instance="i", host="h", patterns=["a.>"]), "w1 hands 1 on h: a.>"),
        (Pause(1, 1, 1, exec="mail", submits=True, why="spam"), "mail, submits too (spam)"),
        (Resume(1, 1, 1, exec="mail"), "mail"),
        (Settings(1, 1, 1), "machine version"),
        (Pipeline(1, 1, 1, name="p", confirmed_index=9), "p has taken everything up to 9"),
        (SnapshotMarker(1, 1, 1), "the segment ends"),
        (Noop(1, 3, 1), "a new leader in term 3"),
        (Members(1, 1, 1, group="g", members=[Member("n1"), Member("n2")]), "group g: n1, n2"),
    ],
)
def test_every_event_has_words(event: AnyEvent, words: str) -> None:
    assert words in describe(event)


def test_texts_of_users_cannot_play_tricks() -> None:
    assert one_line("a\nb\x1b[31m\u202e") == "a\\nb\\x1b[31m\\u202e"
    assert len(one_line("x" * 1000)) == 121


def test_times_and_spans_are_readable() -> None:
    assert time_of(1_763_490_000_123_456) == "2025-11-18 18:20:00.123456Z"
    assert time_of(10**30) == f"{10**30} us"
    assert (duration(1500), duration(2_500_000), duration(None)) == ("1.5 ms", "2.500 s", "an unknown time")


def test_a_missing_folder_is_damage_and_no_lack_of_a_right(state: Path) -> None:
    for path in sorted((state / layout.WAL).iterdir()):
        path.unlink()
    (state / layout.WAL).rmdir()
    result = run("log", "verify", state)
    assert result.exit_code == 1
    assert "the folder is missing" in result.output


def test_lines_under_a_header_of_another_format_are_told(state: Path) -> None:
    path = state / layout.open_segments(OsDisk(state))[-1].name
    header, rest = path.read_bytes().split(b"\n", 1)
    other = seal(b"{" + header.split(b",", 1)[1].replace(b'"format_version":1', b'"format_version":2'))
    path.write_bytes(other + rest)
    result = run("log", "show", state)
    assert result.exit_code == 1
    assert "format version 2" in result.stderr
    assert "release that wrote it" in run("log", "verify", state).output


def test_a_range_without_entries_is_told_with_what_there_is(state: Path) -> None:
    result = run("log", "show", state, "--from", "500")
    assert result.exit_code == 0
    assert "No entry of that range is in this log, which begins with entry 1" in result.stderr


def test_behind_damage_no_range_is_claimed(state: Path) -> None:
    path = state / layout.all_segments(OsDisk(state))[0].name
    path.write_bytes(path.read_bytes().replace(b'"index":2,', b'"index":3,', 1))
    result = run("log", "verify", state)
    assert result.exit_code == 1
    assert " to " not in next(line for line in result.output.splitlines() if line.startswith("entries"))


@pytest.mark.parametrize("name", ["vote.json", "wal", "snapshots"])
def test_a_file_that_may_not_be_read_is_no_damage(
    name: str, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_open = os.open

    def refuse(path: str, flags: int, *rest: int) -> int:
        if name in str(path) and not Path(path).is_dir():
            raise PermissionError(13, "Permission denied", str(path))
        return real_open(path, flags, *rest)

    fold_snapshot(OsDisk(state))
    monkeypatch.setattr(os, "open", refuse)
    result = run("log", "verify", state)
    assert result.exit_code == 2
    assert "Permission denied" in result.output
    assert "backup" not in result.output
