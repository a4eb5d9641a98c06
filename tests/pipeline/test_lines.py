"""Lines become rows exactly, whatever types they have; and what is no sound line never vanishes."""

import json
from typing import Any

import msgspec
import pytest

from rollmq.core.line import encode_line, seal
from rollmq.pipeline.errors import HistoryDamaged
from rollmq.pipeline.lines import RUNS_MAX, LineParser
from rollmq.pipeline.schema import (
    COLUMNS,
    IN_THE_LINE,
    SETTING_NAMES,
    arrow_type,
    event_types,
)
from tests.docs_examples import EXAMPLES, GROUP


def rows_of(block: bytes, first_index: int = 1, **options: Any) -> list[dict[str, Any]]:
    parser = LineParser(group=GROUP, **options)
    batches = parser.parse(block, first_index=first_index, place="f", first_line=2, checks_crc=True)
    return [row for batch in batches for row in batch.to_pylist()]


def expected_row(event: Any) -> dict[str, Any]:
    """The row of an event, made from the struct: defaults filled in, nothing guessed."""
    values = json.loads(msgspec.json.encode(event))
    full = {field: getattr(event, field) for field in event.__struct_fields__} | values
    row: dict[str, Any] = dict.fromkeys(COLUMNS)
    row |= {"group": GROUP, "type": values["type"]}
    for name in COLUMNS:
        source = IN_THE_LINE.get(name, name)
        if name != "group" and source in full and row[name] is None:
            value = full[source]
            if isinstance(value, bytes):
                value = ""  # a default; what is not empty comes from the line, in base64
            row[name] = value
    if "fence" in full and full["fence"] is not None:
        row["fence_term"], row["fence_index"] = full["fence"]
    if values["type"] == "settings":
        row["settings"] = {name: full[name] for name in SETTING_NAMES}
    if row["headers"] is not None:
        row["headers"] = list(row["headers"].items())
    return row


def test_every_event_has_its_row_with_all_defaults_filled_in() -> None:
    found = rows_of(b"".join(map(encode_line, EXAMPLES)))
    assert [row["type"] for row in found] == [str(type(e).__struct_config__.tag) for e in EXAMPLES]
    for event, row in zip(EXAMPLES, found, strict=True):
        expected = expected_row(event)
        for name in COLUMNS:
            if name in (
                "at",
                "counts",
                "execs",
                "members",
                "backoff",
                "payload",
                "result",
                "patterns",
                "workers",
            ):
                continue
            assert row[name] == expected[name], (row["type"], name)
        assert int(row["at"].timestamp() * 1_000_000) == event.at_us
    assert found[4]["payload"] == "eyJ1cmwiOiJjYXQucG5nIiwid2lkdGgiOjMwMH0="
    assert found[4]["backoff"]["first_us"] == 2_000_000
    assert found[27]["counts"]["finished"] == 3
    assert found[27]["execs"][0]["exec"] == "image.resize"
    assert found[1]["members"][0]["node_id"].startswith("0b7c2f54")


def test_every_field_of_every_event_has_a_column() -> None:
    for name, kind in event_types().items():
        for field in kind.__struct_fields__:
            if field == "fence" or (name == "settings" and field in SETTING_NAMES):
                continue
            column = "members_group" if (name, field) == ("members", "group") else field
            assert column in COLUMNS, f"{name}.{field} has no column"
            assert arrow_type(COLUMNS[column]) is not None


def test_the_rows_are_the_same_however_the_lines_are_cut_into_runs() -> None:
    lines = [encode_line(event) for event in EXAMPLES]
    together = rows_of(b"".join(lines))
    one_by_one = [
        row for number, line in enumerate(lines, start=1) for row in rows_of(line, first_index=number)
    ]
    assert together == one_by_one
    crowd = [msgspec.structs.replace(EXAMPLES[5], index=n + 1) for n in range(RUNS_MAX + 5)]
    assert len(rows_of(b"".join(map(encode_line, crowd)))) == RUNS_MAX + 5


def test_only_the_columns_that_are_wanted_are_made() -> None:
    found = rows_of(b"".join(map(encode_line, EXAMPLES)), columns=("index", "exec"))
    assert found[4] == {"index": 5, "exec": "image.resize"}


def test_only_the_types_that_are_wanted_are_given() -> None:
    found = rows_of(b"".join(map(encode_line, EXAMPLES)), types=frozenset({"ack", "pause"}))
    assert [row["index"] for row in found] == [17, 21]


@pytest.mark.parametrize("at", [0, 1, 13, 26, 27])
def test_a_line_with_a_flipped_bit_is_rejected_alone(at: int) -> None:
    lines = [encode_line(event) for event in EXAMPLES]
    lines[at] = lines[at][:-5] + bytes([lines[at][-5] ^ 1]) + lines[at][-4:]
    found = rows_of(b"".join(lines), stops_at_damage=False)
    bad = [row for row in found if row["type"] == "rejected"]
    assert len(found) == len(lines)
    assert [(row["index"], row["reject"]["kind"], row["reject"]["line"]) for row in bad] == [
        (at + 1, "crc", at + 2)
    ]


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b'{"type":"vanish","index":2,"term":1,"at_us":5}', "unknown_type"),
        (b'{"type":"noop","index":3,"term":1,"at_us":5}', "index"),
        (b'{"type":"noop","index":"two","term":1,"at_us":5}', "json"),
        (b'{"type":"noop","index":2,"term":1}', "json"),
        (b'{"type":"noop","index":2,"term":1,"at_us":5', "json"),
        (b'{"type":"ack","index":2,"term":1,"at_us":5,"job_id":"a","fence":[1]}', "json"),
    ],
)
def test_a_sound_line_that_is_no_event_of_this_version_is_rejected(body: bytes, kind: str) -> None:
    lines = [encode_line(EXAMPLES[0]), seal(body), encode_line(EXAMPLES[2])]
    found = rows_of(b"".join(lines), stops_at_damage=False)
    assert [row["type"] for row in found] == ["noop", "rejected", "settings"]
    assert found[1]["reject"]["kind"] == kind


def test_damage_stops_the_read_unless_rejects_are_asked_for() -> None:
    with pytest.raises(HistoryDamaged, match=r"f:2: entry 1: crc"):
        rows_of(b'{"crc":"00000000","type":"noop"}\n')


def test_fields_of_a_newer_release_are_kept_as_they_are() -> None:
    body = (
        b'{"type":"enqueue","index":1,"term":1,"at_us":5,"job_id":"a","client_id":"c","exec":"e",'
        b'"shape":{"when":"2026-01-01T00:00:00"},"backoff":{"first_us":7,"mood":"calm"}}'
    )
    (row,) = rows_of(seal(body))
    assert dict(row["extra"]) == {
        "shape": '{"when": "2026-01-01T00:00:00"}',
        "backoff": '{"first_us": 7, "mood": "calm"}',
    }
    assert row["backoff"]["first_us"] == 7


def test_headers_are_read_as_strings_whatever_they_look_like() -> None:
    headers = {"when": "2026-01-01T00:00:00", "n": "1", 'quo"te': "a\\b", "": "}"}
    event = msgspec.structs.replace(EXAMPLES[4], index=1, headers=headers)
    assert dict(rows_of(encode_line(event))[0]["headers"]) == headers
