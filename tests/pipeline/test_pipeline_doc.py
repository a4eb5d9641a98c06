"""docs/pipeline.md says of every table which columns it has, and its examples run."""

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from rollmq.pipeline.runs import History, Sources
from rollmq.pipeline.tables import TABLES
from rollmq.pipeline.warehouse import Warehouse
from tests.docs_tables import DOCS
from tests.pipeline.archives import story

PAGE = (DOCS / "pipeline.md").read_text()
SECTION = re.compile(r"^### `(\w+)`\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| `(\w+)` \| (.+?) \| (.+) \|$", re.MULTILINE)
SETTINGS_SHORT = "struct<…: bigint>"


def documented() -> dict[str, dict[str, str]]:
    """Of each table, the columns and types that the page names."""
    found: dict[str, dict[str, str]] = {}
    for name, text in SECTION.findall(PAGE):
        columns = {column: kind for column, kind, _meaning in ROW.findall(text)}
        other = re.search(r"The columns of `(\w+)`, and:", text)
        if other:
            columns = {**found[other[1]], **columns}
        these = re.search(r"these columns\s+of `(\w+)`: (.*?)\.\n", text, re.DOTALL)
        if these:
            columns = {column: found[these[1]][column] for column in re.findall(r"`(\w+)`", these[2])}
        found[name] = columns
    return found


def test_every_table_is_documented_with_every_column_and_its_type() -> None:
    expected = {table.name: dict(table.columns) for table in TABLES.values()}
    expected["events"]["settings"] = SETTINGS_SHORT
    found = documented()
    assert found.keys() == expected.keys()
    for name, columns in expected.items():
        assert found[name] == columns, name


@pytest.fixture
def warehouse(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The documented story, built in `warehouse` of the working directory."""
    story(tmp_path / "archive")
    History(spark, Warehouse(tmp_path / "warehouse")).update(Sources(places=(str(tmp_path / "archive"),)))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "warehouse"


def example(word: str) -> str:
    (found,) = (
        code for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if f"import {word}" in code
    )
    return str(found)


def test_readers_that_trust_the_log_of_a_table_leave_out_no_row(warehouse: Path) -> None:
    """Whatever is asked of whatever column: what the log says of a file never hides one of its rows."""
    for table in TABLES.values():
        version = Warehouse(warehouse).published().versions.get(table.name)
        if version is None:
            continue
        dataset = DeltaTable(str(warehouse / table.name), version=version).to_pyarrow_dataset()
        rows = dataset.to_table()
        for name in rows.column_names:
            column, field = rows.column(name), pc.field(name)
            assert dataset.count_rows(filter=field.is_null()) == column.null_count, (table.name, name)
            if not pa.types.is_nested(column.type):
                for value in pc.unique(pc.drop_null(column)).to_pylist():
                    count = pc.sum(pc.equal(column, value)).as_py()
                    assert dataset.count_rows(filter=field == value) == count, (table.name, name, value)


@pytest.mark.filterwarnings(
    "ignore::ResourceWarning"
)  # an example is short: it leaves a file to the collector
def test_duckdb_and_polars_read_what_a_run_published(warehouse: Path) -> None:
    assert warehouse.name == "warehouse"
    scope: dict[str, Any] = {}
    exec(example("duckdb"), scope)
    assert scope["slow"] == [("image.resize", 1, 0.0)]
    exec(example("polars"), scope)
    rows = {(row["client_id"], row["state"]): row["jobs"] for row in scope["ended"].to_dicts()}
    assert rows == {
        ("webshop", "done"): 1,
        ("webshop", "dead"): 1,
        ("webshop", "cancelled"): 1,
        ("webshop", "dropped"): 1,
    }
