"""The tables of jobs say what happened, row for row, however the history came in."""

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.testing import assertDataFrameEqual

from rollmq.core.events import AnyEvent, Cancel, Enqueue, SnapshotMarker
from rollmq.core.segment_digest import is_marker_line
from rollmq.pipeline import runs, silver
from rollmq.pipeline.bronze import job_events
from rollmq.pipeline.runs import History, Sources
from rollmq.pipeline.tables import ATTEMPTS, JOBS_CLOSED, JOBS_OPEN, OPEN_EVENTS
from rollmq.pipeline.warehouse import Warehouse
from tests.docs_examples import EXAMPLES, GROUP, JOB, OTHER_JOB, THIRD_JOB
from tests.pipeline.archives import lines_of, story, write_segments
from tests.pipeline.plain_fold import PlainFold
from tests.pipeline.storms import SEEDS, storm

START_US = 1_763_490_000_000_000
MARKER = EXAMPLES[-1]
assert isinstance(MARKER, SnapshotMarker)


def rows_of(frame: Any) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in frame.collect()]


def in_order(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(
        rows, key=lambda row: (row["group"], row["enqueue_index"], row["life"], row.get("attempt", 0))
    )


def check_tables(history: History, folds: list[PlainFold]) -> None:
    """All three tables are what plain Python makes of the same lines."""
    expected = {
        ATTEMPTS.name: [row for fold in folds for row in fold.attempt_rows()],
        JOBS_OPEN.name: [row for fold in folds for row in fold.job_rows(is_closed=False)],
        JOBS_CLOSED.name: [row for fold in folds for row in fold.job_rows(is_closed=True)],
    }
    for name, rows in expected.items():
        found = in_order(rows_of(history.table(name)))
        assert len(found) == len(rows), name
        for one, other in zip(found, in_order(rows), strict=True):
            assert one == other, name


def test_attempts_of_the_story_are_as_it_tells_them(spark: Any, tmp_path: Path) -> None:
    story(tmp_path)
    events = job_events(spark.read.format("rollmq").load(str(tmp_path)))
    found = silver.attempts(silver.lives(events)).select(
        "job_id", "life", "attempt", "worker_id", "started", "outcome", "reason", "wait_us", "run_us"
    )
    expected = spark.createDataFrame(
        [
            (JOB, 1, 1, "w1", True, "failed", None, 2_000_000, 981_220),
            (JOB, 1, 2, "w2", True, "timeout", None, 0, None),
            (JOB, 1, 3, "w1", False, "lost", "gone", 0, None),
            (JOB, 1, 4, "w2", True, "dead", "tries", 0, 1_870_004),
            (JOB, 2, 5, "w2", True, "done", None, 0, 940_113),
        ],
        found.schema,
    )
    assertDataFrameEqual(found, expected)


def test_jobs_of_the_story_are_as_it_tells_them(spark: Any, tmp_path: Path) -> None:
    story(tmp_path)
    events = job_events(spark.read.format("rollmq").load(str(tmp_path)))
    found = silver.jobs(silver.lives(events)).select(
        "job_id", "life", "state", "reason", "attempts", "starts", "tries", "error_type", "closed_index"
    )
    expected = spark.createDataFrame(
        [
            (JOB, 1, "dead", "tries", 4, 3, 3, "FileNotFoundError", 19),
            (JOB, 2, "done", None, 1, 1, 1, None, 21),
            (OTHER_JOB, 1, "cancelled", "order withdrawn", 0, 0, 0, None, 23),
            (THIRD_JOB, 1, "dropped", "too old to matter", 0, 0, 0, "Expired", 26),
        ],
        found.schema,
    )
    assertDataFrameEqual(found, expected)


def test_a_full_build_of_several_groups_is_what_plain_python_tells(spark: Any, tmp_path: Path) -> None:
    folds = []
    for seed in SEEDS:
        each = storm(seed)
        write_segments(tmp_path / "archive" / each.group, each.lines, group=each.group)
        folds.append(PlainFold(each.group).read(each.lines))
    history = History(spark, Warehouse(tmp_path / "warehouse"))
    report = history.update(Sources(places=(str(tmp_path / "archive"),)))
    assert report.is_clean
    assert report.read == sum(len(storm(seed).lines) for seed in SEEDS)
    check_tables(history, folds)


def test_increments_at_any_marker_give_the_rows_of_a_full_build(spark: Any, tmp_path: Path) -> None:
    """Jobs that span runs come out right: what is open at a cut is looked at again."""
    chance = Random(3)
    each = storm(21)
    lines = list(each.lines)
    history = History(spark, Warehouse(tmp_path / "warehouse"))
    cuts = sorted(chance.sample(range(20, len(lines) - 20), 3))
    done = 0
    for cut in (*cuts, len(lines)):
        archive = tmp_path / f"archive{cut}"
        _copy_until(archive, each.group, lines[:cut], is_last=cut == len(lines))
        report = history.update(Sources(places=(str(archive),)))
        assert report.ranges == {each.group: (done + 1, cut)}
        done = cut
        check_tables(history, [PlainFold(each.group).read(lines[:cut])])
    assert rows_of(history.table(OPEN_EVENTS.name)) == []


def _copy_until(folder: Path, group: str, lines: list[bytes], *, is_last: bool) -> None:
    """An archive that ends here. A run takes what there is: the end need not be a marker for this test."""
    from rollmq.core.segment_digest import header_line

    if is_last or is_marker_line(lines[-1]):
        write_segments(folder / group, lines, group=group)
        return
    (folder / group).mkdir(parents=True)
    path = folder / group / f"events-{1:016}-{len(lines):016}.jsonl"
    path.write_bytes(header_line(group=group, first_index=1) + b"".join(lines))


@pytest.mark.parametrize("crash_at", ["fold", "publish", "point"])
def test_a_run_that_dies_changes_nothing_and_the_next_one_makes_it_good(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crash_at: str
) -> None:
    from rollmq.pipeline import warehouse as module

    class Died(RuntimeError):
        pass

    def die(*_args: object, **_options: object) -> None:
        raise Died

    path = story(tmp_path / "archive")
    lines = path.read_bytes().splitlines(keepends=True)[1:]
    history = History(spark, Warehouse(tmp_path / "warehouse"))
    with monkeypatch.context() as patched:
        if crash_at == "fold":
            patched.setattr(silver, "jobs", die)
        else:
            patched.setattr(module.Run, crash_at, die)
        with pytest.raises(Died):
            history.update(Sources(places=(str(tmp_path / "archive"),)))
    assert history.warehouse.published().versions == {}
    report = history.update(Sources(places=(str(tmp_path / "archive"),)))
    assert report.ranges == {GROUP: (1, 28)}
    check_tables(history, [PlainFold(GROUP).read(lines)])
    assert history.table("events").count() == 28


def test_a_run_again_and_a_batch_again_change_nothing(spark: Any, tmp_path: Path) -> None:
    path = story(tmp_path / "archive")
    lines = path.read_bytes().splitlines(keepends=True)[1:]
    history = History(spark, Warehouse(tmp_path / "warehouse"))
    source = Sources(places=(str(tmp_path / "archive"),))
    events = spark.read.format("rollmq").option("splitPayloads", "true").load(str(tmp_path / "archive"))
    history.take(events.where("index <= 12"), {GROUP: (1, 12)})
    before = history.warehouse.published()
    history.take(events.where("index <= 12"), {GROUP: (1, 12)})
    assert history.warehouse.published() == before
    history.take(events.where("index between 8 and 20"), {GROUP: (8, 20)})
    history.update(source)
    after = history.warehouse.published()
    assert history.update(source).written == {}
    assert history.warehouse.published() == after
    check_tables(history, [PlainFold(GROUP).read(lines)])
    assert history.table("events").count() == 28


def test_jobs_of_one_time_lie_in_one_file(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever looks for a job opens the files whose bounds hold it: these must not all be as wide as time."""
    monkeypatch.setattr(silver, "SLICE_EVENTS_MIN", 10)
    monkeypatch.setattr(runs, "FEW_LIVES", 0)
    events: list[AnyEvent] = []
    for number in range(60):
        at_us = START_US + number * 1_000_000
        job_id = f"{at_us // 1000:012x}7{number:019x}"
        events.append(Enqueue(2 * number + 1, 1, at_us, job_id=job_id, client_id="c", exec="x", payload=b"p"))
        events.append(Cancel(2 * number + 2, 1, at_us, job_id=job_id, by="ops", why="enough"))
    marker = SnapshotMarker(121, 1, at_us, segment_digest="", counts=MARKER.counts)
    write_segments(tmp_path / "archive" / GROUP, lines_of([*events, marker]))
    history = History(spark, Warehouse(tmp_path / "warehouse"))
    assert history.update(Sources(places=(str(tmp_path / "archive"),))).written[JOBS_CLOSED.name] == 60
    version = history.warehouse.published().versions[JOBS_CLOSED.name]
    files = history.warehouse.folder(JOBS_CLOSED).files(version)
    ids = sorted(
        pq.read_table(file, columns=["job_id"], partitioning=None)["job_id"].to_pylist() for file in files
    )
    assert len(ids) >= 10
    assert all(max(one) < min(other) for one, other in pairwise(ids)), "files hold jobs of the same time"
