"""Questions that people ask of the tables with Spark: how did the queues stand, and SQL.

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
from rollmq.pipeline.errors import BadQuery, NotInHistory
from rollmq.pipeline.runs import History
from rollmq.pipeline.tables import EVENTS, JOBS_CLOSED, JOBS_OPEN, TABLES
from rollmq.pipeline.warehouse import Published, until_text

ALL_JOBS: Final = "jobs"
"""The view that has open and closed jobs together."""


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
