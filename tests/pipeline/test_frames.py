"""Transformations on a few rows written by hand, each with the rows that must come out."""

from pathlib import Path
from typing import Any

from pyspark.testing import assertDataFrameEqual

from rollmq.pipeline import audit, silver
from rollmq.pipeline.bronze import job_events
from rollmq.pipeline.runs import History
from rollmq.pipeline.schema import COLUMNS
from rollmq.pipeline.tables import JOB_EVENT
from rollmq.pipeline.warehouse import Warehouse
from tests.docs_examples import GROUP
from tests.pipeline.archives import story
from tests.pipeline.plain_fold import PlainFold
from tests.pipeline.test_silver import check_tables

GIVEN = {name: COLUMNS[name] for name in (*JOB_EVENT, "job_ids")}
GIVEN_DDL = ", ".join(f"`{name}` {kind}" for name, kind in GIVEN.items())


def event(index: int, kind: str, **fields: Any) -> tuple[Any, ...]:
    """A row of events; what is not said is null."""
    fence = fields.pop("fence", None)
    values = {"group": "g", "index": index, "term": 1, "type": kind, "at_us": 1_000_000 * index} | fields
    if fence is not None:
        values |= {"fence_term": 1, "fence_index": fence}
    return tuple(values.get(name) for name in GIVEN)


def frame(spark: Any, *events: tuple[Any, ...]) -> Any:
    return spark.createDataFrame(list(events), GIVEN_DDL)


def lives(spark: Any, *events: tuple[Any, ...]) -> Any:
    slices = silver.Slices.of(events=len(events), first_us=0, last_us=1_000_000 * len(events))
    return silver.lives(job_events(frame(spark, *events)), slices)


ACCEPTED = {"client_id": "c", "exec": "x", "tries_max": 3, "priority": 0, "payload_bytes": 4}
LATE = (
    event(1, "enqueue", job_id="a", **ACCEPTED),
    event(2, "assign", job_id="a", worker_id="w1", attempt=1, ready_us=1_500_000),
    event(3, "timeout_requeue", job_id="a", worker_id="w1", fence=2, attempt=1, started=True, tries=1),
    event(4, "ack", job_id="a", worker_id="w1", fence=2, attempt=1, started=True, tries=1, run_us=7),
    event(5, "enqueue", job_id="b", **ACCEPTED),
    event(6, "assign", job_id="b", worker_id="w2", attempt=1, ready_us=5_000_000),
)


def test_an_event_that_names_several_jobs_is_told_of_each(spark: Any) -> None:
    found = job_events(
        frame(
            spark,
            event(1, "noop"),
            event(2, "assign", job_id="a"),
            event(3, "redrive", job_ids=["a", "b"]),
        )
    ).select("index", "type", "job_id")
    expected = spark.createDataFrame(
        [(2, "assign", "a"), (3, "redrive", "a"), (3, "redrive", "b")], found.schema
    )
    assertDataFrameEqual(found, expected)


def test_a_success_that_came_late_stands_beside_the_attempt_that_had_ended(spark: Any) -> None:
    found = silver.attempts(lives(spark, *LATE)).select(
        "job_id", "attempt", "worker_id", "started", "outcome", "wait_us", "ended_index", "late_ack_index"
    )
    expected = spark.createDataFrame(
        [("a", 1, "w1", True, "timeout", 500_000, 3, 4), ("b", 1, "w2", None, None, 1_000_000, None, None)],
        found.schema,
    )
    assertDataFrameEqual(found, expected)


def test_a_job_is_open_until_an_event_ends_it(spark: Any) -> None:
    jobs = silver.jobs(lives(spark, *LATE))
    found = jobs.select(
        "job_id", "state", "attempts", "starts", "tries", "run_us", "last_index", "closed_index"
    )
    expected = spark.createDataFrame(
        [("a", "done", 1, 2, 1, 7, 4, 4), ("b", "inflight", 1, 0, 0, None, 6, None)], found.schema
    )
    assertDataFrameEqual(found, expected)
    still = silver.open_jobs(jobs).select("job_id")
    assertDataFrameEqual(still, spark.createDataFrame([("b",)], still.schema))


def test_what_may_follow_what_is_judged_event_by_event(spark: Any) -> None:
    wrong = (
        event(7, "ack", job_id="b", fence=2, attempt=1, started=True, tries=1),
        event(8, "ack", job_id="b", fence=6, attempt=1, started=True, tries=1),
        event(9, "assign", job_id="b", attempt=2),
        event(10, "assign", job_id="c", attempt=1),
    )
    found = audit.in_steps(job_events(frame(spark, *LATE, *wrong))).select(
        "index", "before", "assigns", "is_legal"
    )
    expected = [
        (1, None, 0, True), (2, "enqueue", 1, True), (3, "assign", 1, True), (4, "timeout_requeue", 1, True),
        (5, None, 0, True), (6, "enqueue", 1, True), (7, "assign", 1, False), (8, "ack", 1, False),
        (9, "ack", 2, False), (10, None, 1, False),
    ]  # fmt: skip
    assertDataFrameEqual(found, spark.createDataFrame(expected, found.schema))


def test_a_stream_into_the_tables_and_another_checkpoint_change_nothing(spark: Any, tmp_path: Path) -> None:
    """A new checkpoint sends everything again; entries are taken once, by group and index."""
    lines = story(tmp_path / "archive").read_bytes().splitlines(keepends=True)[1:]
    history = History(spark, Warehouse(tmp_path / "warehouse"))

    def take(batch: Any, _number: int) -> None:
        ends = batch.selectExpr("min(index) first", "max(index) last").collect()[0]
        history.take(batch, {GROUP: (ends["first"], ends["last"])})

    def run(checkpoint: str, per_trigger: int) -> None:
        query = (
            spark.readStream.format("rollmq")
            .option("splitPayloads", "true")
            .option("maxEventsPerTrigger", str(per_trigger))
            .load(str(tmp_path / "archive"))
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", str(tmp_path / checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)

    run("one", 28)
    before = history.warehouse.published()
    run("other", 20)
    assert history.warehouse.published() == before
    assert history.table("events").count() == 28
    check_tables(history, [PlainFold(GROUP).read(lines)])
