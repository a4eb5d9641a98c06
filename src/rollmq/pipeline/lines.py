"""Blocks of lines to Arrow batches, at the speed of a native JSON reader.

    for batch in LineParser(group=…, columns=…).parse(block, first_index=…): …

Whole blocks are parsed at once. A block in which one line is not as it should be is halved until that line
stands alone: it becomes a row of type `rejected`, or stops the read. Nothing is ever left out. This module
runs on executors: it opens no file.
"""

import json
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from rollmq.core.line import BODY_AT, CRC_AT, CRC_END
from rollmq.pipeline.errors import HistoryDamaged
from rollmq.pipeline.schema import (
    BESIDE_BYTES,
    BYTES,
    COLUMNS,
    IN_THE_LINE,
    PAYLOAD_ROW,
    REJECTED,
    SETTING_NAMES,
    arrow_schema,
    arrow_type,
    defaults,
    event_types,
    setting_defaults,
)

RAW_CHARS_MAX: Final = 4096
"""Of a bad line that is kept with its reject: enough to see what it was."""

COMMON: Final = (
    "enqueue",
    "assign",
    "ack",
    "fail_requeue",
    "timeout_requeue",
    "worker_down_requeue",
    "dlq",
    "cancel",
    "noop",
)
"""Types of nearly all lines."""
RUNS_MAX: Final = 16
"""Above so many lines of other types in a block, cutting it up costs more than it saves."""

_RARE = re.compile(b'"type":"(?!(?:%b)")' % "|".join(COMMON).encode())
"""Where a line of another type says so; each line has its type at the same place."""
_HEADERS_AT: Final = b',"headers":{'
_HEADERS = re.compile(_HEADERS_AT + rb'((?:"(?:[^"\\]|\\.)*":"(?:[^"\\]|\\.)*",?)*\})')
"""The one object whose keys are the users' own: as a string it can be read without guessing their types."""
_COMPUTED = frozenset({"group", "at", "fence_term", "fence_index", "settings", "extra", "reject"})
_MADE_OF: Final = {
    "at": ("at_us",),
    "fence_term": ("fence",),
    "fence_index": ("fence",),
    "settings": SETTING_NAMES,
}


@dataclass(frozen=True, slots=True)
class Reject:
    """What could not be read: where, and why."""

    kind: str
    """crc, json, unknown_type, index, digest, missing, gap, version"""
    reason: str
    place: str
    line: int
    index: int
    """The entry that should have been there."""
    last_index: int
    """The last entry it stands for; the same, unless a whole range is missing."""
    raw: str = ""


class LineParser:
    """Parses lines of one group's log."""

    def __init__(
        self,
        *,
        group: str,
        columns: Sequence[str] = tuple(COLUMNS),
        types: frozenset[str] | None = None,
        stops_at_damage: bool = True,
        splits_payloads: bool = False,
    ) -> None:
        self._group = group
        self._columns = tuple(columns)
        self._types = types
        self._stops_at_damage = stops_at_damage
        self._splits_payloads = splits_payloads
        self._schema = arrow_schema(self._columns)
        self.rejected_count = 0
        self._common = _plan(self._columns, COMMON)
        self._rare = _plan(self._columns, tuple(event_types()))
        self._known = pa.array(list(event_types()))

    def parse(
        self, block: bytes, *, first_index: int, place: str, first_line: int, checks_crc: bool
    ) -> Iterator[Any]:
        """Batches of the rows in a block of whole lines, whose first one should be this entry."""
        done = 0
        for part, is_rare in _runs(block):
            plan = self._rare if is_rare else self._common
            where = _Where(place, first_line + done, first_index + done)
            count = part.count(b"\n")
            yield from self._run(part, count, where, plan, checks_crc=checks_crc)
            done += count

    def _run(
        self, block: bytes, count: int, where: "_Where", plan: "_Plan", *, checks_crc: bool
    ) -> Iterator[Any]:
        problem = _crc_problem(block) if checks_crc else None
        if problem is None:
            try:
                batch = self._batch(block, count, where.index, plan)
            except _Unfit as error:
                problem = error
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError) as error:
                problem = _Unfit("json", str(error).splitlines()[0][:200])
            else:
                yield from self._split(batch) if self._splits_payloads else (batch,)
                return
        if count <= 1:
            raw = block[:RAW_CHARS_MAX].decode(errors="replace").rstrip("\n")
            reject = Reject(
                problem.kind, str(problem), where.place, where.line, where.index, where.index, raw
            )
            yield self.rejected(reject)
            return
        half = count // 2
        middle = _end_of_line(block, half)
        later = _Where(where.place, where.line + half, where.index + half)
        yield from self._run(block[:middle], half, where, plan, checks_crc=checks_crc)
        yield from self._run(block[middle:], count - half, later, plan, checks_crc=checks_crc)

    def rejected(self, reject: Reject) -> Any:
        """One row that says what could not be read. Raises HistoryDamaged where that was chosen."""
        self.rejected_count += 1
        if self._stops_at_damage and reject.kind != "gap":
            raise HistoryDamaged(
                place=reject.place,
                line=reject.line,
                index=reject.index,
                kind=reject.kind,
                reason=reject.reason,
            )
        values: dict[str, Any] = {
            "group": self._group,
            "index": reject.index,
            "type": REJECTED,
            "reject": {
                "kind": reject.kind,
                "reason": reject.reason,
                "place": reject.place,
                "line": reject.line,
                "last_index": reject.last_index,
                "raw": reject.raw,
            },
        }
        row = {name: values.get(name) for name in self._columns}
        return pa.RecordBatch.from_pylist([row], schema=self._schema)

    # -- one block

    def _batch(self, block: bytes, count: int, first_index: int, plan: "_Plan") -> Any:
        text = _headers_as_strings(block)
        table = pj.read_json(
            pa.BufferReader(text),
            read_options=pj.ReadOptions(block_size=max(len(text), 1), use_threads=False),
            parse_options=plan.options,
        )
        if table.num_rows != count:
            raise _Unfit("json", f"{table.num_rows} values in {count} lines")
        given = {name: _in_one(table.column(name)) for name in table.column_names}
        self._check(given, first_index)
        kind = given["type"]
        kinds = _Kinds(kind)
        arrays = [
            self._extra(given, text, plan) if name == "extra" else self._column(name, given, kinds)
            for name in self._columns
        ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        if self._types is not None:
            batch = batch.filter(pc.is_in(kind, pa.array(sorted(self._types), pa.string())))
        return batch

    def _split(self, batch: Any) -> Iterator[Any]:
        """The batch without the users' bytes, and these in rows of their own."""
        filled = [pc.greater(pc.binary_length(pc.fill_null(batch[name], "")), 0) for name in BYTES]
        mask = pc.or_(pc.or_(filled[0], filled[1]), filled[2])
        count = batch.num_rows
        without = [pa.nulls(count, pa.string()) if name in BYTES else batch[name] for name in self._columns]
        yield pa.RecordBatch.from_arrays(without, schema=self._schema)
        kept = (*BYTES, *BESIDE_BYTES)
        apart = batch.select([name for name in self._columns if name in kept]).filter(mask)
        arrays = [
            apart[name] if name in kept else pa.nulls(apart.num_rows, arrow_type(COLUMNS[name]))
            for name in self._columns
        ]
        arrays[self._columns.index("type")] = pa.repeat(pa.scalar(PAYLOAD_ROW), apart.num_rows)
        yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _check(self, given: dict[str, Any], first_index: int) -> None:
        index, kind = given["index"], given["type"]
        steps = pc.drop_null(pc.pairwise_diff(index, 1))
        is_next = index[0].as_py() == first_index and pc.all(pc.equal(steps, 1), min_count=0).as_py()
        if index.null_count or not is_next:
            raise _Unfit("index", f"it is not entry {first_index}, which belongs there")
        known = pc.is_in(kind, self._known)
        if kind.null_count or not pc.all(known).as_py():
            name = kind.filter(pc.invert(known))[0].as_py()
            raise _Unfit("unknown_type", f"type {name!r} is not of this version")
        if given["at_us"].null_count or given["term"].null_count:
            raise _Unfit("json", "it has no term or no time")

    def _column(self, name: str, given: dict[str, Any], kinds: "_Kinds") -> Any:
        count = len(kinds.column)
        wanted = arrow_type(COLUMNS[name])
        if name == "group":
            return pa.repeat(pa.scalar(self._group), count)
        if name == "at":
            return pc.cast(given["at_us"], wanted)
        if not all(source in given for source in _sources(name)):
            return pa.nulls(count, wanted)  # no line of this run has it
        if name in ("fence_term", "fence_index"):
            return pc.list_element(given["fence"], 0 if name == "fence_term" else 1)
        if name == "settings":
            return _settings(given, kinds.column)
        if name == "reject":
            return pa.nulls(count, wanted)
        found = given[IN_THE_LINE.get(name, name)]
        if name == "headers":
            return _headers(found)
        found = _as_type(found, wanted)
        for default in defaults().get(name, ()):
            if found.null_count and kinds.has_any(default.types):
                is_left_out = pc.and_(pc.is_null(found), kinds.is_any(default.types))
                found = pc.if_else(is_left_out, pa.scalar(default.value, wanted), found)
        return found

    def _extra(self, given: dict[str, Any], text: bytes, plan: "_Plan") -> Any:
        """Fields that this release does not know, each as the JSON that the line has."""
        kind = arrow_type(COLUMNS["extra"])
        unknown = [name for name in given if name not in plan.names]
        grown = [field.name for field in plan.schema if given[field.name].type != field.type]
        if not unknown and not grown:
            return pa.nulls(len(given["type"]), kind)
        rows = []
        for line in text.splitlines():
            value = json.loads(line)
            found = [(name, json.dumps(value[name])) for name in (*unknown, *grown) if name in value]
            rows.append(found or None)
        return pa.array(rows, kind)


class _Kinds:
    """Which rows of a block are of which types. The same few questions are asked for each of many columns."""

    def __init__(self, column: Any) -> None:
        self.column = column
        self._there = frozenset(pc.unique(column).to_pylist())
        self._known: dict[frozenset[str], Any] = {}

    def has_any(self, types: Sequence[str]) -> bool:
        """Whether any row is of one of these."""
        return not self._there.isdisjoint(types)

    def is_any(self, types: Sequence[str]) -> Any:
        """Of each row, whether it is of one of these."""
        asked = self._there.intersection(types)
        if asked not in self._known:
            self._known[asked] = pc.is_in(self.column, pa.array(sorted(asked)))
        return self._known[asked]


class _Plan(NamedTuple):
    """What the JSON reader is asked for."""

    schema: Any
    names: frozenset[str]
    options: Any


@dataclass(frozen=True, slots=True)
class _Where:
    """Where a run of lines begins."""

    place: str
    line: int
    index: int


class _Unfit(Exception):
    """A block does not parse as a whole. It stays inside this module."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


def _plan(columns: tuple[str, ...], types: tuple[str, ...]) -> _Plan:
    """What to ask the JSON reader for, so that these columns of lines of these types can be made of it.

    With `extra`, all fields that such lines have: one that nobody named would be taken for unknown.
    """
    has_extra = "extra" in columns
    fields = {
        "crc": pa.string(),
        "index": pa.int64(),
        "term": pa.int64(),
        "type": pa.string(),
        "at_us": pa.int64(),
    }
    of_these = {field for each in types for field in event_types()[each].__struct_fields__}
    for name in COLUMNS if has_extra else columns:
        for source in _sources(name):
            if source in of_these:
                fields.setdefault(source, _source_type(name))
    schema = pa.schema(list(fields.items()))
    unknown = "infer" if has_extra else "ignore"
    options = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior=unknown)
    return _Plan(schema, frozenset(schema.names), options)


def _sources(column: str) -> tuple[str, ...]:
    """The fields of a line that a column is made of."""
    if column in _MADE_OF:
        return _MADE_OF[column]
    return () if column in _COMPUTED else (IN_THE_LINE.get(column, column),)


def _runs(block: bytes) -> Iterator[tuple[bytes, bool]]:
    """The block cut into runs of lines of common types and of others, each as (lines, has rare types).

    Nearly all lines are of a few types; asking for the fields of those alone is twice as fast.
    """
    places = _rare_lines(block)
    if len(places) > RUNS_MAX:
        yield block, True
        return
    done = 0
    for start, end in places:
        if start > done:
            yield block[done:start], False
        yield block[start:end], True
        done = end
    if done < len(block):
        yield block[done:], False


def _rare_lines(block: bytes) -> list[tuple[int, int]]:
    """(start, end) of the lines of rare types, in order, not many more than RUNS_MAX of them."""
    found: list[tuple[int, int]] = []
    for match in _RARE.finditer(block):
        at = match.start()
        start = block.rfind(b"\n", 0, at) + 1
        if at - start == BODY_AT:
            end = block.find(b"\n", at) + 1
            found.append((start, end if end else len(block)))
        if len(found) > RUNS_MAX:
            break
    return found


def _headers_as_strings(block: bytes) -> bytes:
    """The block with each `headers` as the string of its JSON. Few lines have some: most is only skipped."""
    pieces: list[bytes] = []
    done, at = 0, block.find(_HEADERS_AT)
    while at >= 0:
        found = _HEADERS.match(block, at)
        if found is not None:
            text = json.dumps("{" + found[1].decode()).encode()
            pieces += (block[done:at], _HEADERS_AT[:-1], text)
            done = found.end()
        at = block.find(_HEADERS_AT, max(done, at + 1))
    return b"".join((*pieces, block[done:])) if pieces else block


def _crc_problem(block: bytes) -> _Unfit | None:
    for line in block.splitlines(keepends=True):
        try:
            is_sound = int(line[CRC_AT:CRC_END], 16) == zlib.crc32(line[BODY_AT:-1])
        except ValueError:
            is_sound = False
        if not is_sound or line[:CRC_AT] != b'{"crc":"' or line[-1:] != b"\n":
            return _Unfit("crc", "the crc does not match the line")
    return None


def _source_type(name: str) -> Any:
    if name.startswith("fence_"):
        return pa.list_(pa.int64())
    if name == "settings":
        return pa.int64()
    if name == "headers":
        return pa.string()
    return arrow_type(COLUMNS[name])


def _headers(found: Any) -> Any:
    kind = arrow_type(COLUMNS["headers"])
    if found.null_count == len(found):
        return pa.nulls(len(found), kind)
    rows = [None if text is None else list(json.loads(text).items()) for text in found.to_pylist()]
    return pa.array(rows, kind)


def _settings(given: dict[str, Any], kind: Any) -> Any:
    is_settings = pc.equal(kind, "settings")
    wanted = arrow_type(COLUMNS["settings"])
    if not pc.any(is_settings).as_py():
        return pa.nulls(len(kind), wanted)
    parts = [pc.fill_null(given[name], value) for name, value in setting_defaults().items()]
    whole = pa.StructArray.from_arrays(parts, names=list(setting_defaults()))
    return pc.if_else(is_settings, whole, pa.nulls(len(kind), wanted))


def _in_one(column: Any) -> Any:
    """A column's values in one piece; the reader gives one as long as the block is one."""
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _as_type(found: Any, wanted: Any) -> Any:
    """The known part of a nested value that a newer release has given more fields."""
    if found.type == wanted:
        return found
    return pa.array(found.to_pylist(), wanted)


def _end_of_line(block: bytes, number: int) -> int:
    """Where line `number` (from 1) ends."""
    end = 0
    for _ in range(number):
        end = block.index(b"\n", end) + 1
    return end
