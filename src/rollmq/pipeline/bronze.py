"""From events to what the tables of jobs are made of. (`taking` writes the first tables themselves.)

DataFrame in, DataFrame out.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from rollmq.pipeline.tables import JOB_EVENT


def job_events(events: DataFrame) -> DataFrame:
    """One row per event and job: what names several jobs at once is told for each of them."""
    named = events.withColumn("_job", F.explode(F.coalesce("job_ids", F.array("job_id"))))
    return named.where("_job is not null").select(
        *(F.col("_job").alias(name) if name == "job_id" else F.col(f"`{name}`") for name in JOB_EVENT)
    )
