"""From events of jobs to what happened to each job: attempts, open jobs, closed jobs.

One shuffle and one sort by job and index; all else is a window over a job's own events, so it spills and
never holds more than one job. A job that spans runs comes out as if there had been one run: the events of
open jobs are kept (`open_events`) and looked at again together with the new ones.

DataFrame in, DataFrame out. It writes nothing.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from rollmq.pipeline.schema import ENDINGS
from rollmq.pipeline.tables import ATTEMPTS, JOB_EVENT, JOBS_CLOSED, JOBS_OPEN

REQUEUES: Final = ("fail_requeue", "timeout_requeue", "worker_down_requeue")
CLOSING: Final = ("ack", "cancel", "drop")
"""After these nothing happens to a job any more."""
BEGINNINGS: Final = ("enqueue", "redrive")
"""With these a life begins."""
LATE_ACK_AFTER: Final = ("timeout_requeue", "worker_down_requeue")

_OF_JOB: Final = (
    "client_id",
    "exec",
    "priority",
    "key",
    "headers",
    "payload_bytes",
    "tries_max",
    "not_before_us",
)
"""What only an enqueue says."""

_OF_NEXT: Final = (
    "index",
    "type",
    "at_us",
    "fence_term",
    "fence_index",
    "started",
    "tries",
    "held_us",
    "run_us",
    "reason",
    "error_type",
    "error_message",
    "counted",
)


def folded(job_events: DataFrame) -> DataFrame:
    """Each event of a job with what it meant: its job's data, life, counts so far, and what came next."""
    job = Window.partitionBy("group", "job_id").orderBy("index")
    so_far = job.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    whole = job.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    kind = F.col("type")
    begins = kind.isin(*BEGINNINGS)
    events = job_events.select(
        "*",
        F.first(F.when(kind == "enqueue", F.struct("index", "at_us", *_OF_JOB)), True)
        .over(so_far)
        .alias("job"),
        F.sum((kind == "redrive").cast("int")).over(so_far).alias("redriven"),
        F.sum((kind == "assign").cast("int")).over(so_far).alias("assigns"),
        F.sum(F.coalesce("started", F.lit(False)).cast("int")).over(so_far).alias("all_starts"),
        F.last(F.when(kind == "assign", F.col("at_us")), True).over(so_far).alias("assigned_us"),
        F.last(F.when(kind == "assign", F.col("worker_id")), True).over(so_far).alias("last_worker"),
        F.last(F.when(begins, F.lit(0)).when(_has_tries(), F.col("tries")), True)
        .over(so_far)
        .alias("life_tries"),
        F.last(_error(begins), True).over(so_far).alias("error"),
        F.lag("type").over(job).alias("type_before"),
        F.lead(F.struct(*_OF_NEXT), 1).over(job).alias("next"),
        F.lead(F.struct("index", "type", "fence_index"), 2).over(job).alias("after_next"),
        F.collect_list(F.when(kind == "redrive", F.struct("index", "at_us"))).over(whole).alias("redrives"),
        F.max(F.when(kind.isin(*CLOSING), F.struct("index", "at_us"))).over(whole).alias("end"),
    )
    return _with_life(events, so_far)


def _with_life(events: DataFrame, so_far: object) -> DataFrame:
    """What is counted from the beginning of a life."""
    kind = F.col("type")
    begins = kind.isin(*BEGINNINGS)
    at_beginning = F.struct("at_us", "assigns", "all_starts")
    is_first_assign = (kind == "assign") & F.col("type_before").isin(*BEGINNINGS)
    life = F.col("redriven") + 1
    closed = F.when(life <= F.size("redrives"), F.get("redrives", F.col("redriven"))).otherwise(F.col("end"))
    return events.select(
        "*",
        life.cast("int").alias("life"),
        F.last(F.when(begins, at_beginning), True).over(so_far).alias("began"),
        F.last(F.when(is_first_assign, F.col("at_us")), True).over(so_far).alias("first_assigned_us"),
        closed.alias("closed"),
        (F.col("next").isNull() | (F.col("next.type") == "redrive")).alias("is_life_end"),
    )


def _has_tries() -> Column:
    """An event that ends an attempt says its life's tries; of a queued job only a cancel knows them."""
    is_ending = F.col("type").isin(*ENDINGS)
    return is_ending & (F.col("fence_index").isNotNull() | (F.col("type") == "cancel"))


def _error(begins: Column) -> Column:
    """What an event adds to a job's errors, in the words of the queue; a new life begins without."""
    kind = F.col("type")
    said = F.struct(F.col("error_type"), F.col("error_message"))
    lost = F.struct(
        F.lit("WorkerLost").alias("error_type"),
        F.concat("worker_id", F.lit(" went away while it ran")).alias("error_message"),
    )
    late = F.struct(
        F.lit("Timeout").alias("error_type"),
        F.lit("the handler ran over its time").alias("error_message"),
    )
    none = F.struct(
        F.lit(None).cast("string").alias("error_type"), F.lit(None).cast("string").alias("error_message")
    )
    return (
        F.when(begins, none)
        .when((kind == "fail_requeue") & F.col("counted"), said)
        .when((kind == "dlq") & (F.col("error_type") != ""), said)
        .when(kind == "timeout_requeue", late)
        .when((kind == "worker_down_requeue") & (F.col("reason") == "gone") & F.col("started"), lost)
    )


def attempts(events: DataFrame) -> DataFrame:
    """Each assign with the event that ended it; `outcome` is null while it runs. From `folded`."""
    ended = F.col("next.type").isin(*ENDINGS) & (F.col("next.fence_index") == F.col("index"))

    def of_ending(name: str) -> Column:
        return F.when(ended, F.col(f"next.{name}"))

    is_late = (
        ended
        & F.col("next.type").isin(*LATE_ACK_AFTER)
        & (F.col("after_next.type") == "ack")
        & (F.col("after_next.fence_index") == F.col("index"))
    )
    made = events.where("type = 'assign'").select(
        "group",
        "job_id",
        F.col("job.index").alias("enqueue_index"),
        "life",
        "attempt",
        F.col("job.client_id").alias("client_id"),
        F.col("job.exec").alias("exec"),
        "worker_id",
        F.col("index").alias("assign_index"),
        F.col("term").alias("assign_term"),
        F.timestamp_micros("ready_us").alias("ready_at"),
        F.timestamp_micros("at_us").alias("assigned_at"),
        of_ending("started").alias("started"),
        F.timestamp_micros(of_ending("at_us")).alias("ended_at"),
        of_ending("index").alias("ended_index"),
        F.when(ended, _outcome()).alias("outcome"),
        of_ending("reason").alias("reason"),
        of_ending("error_type").alias("error_type"),
        of_ending("error_message").alias("error_message"),
        of_ending("tries").alias("tries"),
        (F.col("at_us") - F.col("ready_us")).alias("wait_us"),
        of_ending("held_us").alias("held_us"),
        of_ending("run_us").alias("run_us"),
        F.when(is_late, F.col("after_next.index")).alias("late_ack_index"),
        _date("closed.at_us").alias("closed_date"),
        F.col("closed.index").alias("closed_index"),
    )
    return made.select(*ATTEMPTS.columns, "closed_index")


def _outcome() -> Column:
    kind = F.col("next.type")
    return (
        F.when(kind == "ack", "done")
        .when(kind == "fail_requeue", F.when(F.col("next.counted"), "failed").otherwise("snoozed"))
        .when(kind == "timeout_requeue", "timeout")
        .when(
            kind == "worker_down_requeue",
            F.when(F.col("next.reason") == "gone", "lost").otherwise("returned"),
        )
        .when(kind == "dlq", "dead")
        .when(kind == "cancel", "cancelled")
    )


def jobs(events: DataFrame) -> DataFrame:
    """Each life of each job as of its last event. From `folded`."""
    kind = F.col("type")
    state = (
        F.when(kind == "ack", "done")
        .when(kind == "cancel", "cancelled")
        .when(kind == "drop", "dropped")
        .when(kind == "dlq", "dead")
        .when(kind == "assign", "inflight")
        .otherwise("queued")
    )
    began_us = F.col("began.at_us")
    made = events.where("is_life_end").select(
        "group",
        "job_id",
        F.col("job.index").alias("enqueue_index"),
        "life",
        F.col("job.client_id").alias("client_id"),
        F.col("job.exec").alias("exec"),
        state.alias("state"),
        F.when(kind == "dlq", F.col("reason"))
        .when(kind.isin("cancel", "drop"), F.col("why"))
        .alias("reason"),
        *(F.col(f"job.{name}").alias(name) for name in ("priority", "key", "headers", "payload_bytes")),
        F.when(kind == "ack", F.col("result_bytes")).alias("result_bytes"),
        F.col("job.tries_max").alias("tries_max"),
        F.timestamp_micros("job.at_us").alias("enqueued_at"),
        F.timestamp_micros(began_us).alias("began_at"),
        F.timestamp_micros(F.nullif(F.col("job.not_before_us"), F.lit(0))).alias("not_before"),
        F.timestamp_micros(F.when(F.col("first_assigned_us") >= began_us, F.col("first_assigned_us"))).alias(
            "first_assigned_at"
        ),
        F.timestamp_micros(F.when(kind.isin(*CLOSING, "dlq"), F.col("at_us"))).alias("ended_at"),
        (F.col("assigns") - F.col("began.assigns")).cast("int").alias("attempts"),
        (F.col("all_starts") - F.col("began.all_starts")).cast("int").alias("starts"),
        F.col("life_tries").cast("int").alias("tries"),
        F.when(F.col("assigns") > F.col("began.assigns"), F.col("last_worker")).alias("worker_id"),
        F.col("error.error_type").alias("error_type"),
        F.col("error.error_message").alias("error_message"),
        F.when(kind == "ack", F.col("run_us")).alias("run_us"),
        F.col("index").alias("last_index"),
        F.timestamp_micros("at_us").alias("last_at"),
        F.col("closed.index").alias("closed_index"),
        F.timestamp_micros("closed.at_us").alias("closed_at"),
        _date("closed.at_us").alias("closed_date"),
    )
    return made.select(*JOBS_CLOSED.columns)


def open_jobs(all_jobs: DataFrame) -> DataFrame:
    """Jobs to which something may still happen: queued, in flight or dead."""
    return all_jobs.where("closed_index is null").select(*JOBS_OPEN.columns)


def open_events(events: DataFrame) -> DataFrame:
    """The events of open jobs, for the next run. From `folded`."""
    return events.where("end is null").select(*JOB_EVENT)


def _date(micros: str) -> Column:
    return F.timestamp_micros(micros).cast("date")
