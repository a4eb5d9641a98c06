"""The columns of an event as rows have them, and what a line that leaves a field out means.

One wide row per event: a column is null when the event's type has no such field, and holds the field's
default when the type has it and the line left it out. Shapes only: it reads nothing.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple, get_args

import msgspec
import pyarrow as pa

from rollmq.core import events

REJECTED: Final = "rejected"
"""The `type` of a row that is no event but says what could not be read."""

PAYLOAD_ROW: Final = "payload"
"""The `type` of a row that has an event's bytes and nothing else of it (option `splitPayloads`)."""

BYTES: Final = ("payload", "result", "error_detail")
"""Columns with the users' own bytes."""

BESIDE_BYTES: Final = ("group", "index", "at_us", "at", "job_id", "content_type", "key_id")
"""What a payload row says beside them."""

ENDINGS: Final = ("ack", "fail_requeue", "timeout_requeue", "worker_down_requeue", "dlq", "cancel")
"""Events that may end an attempt."""

_STRING, _LONG, _INT, _BOOL = "string", "bigint", "int", "boolean"
_COUNTS = (
    "struct<queued: bigint, inflight: bigint, dlq: bigint, finished: bigint, results: bigint, keys: bigint,"
    " clients: bigint, workers: bigint, no_ops: bigint>"
)
_EXECS = (
    "array<struct<exec: string, queued: bigint, delayed: bigint, inflight: bigint, free_credit: bigint,"
    " capped_clients: bigint>>"
)

SETTING_NAMES: Final = tuple(
    name for name in events.Settings.__struct_fields__ if name not in ("index", "term", "at_us", "by")
)

COLUMNS: Final[Mapping[str, str]] = {
    "group": _STRING,
    "index": _LONG,
    "term": _LONG,
    "type": _STRING,
    "at_us": _LONG,
    "at": "timestamp",
    "job_id": _STRING,
    "client_id": _STRING,
    "exec": _STRING,
    "worker_id": _STRING,
    "attempt": _INT,
    "fence_term": _LONG,
    "fence_index": _LONG,
    "started": _BOOL,
    "tries": _INT,
    "held_us": _LONG,
    "run_us": _LONG,
    "reason": _STRING,
    "error_type": _STRING,
    "error_message": _STRING,
    "error_detail": _STRING,
    "counted": _BOOL,
    "not_before_us": _LONG,
    "ready_us": _LONG,
    "credit_left": _LONG,
    "payload": _STRING,
    "payload_bytes": _LONG,
    "result": _STRING,
    "result_bytes": _LONG,
    "content_type": _STRING,
    "content_digest": _STRING,
    "key_id": _STRING,
    "key": _STRING,
    "headers": "map<string, string>",
    "priority": _INT,
    "expires_at_us": _LONG,
    "timeout_us": _LONG,
    "timeout_factor": "double",
    "tries_max": _INT,
    "backoff": "struct<first_us: bigint, factor: double, max_us: bigint, jitter: double>",
    "job_ids": "array<string>",
    "by": _STRING,
    "why": _STRING,
    "cap": _LONG,
    "weight": _INT,
    "instance": _STRING,
    "host": _STRING,
    "release": _STRING,
    "patterns": "array<string>",
    "hands": _LONG,
    "submits": _BOOL,
    "name": _STRING,
    "confirmed_index": _LONG,
    "segment_digest": _STRING,
    "snapshot_index": _LONG,
    "snapshot_digest": _STRING,
    "counts": _COUNTS,
    "execs": _EXECS,
    "workers": "array<string>",
    "members_group": _STRING,
    "members": "array<struct<node_id: string, voter: boolean, replaces: string>>",
    "settings": "struct<" + ", ".join(f"{name}: bigint" for name in SETTING_NAMES) + ">",
    "extra": "map<string, string>",
    "reject": (
        "struct<kind: string, reason: string, place: string, line: bigint, last_index: bigint, raw: string>"
    ),
}
"""Every column of an event, with its type as Spark writes it."""

EVENT_DDL: Final = ", ".join(f"`{name}` {kind}" for name, kind in COLUMNS.items())

IN_THE_LINE: Final[Mapping[str, str]] = {"members_group": "group"}
"""Columns whose field has another name in the line."""

_ARROW: Final[Mapping[str, Any]] = {
    _STRING: pa.string(),
    _LONG: pa.int64(),
    _INT: pa.int32(),
    _BOOL: pa.bool_(),
    "double": pa.float64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "date": pa.date32(),
    "binary": pa.binary(),
    "map<string, string>": pa.map_(pa.string(), pa.string()),
    "array<string>": pa.list_(pa.string()),
}


class Default(NamedTuple):
    """What a field is when a line of these types leaves it out."""

    types: tuple[str, ...]
    value: Any


def arrow_type(ddl: str) -> Any:
    """The Arrow type of a column's type as Spark writes it."""
    known = _ARROW.get(ddl)
    if known is not None:
        return known
    if ddl.startswith("array<"):
        return pa.list_(arrow_type(ddl[len("array<") : -1]))
    assert ddl.startswith("struct<"), ddl
    pairs = (each.split(": ", 1) for each in ddl[len("struct<") : -1].split(", "))
    return pa.struct([pa.field(name, arrow_type(kind)) for name, kind in pairs])


@cache
def arrow_schema(columns: tuple[str, ...] = tuple(COLUMNS)) -> Any:
    """The Arrow schema of these columns."""
    return pa.schema([pa.field(name, arrow_type(COLUMNS[name])) for name in columns])


@cache
def event_types() -> Mapping[str, type[events.Event]]:
    """Every type of event that this release knows, by the name it has in a line."""
    return {str(kind.__struct_config__.tag): kind for kind in get_args(events.AnyEvent)}


@cache
def defaults() -> Mapping[str, Sequence[Default]]:
    """What columns are when the line leaves them out, where that is a plain value."""
    found: dict[str, dict[Any, list[str]]] = {}
    for name, kind in event_types().items():
        for field in msgspec.structs.fields(kind):
            value = "" if field.default == b"" else field.default  # bytes are base64 in a line
            if name != "settings" and isinstance(value, str | int | float):
                found.setdefault(field.name, {}).setdefault(value, []).append(name)
    return {
        column: [Default(tuple(types), value) for value, types in by_value.items()]
        for column, by_value in found.items()
    }


@cache
def setting_defaults() -> Mapping[str, int]:
    """What settings are when they are left out."""
    return {
        field.name: field.default
        for field in msgspec.structs.fields(events.Settings)
        if field.name in SETTING_NAMES
    }
