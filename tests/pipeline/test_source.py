"""`format("rollmq")` in Spark: batches, streams, filters, columns."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.testing import assertDataFrameEqual

from rollmq.core.line import encode_line
from tests.docs_examples import EXAMPLES, GROUP
from tests.pipeline.archives import story

TYPES = [str(type(event).__struct_config__.tag) for event in EXAMPLES]


def indexes(frame: Any) -> list[int]:
    return sorted(row["index"] for row in frame.select("index").collect())


def test_the_source_is_known_without_registering_it(spark: Any, tmp_path: Path) -> None:
    story(tmp_path)
    found = spark.read.format("rollmq").load(str(tmp_path)).select("group", "index", "type")
    expected = spark.createDataFrame(
        [(GROUP, number, kind) for number, kind in enumerate(TYPES, start=1)], found.schema
    )
    assertDataFrameEqual(found, expected)


def test_start_end_and_types_choose_what_is_read(spark: Any, tmp_path: Path) -> None:
    story(tmp_path)
    reader = spark.read.format("rollmq").option("startIndex", "7").option("endIndex", 21)
    assert indexes(reader.load(str(tmp_path))) == list(range(7, 22))
    chosen = reader.option("types", "assign,ack").load(str(tmp_path))
    assert indexes(chosen) == [7, 10, 13, 15, 20, 21]


def test_filters_reach_the_source_and_change_no_answer(spark: Any, tmp_path: Path) -> None:
    story(tmp_path)
    frame = spark.read.format("rollmq").load(str(tmp_path))
    assert indexes(frame.where("index > 7 and index <= 10")) == [8, 9, 10]
    assert indexes(frame.where("type = 'assign' and index < 14")) == [7, 10, 13]
    assert indexes(frame.where("type in ('ack', 'noop')")) == [1, 12, 21]
    plan = frame.where("index = 5")._jdf.queryExecution().executedPlan().toString()
    assert "5" in plan


def test_a_schema_of_some_columns_is_all_that_is_read(spark: Any, tmp_path: Path) -> None:
    story(tmp_path)
    frame = spark.read.format("rollmq").schema("index bigint, exec string").load(str(tmp_path))
    assert frame.columns == ["index", "exec"]
    assert frame.where("index = 5").collect()[0]["exec"] == "image.resize"


def test_damage_stops_a_read_or_is_a_row(spark: Any, tmp_path: Path) -> None:
    path = story(tmp_path)
    path.write_bytes(path.read_bytes().replace(b"cat.png", b"dog.png"))
    with pytest.raises(PySparkException, match="entry 8"):
        spark.read.format("rollmq").load(str(tmp_path)).collect()
    rows = spark.read.format("rollmq").option("onDamage", "reject").load(str(tmp_path))
    bad = rows.where("type = 'rejected'").select("index", "reject.kind").collect()
    assert [tuple(row) for row in bad] == [(8, "crc"), (16, "crc")]


@pytest.mark.parametrize(
    ("name", "value"), [("startIndex", "0"), ("types", "ack,vanish"), ("verify", "maybe"), ("onDamage", "x")]
)
def test_an_option_that_means_nothing_is_refused(spark: Any, tmp_path: Path, name: str, value: str) -> None:
    story(tmp_path)
    with pytest.raises(PySparkException, match=name):
        spark.read.format("rollmq").option(name, value).load(str(tmp_path)).collect()


def test_a_stream_gives_each_entry_once_over_restarts(spark: Any, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    story(archive)
    seen: list[list[int]] = []

    def take(batch: Any, _number: int) -> None:
        seen.append(indexes(batch))

    def run() -> None:
        query = (
            spark.readStream.format("rollmq")
            .option("maxEventsPerTrigger", "10")
            .load(str(archive))
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)

    run()
    assert seen == [list(range(1, 11)), list(range(11, 21)), list(range(21, 29))]
    run()
    assert len(seen) == 3


def test_plain_read_json_works_on_a_sealed_segment_too(spark: Any, tmp_path: Path) -> None:
    path = story(tmp_path)
    frame = spark.read.schema("type string, index bigint").json(str(path))
    assert frame.where("index is not null").count() == len(EXAMPLES)


def test_integrity_can_be_checked_with_native_functions_alone(spark: Any, tmp_path: Path) -> None:
    path = story(tmp_path)
    good = "substring(value, 9, 8) = lower(lpad(hex(crc32(substring(value, 19))), 8, '0'))"
    assert spark.read.text(str(path)).where(good).count() == len(EXAMPLES) + 1
    assert encode_line(EXAMPLES[0]) in path.read_bytes()
