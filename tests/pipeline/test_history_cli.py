"""`rollmq history`, from one command to the next, on one warehouse."""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from rollmq.cli.main import main
from rollmq.pipeline import java, session
from tests.cli.running import free_port
from tests.docs_examples import EXAMPLES, GROUP, JOB
from tests.pipeline.archives import lines_of, story, write_segments
from tests.pipeline.test_audit import change, story_of
from tests.pipeline.test_java import fake_java

Rollmq = Callable[..., Result]


class SharedSpark:
    """What the commands start: the one Spark that all tests have."""

    def __init__(self, spark: Any) -> None:
        self.spark = spark

    def __call__(self, **_options: Any) -> "SharedSpark":
        return self

    def __enter__(self) -> "SharedSpark":
        return self

    def __exit__(self, *_exc: object) -> None:
        """It goes on."""


@pytest.fixture
def rollmq(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rollmq:
    monkeypatch.setattr(session, "SparkRun", SharedSpark(spark))

    def run(*words: str, stdin: str = "") -> Result:
        return CliRunner().invoke(
            main, ["history", *words, "--warehouse", str(tmp_path / "warehouse")], input=stdin
        )

    return run


def test_the_commands_tell_one_story(rollmq: Rollmq, tmp_path: Path) -> None:
    story(tmp_path / "archive")
    first = rollmq("ingest", "--source", str(tmp_path / "archive"), "--json")
    assert first.exit_code == 0, first.output
    assert json.loads(first.stdout)["ranges"] == {GROUP: [1, 28]}
    built = rollmq("build")
    assert built.exit_code == 0, built.output
    assert "jobs_closed" in built.stdout

    life = rollmq("job", JOB)
    assert [line.split()[5] for line in life.stdout.splitlines()[1:-1]][-3:] == ["redrive", "assign", "ack"]
    assert life.stdout.splitlines()[-1].startswith("done after 5 attempts in 2 lives, 897.000 s")
    as_json = [json.loads(line) for line in rollmq("job", JOB, "--json").stdout.splitlines()]
    assert [row["index"] for row in as_json] == [
        event.index
        for event in EXAMPLES
        if JOB in (getattr(event, "job_id", ""), *getattr(event, "job_ids", ()))
    ]
    assert rollmq("job", "f" * 32).exit_code == 1

    then = rollmq("at", "--index", "15", "--json")
    assert json.loads(then.stdout)["queues"] == [
        {"group": GROUP, "exec": "image.resize", "queued": 0, "inflight": 1, "dead": 0}
    ]
    by_time = rollmq("at", "--time", "2025-11-18T18:30:20", "--json")
    assert json.loads(by_time.stdout)["as_of"] == {GROUP: 16}
    assert json.loads(by_time.stdout)["queues"][0]["dead"] == 1
    assert rollmq("at", "--index", "99").exit_code == 1
    assert rollmq("at").exit_code == 2

    statement = "select state, count(*) n from jobs group by state order by state"
    assert rollmq("sql", statement, "--csv").stdout.splitlines() == [
        "state,n", "cancelled,1", "dead,1", "done,1", "dropped,1",
    ]  # fmt: skip
    target = tmp_path / "rows.parquet"
    assert rollmq("sql", statement, "--parquet", str(target)).exit_code == 0
    assert pq.read_table(target).num_rows == 4
    shell = rollmq("sql", "--json", stdin="select 1 a;\nselect nothing;\nselect\n 2 b;")
    assert shell.stdout.splitlines() == ['{"a": 1}', '{"b": 2}']
    assert "nothing" in shell.stderr
    assert rollmq("sql", "select nothing").exit_code == 1

    audit = rollmq("audit", "--source", str(tmp_path / "archive"))
    assert audit.exit_code == 0, audit.output
    assert "proved  P1 every one of 3 accepted jobs" in audit.stdout


def test_who_names_files_does_not_mean_the_nodes_of_the_environment(
    rollmq: Rollmq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROLLMQ_SERVER", f"127.0.0.1:{free_port()}")
    story(tmp_path / "archive")
    files = rollmq("ingest", "--source", str(tmp_path / "archive"))
    assert files.exit_code == 0, files.output
    for words in (("ingest",), ("ingest", "--source", str(tmp_path / "archive"), "--confirm", "nightly")):
        nodes = rollmq(*words)
        assert nodes.exit_code == 1
        assert "connection refused" in nodes.output


def test_what_is_rejected_missing_or_violated_is_told_and_is_an_exit_code(
    rollmq: Rollmq, tmp_path: Path
) -> None:
    lines = lines_of(change(story_of(), 15, attempt=7))
    (path,) = write_segments(tmp_path / "archive", lines)
    path.write_bytes(path.read_bytes().replace(b"cat.png", b"dog.png", 1))
    built = rollmq("build", "--source", str(tmp_path / "archive"))
    assert built.exit_code == 1
    assert "rejected: 1 rows" in built.stderr
    audit = rollmq("audit")
    assert audit.exit_code == 1
    assert "attempt 7 where" in audit.stderr
    assert "whole" in audit.stderr


def test_a_hole_stops_the_run_before_it_until_it_is_skipped(rollmq: Rollmq, tmp_path: Path) -> None:
    path = story(tmp_path / "archive")
    moved = path.with_name("events-0000000000000003-0000000000000030.jsonl")
    path.rename(moved)
    found = rollmq("build", "--source", str(tmp_path / "archive"))
    assert found.exit_code == 1
    assert "entries 1 to 2 are missing" in found.stderr
    assert "nothing new to read" in found.stdout


def test_without_the_extra_every_command_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib import metadata

    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(session.metadata, "version", missing)
    for words in (["build"], ["job", JOB], ["at", "--index", "1"], ["audit"], ["sql", "select 1"]):
        found = CliRunner().invoke(main, ["history", *words])
        assert found.exit_code == 1
        assert "pip install 'rollmq[spark]'" in found.stderr


def test_an_install_without_the_extra_says_so_without_a_traceback(tmp_path: Path) -> None:
    """A process of its own, which can import only what a queue needs."""
    for name in ("msgspec", "click", "rich", "pygments", "markdown_it", "mdurl", "uvloop"):
        found = importlib.util.find_spec(name)
        assert found is not None
        assert found.origin is not None
        (tmp_path / name).symlink_to(Path(found.origin).parent)
    sources = Path(session.__file__).parents[2]
    environ = {"PYTHONPATH": f"{tmp_path}:{sources}", "PATH": os.environ["PATH"]}
    command = [sys.executable, "-S", "-m", "rollmq", "history", "build", "--source", "archive"]
    ended = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "pip install 'rollmq[spark]'" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""


def test_an_old_java_alone_is_refused_by_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_packaged_home", lambda: None)
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "11.0.2")))
    monkeypatch.setenv("PATH", "")
    found = CliRunner().invoke(main, ["history", "build", "--warehouse", str(tmp_path / "w")])
    assert found.exit_code == 1
    assert "Spark needs Java 17 or newer" in found.stderr
    assert "old (Java 11)" in found.stderr
    assert "Traceback" not in found.stderr
    assert not (tmp_path / "w").exists()


@pytest.mark.parametrize("version", ["3.5.1", "4.0.0", "4.2.1", "4.30.0"])
def test_another_spark_is_refused_by_its_version(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(session.metadata, "version", lambda _name: version)
    found = CliRunner().invoke(main, ["history", "build"])
    assert found.exit_code == 1
    assert f"pyspark {version} is installed" in found.stderr


@pytest.mark.parametrize(
    "words",
    [["ingest"], ["watch"], ["build", "--confirm", "x"], ["at", "--time", "soon"], ["build", "--conf", "x"]],
)
def test_a_command_that_cannot_be_meant_is_wrong_usage(words: list[str]) -> None:
    assert CliRunner().invoke(main, ["history", *words], env={"ROLLMQ_SERVER": ""}).exit_code == 2


def test_nodes_that_do_not_answer_are_told_once_and_before_spark_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "SparkRun", None)
    servers = f"127.0.0.1:{free_port()},127.0.0.1:{free_port()}"
    words = ["history", "build", "--server", servers, "--warehouse", str(tmp_path / "warehouse")]
    found = CliRunner().invoke(main, words)
    assert found.exit_code == 1
    assert found.output.count("connection refused") == found.output.count("Nothing was changed") == 2
    assert found.output.count("Is the node running") == 2
    assert "HOST:PORT with --server.." not in found.output
    assert not (tmp_path / "warehouse").exists()
