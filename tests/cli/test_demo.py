"""The demo, played once in its short form; its verdict sees what it is for; Ctrl-C leaves nothing."""

import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from rollmq.cli.demo import cast, command
from rollmq.cli.demo.load import POISON_AT, Part, Receipt, plan
from rollmq.cli.demo.proof import Figures, Replicas, Told, compare, compare_replicas, read_log
from rollmq.cli.demo.story import QUICK, Ending
from rollmq.core.events import Ack
from tests.cli.running import PATIENCE_S, clean_env, run
from tests.docs_examples import EXAMPLES
from tests.docs_outputs import damage_directory, make_directory

DEMO_S = 240.0
"""For what takes ten seconds on an idle machine."""
STATE_IN = re.compile(r"ports ([\d, ]+); their state is in (\S+)")


@pytest.mark.slow
def test_the_short_story_ends_well_and_leaves_nothing() -> None:
    words = [sys.executable, "-m", "rollmq", "demo", "--quick", "--json"]
    played = subprocess.run(
        words, capture_output=True, text=True, env=clean_env(), timeout=DEMO_S, check=False
    )
    assert played.returncode == 0, played.stdout + played.stderr
    told = json.loads(played.stdout)
    assert told["accepted"] == told["finished"] + sum(told["dead"].values()) == QUICK.jobs + 1
    assert (told["lost"], told["accepted_twice"], told["told_twice"], told["no_ops"]) == (0, 0, 0, 0)
    assert told["dead"]["poison"] == 1
    assert told["dead"]["rejected"] > 0
    assert told["dead"]["tries"] > 0
    assert told["retried"] > 0
    assert told["takeover_ms"] > 0
    assert told["replicas_are_equal"]
    assert told["segments"] >= 1
    texts = [line["text"] for line in told["story"]]
    assert any("SIGKILL to the leader" in text for text in texts)
    found = STATE_IN.search(texts[0])
    assert found is not None
    assert not Path(found[2]).exists()


def test_ctrl_c_ends_its_processes_and_leaves_nothing() -> None:
    words = [sys.executable, "-m", "rollmq", "demo"]
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_env(PYTHONUNBUFFERED="1"), text=True
    )
    assert process.stdout is not None
    first = process.stdout.readline()
    while "are connected" not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert "nothing is left" in errors
    assert "Traceback" not in errors
    found = STATE_IN.search(first)
    assert found is not None
    assert not Path(found[2]).exists()
    for port in found[1].split(", "):
        assert run("status", "--timeout", 1, server=f"127.0.0.1:{port}").exit_code == 3


def test_the_plan_has_every_kind_of_trouble_in_it() -> None:
    parts = plan(QUICK.jobs)
    words = {part.payload.split()[0] for part in parts}
    assert {b"flaky", b"wrong", b"broken", b"poison"} <= words
    assert parts[POISON_AT].payload == b"poison"
    assert len({part.client_id for part in parts}) == 3
    assert len({part.exec for part in parts}) == 4


# --- the verdict ------------------------------------------------------------------------------------


def _receipt(job_id: str, *told: str) -> Receipt:
    return Receipt(Part("shop", "image.resize", b""), job_id, list(told))


def _log() -> Told:
    """Of the jobs a (done) and b (dead)."""
    return Told(
        enqueued={"a", "b"}, ends={"a": ["done"], "b": ["dead"]}, dead={"tries": 1}, keys={"1": 1, "2": 1}
    )


def _found(receipts: list[Receipt], log: Told) -> Figures:
    return compare(receipts, log, takeover_ms=1)


def test_receipts_that_are_the_logs_are_sound() -> None:
    found = _found([_receipt("a", "done", "done"), _receipt("b", "dead", "dead")], _log())
    assert found.is_sound
    assert (found.accepted, found.finished) == (2, 1)


@pytest.mark.parametrize(
    ("receipts", "ends", "keys", "figure"),
    [
        ([_receipt("a", "done"), _receipt("c", "done")], {}, {}, "lost"),
        ([_receipt("a", "done")], {"a": []}, {}, "lost"),
        ([_receipt("a", "done", "dead"), _receipt("b", "dead")], {}, {}, "told_twice"),
        ([_receipt("a", "done"), _receipt("b", "done")], {}, {}, "told_twice"),
        ([_receipt("a", "done"), _receipt("b", "dead")], {"a": ["done", "done"]}, {}, "told_twice"),
        ([_receipt("a", "done"), _receipt("b", "dead")], {}, {"1": 2}, "accepted_twice"),
        ([_receipt("a", "done")], {}, {}, "accepted_twice"),
    ],
)
def test_a_broken_promise_is_counted(
    receipts: list[Receipt], ends: dict[str, list[str]], keys: dict[str, int], figure: str
) -> None:
    log = _log()
    log.ends |= ends
    log.keys |= keys
    found = _found(receipts, log)
    assert getattr(found, figure) == 1
    assert not found.is_sound


def test_the_log_is_read_as_it_was_written(tmp_path: Path) -> None:
    make_directory(tmp_path / "n1")
    told = read_log(tmp_path / "n1")
    acked = [event.job_id for event in EXAMPLES if isinstance(event, Ack)]
    assert acked
    assert all(told.ends[job_id][-1] == "done" for job_id in acked)
    assert told.entries_count == len(EXAMPLES)
    assert told.no_ops == 0


def test_replicas_that_differ_in_one_byte_are_not_equal(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("n1", "n2", "n3")]
    for folder in folders:
        make_directory(folder)
    assert compare_replicas(folders) == Replicas(1, True, ())
    damage_directory(folders[2])
    found = compare_replicas(folders)
    assert not found.are_equal
    assert found.damages


def test_a_broken_promise_is_exit_code_1_and_what_was_written_is_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    figures = _found([_receipt("a", "done"), _receipt("c", "done")], _log())
    monkeypatch.setattr(command, "_play", lambda *_: Ending(figures, Replicas(1, True, ())))
    kept = tmp_path / "kept"
    result = run("demo", "--keep", kept)
    assert result.exit_code == 1
    assert "A promise was broken" in result.output
    assert str(kept) in result.output
    assert kept.exists()


def test_a_directory_that_holds_something_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    result = run("demo", "--keep", tmp_path)
    assert result.exit_code == 2
    assert "Name a new or an empty directory" in result.output


def test_a_node_that_cannot_start_is_told_with_its_own_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ports = [*cast.free_ports(2), taken.getsockname()[1]]
        monkeypatch.setattr(cast, "free_ports", lambda _count: ports)
        result = run("demo", "--keep", tmp_path / "kept")
    assert result.exit_code == 1
    assert "n3 ended with exit code 1. It said last:" in result.stderr
    assert "another process listens there" in result.stderr
    assert str(tmp_path / "kept") in result.stderr
    assert (tmp_path / "kept" / "n3.log").exists()


def test_a_disk_that_is_nearly_full_is_told_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=command.ROOM_BYTES - 1))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    result = run("demo")
    assert result.exit_code == 1
    assert "Nothing was started" in result.stderr
    assert list(tmp_path.iterdir()) == []
