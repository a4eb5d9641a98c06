"""New entries into the files of the first tables, by the executors themselves.

Each task parses its segments to Arrow batches, as the source does, and writes them as Parquet where it is:
the rows never pass through Spark's Java, which would cost more than all the rest. Spark says which task runs
where, repeats those that fail, and counts only files of tasks that ended. It publishes nothing.
"""

import binascii
import os
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from rollmq.pipeline.schema import BYTES, PAYLOAD_ROW, REJECTED
from rollmq.pipeline.source import RollmqReader
from rollmq.pipeline.table_file import TableFile
from rollmq.pipeline.tables import BRONZE, EVENTS, PAYLOADS, REJECTS


class Taken(msgspec.Struct, frozen=True):
    """What one task wrote."""

    files: dict[str, str] = {}
    """Of each table that got rows: the file in the staging folder."""
    events: dict[str, int] = {}
    """Of each group: rows of `events`, that is, entries."""
    rejected: dict[str, int] = {}
    """Of each group: entries that rows of `rejects` stand for."""
    at_us: dict[str, int] = {}
    """Of each group: the newest log time."""


def take_read(spark: SparkSession, reader: RollmqReader, staged: str) -> list[Taken]:
    """Read all that the reader has, and write it under `staged`, a folder that every executor sees."""
    tasks = list(reader.partitions())

    def write(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for number in batch["id"].to_pylist():
                yield _as_batch(write_batches(reader.read(tasks[number]), staged))

    return _run(spark.range(0, len(tasks), 1, max(len(tasks), 1)), write, staged)


def take_rows(events: DataFrame, staged: str) -> list[Taken]:
    """The same for rows that Spark has read already: a stream's batch."""

    def write(batches: Iterator[Any]) -> Iterator[Any]:
        yield _as_batch(write_batches(batches, staged))

    return _run(events, write, staged)


def _run(frame: DataFrame, write: Callable[[Iterator[Any]], Iterator[Any]], staged: str) -> list[Taken]:
    Path(staged).mkdir(parents=True, exist_ok=True)
    rows = frame.mapInArrow(write, "taken string").collect()
    return [msgspec.json.decode(row["taken"], type=Taken) for row in rows]


def _as_batch(taken: Taken) -> Any:
    return pa.RecordBatch.from_pydict({"taken": [msgspec.json.encode(taken).decode()]})


def write_batches(batches: Iterable[Any], staged: str) -> Taken:
    """One task's files. Their names are drawn at random: a task that is run twice writes beside itself."""
    name = uuid.uuid4().hex
    files = {table.name: TableFile(table, f"{staged}/{table.name}-{name}.parquet") for table in BRONZE}
    taken = Taken()
    for batch in batches:
        kinds = set(pc.unique(batch["type"]).to_pylist())
        if PAYLOAD_ROW in kinds:
            files[PAYLOADS.name].add(_payloads(_of_kind(batch, kinds, PAYLOAD_ROW)))
        if REJECTED in kinds:
            rejects = _of_kind(batch, kinds, REJECTED)
            files[REJECTS.name].add(_rejects(rejects))
            _count_rejects(rejects, taken)
        if kinds - {PAYLOAD_ROW, REJECTED}:
            apart = kinds & {PAYLOAD_ROW, REJECTED}
            others = pc.is_in(batch["type"], pa.array(sorted(apart), pa.string()))
            events = batch.filter(pc.invert(others)) if apart else batch
            files[EVENTS.name].add(events.select(list(EVENTS.columns)))
            _count_events(events, taken)
    for table, file in files.items():
        if file.close():
            taken.files[table] = os.path.relpath(file.path, staged)
    return taken


def _of_kind(batch: Any, kinds: set[str], kind: str) -> Any:
    """The rows of this kind; nearly always all or none."""
    return batch if kinds == {kind} else batch.filter(pc.equal(batch["type"], kind))


def _count_events(events: Any, taken: Taken) -> None:
    for group in pc.unique(events["group"]).to_pylist():
        at_us = events["at_us"].filter(pc.equal(events["group"], group))
        taken.events[group] = taken.events.get(group, 0) + len(at_us)
        taken.at_us[group] = max(taken.at_us.get(group, 0), pc.max(at_us).as_py())


def _count_rejects(rejects: Any, taken: Taken) -> None:
    for row in rejects.select(["group", "index", "reject"]).to_pylist():
        # A digest that does not match stands for no entry: the lines before it are there.
        count = 0 if row["reject"]["kind"] == "digest" else row["reject"]["last_index"] - row["index"] + 1
        taken.rejected[row["group"]] = taken.rejected.get(row["group"], 0) + count


def _rejects(batch: Any) -> Any:
    reject = batch["reject"]
    columns = {
        name: batch[name] if name in ("group", "index") else pc.struct_field(reject, name)
        for name in REJECTS.columns
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _payloads(batch: Any) -> Any:
    decode = binascii.a2b_base64
    columns = {name: batch[name] for name in PAYLOADS.columns}
    for name in BYTES:
        values = [decode(each) if each else None for each in batch[name].to_pylist()]
        columns[name] = pa.array(values, pa.binary())
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
