"""What the tables of jobs make of a few events, written by hand: each test is one story and what it means."""

from typing import Any

from pyspark.sql import DataFrame
from pyspark.testing import assertDataFrameEqual

from rollmq.pipeline import silver
from rollmq.pipeline.bronze import job_events
from rollmq.pipeline.tables import JOB_EVENT

ENQUEUE = {"type": "enqueue", "client_id": "shop", "exec": "mail", "tries_max": 3, "not_before_us": 0}
SECOND = 1_000_000


def told(spark: Any, *events: dict[str, Any], job_id: str = "j1") -> DataFrame:
    """Rows as `events` has them: entry N of group g, at second N. What is not said is null."""
    schema = ", ".join(f"`{name}` {kind}" for name, kind in JOB_EVENT.items()) + ", job_ids array<string>"
    rows = [
        {"group": "g", "job_id": job_id, "index": number, "term": 1, "at_us": number * SECOND, **event}
        for number, event in enumerate(events, 1)
    ]
    return job_events(spark.createDataFrame([{**dict.fromkeys(JOB_EVENT), **row} for row in rows], schema))


def assign(attempt: int, worker: str = "w1", *, ready: int = 1) -> dict[str, Any]:
    return {"type": "assign", "attempt": attempt, "worker_id": worker, "ready_us": ready * SECOND}


def ending(kind: str, fence: int, *, tries: int, started: bool = True, **more: Any) -> dict[str, Any]:
    """The end of the attempt that entry `fence` began."""
    return {"type": kind, "fence_term": 1, "fence_index": fence, "tries": tries, "started": started, **more}


def check(found: DataFrame, columns: str, rows: list[tuple[Any, ...]]) -> None:
    """These columns of the frame have these rows."""
    chosen = found.select(*columns.split())
    assertDataFrameEqual(chosen, chosen.sparkSession.createDataFrame(rows, chosen.schema))


def test_a_late_success_ends_the_job_and_the_attempt_stays_a_timeout(spark: Any) -> None:
    lives = silver.lives(
        told(
            spark,
            ENQUEUE,
            assign(1),
            ending("timeout_requeue", 2, tries=1, held_us=SECOND),
            ending("ack", 2, tries=1, run_us=7, result_bytes=3, worker_id="w1"),
        )
    ).cache()
    check(silver.attempts(lives), "attempt outcome tries late_ack_index", [(1, "timeout", 1, 4)])
    jobs = silver.jobs(lives)
    check(jobs, "state attempts starts tries closed_index run_us", [("done", 1, 2, 1, 4, 7)])
    check(jobs, "error_type result_bytes", [("Timeout", 3)])


def test_a_snooze_is_no_try_and_a_loss_before_the_start_is_none_either(spark: Any) -> None:
    lives = silver.lives(
        told(
            spark,
            ENQUEUE,
            assign(1),
            ending("fail_requeue", 2, tries=0, counted=False, error_type="", error_message="later"),
            assign(2, "w2", ready=4),
            ending("worker_down_requeue", 4, tries=0, started=False, reason="gone", worker_id="w2"),
        )
    ).cache()
    check(
        silver.attempts(lives),
        "attempt worker_id outcome started wait_us",
        [(1, "w1", "snoozed", True, SECOND), (2, "w2", "lost", False, 0)],
    )
    jobs = silver.jobs(lives)
    check(jobs, "state attempts starts tries error_type closed_index", [("queued", 2, 1, 0, None, None)])
    check(silver.open_jobs(jobs), "job_id last_index worker_id", [("j1", 5, "w2")])
    check(
        silver.open_events(lives),
        "index type client_id",
        [
            (1, "enqueue", "shop"),
            (2, "assign", None),
            (3, "fail_requeue", None),
            (4, "assign", None),
            (5, "worker_down_requeue", None),
        ],
    )


def test_a_redrive_of_several_jobs_begins_a_new_life_of_each(spark: Any) -> None:
    dead = ending("dlq", 2, tries=1, reason="rejected", error_type="ValueError", error_message="no")
    redrive = {"type": "redrive", "job_id": None, "job_ids": ["j1", "j2"], "by": "ops", "why": "again"}
    drop = {"type": "drop", "job_id": None, "job_ids": ["j1"], "by": "ops", "why": "enough"}
    queued_dead = {
        "type": "dlq",
        "reason": "expired",
        "error_type": "Expired",
        "error_message": "",
        "tries": 0,
    }
    lives = silver.lives(told(spark, ENQUEUE, assign(1), dead, redrive, queued_dead, drop)).where(
        "job_id = 'j1'"
    )
    check(
        silver.jobs(lives),
        "life state reason attempts tries error_type began_at closed_index",
        [
            (1, "dead", "rejected", 1, 1, "ValueError", _second(1), 4),
            (2, "dropped", "enough", 0, 0, "Expired", _second(4), 6),
        ],
    )


def _second(number: int) -> Any:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(number, UTC).replace(tzinfo=None)


def test_slices_put_jobs_of_one_time_together_and_older_ones_into_the_first(spark: Any) -> None:
    ids = [f"{ms:012x}7{0:019x}" for ms in (1, 1_000, 1_499, 1_500, 1_999, 9_999)]
    slices = silver.Slices.of(events=2 * silver.SLICE_EVENTS_MIN, first_us=1_000_000, last_us=2_000_000)
    frame = spark.createDataFrame([(each,) for each in ids], "job_id string")
    check(
        frame.select(slices.slice_of("job_id").alias("slice")), "slice", [(0,), (0,), (0,), (1,), (1,), (1,)]
    )
