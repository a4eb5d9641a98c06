"""One table in the Delta format, without any jar: Spark writes the files, this commits them.

A version of the table is a set of files; the transaction that adds some and removes others is one file that
appears by an atomic rename. DuckDB, Polars and warehouses read the same format.
"""

import json
import os
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

from rollmq.pipeline.tables import Table

NO_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
Within: TypeAlias = Mapping[str, tuple[Any, Any]]
"""Of columns, the least and the greatest value that are wanted."""
EVERYTHING: Final[Mapping[str, tuple[Any, Any]]] = {}
COMPACT_FILES: Final = 64
"""From so many files smaller than half of COMPACT_BYTES on, they are made into few."""
COMPACT_BYTES: Final = 128 << 20


class DeltaFolder:
    """A table's folder."""

    def __init__(self, path: Path, table: Table) -> None:
        self.path = path
        self.table = table

    def adopt(self, staged: Path, folder: str, files: Sequence[str] | None = None) -> tuple[list[str], int]:
        """Move staged files (these, or all) to where the table has its own, unseen as yet; (names, rows)."""
        names: list[str] = []
        rows = 0
        found = staged.rglob("*.parquet") if files is None else (staged / each for each in files)
        for source in sorted(found):
            count = pq.read_metadata(source).num_rows
            if not count:
                continue
            rows += count
            name = f"{folder}/{source.relative_to(staged)}"
            target = self.path / name
            target.parent.mkdir(parents=True, exist_ok=True)
            source.rename(target)
            names.append(name)
        return names, rows

    def commit(self, added: Sequence[str], *, replaces: bool, replaces_open: bool, run: str) -> int:
        """One transaction; returns the table's new version."""
        adds = [self._add_action(name) for name in added]
        properties = CommitProperties(custom_metadata={"rollmq_run": run})
        partition = [self.table.partition] if self.table.partition else None
        if not self._exists():
            self.path.mkdir(parents=True, exist_ok=True)
            create_table_with_add_actions(
                str(self.path), self._schema(), adds, partition_by=partition, commit_properties=properties
            )
            return int(DeltaTable(str(self.path)).version())
        table = DeltaTable(str(self.path))
        removes = self._removes(table, only_open=not replaces) if replaces or replaces_open else []
        if adds or removes:
            table.create_write_transaction(
                [*removes, *adds],
                "append",
                self._schema(),
                partition_by=partition,
                commit_properties=properties,
            )
        return int(DeltaTable(str(self.path)).version())

    def take_back(self, version: int) -> None:
        """Make the newest version hold what this one held, if anything came after it."""
        table = DeltaTable(str(self.path))
        if table.version() != version:
            table.restore(version)

    def files(self, version: int) -> list[str]:
        """The files of a version."""
        return [each.removeprefix("file://") for each in self._at(version).file_uris()]

    def frame(self, spark: Any, version: int, within: Within = EVERYTHING) -> Any:
        """The rows of a version, for Spark. Files that hold nothing within these bounds are not even opened;
        of the others all rows are given, so whoever gives bounds filters too."""
        from pyspark.sql import functions as F

        actions = self._actions(version, within)
        if not actions:
            return spark.createDataFrame([], self.table.ddl)
        partition = self.table.partition
        by_value: dict[str | None, list[str]] = {}
        for path, value in actions:
            by_value.setdefault(value if partition else None, []).append(str(self.path / path))
        if not partition:
            return spark.read.schema(self.table.ddl).parquet(*by_value[None])
        frame = (
            spark.read.schema(self.table.ddl_in_files)
            .option("recursiveFileLookup", "true")
            .parquet(*(path for paths in by_value.values() for path in paths))
        )
        # The date stands in the path that Spark wrote, and in the table's log; no file holds it.
        text = F.regexp_extract(F.input_file_name(), f"{partition}=([^/]*)/", 1)
        value = F.when(text.isin("", NO_PARTITION), None).otherwise(text).cast("date")
        return frame.withColumn(partition, value).select(*self.table.columns)

    def dataset(self, version: int) -> Any:
        """The rows of a version as an Arrow dataset, which knows what the table's log says of its files."""
        return self._at(version).to_pyarrow_dataset()

    def compact(self) -> int | None:
        """Make few files of many small ones; the new version, or null when there is nothing to do."""
        table = DeltaTable(str(self.path))
        sizes = table.get_add_actions(flatten=True)
        small = [
            each for each in pa.table(sizes).column("size_bytes").to_pylist() if each < COMPACT_BYTES // 2
        ]
        if len(small) < COMPACT_FILES:
            return None
        table.optimize.compact(target_size=COMPACT_BYTES)
        return int(DeltaTable(str(self.path)).version())

    def forget(self, *, keep_hours: int) -> None:
        """Delete the files that no version of so long ago and since has needed, and those of broken runs."""
        table = DeltaTable(str(self.path))
        table.vacuum(retention_hours=keep_hours, dry_run=False, enforce_retention_duration=False, full=True)

    # -- what delta-rs is told

    def _exists(self) -> bool:
        return (self.path / "_delta_log").is_dir() and bool(os.listdir(self.path / "_delta_log"))

    def _at(self, version: int) -> Any:
        return DeltaTable(str(self.path), version=version)

    def _actions(self, version: int, within: Within = EVERYTHING) -> list[tuple[str, str | None]]:
        """(path, value of the dividing column) of each file of a version that may have rows within bounds."""
        found = pa.table(self._at(version).get_add_actions(flatten=True))
        for name, (least, greatest) in within.items():
            if f"min.{name}" in found.column_names:
                is_below = pc.less(found.column(f"max.{name}"), least)
                is_above = pc.greater(found.column(f"min.{name}"), greatest)
                found = found.filter(pc.invert(pc.fill_null(pc.or_(is_below, is_above), False)))
        paths = [unquote(each) for each in found.column("path").to_pylist()]
        key = f"partition.{self.table.partition}"
        values = found.column(key).to_pylist() if key in found.column_names else [None] * len(paths)
        return sorted(
            (path, None if value is None else str(value)) for path, value in zip(paths, values, strict=True)
        )

    def _removes(self, table: Any, *, only_open: bool) -> list[Any]:
        now = int(time.time() * 1000)
        return [
            RemoveAction(
                path=path,
                deletion_timestamp=now,
                data_change=True,
                partition_values={self.table.partition: value} if self.table.partition else {},
                size=(self.path / path).stat().st_size,
            )
            for path, value in self._actions(int(table.version()))
            if value is None or not only_open
        ]

    def _add_action(self, name: str) -> Any:
        path = self.path / name
        found = path.stat()
        return AddAction(
            name,
            found.st_size,
            {self.table.partition: _value_in(name, self.table.partition)} if self.table.partition else {},
            int(found.st_mtime * 1000),
            True,
            json.dumps(self._statistics(path)),
        )

    def _statistics(self, path: Path) -> dict[str, Any]:
        """Of every plain column the least and the greatest value and how many are null, from the file's end.

        Of every one: readers take a column without bounds for one in which nothing compares, and would leave
        out files that hold what they look for.
        """
        meta = pq.read_metadata(path)
        numbers = {meta.schema.column(each).path: each for each in range(meta.num_columns)}
        told: dict[str, dict[str, Any]] = {"minValues": {}, "maxValues": {}, "nullCount": {}}
        for name, kind in self.table.columns.items():
            if kind == "binary" or name not in numbers:
                continue  # nested, or in the path
            bounds = _bounds(path, meta, name, numbers[name])
            told["nullCount"][name] = bounds.nulls
            if bounds.nulls < meta.num_rows:
                told["minValues"][name] = _json_value(bounds.least)
                told["maxValues"][name] = _json_value(bounds.greatest)
        return {"numRecords": meta.num_rows, **told}

    def _schema(self) -> Any:
        return Schema.from_arrow(self.table.arrow)


class _Bounds(NamedTuple):
    """What a column's values in one file are within; nothing when all are null."""

    nulls: int
    least: Any
    greatest: Any


def _bounds(path: Path, meta: Any, name: str, number: int) -> _Bounds:
    found = [meta.row_group(each).column(number).statistics for each in range(meta.num_row_groups)]
    if all(each is not None and each.has_null_count for each in found):
        filled = [each for each in found if each.num_values]
        if all(each.has_min_max for each in filled):
            least = min((each.min for each in filled), default=None)
            return _Bounds(
                sum(each.null_count for each in found),
                least,
                max((each.max for each in filled), default=None),
            )
    # Writers say nothing of texts that are very long: then the values themselves are looked at.
    column = pq.read_table(path, columns=[name], partitioning=None).column(0)
    ends = pc.min_max(column).as_py()
    return _Bounds(column.null_count, ends["min"], ends["max"])


def _value_in(name: str, partition: str) -> str | None:
    """The value of the dividing column, from the path that Spark gave the file."""
    for part in name.split("/"):
        if part.startswith(f"{partition}="):
            value = unquote(part.removeprefix(f"{partition}="))
            return None if value == NO_PARTITION else value
    return None


def _json_value(value: Any) -> Any:
    return value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else value
