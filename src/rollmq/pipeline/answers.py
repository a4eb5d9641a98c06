"""Questions that people ask of the tables: what happened to a job, how did the queues stand, and SQL.

It reads what is published, as of one pointer, and writes nothing.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from rollmq.pipeline import silver
from rollmq.pipeline.bronze import job_events
from rollmq.pipeline.errors import BadQuery, JobNotInHistory, NotInHistory
from rollmq.pipeline.runs import History
from rollmq.pipeline.tables import EVENTS, JOBS_CLOSED, JOBS_OPEN, TABLES
from rollmq.pipeline.warehouse import Published

ALL_JOBS: Final = "jobs"
"""The view that has open and closed jobs together."""


def job_life(history: History, job_id: str) -> list[dict[str, Any]]:
    """All events of a job, oldest first, each with what it says and nothing else. Raises JobNotInHistory."""
    published = history.warehouse.require(EVENTS, JOBS_OPEN)
    # Where the job's events lie: files and parts of files outside of it are not even opened.
    found = (
        history.table(JOBS_CLOSED.name, published, {"job_id": (job_id, job_id)})
        .where(F.col("job_id") == job_id)
        .select("group", "enqueue_index", F.col("closed_index").alias("until"))
    )
    still = (
        history.table(JOBS_OPEN.name, published)
        .where(F.col("job_id") == job_id)
        .select("group", "enqueue_index", F.col("last_index").alias("until"))
    )
    spans: dict[str, tuple[int, int]] = {}
    for row in found.unionByName(still).collect():
        first, last = spans.get(row["group"], (row["enqueue_index"] or 1, row["until"]))
        spans[row["group"]] = (min(first, row["enqueue_index"] or 1), max(last, row["until"]))
    if not spans:
        raise JobNotInHistory(job_id=job_id, until=until_text(published))
    rows: list[dict[str, Any]] = []
    for group, (first, last) in sorted(spans.items()):
        events = history.table(EVENTS.name, published, {"index": (first, last)}).where(
            (F.col("group") == group)
            & F.col("index").between(first, last)
            & ((F.col("job_id") == job_id) | F.array_contains("job_ids", job_id))
        )
        rows += [_said(row.asDict(recursive=True), job_id) for row in events.orderBy("index").collect()]
    return rows


def _said(row: dict[str, Any], job_id: str) -> dict[str, Any]:
    """What an event says: without what its type does not have or has left empty."""
    row = {name: value for name, value in row.items() if value is not None and value not in ("", [])}
    row.pop("job_ids", None)
    return {**row, "job_id": job_id}


def until_text(published: Published) -> str:
    """How far the tables go, for people."""
    return ", ".join(
        f"entry {each.silver_index} of group {group[:8]}…" for group, each in sorted(published.groups.items())
    )


def index_at(history: History, time: datetime, published: Published) -> dict[str, int]:
    """Of each group, the greatest index whose log time is not after this."""
    micros = int(time.timestamp() * 1_000_000)
    events = history.table(EVENTS.name, published).where(F.col("at_us") <= micros)
    return {
        row["group"]: int(row["i"])
        for row in events.groupBy("group").agg(F.max("index").alias("i")).collect()
    }


def queues_at(
    history: History, *, index: int | None = None, time: datetime | None = None, group: str = ""
) -> tuple[dict[str, int], DataFrame]:
    """(index of each group, rows of group, exec, queued, inflight, dead): how the queues stood then.

    What is open now or was closed later is looked at again, as of that entry. Raises NotInHistory.
    """
    published = history.warehouse.require(EVENTS, JOBS_OPEN)
    known = {name: each.silver_index for name, each in published.groups.items() if group in ("", name)}
    if time is not None:
        indexes = {name: last for name, last in index_at(history, time, published).items() if name in known}
    else:
        assert index is not None
        indexes = {name: index for name, last in known.items() if index <= last}
    if not indexes:
        raise NotInHistory(what=str(time or index), until=until_text(published))
    return indexes, _standing(history, published, indexes)


def _standing(history: History, published: Published, indexes: dict[str, int]) -> DataFrame:
    as_of = F.lit(0)
    for name, last in indexes.items():
        as_of = F.when(F.col("group") == name, last).otherwise(as_of)
    closed = history.table(JOBS_CLOSED.name, published).where(
        (F.col("enqueue_index") <= as_of) & (F.col("closed_index") > as_of)
    )
    still = history.table(JOBS_OPEN.name, published).where(F.col("enqueue_index") <= as_of)
    jobs = closed.select("group", "job_id").unionByName(still.select("group", "job_id")).distinct()
    events = job_events(history.table(EVENTS.name, published).where(F.col("index") <= as_of))
    then = silver.open_jobs(
        silver.jobs(silver.lives(events.join(jobs, on=["group", "job_id"], how="left_semi")))
    )
    return (
        then.groupBy("group", "exec")
        .agg(
            *(
                F.count(F.when(F.col("state") == name, 1)).alias(name)
                for name in ("queued", "inflight", "dead")
            )
        )
        .orderBy("group", "exec")
    )


def open_views(history: History) -> Published:
    """Every table as a view of its name, all of one run. Raises NothingBuilt."""
    published = history.warehouse.require(EVENTS)
    for name in published.versions:
        history.table(name, published).createOrReplaceTempView(name)
    if JOBS_OPEN.name in published.versions:
        closed = history.table(JOBS_CLOSED.name, published)
        still = history.table(JOBS_OPEN.name, published)
        closed.unionByName(still, allowMissingColumns=True).createOrReplaceTempView(ALL_JOBS)
    return published


def query(history: History, statement: str) -> DataFrame:
    """The rows of a statement. Raises BadQuery, which says what is wrong with it."""
    try:
        return history.spark.sql(statement)
    except PySparkException as error:
        raise BadQuery(reason=_plain(error)) from error


def rows_of(frame: DataFrame) -> Iterator[dict[str, Any]]:
    """Row by row; only a part of the answer is in memory. Raises BadQuery."""
    try:
        for row in frame.toLocalIterator():
            yield row.asDict(recursive=True)
    except PySparkException as error:
        raise BadQuery(reason=_plain(error)) from error


def _plain(error: PySparkException) -> str:
    text = (error.getMessage() or str(error)).strip()
    return text.split("\n")[0].split(" SQLSTATE")[0].rstrip(".;")


def parse_time(text: str) -> datetime:
    """A time as people write it; UTC unless it says otherwise. Raises ValueError."""
    found = datetime.fromisoformat(text)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def table_names() -> list[str]:
    """What can be asked about."""
    return [*TABLES, ALL_JOBS]
