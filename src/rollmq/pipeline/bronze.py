"""From events as they are read to the first tables: events, payloads apart, and what was rejected.

DataFrame in, DataFrame out: one pass over the source makes all three, told apart by a column.
"""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from rollmq.pipeline.schema import BYTES, PAYLOAD_ROW, REJECTED
from rollmq.pipeline.tables import EVENTS, JOB_EVENT, PAYLOADS, REJECTS

TABLE: Final = "_table"
"""Tells the three kinds of rows apart; files are divided by it."""


def bronze(events: DataFrame) -> DataFrame:
    """Rows of all three tables, each with its table's name and columns.

    The source has put the users' bytes into rows of their own already (option `splitPayloads`).
    """
    table = (
        F.when(F.col("type") == REJECTED, REJECTS.name)
        .when(F.col("type") == PAYLOAD_ROW, PAYLOADS.name)
        .otherwise(EVENTS.name)
    )
    reason = F.coalesce(F.col("reject.reason"), F.col("reason")).alias("reason")
    of_events = [reason if name == "reason" else F.col(f"`{name}`") for name in EVENTS.columns]
    of_payloads = [F.unbase64(F.when(F.col(name) != "", F.col(name))).alias(name) for name in BYTES]
    of_rejects = [
        F.col(f"reject.{name}").alias(name)
        for name in REJECTS.columns
        if name not in ("group", "index", "reason")
    ]
    return events.select(*of_events, *of_payloads, *of_rejects, table.alias(TABLE))


def job_events(events: DataFrame) -> DataFrame:
    """One row per event and job: what names several jobs at once is told for each of them."""
    named = events.withColumn("_job", F.explode(F.coalesce("job_ids", F.array("job_id"))))
    return named.where("_job is not null").select(
        *(F.col("_job").alias(name) if name == "job_id" else F.col(f"`{name}`") for name in JOB_EVENT)
    )
