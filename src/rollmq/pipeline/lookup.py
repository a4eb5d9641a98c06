"""One job's life, straight from the tables' files: a few rows need no Spark, which takes longer to start.

The tables' logs say which files may hold the job: ids begin with their time, and jobs of one time lie
together; events lie by index. It reads what is published, as of one pointer, and writes nothing.
"""

from typing import Any, Final

import msgspec
import pyarrow.compute as pc

from rollmq.pipeline.errors import JobNotInHistory
from rollmq.pipeline.schema import event_types
from rollmq.pipeline.tables import EVENTS, JOBS_CLOSED, JOBS_OPEN
from rollmq.pipeline.warehouse import Published, Warehouse, until_text

_NAMED: Final = ("index", "job_id", "job_ids")


def job_life(warehouse: Warehouse, job_id: str) -> list[dict[str, Any]]:
    """All events of a job, oldest first, as rows of `events`. Raises JobNotInHistory and NothingBuilt."""
    published = warehouse.require(EVENTS, JOBS_OPEN)
    spans = _spans(warehouse, published, job_id)
    if not spans:
        raise JobNotInHistory(job_id=job_id, until=until_text(published))
    rows: list[dict[str, Any]] = []
    events = warehouse.dataset(EVENTS, published)
    for group, (first, last) in sorted(spans.items()):
        around = (pc.field("group") == group) & (pc.field("index") >= first) & (pc.field("index") <= last)
        named = (pc.field("job_id") == job_id) | pc.field("job_ids").is_valid()
        # Few columns first: a job that lived long has few events among many.
        found = events.to_table(columns=list(_NAMED), filter=around & named).to_pylist()
        indexes = [
            row["index"] for row in found if job_id == row["job_id"] or job_id in (row["job_ids"] or ())
        ]
        whole = events.to_table(filter=around & pc.field("index").isin(indexes))
        rows += whole.sort_by("index").to_pylist()
    return rows


def _spans(warehouse: Warehouse, published: Published, job_id: str) -> dict[str, tuple[int, int]]:
    """Of each group that knows the job, its first and its last entry."""
    spans: dict[str, tuple[int, int]] = {}
    for table, last_name in ((JOBS_CLOSED, "closed_index"), (JOBS_OPEN, "last_index")):
        rows = warehouse.dataset(table, published).to_table(
            columns=["group", "enqueue_index", last_name], filter=pc.field("job_id") == job_id
        )
        for row in rows.to_pylist():
            begin, until = row["enqueue_index"] or 1, row[last_name]
            first, last = spans.get(row["group"], (begin, until))
            spans[row["group"]] = (min(first, begin), max(last, until))
    return spans


def said(row: dict[str, Any], job_id: str) -> dict[str, Any]:
    """What a row says: without what its type does not have or has left empty."""
    row = {name: value for name, value in row.items() if value is not None and value not in ("", [])}
    row.pop("job_ids", None)
    if "headers" in row:
        row["headers"] = dict(row["headers"])
    return {**row, "job_id": job_id}


def event_of(row: dict[str, Any]) -> Any:
    """The event that a row was made of, but for the users' bytes."""
    kind = event_types()[row["type"]]
    fields = msgspec.structs.fields(kind)
    values = {
        each.name: _known(row.get(each.name))
        for each in fields
        if each.required or row.get(each.name) is not None
    }
    if row["fence_index"] is not None:
        values["fence"] = (row["fence_term"], row["fence_index"])
    if "headers" in values:
        values["headers"] = dict(values["headers"])
    return msgspec.convert(values, kind)


def _known(value: Any) -> Any:
    """Without the parts of a nested value that the line had left out."""
    if isinstance(value, dict):
        return {name: _known(each) for name, each in value.items() if each is not None}
    return value
