"""From events of jobs to what happened to each job: attempts, open jobs, closed jobs.

One shuffle gathers each job's events into one row, its *story*, in order. All else looks into that row: no
second shuffle, no windows, and never more than one job in memory. A job that spans runs comes out as if there
had been one run: the events of open jobs are kept (`open_events`) and put before the new ones.

DataFrame in, DataFrame out. It writes nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from rollmq.core.dedup import ID_TIME_DIGITS
from rollmq.pipeline.schema import ENDINGS
from rollmq.pipeline.tables import ATTEMPTS, JOB_EVENT, JOBS_CLOSED, JOBS_OPEN

SLICES: Final = 32
"""So many tasks share the work, where these bounds allow: enough to keep some executors busy to the end."""
SLICE_EVENTS_MIN: Final = 65_536
"""Events that one task gathers, at least: each writes a file."""
SLICE_EVENTS_MAX: Final = 1_048_576
"""And at most, about: some 300 MB, which is below what a core has; what does not fit is spilled."""
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
    "expires_at_us",
    "timeout_us",
    "tries_max",
)
"""What only an enqueue says: kept once per job, and not in each of its events."""
_OF_EVENT: Final = tuple(name for name in JOB_EVENT if name not in ("group", "job_id", "index", *_OF_JOB))


@dataclass(frozen=True, slots=True)
class Slices:
    """How jobs are divided among tasks and files: by the time that their ids begin with.

    Jobs of one time come into one file, in order, so that who looks for a job opens few files.
    """

    count: int = 1
    first_us: int = 0
    span_us: int = 1

    @staticmethod
    def of(*, events: int, first_us: int, last_us: int) -> "Slices":
        """As many as fit the work."""
        size = min(max(events // SLICES, SLICE_EVENTS_MIN), SLICE_EVENTS_MAX)
        return Slices(max(events // size, 1), first_us, max(last_us - first_us, 1))

    def slice_of(self, job_id: str) -> Column:
        """Where a job belongs; those from before the first time come into the first slice."""
        made_us = F.conv(F.substring(job_id, 1, ID_TIME_DIGITS), 16, 10).cast("bigint") * 1000
        number = F.floor((made_us - self.first_us) * self.count / self.span_us)
        return F.least(F.greatest(number, F.lit(0)), F.lit(self.count - 1)).cast("int")


ONE_SLICE: Final = Slices()


def lives(job_events: DataFrame, slices: Slices = ONE_SLICE) -> DataFrame:
    """One row per life of a job: its events in order, what the enqueue said, and how it was closed.

    A life ends where the next one begins. `is_open` is the job's: something may still happen to it.
    """
    kind = F.col("type")
    stories = (
        job_events.withColumn("slice", slices.slice_of("job_id"))
        .repartitionById(slices.count, "slice")
        .sortWithinPartitions("slice", "group", "job_id")
        .groupBy("slice", "group", "job_id")
        .agg(
            F.array_sort(F.collect_list(F.struct("index", *_OF_EVENT))).alias("story"),
            F.first(
                F.when(kind == "enqueue", F.struct("index", "at_us", "not_before_us", *_OF_JOB)), True
            ).alias("job"),
        )
    )
    begins = F.transform("story", lambda event, at: F.when(_begins(event) | (at == 0), at + 1))
    split = stories.select(
        "*",
        F.filter(begins, lambda at: at.isNotNull()).alias("begins"),
        _last_of("story", lambda event: event["type"].isin(*CLOSING)).alias("end"),
    )
    each = F.transform(
        "begins",
        lambda at, number: F.struct(
            number.alias("number"), at.alias("at"), F.get("begins", number + 1).alias("following")
        ),
    )
    # A shortened history may begin in a later life: then the first thing known of the job is a redrive.
    earlier = F.when(F.get("story", F.lit(0))["type"] == "redrive", 2).otherwise(1)
    following = F.get("story", F.col("life.following") - 1)
    closed = F.when(F.col("life.following").isNull(), F.col("end")).otherwise(following)
    until = F.coalesce("life.following", F.size("story") + 1)
    return split.select("*", F.explode(each).alias("life")).select(
        "group",
        "job_id",
        "job",
        (F.col("life.number") + earlier).cast("int").alias("life"),
        F.slice("story", F.col("life.at"), until - F.col("life.at")).alias("events"),
        F.when(
            closed.isNotNull(), F.struct(closed["index"].alias("index"), closed["at_us"].alias("at_us"))
        ).alias("closed"),
        F.col("end").isNull().alias("is_open"),
    )


def _begins(event: Column) -> Column:
    return event["type"].isin(*BEGINNINGS)


def _last_of(events: str, wanted: Callable[[Column], Column]) -> Column:
    """The last of the events that are wanted; null when none is."""
    return F.try_element_at(F.filter(events, wanted), F.lit(-1))


def _has_tries(event: Column) -> Column:
    """An event that ends an attempt says its life's tries; of a queued job only a cancel knows them."""
    is_ending = event["type"].isin(*ENDINGS)
    return is_ending & (event["fence_index"].isNotNull() | (event["type"] == "cancel"))


def _error(event: Column) -> Column:
    """What an event adds to a job's errors, in the words of the queue; null when nothing."""
    kind = event["type"]

    def error(kind: Column, message: Column) -> Column:
        return F.struct(kind.alias("error_type"), message.alias("error_message"))

    said = error(event["error_type"], event["error_message"])
    lost = error(F.lit("WorkerLost"), F.concat(event["worker_id"], F.lit(" went away while it ran")))
    late = error(F.lit("Timeout"), F.lit("the handler ran over its time"))
    return (
        F.when((kind == "fail_requeue") & event["counted"], said)
        .when((kind == "dlq") & (event["error_type"] != ""), said)
        .when(kind == "timeout_requeue", late)
        .when((kind == "worker_down_requeue") & (event["reason"] == "gone") & event["started"], lost)
    )


def attempts(lives: DataFrame) -> DataFrame:
    """Each assign with the event that ended it; `outcome` is null while it runs. From `lives`."""
    with_next = F.transform(
        "events",
        lambda event, at: F.struct(
            event.alias("assign"),
            F.get("events", at + 1).alias("next"),
            F.get("events", at + 2).alias("after_next"),
        ),
    )
    assigned = lives.select(
        "group",
        "job_id",
        F.col("job.index").alias("enqueue_index"),
        "life",
        F.col("job.client_id").alias("client_id"),
        F.col("job.exec").alias("exec"),
        "closed",
        F.inline(F.filter(with_next, lambda each: each["assign"]["type"] == "assign")),
    )
    ended = F.col("next.type").isin(*ENDINGS) & (F.col("next.fence_index") == F.col("assign.index"))

    def of_ending(name: str) -> Column:
        return F.when(ended, F.col(f"next.{name}"))

    is_late = (
        ended
        & F.col("next.type").isin(*LATE_ACK_AFTER)
        & (F.col("after_next.type") == "ack")
        & (F.col("after_next.fence_index") == F.col("assign.index"))
    )
    made = assigned.select(
        "group",
        "job_id",
        "enqueue_index",
        "life",
        "assign.attempt",
        "client_id",
        "exec",
        "assign.worker_id",
        F.col("assign.index").alias("assign_index"),
        F.col("assign.term").alias("assign_term"),
        F.timestamp_micros("assign.ready_us").alias("ready_at"),
        F.timestamp_micros("assign.at_us").alias("assigned_at"),
        of_ending("started").alias("started"),
        F.timestamp_micros(of_ending("at_us")).alias("ended_at"),
        of_ending("index").alias("ended_index"),
        F.when(ended, _outcome()).alias("outcome"),
        of_ending("reason").alias("reason"),
        of_ending("error_type").alias("error_type"),
        of_ending("error_message").alias("error_message"),
        of_ending("tries").alias("tries"),
        (F.col("assign.at_us") - F.col("assign.ready_us")).alias("wait_us"),
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


def jobs(lives: DataFrame) -> DataFrame:
    """Each life of each job as of its last event. From `lives`."""
    looked = lives.select(
        "*",
        F.try_element_at("events", F.lit(-1)).alias("last"),
        F.get(F.filter("events", _begins), F.lit(0))["at_us"].alias("began_us"),
        F.filter("events", lambda event: event["type"] == "assign").alias("assigns"),
        F.size(F.filter("events", lambda event: event["started"])).alias("starts"),
        _last_of("events", _has_tries)["tries"].alias("tries"),
        F.try_element_at(
            F.filter(F.transform("events", _error), lambda error: error.isNotNull()), F.lit(-1)
        ).alias("error"),
    )
    kind = F.col("last.type")
    state = (
        F.when(kind == "ack", "done")
        .when(kind == "cancel", "cancelled")
        .when(kind == "drop", "dropped")
        .when(kind == "dlq", "dead")
        .when(kind == "assign", "inflight")
        .otherwise("queued")
    )
    made = looked.select(
        "group",
        "job_id",
        F.col("job.index").alias("enqueue_index"),
        "life",
        F.col("job.client_id").alias("client_id"),
        F.col("job.exec").alias("exec"),
        state.alias("state"),
        F.when(kind == "dlq", F.col("last.reason"))
        .when(kind.isin("cancel", "drop"), F.col("last.why"))
        .alias("reason"),
        *(F.col(f"job.{name}").alias(name) for name in ("priority", "key", "headers", "payload_bytes")),
        F.when(kind == "ack", F.col("last.result_bytes")).alias("result_bytes"),
        F.col("job.tries_max").alias("tries_max"),
        F.timestamp_micros("job.at_us").alias("enqueued_at"),
        F.timestamp_micros("began_us").alias("began_at"),
        F.timestamp_micros(F.nullif(F.col("job.not_before_us"), F.lit(0))).alias("not_before"),
        F.timestamp_micros(F.get("assigns", F.lit(0))["at_us"]).alias("first_assigned_at"),
        F.timestamp_micros(F.when(kind.isin(*CLOSING, "dlq"), F.col("last.at_us"))).alias("ended_at"),
        F.size("assigns").alias("attempts"),
        "starts",
        F.coalesce("tries", F.lit(0)).cast("int").alias("tries"),
        F.try_element_at("assigns", F.lit(-1))["worker_id"].alias("worker_id"),
        "error.error_type",
        "error.error_message",
        F.when(kind == "ack", F.col("last.run_us")).alias("run_us"),
        F.col("last.index").alias("last_index"),
        F.timestamp_micros("last.at_us").alias("last_at"),
        F.col("closed.index").alias("closed_index"),
        F.timestamp_micros("closed.at_us").alias("closed_at"),
        _date("closed.at_us").alias("closed_date"),
    )
    return made.select(*JOBS_CLOSED.columns)


def open_jobs(all_jobs: DataFrame) -> DataFrame:
    """Jobs to which something may still happen: queued, in flight or dead."""
    return all_jobs.where("closed_index is null").select(*JOBS_OPEN.columns)


def open_events(lives: DataFrame) -> DataFrame:
    """The events of open jobs, for the next run. From `lives`."""
    told = lives.where("is_open").select("group", "job_id", "job", F.inline("events"))
    of_job = [F.when(F.col("type") == "enqueue", F.col(f"job.{name}")).alias(name) for name in _OF_JOB]
    return told.select("group", "job_id", "index", *_OF_EVENT, *of_job).select(*JOB_EVENT)


def _date(micros: str) -> Column:
    return F.timestamp_micros(micros).cast("date")
