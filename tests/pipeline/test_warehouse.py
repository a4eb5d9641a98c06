"""Tables change together or not at all, whatever step a run dies at. No Spark is needed to see it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from rollmq.pipeline import delta, warehouse
from rollmq.pipeline.errors import NotAWarehouse, WarehouseBusy, WarehouseDamaged
from rollmq.pipeline.schema import arrow_type
from rollmq.pipeline.tables import ATTEMPTS, JOBS_OPEN, REJECTS, Table
from rollmq.pipeline.warehouse import Reached, Run, Warehouse

SCHEMAS = {table.name: delta.DeltaFolder(Path(), table)._schema() for table in (REJECTS, JOBS_OPEN, ATTEMPTS)}


def stage(run: Run, table: Table, name: str, rows: list[dict[str, Any]], partition: str = "") -> str:
    """Files as Spark leaves them."""
    folder = Path(run.staging(name))
    fields = [
        pa.field(column, arrow_type(kind))
        for column, kind in table.columns.items()
        if column != table.partition
    ]
    target = folder / partition
    target.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows, pa.schema(fields)), target / "part-0.parquet")
    return str(folder)


def write(house: Warehouse, number: int) -> None:
    """A run that appends to one table and replaces another."""
    with house.run() as run:
        run.add(REJECTS, stage(run, REJECTS, "r", [{"group": "g", "index": number}]))
        run.add(JOBS_OPEN, stage(run, JOBS_OPEN, "o", [{"group": "g", "job_id": str(number)}]), replaces=True)
        run.publish({"g": Reached(number, number, number)})


def seen(house: Warehouse) -> tuple[list[int], list[str]]:
    """What readers find who go by the pointer."""
    versions = house.published().versions
    if not versions:
        return [], []
    indexes = [row["index"] for row in _rows(house, REJECTS, versions["rejects"])]
    return sorted(indexes), [row["job_id"] for row in _rows(house, JOBS_OPEN, versions["jobs_open"])]


def _rows(house: Warehouse, table: Table, version: int) -> list[dict[str, Any]]:
    found = DeltaTable(str(house.path / table.name), version=version).to_pyarrow_table()
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows


class Died(BaseException):
    """The process ends here."""


def steps(monkeypatch: pytest.MonkeyPatch, die_at: int) -> Iterator[int]:
    """Count every change of the disk that publishing makes, and die before one of them."""
    count = 0

    def counted(owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def wrapper(*args: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            if count == die_at:
                raise Died
            return real(*args, **options)

        monkeypatch.setattr(owner, name, wrapper)

    counted(delta.DeltaFolder, "adopt")
    counted(delta.DeltaFolder, "commit")
    counted(warehouse.Run, "point")
    counted(warehouse.os, "fsync")
    counted(Path, "replace")
    yield count
    monkeypatch.undo()


@pytest.mark.parametrize("die_at", range(1, 8))
@pytest.mark.parametrize("runs_before", [0, 2])
def test_a_run_that_dies_at_any_step_is_seen_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, die_at: int, runs_before: int
) -> None:
    house = Warehouse(tmp_path)
    for number in range(1, runs_before + 1):
        write(house, number)
    before = seen(house)
    for _ in steps(monkeypatch, die_at):
        with pytest.raises(Died):
            write(house, 77)
    after = seen(house)
    is_published = after != before
    if is_published:
        assert after == ([*before[0], 77], ["77"])
    write(house, 9)
    assert seen(house) == ([*sorted([*before[0], *([77] if is_published else []), 9])], ["9"])
    newest = DeltaTable(str(tmp_path / "rejects")).to_pyarrow_table().column("index").to_pylist()
    assert sorted(newest) == seen(house)[0], "who reads the newest version sees the same"


def test_only_the_open_part_of_a_divided_table_is_replaced(tmp_path: Path) -> None:
    house = Warehouse(tmp_path)
    for number in (1, 2):
        with house.run() as run:
            closed = [{"group": "g", "job_id": f"closed{number}"}]
            staged = stage(run, ATTEMPTS, "c", closed, "closed_date=2026-01-01")
            run.add(ATTEMPTS, staged)
            still_open = [{"group": "g", "job_id": f"open{number}"}]
            staged = stage(run, ATTEMPTS, "o", still_open, "closed_date=__HIVE_DEFAULT_PARTITION__")
            run.add(ATTEMPTS, staged, replaces_open=True)
            run.publish({})
    rows = _rows(house, ATTEMPTS, house.published().versions["attempts"])
    assert sorted(row["job_id"] for row in rows) == ["closed1", "closed2", "open2"]
    assert {str(row["closed_date"]) for row in rows} == {"2026-01-01", "None"}


def test_texts_too_long_for_a_files_own_bounds_are_looked_at(tmp_path: Path) -> None:
    """Writers leave out the bounds of very long texts; without any a reader would leave out the file."""
    house = Warehouse(tmp_path)
    with house.run() as run:
        path = Path(run.staging("r"))
        path.mkdir(parents=True)
        rows = pa.Table.from_pylist([{"group": "g", "raw": "x" * 9_000}, {"group": "g"}], REJECTS.arrow)
        pq.write_table(rows, path / "part-0.parquet", write_statistics=["group"])
        run.add(REJECTS, str(path))
        run.publish({})
    dataset = house.dataset(REJECTS, house.published())
    assert dataset.count_rows(filter=pc.field("raw") == "x" * 9_000) == 1
    assert dataset.count_rows(filter=pc.field("raw").is_null()) == 1
    assert dataset.count_rows(filter=pc.field("line").is_null()) == 2


def test_a_second_run_at_the_same_time_is_refused(tmp_path: Path) -> None:
    house = Warehouse(tmp_path)
    with house.run(), pytest.raises(WarehouseBusy), house.run():
        raise AssertionError("two runs at once")


def test_small_files_become_few_and_the_rows_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "COMPACT_FILES", 5)
    house = Warehouse(tmp_path)
    for number in range(1, 7):
        write(house, number)
    folder = house.folder(REJECTS)
    version = folder.compact()
    assert version is not None
    assert len(folder.files(version)) == 1
    assert sorted(row["index"] for row in _rows(house, REJECTS, version)) == [1, 2, 3, 4, 5, 6]
    assert seen(house)[0] == [1, 2, 3, 4, 5, 6], "the pointer still names the old version, and it is whole"


def test_a_folder_that_is_no_warehouse_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(NotAWarehouse, match="something else"), Warehouse(tmp_path).run():
        raise AssertionError("it was taken")
    (tmp_path / "lock").touch()
    (tmp_path / "published.json").write_text("{")
    with pytest.raises(WarehouseDamaged):
        Warehouse(tmp_path).published()


def test_small_files_of_a_divided_table_are_merged_in_the_order_of_their_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In any other order the bounds would not tell any more in which file, and where in it, a job is."""
    monkeypatch.setattr(delta, "COMPACT_FILES", 6)
    house = Warehouse(tmp_path)
    days = ("2026-01-01", "2026-01-02", "__HIVE_DEFAULT_PARTITION__")
    rows = [(day, f"{number:03}") for number in (7, 2, 9, 4) for day in days] + [("2026-01-03", "alone")]
    for number, (day, job) in enumerate(rows):
        with house.run() as run:
            row = {"group": "g", "job_id": job, "attempt": number}
            run.add(ATTEMPTS, stage(run, ATTEMPTS, "a", [row], f"closed_date={day}"))
            run.publish({})
    folder = house.folder(ATTEMPTS)
    before = _rows(house, ATTEMPTS, folder_version := house.published().versions["attempts"])
    version = folder.compact()
    assert version is not None
    files = folder.files(version)
    assert len(files) == 4
    merged = [file for file in files if "closed_date=2026-01-03" not in file]
    for file in merged:
        found = pq.read_table(file, columns=["job_id"], partitioning=None)["job_id"].to_pylist()
        assert found == ["002", "004", "007", "009"]

    def told(version: int) -> list[str]:
        return sorted(map(str, _rows(house, ATTEMPTS, version)))

    assert told(version) == sorted(map(str, before)) == told(folder_version)
    assert folder.compact() is None, "there is nothing left to merge"


def test_the_extent_of_rows_is_what_the_rows_say(tmp_path: Path) -> None:
    house = Warehouse(tmp_path)
    with house.run() as run:
        assert run.extent(REJECTS, "line") == (0, 0, 0)
        run.add(REJECTS, stage(run, REJECTS, "a", [{"index": n, "line": 10 * n} for n in (5, 3, 4)]))
        assert run.extent(REJECTS, "line") == (3, 30, 50)
        run.publish({})
    with house.run() as run:
        run.add(REJECTS, stage(run, REJECTS, "a", [{"index": 6, "line": 7}]))
        assert run.extent(REJECTS, "line") == (4, 7, 50)
        assert run.extent(REJECTS, "line", {"index": (6, 9)}) == (1, 7, 7)
