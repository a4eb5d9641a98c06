"""What the log proves about the queue's promises, on the whole history, with native functions alone.

Each check is a DataFrame of violations: promise, group, index, job and what is wrong. No row is a proof,
and the report says of how much. What a log cannot show (what a client was told) comes from receipts.
It reads the published tables and the sources; it repairs nothing.
"""

from collections.abc import Mapping
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from rollmq.pipeline.schema import ENDINGS
from rollmq.pipeline.silver import BEGINNINGS, CLOSING, LATE_ACK_AFTER, REQUEUES

BUCKET: Final = 65_536
"""Entries that are looked at together, so that no check needs the whole log in one task."""
CAP_DEFAULT: Final = 100_000
"""Before a `settings` event says otherwise: the default of the log's format."""

TOLD: Final[Mapping[str, str]] = {"ack": "done", "cancel": "cancelled", "drop": "dropped", "dlq": "dead"}
"""What a client is told when this happens to its job."""

COLUMNS: Final = ("promise", "group", "index", "job_id", "what")


def violation(frame: DataFrame, promise: str, what: Column | str) -> DataFrame:
    """Rows as the table of violations has them."""
    text = F.lit(what) if isinstance(what, str) else what
    job_id = F.col("job_id") if "job_id" in frame.columns else F.lit(None).cast("string")
    return frame.select(
        F.lit(promise).alias("promise"), "group", "index", job_id.alias("job_id"), text.alias("what")
    )


def in_steps(job_events: DataFrame) -> DataFrame:
    """Each event of a job with the one before it, and whether `apply` changed anything by it."""
    job = Window.partitionBy("group", "job_id").orderBy("index")
    so_far = job.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    kind = F.col("type")
    steps = job_events.select(
        "*",
        F.lag("type").over(job).alias("before"),
        F.lag("index").over(job).alias("before_index"),
        F.lag("term").over(job).alias("before_term"),
        F.lag("fence_index").over(job).alias("before_fence"),
        F.sum((kind == "assign").cast("int")).over(so_far).alias("assigns"),
        F.first(F.when(kind == "enqueue", F.col("tries_max")), True).over(so_far).alias("allowed_tries"),
        F.first(F.when(kind == "enqueue", F.col("client_id")), True).over(so_far).alias("owner"),
    )
    return steps.withColumn("is_legal", _is_legal())


def _is_legal() -> Column:
    """Whether an event may follow the one before it: the picture of a job's life as a table."""
    kind, before = F.col("type"), F.col("before")
    is_queued = before.isin(*BEGINNINGS, *REQUEUES)
    is_running = before == "assign"
    is_of_running = (F.col("fence_index") == F.col("before_index")) & (
        F.col("fence_term") == F.col("before_term")
    )
    is_late = before.isin(*LATE_ACK_AFTER) & (F.col("fence_index") == F.col("before_fence"))
    legal = (
        F.when(kind == "enqueue", before.isNull())
        .when(kind == "assign", is_queued)
        .when(kind == "ack", (is_running & is_of_running) | is_late)
        .when(kind.isin(*REQUEUES), is_running & is_of_running)
        .when(
            kind.isin("dlq", "cancel"),
            (is_running & is_of_running) | (is_queued & F.col("fence_index").isNull()),
        )
        .when(kind.isin("redrive", "drop"), before == "dlq")
    )
    return F.coalesce(legal, F.lit(False))


def jobs_keep_their_promises(steps: DataFrame, groups_with_gaps: list[str]) -> list[DataFrame]:
    """P1, P2 and P3 as far as one job's own events show them; and events that changed nothing."""
    kind, before = F.col("type"), F.col("before")
    illegal = steps.where(~F.col("is_legal"))
    is_first = before.isNull()
    is_over = before.isin(*CLOSING)
    never_accepted = illegal.where(is_first & ~F.col("group").isin(groups_with_gaps))
    after_the_end = illegal.where(is_over)
    at_once = illegal.where((kind == "assign") & (before == "assign"))
    others = illegal.where(~is_first & ~is_over & ~((kind == "assign") & (before == "assign")))
    wrong_number = steps.where(
        (kind == "assign") & (F.col("attempt") != F.col("assigns")) & ~F.col("group").isin(groups_with_gaps)
    )
    too_many = steps.where(kind.isin(*ENDINGS) & (F.col("tries") > F.col("allowed_tries")))
    return [
        violation(never_accepted, "P1", F.concat(kind, F.lit(" of a job that was never accepted"))),
        violation(after_the_end, "P2", F.concat(kind, F.lit(" after the job had ended by "), before)),
        violation(at_once, "P3", "assigned while another attempt runs"),
        violation(
            wrong_number,
            "P3",
            F.concat(F.lit("attempt "), "attempt", F.lit(" where "), "assigns", F.lit(" comes")),
        ),
        violation(too_many, "P3", F.concat("tries", F.lit(" tries of "), "allowed_tries")),
        violation(others, "no-op", F.concat(kind, F.lit(" changes nothing after "), before)),
    ]


def jobs_are_in_the_tables(job_events: DataFrame, jobs: DataFrame) -> DataFrame:
    """P1: every accepted job is open or has its final state."""
    accepted = job_events.where("type = 'enqueue'").select("group", "index", "job_id")
    known = jobs.select("group", "job_id").distinct()
    lost = accepted.join(known, on=["group", "job_id"], how="left_anti")
    return violation(lost, "P1", "accepted, and neither open nor ended")


def caps_are_kept(steps: DataFrame, events: DataFrame) -> list[DataFrame]:
    """P4: no assign beyond the cap then in force, none without credit."""
    kind = F.col("type")
    none = F.lit(None).cast("bigint")
    running = (
        F.when(kind == "assign", 1).when(kind.isin(*ENDINGS) & (F.col("before") == "assign"), -1).otherwise(0)
    )
    moves = steps.where("is_legal and owner is not null").select(
        "group",
        "index",
        "job_id",
        F.col("owner").alias("client_id"),
        running.alias("move"),
        none.alias("cap"),
        none.alias("cap_default"),
    )
    moves = moves.where("move != 0")
    no_job = F.lit(None).cast("string").alias("job_id")
    caps = events.where("type = 'client'").select(
        "group", "index", no_job, "client_id", F.lit(0).alias("move"), F.col("cap"), none.alias("cap_default")
    )
    settings = events.where("type = 'settings'").select(
        "group", "index", F.col("settings.cap_default").alias("cap_default")
    )
    owners = moves.select("group", "client_id").distinct()
    defaults = settings.join(owners, on="group", how="inner").select(
        "group", "index", no_job, "client_id", F.lit(0).alias("move"), none.alias("cap"), "cap_default"
    )
    client = Window.partitionBy("group", "client_id").orderBy("index")
    so_far = client.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    own = F.last("cap", True).over(so_far)
    default = F.coalesce(F.last("cap_default", True).over(so_far), F.lit(CAP_DEFAULT))
    counted = (
        moves.unionByName(caps)
        .unionByName(defaults)
        .select(
            "*",
            F.sum("move").over(so_far).alias("inflight"),
            F.when(own > 0, own).otherwise(default).alias("in_force"),
        )
    )
    over = counted.where((F.col("move") == 1) & (F.col("inflight") > F.col("in_force")))
    text = F.concat("client_id", F.lit(" has "), "inflight", F.lit(" in flight, its cap is "), "in_force")
    no_credit = events.where("type = 'assign' and credit_left < 0").select(
        "group", "index", "job_id", "worker_id"
    )
    return [
        violation(over, "P4", text),
        violation(no_credit, "P4", F.concat("worker_id", F.lit(" had no credit"))),
    ]


def counts_match_markers(steps: DataFrame, events: DataFrame, groups_with_gaps: list[str]) -> list[DataFrame]:
    """P1 and P6: what every marker counted is what the events before it add up to; no no-ops."""
    moves = steps.where(F.col("is_legal")).select("group", "index", *_moves())
    bucket = (F.col("index") / BUCKET).cast("bigint")
    names = ("queued", "inflight", "dlq")
    per_bucket = moves.groupBy("group", bucket.alias("bucket")).agg(
        *(F.sum(name).alias(name) for name in names)
    )
    earlier = Window.partitionBy("group").orderBy("bucket").rowsBetween(Window.unboundedPreceding, -1)
    markers = events.where("type = 'snapshot_marker'").select(
        "group", "index", "counts", bucket.alias("bucket")
    )
    every = per_bucket.unionByName(
        markers.select("group", "bucket", *(F.lit(0).cast("bigint").alias(name) for name in names)).distinct()
    )
    summed = every.groupBy("group", "bucket").agg(*(F.sum(name).alias(name) for name in names))
    before = summed.select(
        "group",
        "bucket",
        *(F.coalesce(F.sum(name).over(earlier), F.lit(0)).alias(f"{name}_before") for name in names),
    )
    within = markers.alias("m").join(
        moves.withColumn("bucket", bucket).alias("e"),
        on=(F.col("m.group") == F.col("e.group"))
        & (F.col("m.bucket") == F.col("e.bucket"))
        & (F.col("e.index") <= F.col("m.index")),
        how="left",
    )
    partial = within.groupBy("m.group", "m.index", "m.bucket").agg(
        F.first("m.counts").alias("counts"),
        *(F.coalesce(F.sum(f"e.{name}"), F.lit(0)).alias(name) for name in names),
    )
    whole = partial.join(before, on=["group", "bucket"], how="inner").where(
        ~F.col("group").isin(groups_with_gaps)
    )
    differs = reduce(
        lambda one, other: one | other,
        [
            F.col(name) + F.col(f"{name}_before") != F.coalesce(F.col(f"counts.{name}"), F.lit(0))
            for name in names
        ],
    )
    said = [
        F.concat(
            F.lit(f"{name} "), F.col(f"counts.{name}"), F.lit(" / "), F.col(name) + F.col(f"{name}_before")
        )
        for name in names
    ]
    text = F.concat(F.lit("the marker's counts / the events': "), F.concat_ws(", ", *said))
    no_ops = markers.where("counts.no_ops > 0")
    return [
        violation(whole.where(differs), "P6", text),
        violation(
            no_ops, "no-op", F.concat(F.lit("the marker counts "), "counts.no_ops", F.lit(" no-op events"))
        ),
    ]


def _moves() -> list[Column]:
    """How an event changes the numbers of queued, running and dead jobs."""
    kind = F.col("type")
    was_running = F.col("before") == "assign"
    is_end = kind.isin("ack", "cancel", "dlq")
    queued = (
        F.when(kind.isin(*BEGINNINGS, *REQUEUES), 1)
        .when(kind == "assign", -1)
        .when(is_end & ~was_running, -1)
        .otherwise(0)
    )
    running = F.when(kind == "assign", 1).when(kind.isin(*ENDINGS) & was_running, -1).otherwise(0)
    dead = F.when(kind == "dlq", 1).when(kind.isin("redrive", "drop"), -1).otherwise(0)
    return [
        queued.cast("bigint").alias("queued"),
        running.cast("bigint").alias("inflight"),
        dead.cast("bigint").alias("dlq"),
    ]


def log_is_whole(events: DataFrame, rejects: DataFrame) -> list[DataFrame]:
    """Every entry is there once, in order; terms and log time never fall; only declared gaps are missing."""
    steps = _side_by_side(events)
    holes = rejects.where("kind != 'digest'").select("group", F.col("index").alias("first"), "last_index")
    range_text = F.concat(F.lit("entries "), F.col("i") + 1, F.lit(" to "), F.col("index") - 1)
    back_us = F.col("a") - F.col("at_us")
    told = rejects.where("kind != 'gap'")
    return [
        violation(_not_told(steps, holes), "whole", F.concat(range_text, F.lit(" are in no table"))),
        violation(steps.where("index = i"), "whole", "the entry is there twice"),
        violation(
            steps.where("term < t"),
            "whole",
            F.concat(F.lit("the term falls from "), "t", F.lit(" to "), "term"),
        ),
        violation(
            steps.where("at_us < a"), "whole", F.concat(F.lit("log time falls by "), back_us, F.lit(" us"))
        ),
        violation(told, "whole", F.concat("kind", F.lit(": "), "reason", F.lit(" in "), "place")),
    ]


def _side_by_side(events: DataFrame) -> DataFrame:
    """Each entry with index (i), term (t) and time (a) of the one before it; zeros before the first.

    In buckets, and then over the seams between them: no task sees the whole log.
    """
    entry = ("index", "term", "at_us")
    slim = events.select("group", *entry, (F.col("index") / BUCKET).cast("bigint").alias("bucket"))
    inside = Window.partitionBy("group", "bucket").orderBy("index")
    pairs = slim.select(
        "group", *entry, *(F.lag(n).over(inside).alias(s) for n, s in zip(entry, "ita", strict=True))
    )
    ends = slim.groupBy("group", "bucket").agg(
        F.min(F.struct(*entry)).alias("first"), F.max(F.struct(*entry)).alias("last")
    )
    across = Window.partitionBy("group").orderBy("bucket")
    before = [
        F.coalesce(F.lag(f"last.{name}").over(across), F.lit(0)).alias(short)
        for name, short in zip(entry, "ita", strict=True)
    ]
    seams = ends.select("group", *(F.col(f"first.{name}").alias(name) for name in entry), *before)
    return pairs.where("i is not null").unionByName(seams)


def _not_told(steps: DataFrame, holes: DataFrame) -> DataFrame:
    """Holes that rejects do not account for, entry by entry."""
    counted = (
        steps.where(F.col("index") > F.col("i") + 1)
        .alias("m")
        .join(
            F.broadcast(holes).alias("h"),
            on=(F.col("m.group") == F.col("h.group"))
            & (F.col("h.first") > F.col("m.i"))
            & (F.col("h.last_index") < F.col("m.index")),
            how="left",
        )
        .groupBy("m.group", "m.index", "m.i")
        .agg(F.coalesce(F.sum(F.col("h.last_index") - F.col("h.first") + 1), F.lit(0)).alias("known"))
    )
    return counted.where(F.col("known") < F.col("index") - F.col("i") - 1)


def replicas_are_equal(markers: DataFrame) -> list[DataFrame]:
    """P6: every copy of a segment has the bytes that its marker's digest was taken of, and all have the same.

    `markers` has the rows of all copies, read with verify=digest and onDamage=reject, and the place of each.
    """
    bad = markers.where("type = 'rejected' and reject.kind != 'gap' and reject.kind != 'missing'")
    sound = markers.where("type = 'snapshot_marker'")
    said = F.xxhash64(
        "term", "at_us", "segment_digest", "counts", "snapshot_index", "snapshot_digest", "execs", "workers"
    )
    by_entry = sound.groupBy("group", "index").agg(
        F.countDistinct(said).alias("kinds"),
        F.array_join(F.array_sort(F.collect_set("place")), ", ").alias("places"),
    )
    return [
        violation(
            bad, "P6", F.concat("reject.kind", F.lit(": "), "reject.reason", F.lit(" in "), "reject.place")
        ),
        violation(by_entry.where("kinds > 1"), "P6", F.concat(F.lit("copies differ: "), "places")),
    ]


def made_us() -> Column:
    """When a job id was made: its first 48 bits are log time in milliseconds."""
    return F.conv(F.substring("job_id", 1, 12), 16, 10).cast("bigint") * 1000


def receipts_are_in_the_log(receipts: DataFrame, steps: DataFrame, end_us: int) -> list[DataFrame]:
    """P1 and P2: what clients were told is what the log says.

    A receipt is of a job id, what was told (`accepted`, `refused`, or a final state), and when. What was
    told of jobs whose id is newer than the newest entry cannot be judged yet. A job may have ended more than
    once: dead, then dropped or redriven and done. Each of that may have been told.
    """
    old_enough = receipts.where(made_us() <= end_us)
    accepted = steps.where("type = 'enqueue'").select("job_id", "group", "index")
    no_group = F.lit(None).cast("string").alias("group")
    no_index = F.lit(None).cast("bigint").alias("index")
    lost = old_enough.where("told not in ('refused')").join(accepted, on="job_id", how="left_anti")
    refused = old_enough.where("told = 'refused'").select("job_id").distinct()
    told_otherwise = old_enough.where("told != 'refused'").select("job_id").distinct()
    untrue = refused.join(told_otherwise, on="job_id", how="left_anti").join(
        accepted, on="job_id", how="inner"
    )
    told = F.coalesce(*(F.when(F.col("type") == kind, word) for kind, word in TOLD.items()))
    happened = steps.where(F.col("is_legal") | F.col("before").isNull())  # null: behind a gap
    final = happened.select("job_id", told.alias("told")).where("told is not null")
    ended = old_enough.where("told not in ('accepted', 'refused')").select("job_id", "told")
    contradicted = ended.join(final, on=["job_id", "told"], how="left_anti").join(
        accepted, on="job_id", how="inner"
    )
    return [
        violation(
            lost.select("job_id", no_group, no_index, "told"),
            "P1",
            F.concat(F.lit("a client holds '"), "told", F.lit("', and the job is not in the log")),
        ),
        violation(untrue, "P1", "a client was told 'refused', and the job is in the log"),
        violation(
            contradicted,
            "P2",
            F.concat(F.lit("a client was told '"), "told", F.lit("', and the log does not say so")),
        ),
    ]
