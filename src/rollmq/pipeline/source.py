"""The data source `rollmq`: events as rows, in batches and as a stream, from files and from live nodes.

    spark.read.format("rollmq").load("archive")
    spark.readStream.format("rollmq").option("server", "127.0.0.1:5000").load()

The offset of a stream is the next index of each group, so reading is exactly-once and can be repeated. This
module says what is read where; `reading` and `live` read.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from rollmq.pipeline.errors import BadOption
from rollmq.pipeline.lines import LineParser
from rollmq.pipeline.live import LiveEnd, LivePiece, find_end, live_pieces, read_live
from rollmq.pipeline.places import find_segments
from rollmq.pipeline.planning import Missing, Part, Piece, last_indexes, pack, plan_parts
from rollmq.pipeline.reading import VERIFY_CHOICES, VERIFY_DIGEST, read_part
from rollmq.pipeline.schema import COLUMNS, EVENT_DDL, REJECTED, event_types

FAIL, REJECT = "fail", "reject"
FOREVER: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Options:
    """What a reader may be asked, read and checked once."""

    places: tuple[str, ...]
    server: str
    token: str
    group: str
    start: int
    end: int
    types: frozenset[str] | None
    verify: str
    on_damage: str
    events_per_trigger: int | None
    splits_payloads: bool
    ranges: Mapping[str, tuple[int, int]] | None
    """Of each group, first and last entry; no other group."""

    @staticmethod
    def of(options: Mapping[str, str]) -> "Options":
        """Raises BadOption."""
        paths = options.get("paths")
        places = tuple(json.loads(paths)) if paths else ()
        if options.get("path"):
            places = (options["path"], *places)
        server = options.get("server", "")
        if not places and not server:
            raise BadOption(name="path", value="", expected="a path to load, or the option server=HOST:PORT")
        per_trigger = options.get("maxEventsPerTrigger")
        return Options(
            places=places,
            server=server,
            token=options.get("token", ""),
            group=options.get("group", ""),
            start=_number(options, "startIndex", 1),
            end=_number(options, "endIndex", FOREVER),
            types=_types(options.get("types")),
            verify=_choice(options, "verify", VERIFY_DIGEST, VERIFY_CHOICES),
            on_damage=_choice(options, "onDamage", FAIL, (FAIL, REJECT)),
            events_per_trigger=_number(options, "maxEventsPerTrigger", 1) if per_trigger else None,
            ranges=_ranges(options.get("ranges")),
            splits_payloads=_choice(options, "splitPayloads", "false", ("false", "true")) == "true",
        )


def _ranges(text: str | None) -> Mapping[str, tuple[int, int]] | None:
    if text is None:
        return None
    return {group: (first, last) for group, (first, last) in json.loads(text).items()}


def _number(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name)
    if text is None:
        return default
    if not text.isdecimal() or int(text) < 1:
        raise BadOption(name=name, value=text, expected="a whole number from 1")
    return int(text)


def _choice(options: Mapping[str, str], name: str, default: str, choices: Sequence[str]) -> str:
    text = options.get(name, default)
    if text not in choices:
        raise BadOption(name=name, value=text, expected=" or ".join(choices))
    return text


def _types(text: str | None) -> frozenset[str] | None:
    if text is None:
        return None
    names = frozenset(each.strip() for each in text.split(",") if each.strip())
    unknown = sorted(names - set(event_types()))
    if unknown or not names:
        raise BadOption(name="types", value=text, expected="some of " + ", ".join(event_types()))
    return names


class RollmqSource(DataSource):
    """`format("rollmq")`."""

    @classmethod
    def name(cls) -> str:
        return "rollmq"

    def schema(self) -> str:
        return EVENT_DDL

    def reader(self, schema: StructType) -> "RollmqReader":
        return RollmqReader(Options.of(self.options), _columns(schema))

    def streamReader(self, schema: StructType) -> "RollmqStreamReader":
        return RollmqStreamReader(Options.of(self.options), _columns(schema))


def _columns(schema: StructType) -> tuple[str, ...]:
    """The columns to make. Whoever gives a schema of some columns has the others not even parsed."""
    for field in schema.fields:
        kind = COLUMNS.get(field.name)
        if kind is None:
            raise BadOption(name="schema", value=field.name, expected="columns of docs/pipeline.md")
        found = field.dataType.simpleString()
        if "<" not in kind and found != kind:
            raise BadOption(name="schema", value=f"{field.name} {found}", expected=f"{field.name} {kind}")
    return tuple(field.name for field in schema.fields)


@dataclass
class Task(InputPartition):
    """What one task reads: parts of files, or a stretch of a live log."""

    parts: tuple[Part | LivePiece, ...]


class _Reading:
    """What batches and streams have in common: reading a task."""

    def __init__(self, options: Options, columns: tuple[str, ...]) -> None:
        self.options = options
        self.columns = columns
        self.types = options.types

    def read_task(self, task: Task) -> Iterator[Any]:
        """Batches of rows."""
        for part in task.parts:
            parser = LineParser(
                group=part.group,
                columns=self.columns,
                types=self.types,
                stops_at_damage=self.options.on_damage == FAIL,
                splits_payloads=self.options.splits_payloads,
            )
            if isinstance(part, LivePiece):
                yield from read_live(part, parser, token=self.options.token)
            else:
                yield from read_part(part, parser, verify=self.options.verify)

    def tasks(self, starts: dict[str, int], start: int, ends: Mapping[str, int], end: int) -> list[Task]:
        """What to read for each group's entries from its start to its end, both included."""
        options = self.options
        parts: list[Part] = []
        if options.places:
            found = find_segments(options.places, group=options.group)
            parts = [
                each
                for part in plan_parts(found, starts=starts, start=start, end=end)
                if (each := _clipped(part, ends.get(part.group, end))) is not None
            ]
        tasks = [Task(each) for each in pack(parts)]
        if options.server:
            live = find_end(options.server, token=options.token, group=options.group)
            first = max(last_indexes(parts).get(live.group, 0) + 1, starts.get(live.group, start))
            pieces = live_pieces(live, first, min(end, ends.get(live.group, end)))
            tasks += [Task((piece,)) for piece in pieces]
        return tasks


def _clipped(part: Part, last: int) -> Part | None:
    """The part as far as this entry; null when it lies behind it."""
    if part.first > last:
        return None
    if part.last <= last:
        return part
    if isinstance(part, Missing):
        return Missing(part.group, part.first, last, part.kind, part.reason)
    return Piece(
        part.group, part.first, last, part.segment_first, part.segment_last, part.urls, part.size_bytes
    )


class RollmqReader(DataSourceReader):
    """Reads once. Filters on index and type leave out whole segments, or lines before rows are made."""

    def __init__(self, options: Options, columns: tuple[str, ...]) -> None:
        self._reading = _Reading(options, columns)
        self._start, self._end = options.start, options.end

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        for each in filters:
            self._take(each)
            yield each  # Spark looks again: a row that says what was rejected is none of the wanted

    def _take(self, each: Filter) -> None:
        """Read less, if this filter allows it."""
        column = getattr(each, "attribute", None)
        if column == ("index",) and isinstance(getattr(each, "value", None), int):
            if isinstance(each, GreaterThan):
                self._start = max(self._start, each.value + 1)
            elif isinstance(each, GreaterThanOrEqual):
                self._start = max(self._start, each.value)
            elif isinstance(each, LessThan):
                self._end = min(self._end, each.value - 1)
            elif isinstance(each, LessThanOrEqual):
                self._end = min(self._end, each.value)
            elif isinstance(each, EqualTo):
                self._start, self._end = max(self._start, each.value), min(self._end, each.value)
        elif column == ("type",) and isinstance(each, EqualTo | In):
            wanted = frozenset(each.value if isinstance(each, In) else (each.value,)) - {REJECTED}
            held = self._reading.types
            self._reading.types = wanted if held is None else held & wanted

    def partitions(self) -> Sequence[Task]:
        ranges = self._reading.options.ranges
        if ranges is None:
            return self._reading.tasks({}, self._start, {}, self._end)
        starts = {group: max(first, self._start) for group, (first, _) in ranges.items()}
        ends = {group: min(last, self._end) for group, (_, last) in ranges.items()}
        return self._reading.tasks(starts, FOREVER, ends, FOREVER)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, Task)
        return self._reading.read_task(partition)


class RollmqStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads on and on. The offset names the next index of each group: {"7f3a…": 4711}.

    It stops before entries that are missing and not declared as a gap: they may be shipped later.
    """

    def __init__(self, options: Options, columns: tuple[str, ...]) -> None:
        self._reading = _Reading(options, columns)
        self._target: dict[str, int] | None = None

    def initialOffset(self) -> dict[str, int]:
        return {}

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._newest({})

    def getDefaultReadLimit(self) -> ReadLimit:
        count = self._reading.options.events_per_trigger
        return ReadMaxRows(count) if count else ReadAllAvailable()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        newest = self._target if self._target is not None else self._newest(start)
        left = limit.max_rows if isinstance(limit, ReadMaxRows) else FOREVER
        reached = dict(start)
        for group, following in sorted(newest.items()):
            first = start.get(group, self._reading.options.start)
            taken = min(max(following - first, 0), left)
            left -= taken
            if taken:
                reached[group] = first + taken
        return reached

    def reportLatestOffset(self) -> dict[str, int]:
        return self._newest({})

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[Task]:
        first = self._reading.options.start
        starts = {group: start.get(group, first) for group in end}
        ends = {group: following - 1 for group, following in end.items()}
        # A group that came after the end was taken is not read yet: it ends before its beginning.
        return self._reading.tasks(starts, FOREVER, ends, FOREVER)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, Task)
        return self._reading.read_task(partition)

    def commit(self, end: dict[str, int]) -> None:
        """Nothing is given back: whoever publishes what was read confirms it to the node."""

    def _newest(self, start: dict[str, int]) -> dict[str, int]:
        """The index behind the last entry of each group that can be read now."""
        options = self._reading.options
        ends: dict[str, int] = {}
        if options.places:
            parts = plan_parts(
                find_segments(options.places, group=options.group), starts=start, start=options.start
            )
            ends = last_indexes(until_hole(parts))
        if options.server:
            live: LiveEnd = find_end(options.server, token=options.token, group=options.group)
            ends[live.group] = max(ends.get(live.group, 0), live.last)
        return {group: min(last, options.end) + 1 for group, last in ends.items()}


def until_hole(parts: Iterable[Part]) -> list[Part]:
    """The parts of each group before the first entries that are missing and not declared to be."""
    stopped: set[str] = set()
    kept: list[Part] = []
    for part in parts:
        if isinstance(part, Missing) and part.kind == "missing":
            stopped.add(part.group)
        if part.group not in stopped:
            kept.append(part)
    return kept
