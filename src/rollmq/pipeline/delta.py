"""One table in the Delta format, without any jar: Spark writes the files, this commits them.

A version of the table is a set of files; the transaction that adds some and removes others is one file that
appears by an atomic rename. DuckDB, Polars and warehouses read the same format.
"""

import json
import os
import time
import uuid
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

from rollmq.pipeline.table_file import merge_files
from rollmq.pipeline.tables import Table

NO_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
Within: TypeAlias = Mapping[str, tuple[Any, Any]]
"""Of columns, the least and the greatest value that are wanted."""
EVERYTHING: Final[Mapping[str, tuple[Any, Any]]] = {}
COMPACT_FILES: Final = 64
"""From so many small files on, they are made into few."""
COMPACT_SMALL_BYTES: Final = 8 << 20
"""A smaller file is a small one: a full build of a long history writes none, the runs of an hour do."""
COMPACT_BYTES: Final = 128 << 20
"""What they are made into has at most about so many."""


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

    def extent(
        self, column: str, version: int | None, within: Within = EVERYTHING, *, added: Sequence[str] = ()
    ) -> "Extent":
        """Rows of a version's files that may hold some within bounds, and of files that were added since."""
        extent = Extent()
        if version is not None:
            found = self._found(version, within)
            names = ("num_records", f"min.{column}", f"max.{column}")
            if found.num_rows:
                for count, least, greatest in zip(*(found[name].to_pylist() for name in names), strict=True):
                    extent = extent.with_file(count, least, greatest)
        for name in added:
            meta = pq.read_metadata(self.path / name)
            bounds = _bounds(self.path / name, meta, column, _numbers(meta)[column])
            extent = extent.with_file(meta.num_rows, bounds.least, bounds.greatest)
        return extent

    def dataset(self, version: int) -> Any:
        """The rows of a version as an Arrow dataset, which knows what the table's log says of its files."""
        return self._at(version).to_pyarrow_dataset()

    def compact(self) -> int | None:
        """Make few files of many small ones; the new version, or null when there is nothing to do.

        The rows keep the table's order: with files laid together as they come, no bounds would tell any more
        where a job is.
        """
        table = DeltaTable(str(self.path))
        small = self._small(table)
        if sum(len(paths) for _value, paths in small) < COMPACT_FILES:
            return None
        folder = f"merged-{uuid.uuid4().hex}"
        merged = [self._merge(folder, value, paths) for value, paths in small]
        table.create_write_transaction(
            [
                *(
                    self._remove_action(path, value, changes=False)
                    for value, paths in small
                    for path in paths
                ),
                *(self._add_action(name, changes=False) for name in merged),
            ],
            "append",
            self._schema(),
            partition_by=[self.table.partition] if self.table.partition else None,
        )
        return int(DeltaTable(str(self.path)).version())

    def _small(self, table: Any) -> list[tuple[str | None, list[str]]]:
        """What becomes one file: a value of the dividing column, and small files in their rows' order."""
        found = pa.table(table.get_add_actions(flatten=True))
        bounds = [name for name in ("min.group", f"min.{self.table.order}") if name in found.column_names]
        ordered = found.sort_by([(name, "ascending") for name in (*bounds, "path")])
        small: dict[str | None, list[list[str]]] = {}
        sizes: dict[str | None, int] = {}
        for row in ordered.to_pylist():
            if row["size_bytes"] < COMPACT_SMALL_BYTES:
                value = row.get(f"partition.{self.table.partition}")
                value = None if value is None else str(value)
                size = sizes.get(value, COMPACT_BYTES) + row["size_bytes"]
                if size > COMPACT_BYTES:
                    small.setdefault(value, []).append([])
                    size = row["size_bytes"]
                sizes[value] = size
                small[value][-1].append(unquote(row["path"]))
        return [(value, paths) for value, files in small.items() for paths in files if len(paths) > 1]

    def _merge(self, folder: str, value: str | None, paths: Sequence[str]) -> str:
        """A new file with the rows of these; its name."""
        if self.table.partition:
            folder = f"{folder}/{self.table.partition}={NO_PARTITION if value is None else value}"
        name = f"{folder}/{uuid.uuid4().hex}.parquet"
        (self.path / folder).mkdir(parents=True, exist_ok=True)
        merge_files(self.table, [self.path / each for each in paths], self.path / name)
        return name

    def forget(self, *, keep_hours: int) -> None:
        """Delete the files that no version of so long ago and since has needed, and those of broken runs."""
        table = DeltaTable(str(self.path))
        table.vacuum(retention_hours=keep_hours, dry_run=False, enforce_retention_duration=False, full=True)

    # -- what delta-rs is told

    def _exists(self) -> bool:
        return (self.path / "_delta_log").is_dir() and bool(os.listdir(self.path / "_delta_log"))

    def _at(self, version: int) -> Any:
        return DeltaTable(str(self.path), version=version)

    def _found(self, version: int, within: Within) -> Any:
        """What the log says of each file of a version that may have rows within bounds."""
        found = pa.table(self._at(version).get_add_actions(flatten=True))
        for name, (least, greatest) in within.items():
            if f"min.{name}" in found.column_names:
                is_below = pc.less(found.column(f"max.{name}"), least)
                is_above = pc.greater(found.column(f"min.{name}"), greatest)
                found = found.filter(pc.invert(pc.fill_null(pc.or_(is_below, is_above), False)))
        return found

    def _actions(self, version: int, within: Within = EVERYTHING) -> list[tuple[str, str | None]]:
        """(path, value of the dividing column) of each file of a version that may have rows within bounds."""
        found = self._found(version, within)
        paths = [unquote(each) for each in found.column("path").to_pylist()]
        key = f"partition.{self.table.partition}"
        values = found.column(key).to_pylist() if key in found.column_names else [None] * len(paths)
        return sorted(
            (path, None if value is None else str(value)) for path, value in zip(paths, values, strict=True)
        )

    def _removes(self, table: Any, *, only_open: bool) -> list[Any]:
        return [
            self._remove_action(path, value)
            for path, value in self._actions(int(table.version()))
            if value is None or not only_open
        ]

    def _remove_action(self, path: str, value: str | None, *, changes: bool = True) -> Any:
        return RemoveAction(
            path=path,
            deletion_timestamp=int(time.time() * 1000),
            data_change=changes,
            partition_values={self.table.partition: value} if self.table.partition else {},
            size=(self.path / path).stat().st_size,
        )

    def _add_action(self, name: str, *, changes: bool = True) -> Any:
        path = self.path / name
        found = path.stat()
        return AddAction(
            name,
            found.st_size,
            {self.table.partition: _value_in(name, self.table.partition)} if self.table.partition else {},
            int(found.st_mtime * 1000),
            changes,
            json.dumps(self._statistics(path)),
        )

    def _statistics(self, path: Path) -> dict[str, Any]:
        """Of every plain column the least and the greatest value and how many are null, from the file's end.

        Of every one: readers take a column without bounds for one in which nothing compares, and would leave
        out files that hold what they look for.
        """
        meta = pq.read_metadata(path)
        numbers = _numbers(meta)
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


class Extent(NamedTuple):
    """How many rows some files have, and what a column's values in them are within."""

    rows: int = 0
    least: int = 0
    greatest: int = 0

    def with_file(self, rows: int, least: int, greatest: int) -> "Extent":
        """With another file's rows."""
        if not self.rows:
            return Extent(rows, least, greatest)
        return Extent(self.rows + rows, min(self.least, least), max(self.greatest, greatest))


class _Bounds(NamedTuple):
    """What a column's values in one file are within; nothing when all are null."""

    nulls: int
    least: Any
    greatest: Any


def _numbers(meta: Any) -> dict[str, int]:
    """Where each column stands in the file."""
    return {meta.schema.column(each).path: each for each in range(meta.num_columns)}


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
