"""The tables on disk, and how a run's results become visible: all at once, or not at all.

    warehouse/published.json            the pointer: which version of each table belongs together
    warehouse/<table>/_delta_log/       the table's own log, an open format (Delta)
    warehouse/<table>/run-<id>/         the files that a run wrote

Spark writes files, a transaction in each table's log adds them, and then the pointer moves, by one rename.
Whoever crashes before that has changed nothing: the next run takes the tables back to what the pointer says.
It knows nothing of what the rows mean.
"""

import contextlib
import fcntl
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from rollmq.pipeline.delta import EVERYTHING, DeltaFolder, Extent, Within
from rollmq.pipeline.errors import NotAWarehouse, NothingBuilt, WarehouseBusy, WarehouseDamaged
from rollmq.pipeline.tables import TABLES, Table

POINTER: Final = "published.json"
LOCK: Final = "lock"
STAGING: Final = "_staging"
FORMAT: Final = 1


class Reached(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How far a group's history has been taken."""

    bronze_index: int = 0
    """The last entry in `events`."""
    silver_index: int = 0
    """The last entry that the tables of jobs know of."""
    at_us: int = 0
    """Log time of the last entry in `events`."""


class Published(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the pointer says."""

    format: int = FORMAT
    run: str = ""
    """The run that published it."""
    versions: dict[str, int] = {}
    """Of each table."""
    groups: dict[str, Reached] = {}


_decoder = msgspec.json.Decoder(Published)


class Warehouse:
    """A folder with tables. Reading needs no lock: what the pointer names stays as it is."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).absolute()

    def published(self) -> Published:
        """What belongs together now; nothing in an empty folder. Raises NotAWarehouse, WarehouseDamaged."""
        try:
            text = (self.path / POINTER).read_bytes()
        except FileNotFoundError:
            if self.path.exists() and any(self.path.iterdir()) and not (self.path / LOCK).exists():
                raise NotAWarehouse(path=str(self.path), reason="it holds something else") from None
            return Published()
        except NotADirectoryError as error:
            raise NotAWarehouse(path=str(self.path), reason="it is a file") from error
        try:
            found = _decoder.decode(text)
        except msgspec.DecodeError as error:
            raise WarehouseDamaged(path=str(self.path / POINTER), reason=str(error)) from error
        if found.format != FORMAT:
            reason = f"format {found.format}, and this release reads {FORMAT}"
            raise WarehouseDamaged(path=str(self.path), reason=reason)
        return found

    def folder(self, table: Table) -> DeltaFolder:
        """One table's folder."""
        return DeltaFolder(self.path / table.name, table)

    def frame(
        self, spark: Any, table: Table, published: Published | None = None, within: Within = EVERYTHING
    ) -> Any:
        """The table's rows as of the pointer (or another state of it); empty when there are none yet.
        Of files that hold nothing within the bounds there are none: see DeltaFolder.frame."""
        version = (published or self.published()).versions.get(table.name)
        if version is None:
            return spark.createDataFrame([], table.ddl)
        return self.folder(table).frame(spark, version, within)

    def dataset(self, table: Table, published: Published) -> Any:
        """The same, for who reads without Spark: an Arrow dataset."""
        return self.folder(table).dataset(published.versions[table.name])

    def require(self, *tables: Table) -> Published:
        """The pointer, when all of these tables have been published. Raises NothingBuilt."""
        published = self.published()
        for table in tables:
            if table.name not in published.versions:
                raise NothingBuilt(path=str(self.path), what=table.name)
        return published

    @contextlib.contextmanager
    def run(self) -> "Iterator[Run]":
        """Write: one run at a time. What is not published when it ends never was. Raises WarehouseBusy."""
        self.published()  # refuses a folder that holds something else
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / LOCK).open("a+b") as lock:
            _take(lock, self.path)
            run = Run(self, self.published())
            run.take_back()
            try:
                yield run
            finally:
                shutil.rmtree(self.path / STAGING, ignore_errors=True)


def until_text(published: Published) -> str:
    """How far the tables of jobs go, for people."""
    return ", ".join(
        f"entry {each.silver_index:,} of group {group[:8]}…"
        for group, each in sorted(published.groups.items())
    )


def _take(lock: IO[bytes], path: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.seek(0)
        raise WarehouseBusy(path=str(path), holder=lock.read(32).decode(errors="replace")) from error
    lock.truncate(0)
    lock.write(str(os.getpid()).encode())
    lock.flush()


@dataclass(slots=True)
class Change:
    """What a run does to one table."""

    table: Table
    added: list[str] = field(default_factory=list)
    """Names of new files in the table's folder."""
    replaces: bool = False
    """The whole table, or with `replaces_open` the part that is not closed."""
    replaces_open: bool = False


class Run:
    """One run's writes, until they are published."""

    def __init__(self, warehouse: Warehouse, base: Published) -> None:
        self.warehouse = warehouse
        self.base = base
        self.id = uuid.uuid4().hex
        self._changes: dict[str, Change] = {}

    def take_back(self) -> None:
        """Undo what a run left behind that did not come as far as the pointer."""
        shutil.rmtree(self.warehouse.path / STAGING, ignore_errors=True)
        for table in TABLES.values():
            folder = self.warehouse.folder(table)
            version = self.base.versions.get(table.name)
            if version is None:
                shutil.rmtree(folder.path, ignore_errors=True)
            else:
                folder.take_back(version)

    def frame(self, spark: Any, table: Table, within: Within = EVERYTHING) -> Any:
        """The table's rows with those that this run has added to it so far."""
        held = self.warehouse.frame(spark, table, self.base, within)
        change = self._changes.get(table.name)
        if change is None or not change.added:
            return held
        assert not table.partition, "the dividing column stands in no file"
        paths = [str(self.warehouse.path / table.name / name) for name in change.added]
        return held.unionByName(spark.read.schema(table.ddl).parquet(*paths))

    def extent(self, table: Table, column: str, within: Within = EVERYTHING) -> Extent:
        """How many rows `frame` gives at most, and what a column is within: what the files say, unread."""
        change = self._changes.get(table.name)
        added = change.added if change is not None else ()
        version = self.base.versions.get(table.name)
        return self.warehouse.folder(table).extent(column, version, within, added=added)

    def staging(self, name: str) -> str:
        """A folder for files on their way."""
        return str(self.warehouse.path / STAGING / self.id / name)

    def add(
        self,
        table: Table,
        staged: str,
        files: Sequence[str] | None = None,
        *,
        replaces: bool = False,
        replaces_open: bool = False,
    ) -> int:
        """Take files of a staged folder (these, or all) into the table; returns how many rows they have."""
        change = self._changes.setdefault(table.name, Change(table))
        change.replaces |= replaces
        change.replaces_open |= replaces_open
        names, count = self.warehouse.folder(table).adopt(Path(staged), f"run-{self.id}", files)
        change.added += names
        return count

    def publish(self, groups: Mapping[str, Reached]) -> Published:
        """Commit every table, then move the pointer. Only after the last step anything has changed."""
        versions = dict(self.base.versions)
        for name, change in self._changes.items():
            folder = self.warehouse.folder(change.table)
            versions[name] = folder.commit(
                change.added, replaces=change.replaces, replaces_open=change.replaces_open, run=self.id
            )
        return self.point(versions, groups)

    def point(self, versions: Mapping[str, int], groups: Mapping[str, Reached]) -> Published:
        """Move the pointer."""
        found = Published(run=self.id, versions=dict(versions), groups=dict(groups))
        path = self.warehouse.path / POINTER
        beside = path.with_suffix(".tmp")
        with beside.open("wb") as file:
            file.write(json.dumps(msgspec.to_builtins(found), indent=1).encode())
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
        handle = os.open(self.warehouse.path, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)
        self.base = found
        self._changes = {}
        return found
