"""Every table of the warehouse: its columns, and by what its files are divided.

The shape of what is published is decided here and nowhere else; a run that made other columns would fail.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from rollmq.pipeline.schema import BYTES, COLUMNS, arrow_type

NOT_IN_EVENTS: Final = frozenset({*BYTES, "reject"})


@dataclass(frozen=True, slots=True)
class Table:
    """One table: name, columns with types as Spark writes them, and the column that divides its files."""

    name: str
    columns: Mapping[str, str]
    partition: str = ""
    order: str = "index"
    """The column by which its rows lie, so that who looks for few of them opens few files."""

    @property
    def ddl(self) -> str:
        """The schema of the whole table."""
        return ", ".join(f"`{name}` {kind}" for name, kind in self.columns.items())

    @property
    def arrow(self) -> Any:
        """The schema of the whole table, for Arrow."""
        return pa.schema([pa.field(name, arrow_type(kind)) for name, kind in self.columns.items()])

    @property
    def arrow_in_files(self) -> Any:
        """The schema of its files, for Arrow."""
        return pa.schema([each for each in self.arrow if each.name != self.partition])

    @property
    def ddl_in_files(self) -> str:
        """The schema of its files: the dividing column stands in the table's log."""
        kept = {name: kind for name, kind in self.columns.items() if name != self.partition}
        return ", ".join(f"`{name}` {kind}" for name, kind in kept.items())


EVENTS: Final = Table(
    "events",
    {name: kind for name, kind in COLUMNS.items() if name not in NOT_IN_EVENTS},
)
PAYLOADS: Final = Table(
    "payloads",
    {
        "group": "string",
        "index": "bigint",
        "at": "timestamp",
        "job_id": "string",
        "payload": "binary",
        "result": "binary",
        "error_detail": "binary",
        "content_type": "string",
        "key_id": "string",
    },
)
REJECTS: Final = Table(
    "rejects",
    {
        "group": "string",
        "index": "bigint",
        "last_index": "bigint",
        "kind": "string",
        "reason": "string",
        "place": "string",
        "line": "bigint",
        "raw": "string",
    },
)

JOB_EVENT: Final[Mapping[str, str]] = {
    name: COLUMNS[name]
    for name in (
        "group",
        "job_id",
        "index",
        "term",
        "type",
        "at_us",
        "client_id",
        "exec",
        "worker_id",
        "attempt",
        "fence_term",
        "fence_index",
        "started",
        "tries",
        "held_us",
        "run_us",
        "reason",
        "error_type",
        "error_message",
        "counted",
        "ready_us",
        "payload_bytes",
        "result_bytes",
        "key",
        "headers",
        "priority",
        "not_before_us",
        "expires_at_us",
        "timeout_us",
        "tries_max",
        "by",
        "why",
    )
}
"""What the tables of jobs are made of: one row per event and job."""

OPEN_EVENTS: Final = Table("open_events", JOB_EVENT, order="job_id")
"""The events of jobs that are still open: with them a later run goes on where this one ended."""

ATTEMPTS: Final = Table(
    "attempts",
    {
        "group": "string",
        "job_id": "string",
        "enqueue_index": "bigint",
        "life": "int",
        "attempt": "int",
        "client_id": "string",
        "exec": "string",
        "worker_id": "string",
        "assign_index": "bigint",
        "assign_term": "bigint",
        "ready_at": "timestamp",
        "assigned_at": "timestamp",
        "started": "boolean",
        "ended_at": "timestamp",
        "ended_index": "bigint",
        "outcome": "string",
        "reason": "string",
        "error_type": "string",
        "error_message": "string",
        "tries": "int",
        "wait_us": "bigint",
        "held_us": "bigint",
        "run_us": "bigint",
        "late_ack_index": "bigint",
        "closed_date": "date",
    },
    partition="closed_date",
    order="job_id",
)

_JOB: Final[Mapping[str, str]] = {
    "group": "string",
    "job_id": "string",
    "enqueue_index": "bigint",
    "life": "int",
    "client_id": "string",
    "exec": "string",
    "state": "string",
    "reason": "string",
    "priority": "int",
    "key": "string",
    "headers": "map<string, string>",
    "payload_bytes": "bigint",
    "result_bytes": "bigint",
    "tries_max": "int",
    "enqueued_at": "timestamp",
    "began_at": "timestamp",
    "not_before": "timestamp",
    "first_assigned_at": "timestamp",
    "ended_at": "timestamp",
    "attempts": "int",
    "starts": "int",
    "tries": "int",
    "worker_id": "string",
    "error_type": "string",
    "error_message": "string",
    "run_us": "bigint",
    "last_index": "bigint",
    "last_at": "timestamp",
}
JOBS_OPEN: Final = Table("jobs_open", _JOB, order="job_id")
JOBS_CLOSED: Final = Table(
    "jobs_closed",
    {**_JOB, "closed_index": "bigint", "closed_at": "timestamp", "closed_date": "date"},
    partition="closed_date",
    order="job_id",
)

VIOLATIONS: Final = Table(
    "violations",
    {"promise": "string", "group": "string", "index": "bigint", "job_id": "string", "what": "string"},
)
"""What the newest audit found: of which promise, where, and what is wrong."""

BRONZE: Final = (EVENTS, PAYLOADS, REJECTS)
SILVER: Final = (ATTEMPTS, JOBS_OPEN, JOBS_CLOSED, OPEN_EVENTS)
TABLES: Final[Mapping[str, Table]] = {table.name: table for table in (*BRONZE, *SILVER, VIOLATIONS)}
