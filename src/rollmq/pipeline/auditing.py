"""An audit: run every check over a warehouse and its sources, keep what is found, say what is proved.

It writes one table, `violations`, and changes nothing else.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from rollmq.pipeline import audit
from rollmq.pipeline.bronze import job_events
from rollmq.pipeline.errors import SourceUnreadable
from rollmq.pipeline.places import find_segments
from rollmq.pipeline.runs import History
from rollmq.pipeline.tables import EVENTS, JOBS_CLOSED, JOBS_OPEN, REJECTS, VIOLATIONS

SHOWN_MAX: Final = 20
RECEIPT_SCHEMA: Final = "job_id string, told string, at_us bigint"


@dataclass(slots=True)
class AuditReport:
    """What an audit proved, and what it did not."""

    events: int = 0
    jobs: int = 0
    proved: list[str] = field(default_factory=list)
    """What was looked at, in words, with how many."""
    violations: int = 0
    by_promise: dict[str, int] = field(default_factory=dict)
    first: list[dict[str, Any]] = field(default_factory=list)
    """Some of the violations."""
    receipts: int = 0
    receipts_undecided: int = 0
    """Of jobs newer than the history that was taken."""


def run_audit(history: History, *, places: Sequence[str] = (), receipts: str = "") -> AuditReport:
    """Audit all that is published; with places, their copies of each segment too. Raises NothingBuilt."""
    published = history.warehouse.require(EVENTS, JOBS_OPEN)
    events = history.table(EVENTS.name, published)
    rejects = history.table(REJECTS.name, published)
    all_jobs = (
        history.table(JOBS_CLOSED.name, published)
        .select("group", "job_id", "state", "last_index")
        .unionByName(
            history.table(JOBS_OPEN.name, published).select("group", "job_id", "state", "last_index")
        )
    )
    report = AuditReport()
    gaps = [
        row["group"]
        for row in rejects.where("kind in ('gap', 'missing')").select("group").distinct().collect()
    ]
    with history.warehouse.run() as run:
        staged = run.staging("steps")
        audit.in_steps(job_events(events)).write.parquet(staged)
        steps = history.spark.read.parquet(staged)
        checks = [
            *audit.jobs_keep_their_promises(steps, gaps),
            audit.jobs_are_in_the_tables(steps, all_jobs),
            *audit.caps_are_kept(steps, events),
            *audit.counts_match_markers(steps, events, gaps),
            *audit.log_is_whole(events, rejects),
        ]
        if places:
            checks += _copies(history, places, report)
        if receipts:
            end_us = max((each.at_us for each in published.groups.values()), default=0)
            told = _receipts(history, receipts)
            report.receipts = told.count()
            report.receipts_undecided = told.where(audit.made_us() > end_us).count()
            checks += audit.receipts_are_in_the_log(told, steps, end_us)
        found = run.staging("violations")
        reduce(DataFrame.unionByName, checks).coalesce(1).write.parquet(found)
        _summarize(history.spark.read.parquet(found), report)
        _say(events, report, gaps)
        run.add(VIOLATIONS, found, replaces=True)
        run.publish(run.base.groups)
    return report


def _summarize(violations: DataFrame, report: AuditReport) -> None:
    counted = violations.groupBy("promise").count().collect()
    report.by_promise = {row["promise"]: int(row["count"]) for row in sorted(counted)}
    report.violations = sum(report.by_promise.values())
    rows = violations.orderBy("promise", "group", "index").limit(SHOWN_MAX).collect()
    report.first = [row.asDict() for row in rows]


def _say(events: DataFrame, report: AuditReport, gaps: list[str]) -> None:
    counts = {row["type"]: int(row["count"]) for row in events.groupBy("type").count().collect()}
    report.events = sum(counts.values())
    report.jobs = counts.get("enqueue", 0)
    ended = sum(counts.get(name, 0) for name in ("ack", "cancel", "dlq"))
    assigns, markers = counts.get("assign", 0), counts.get("snapshot_marker", 0)
    report.proved += [
        f"P1 every one of {report.jobs:,} accepted jobs is open or has its final state",
        f"P2 none of them changed after its end; {ended:,} ends looked at",
        f"P3 one attempt at a time, tries within bounds; {assigns:,} attempts looked at",
        f"P4 no assign beyond a cap or without credit; {assigns:,} looked at",
        f"P6 the events add up to what {markers:,} markers counted",
        f"whole: {report.events:,} events without gap, in order; no event that changed nothing",
    ]
    if report.receipts:
        known = report.receipts - report.receipts_undecided
        report.proved.append(f"P1 {known:,} receipts of clients agree with the log")
    if gaps:
        report.proved.append(f"not provable: what depends on dropped history of {len(gaps)} group(s)")


def _copies(history: History, places: Sequence[str], report: AuditReport) -> list[DataFrame]:
    """The markers of every copy of every segment, each read and proved on its own."""
    frames = []
    copies = 0
    for place in places:
        copies += len(find_segments([place]).segments)
        rows = (
            history.spark.read.format("rollmq")
            .option("types", "snapshot_marker")
            .option("onDamage", "reject")
            .load(place)
        )
        frames.append(rows.withColumn("place", F.lit(place)))
    report.proved.append(
        f"P6 {copies:,} copies of segments have the bytes their markers say, equal in all places"
    )
    return audit.replicas_are_equal(reduce(DataFrame.unionByName, frames))


def _receipts(history: History, path: str) -> DataFrame:
    try:
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                value = json.loads(line)
                if not isinstance(value, dict) or not {"job_id", "told"} <= set(value):
                    raise ValueError(f"line {number} has no job_id or does not say what was told")
    except (OSError, ValueError) as error:
        raise SourceUnreadable(place=path, reason=f"it holds no receipts: {error}") from error
    return history.spark.read.schema(RECEIPT_SCHEMA).json(path)
