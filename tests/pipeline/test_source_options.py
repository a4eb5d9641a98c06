"""Each option of the source does what its row in the docs says. No Spark is needed to see it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import EqualTo, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from rollmq.pipeline.errors import BadOption, HistoryDamaged
from rollmq.pipeline.schema import COLUMNS
from rollmq.pipeline.source import Options, RollmqReader, RollmqStreamReader, Task
from rollmq.store.disk import OsDisk
from rollmq.store.gaps import Gap, declare_gap
from tests.docs_examples import EXAMPLES, GROUP
from tests.pipeline.archives import lines_of, story, two_segments

OTHER = "ee" * 16


def reader(folder: Path, *filters: Any, **options: Any) -> RollmqReader:
    given = {name: str(value) for name, value in options.items()}
    made = RollmqReader(Options.of({"path": str(folder), **given}), tuple(COLUMNS))
    assert list(made.pushFilters(list(filters))) == list(filters), "Spark looks at every row again"
    return made


def rows(made: RollmqReader | RollmqStreamReader, tasks: Any) -> Iterator[dict[str, Any]]:
    for task in tasks:
        for batch in made.read(task):
            yield from batch.to_pylist()


def indexes(folder: Path, *filters: Any, **options: Any) -> list[int]:
    made = reader(folder, *filters, **options)
    return [row["index"] for row in rows(made, made.partitions())]


def of_types(*names: str) -> list[int]:
    return [event.index for event in EXAMPLES if type(event).__struct_config__.tag in names]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([GreaterThan(("index",), 30)], [31, 32]),
        ([GreaterThanOrEqual(("index",), 31)], [31, 32]),
        ([LessThan(("index",), 3)], [1, 2]),
        ([LessThanOrEqual(("index",), 3), GreaterThan(("index",), 1)], [2, 3]),
        ([EqualTo(("index",), 29)], [29]),
        ([In(("type",), ("pause", "resume"))], of_types("pause", "resume")),
        ([EqualTo(("type",), "noop"), LessThan(("index",), 20)], of_types("noop")),
        ([EqualTo(("exec",), "x")], list(range(1, 33))),
    ],
)
def test_filters_on_index_and_type_are_done_before_rows_are_made(
    tmp_path: Path, filters: list[Any], expected: list[int]
) -> None:
    two_segments(tmp_path)
    assert indexes(tmp_path, *filters) == expected


def test_a_filter_on_index_leaves_whole_segments_unopened(tmp_path: Path) -> None:
    _, second = two_segments(tmp_path)
    second.write_bytes(b"rotten")
    assert indexes(tmp_path, LessThan(("index",), 29)) == list(range(1, 29))
    with pytest.raises(HistoryDamaged):
        indexes(tmp_path, LessThan(("index",), 30))


def test_the_group_option_reads_that_group_alone(tmp_path: Path) -> None:
    two_segments(tmp_path)
    two_segments(tmp_path, group=OTHER)
    assert len(indexes(tmp_path)) == 64
    made = reader(tmp_path, group=OTHER)
    assert {row["group"] for row in rows(made, made.partitions())} == {OTHER}


@pytest.mark.parametrize(("verify", "is_seen"), [("digest", True), ("crc", True), ("none", False)])
def test_verify_says_how_much_is_proved(tmp_path: Path, verify: str, is_seen: bool) -> None:
    path = story(tmp_path)
    path.write_bytes(path.read_bytes().replace(b"cat.png", b"dog.png"))
    if is_seen:
        with pytest.raises(HistoryDamaged):
            indexes(tmp_path, verify=verify)
    else:
        assert indexes(tmp_path, verify=verify) == list(range(1, 29))


@pytest.mark.parametrize(("verify", "is_seen"), [("digest", True), ("crc", True), ("none", False)])
def test_the_digest_sees_lines_that_were_put_in_anothers_place(
    tmp_path: Path, verify: str, is_seen: bool
) -> None:
    """Somebody rewrote a line, crc and all."""
    path = story(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    (noop,) = lines_of([type(EXAMPLES[0])(1, 1, EXAMPLES[0].at_us + 1)])
    path.write_bytes(b"".join([lines[0], noop, *lines[2:]]))
    found = list(rows(made := reader(tmp_path, verify=verify, onDamage="reject"), made.partitions()))
    assert [row["reject"]["kind"] for row in found if row["reject"]] == ["digest"] * is_seen


def test_a_hole_stops_a_read_and_a_declared_gap_is_a_row(tmp_path: Path) -> None:
    first, _ = two_segments(tmp_path / "history")
    first.unlink()
    state = tmp_path / "state"
    (tmp_path / "history" / GROUP).rename(tmp_path / "moved")
    state.mkdir()
    (tmp_path / "moved").rename(state / "history")
    with pytest.raises(HistoryDamaged, match="no file holds"):
        indexes(state)
    declare_gap(OsDisk(state), Gap(1, 28, "retention"))
    found = list(rows(made := reader(state), made.partitions()))
    assert [(row["index"], (row["reject"] or {}).get("kind")) for row in found] == [
        (1, "gap"),
        (29, None),
        (30, None),
        (31, None),
        (32, None),
    ]


def test_start_and_end_are_numbers_from_one(tmp_path: Path) -> None:
    story(tmp_path)
    assert indexes(tmp_path, startIndex=27, endIndex=99) == [27, 28]
    for wrong in ("0", "-1", "x", "1.5"):
        with pytest.raises(BadOption):
            indexes(tmp_path, startIndex=wrong)


# -- the stream


def stream(folder: Path, **options: Any) -> RollmqStreamReader:
    given = {name: str(value) for name, value in options.items()}
    return RollmqStreamReader(Options.of({"path": str(folder), **given}), tuple(COLUMNS))


def batches(made: RollmqStreamReader, start: dict[str, int] | None = None) -> list[list[int]]:
    """What a stream gives, batch by batch, until there is nothing new."""
    offset, found = start if start is not None else made.initialOffset(), []
    while True:
        reached = made.latestOffset(offset, made.getDefaultReadLimit())
        if reached == offset:
            return found
        tasks = [task for task in made.partitions(offset, reached) if isinstance(task, Task)]
        found.append([row["index"] for row in rows(made, tasks)])
        offset = reached


def test_max_events_per_trigger_bounds_a_batch_and_loses_nothing(tmp_path: Path) -> None:
    two_segments(tmp_path)
    assert batches(stream(tmp_path)) == [list(range(1, 33))]
    assert isinstance(stream(tmp_path).getDefaultReadLimit(), ReadAllAvailable)
    made = stream(tmp_path, maxEventsPerTrigger=15)
    assert isinstance(made.getDefaultReadLimit(), ReadMaxRows)
    assert batches(made) == [list(range(1, 16)), list(range(16, 31)), [31, 32]]


def test_a_stream_begins_and_ends_where_it_was_told(tmp_path: Path) -> None:
    two_segments(tmp_path)
    assert batches(stream(tmp_path, startIndex=27, endIndex=30)) == [[27, 28, 29, 30]]
    assert batches(stream(tmp_path, startIndex=5), {GROUP: 31}) == [[31, 32]], "the offset goes first"


def test_a_bounded_batch_takes_of_several_groups_in_turn(tmp_path: Path) -> None:
    two_segments(tmp_path)
    two_segments(tmp_path, group=OTHER)
    found = batches(stream(tmp_path, maxEventsPerTrigger=40))
    assert [len(each) for each in found] == [40, 24]
    assert sorted(index for each in found for index in each) == sorted([*range(1, 33)] * 2)


def test_a_stream_stops_before_a_hole_and_goes_on_when_it_is_filled(tmp_path: Path) -> None:
    first, _ = two_segments(tmp_path)
    held = first.read_bytes()
    first.unlink()
    made = stream(tmp_path)
    assert batches(made) == []
    first.write_bytes(held)
    assert batches(made) == [list(range(1, 33))]


def test_a_stream_that_ends_by_itself_leaves_what_came_after_it_began(tmp_path: Path) -> None:
    _, second = two_segments(tmp_path)
    held = second.read_bytes()
    second.unlink()
    made = stream(tmp_path)
    made.prepareForTriggerAvailableNow()
    second.write_bytes(held)
    assert batches(made) == [list(range(1, 29))]
    assert batches(stream(tmp_path), {GROUP: 29}) == [[29, 30, 31, 32]]
