"""A run: take what is new, fold it, publish all tables together, and say what was read, written and rejected.

    report = History(spark, Warehouse("warehouse")).update(Sources(places=["archive"]))

An entry is taken once, by (group, index), however often a run is repeated: where a run begins is in the
pointer, and the pointer moves with the tables. What the rows mean is in `bronze` and `silver`.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from rollmq.pipeline import silver
from rollmq.pipeline.bronze import job_events
from rollmq.pipeline.delta import EVERYTHING, Within
from rollmq.pipeline.errors import EntriesUnaccounted, WarehouseDamaged
from rollmq.pipeline.live import find_end
from rollmq.pipeline.places import find_segments
from rollmq.pipeline.planning import Missing, last_indexes, plan_parts
from rollmq.pipeline.schema import COLUMNS
from rollmq.pipeline.source import FOREVER, Options, RollmqReader, until_hole
from rollmq.pipeline.tables import (
    ATTEMPTS,
    BRONZE,
    EVENTS,
    JOBS_CLOSED,
    JOBS_OPEN,
    OPEN_EVENTS,
    REJECTS,
    TABLES,
)
from rollmq.pipeline.taking import Taken, take_read, take_rows
from rollmq.pipeline.warehouse import Published, Reached, Run, Warehouse

FEW_LIVES: Final = 50_000
"""Up to so many are written as one file of each table: many small files cost every reader."""
KEEP_HOURS: Final = 168
"""Files that no version needs any more are kept for readers of older versions: a week."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Where history comes from."""

    places: tuple[str, ...] = ()
    server: str = ""
    token: str = ""
    group: str = ""
    skips_missing: bool = False
    """Go on behind entries that are missing and not declared; they are rejected, and never taken later."""


@dataclass(slots=True)
class Report:
    """What a run did."""

    run: str = ""
    ranges: dict[str, tuple[int, int]] = field(default_factory=dict)
    """What was read, of each group."""
    holes: list[Missing] = field(default_factory=list)
    """Entries that are missing and at which the run stopped."""
    read: int = 0
    rejected: int = 0
    """Rows of rejects; one may stand for a range of entries."""
    written: dict[str, int] = field(default_factory=dict)
    """Rows written, of each table."""
    reached: dict[str, Reached] = field(default_factory=dict)
    seconds: float = 0.0
    """How long it took, from the first look at the source to the pointer."""

    @property
    def is_clean(self) -> bool:
        """Nothing was rejected, nothing is missing."""
        return not self.rejected and not self.holes


class History:
    """One warehouse, and the Spark that works on it."""

    def __init__(
        self, spark: SparkSession, warehouse: Warehouse, *, on_step: Callable[[str], None] | None = None
    ) -> None:
        self.spark = spark
        self.warehouse = warehouse
        # Spark's own default is an older type, without bounds in the files, that others read as nanoseconds.
        spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        self._step = on_step or (lambda _name: None)
        """Told in words what begins now: a long run shows it."""

    def update(self, sources: Sources | None, *, builds: bool = True) -> Report:
        """Take what is new into bronze, fold it into silver, publish both. Without sources: only fold."""
        report = Report()
        began = time.monotonic()
        with self.warehouse.run() as run:
            report.run = run.id
            reached = dict(run.base.groups)
            if sources is not None:
                self._ingest(run, sources, reached, report)
            if builds:
                self._build(run, reached, report)
            if report.written:
                self._step("Publishing")
                run.publish(reached)
                self._tidy(run)
        report.reached = reached
        report.seconds = time.monotonic() - began
        return report

    def take(self, events: DataFrame, ranges: Mapping[str, tuple[int, int]]) -> Report:
        """The same for rows that are read already: a stream's batch. What was taken before is left out."""
        report = Report()
        with self.warehouse.run() as run:
            report.run = run.id
            reached = dict(run.base.groups)
            fresh = {
                group: (max(first, reached.get(group, Reached()).bronze_index + 1), last)
                for group, (first, last) in ranges.items()
            }
            fresh = {group: each for group, each in fresh.items() if each[0] <= each[1]}
            if fresh:
                wanted = [
                    (F.col("group") == group) & F.col("index").between(first, last)
                    for group, (first, last) in fresh.items()
                ]
                staged = run.staging("bronze")
                taken = take_rows(events.where(_any(wanted)), staged)
                self._taken(run, taken, staged, fresh, reached, report)
                self._build(run, reached, report)
                run.publish(reached)
                self._tidy(run)
        report.reached = reached
        return report

    # -- bronze

    def _ingest(self, run: Run, sources: Sources, reached: dict[str, Reached], report: Report) -> None:
        starts = {group: each.bronze_index + 1 for group, each in reached.items()}
        ends: dict[str, int] = {}
        if sources.places:
            found = find_segments(sources.places, group=sources.group)
            parts = plan_parts(found, starts=starts)
            kept = parts if sources.skips_missing else until_hole(parts)
            report.holes = [part for part in parts if isinstance(part, Missing) and part not in kept]
            ends = last_indexes(kept)
        if sources.server:
            live = find_end(sources.server, token=sources.token, group=sources.group)
            ends[live.group] = max(ends.get(live.group, 0), live.last)
        ranges = {
            group: (starts.get(group, 1), last)
            for group, last in ends.items()
            if last >= starts.get(group, 1)
        }
        if ranges:
            self._step("Taking entries")
            staged = run.staging("bronze")
            taken = take_read(self.spark, self._reader(sources, ranges), staged)
            self._taken(run, taken, staged, ranges, reached, report)

    def _reader(self, sources: Sources, ranges: Mapping[str, tuple[int, int]]) -> RollmqReader:
        options = {
            "onDamage": "reject",
            "splitPayloads": "true",
            "ranges": json.dumps(ranges),
            "group": sources.group,
            "server": sources.server,
            "token": sources.token,
            "paths": json.dumps(sources.places),
        }
        return RollmqReader(Options.of(options), tuple(COLUMNS))

    def _taken(
        self,
        run: Run,
        taken: Sequence[Taken],
        staged: str,
        ranges: Mapping[str, tuple[int, int]],
        reached: dict[str, Reached],
        report: Report,
    ) -> None:
        """What the tasks wrote belongs to this run. Raises EntriesUnaccounted."""
        for table in BRONZE:
            files = [each.files[table.name] for each in taken if table.name in each.files]
            report.written[table.name] = run.add(table, staged, files)
        report.ranges = dict(ranges)
        report.read = report.written[EVENTS.name]
        report.rejected = report.written[REJECTS.name]
        if report.read != sum(count for each in taken for count in each.events.values()):
            raise WarehouseDamaged(path=staged, reason="files have other rows than were written")
        for group, (first, last) in ranges.items():
            found = sum(each.events.get(group, 0) + each.rejected.get(group, 0) for each in taken)
            if found != last - first + 1:
                raise EntriesUnaccounted(group=group, first=first, last=last, found=found)
            before = reached.get(group, Reached())
            at_us = max([before.at_us, *(each.at_us.get(group, 0) for each in taken)])
            reached[group] = Reached(bronze_index=last, silver_index=before.silver_index, at_us=at_us)

    # -- silver

    def _build(self, run: Run, reached: dict[str, Reached], report: Report) -> None:
        behind = {group: each for group, each in reached.items() if each.silver_index < each.bronze_index}
        if not behind and OPEN_EVENTS.name in run.base.versions:
            return
        new = [
            (F.col("group") == group) & (F.col("index") > each.silver_index) for group, each in behind.items()
        ]
        first = min((each.silver_index + 1 for each in behind.values()), default=1)
        within = {"index": (first, FOREVER)}
        fresh = run.frame(self.spark, EVENTS, within).where(_any(new))
        extent = run.extent(EVENTS, "at_us", within)
        slices = silver.Slices.of(events=extent.rows, first_us=extent.least, last_us=extent.greatest)
        held = run.frame(self.spark, OPEN_EVENTS)
        self._step("Gathering the events of each job")
        staged = run.staging("lives")
        silver.lives(held.unionByName(job_events(fresh)), slices).write.option(
            "compression", "snappy"
        ).parquet(staged)
        lives = self.spark.read.parquet(staged)
        few = lives.count() <= FEW_LIVES
        since = {group: each.silver_index for group, each in reached.items()}
        is_new = F.col("closed_index") > _silver_index(since)

        attempts = silver.attempts(lives).where(F.col("closed_index").isNull() | is_new).drop("closed_index")
        all_jobs = silver.jobs(lives)
        with _file_by_file(self.spark):
            self._write(run, ATTEMPTS, attempts, few, report, replaces_open=True)
            self._write(run, JOBS_CLOSED, all_jobs.where(is_new), few, report)
            self._write(run, JOBS_OPEN, silver.open_jobs(all_jobs), few, report, replaces=True)
            self._write(run, OPEN_EVENTS, silver.open_events(lives), few, report, replaces=True)
        for group, each in reached.items():
            reached[group] = Reached(each.bronze_index, each.bronze_index, each.at_us)

    def _write(
        self,
        run: Run,
        table: Any,
        frame: DataFrame,
        few: bool,
        report: Report,
        *,
        replaces: bool = False,
        replaces_open: bool = False,
    ) -> None:
        self._step(f"Writing {table.name}")
        staged = run.staging(table.name)
        writer = (frame.coalesce(1) if few else frame).write
        if table.partition:
            writer = writer.partitionBy(table.partition)
        writer.parquet(staged)
        report.written[table.name] = run.add(table, staged, replaces=replaces, replaces_open=replaces_open)

    # -- keeping it small

    def _tidy(self, run: Run) -> None:
        """Make few files of many, in a version of its own, and point to that."""
        versions = dict(run.base.versions)
        for name in versions:
            compacted = self.warehouse.folder(TABLES[name]).compact()
            if compacted is not None:
                versions[name] = compacted
                self.warehouse.folder(TABLES[name]).forget(keep_hours=KEEP_HOURS)
        if versions != run.base.versions:
            run.point(versions, run.base.groups)

    def table(self, name: str, published: Published | None = None, within: Within = EVERYTHING) -> DataFrame:
        """A published table; with bounds, those of its files that may hold rows within."""
        return self.warehouse.frame(self.spark, TABLES[name], published, within)


@contextmanager
def _file_by_file(spark: SparkSession) -> Iterator[None]:
    """Each file is read by a task of its own. Spark would pack them together, the largest first, and then
    no file that it writes would hold the jobs of one time alone."""
    cost, most = "spark.sql.files.openCostInBytes", "spark.sql.files.maxPartitionBytes"
    before = spark.conf.get(cost)
    assert before is not None
    spark.conf.set(cost, spark.conf.get(most) or "")
    try:
        yield
    finally:
        spark.conf.set(cost, before)


def _any(conditions: Sequence[Column]) -> Column:
    return reduce(lambda one, other: one | other, conditions, F.lit(False))


def _silver_index(since: Mapping[str, int]) -> Column:
    """How far the tables knew a row's group before this run."""
    found = F.lit(0)
    for group, index in since.items():
        found = F.when(F.col("group") == group, index).otherwise(found)
    return found
