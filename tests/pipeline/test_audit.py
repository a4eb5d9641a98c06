"""Every promise that is broken in a history is found, and an honest history has nothing to find."""

import json
from pathlib import Path
from typing import Any

import msgspec

from rollmq.core import events as ev
from rollmq.pipeline import audit
from rollmq.pipeline.auditing import run_audit
from rollmq.pipeline.runs import History, Sources
from rollmq.pipeline.warehouse import Warehouse
from tests.docs_examples import EXAMPLES, JOB, OTHER_JOB, THIRD_JOB, at
from tests.pipeline.archives import lines_of, two_segments, write_segments
from tests.pipeline.storms import SEEDS, storm

Story = list[ev.AnyEvent]


def put(story: Story, index: int, event: ev.AnyEvent) -> Story:
    """The story with another event in this place."""
    return [event if each.index == index else each for each in story]


def change(story: Story, index: int, **fields: Any) -> Story:
    return put(story, index, msgspec.structs.replace(story[index - 1], **fields))


def noop(index: int) -> ev.Noop:
    return ev.Noop(index, story_of()[index - 1].term, at(index))


def story_of() -> Story:
    return list(EXAMPLES)


def planted() -> dict[str, tuple[Story, tuple[str, str]]]:
    """Of each group: a history in which one thing is wrong, and what must be found: promise and words."""
    good = story_of()
    done, second = good[20], good[14]
    assert isinstance(done, ev.Ack)
    assert isinstance(second, ev.Assign)
    timed_out = good[10]
    late = ev.Ack(27, 2, at(955), OTHER_JOB, (2, 20), 1, "w1", started=True, tries=1, held_us=1, run_us=1)
    client = ev.Client(17, 2, at(700), "webshop", cap=1)
    two = put(put(good, 17, client), 18, ev.Enqueue(18, 2, at(900), "f" * 32, "webshop", "x"))
    both = put(two, 27, ev.Noop(27, 2, at(955)))
    return {
        "a0": (good, ("", "")),
        "a1": (put(good, 22, ev.Noop(22, 2, at(903))), ("P1", "cancel of a job that was never accepted")),
        "a2": (change(good, 28, counts=ev.Counts(queued=1, finished=3)), ("P6", "queued 1 / 0")),
        "a3": (put(good, 27, late), ("P2", "ack after the job had ended by cancel")),
        "a4": (
            put(good, 14, msgspec.structs.replace(second, index=14, attempt=4)),
            ("P3", "another attempt"),
        ),
        "a5": (change(good, 15, attempt=7), ("P3", "attempt 7 where 4 comes")),
        "a6": (change(good, 16, tries=9), ("P3", "9 tries of 3")),
        "a7": (change(good, 15, credit_left=-1), ("P4", "w2 had no credit")),
        "a8": (
            put(good, 12, msgspec.structs.replace(timed_out, index=12, term=2)),
            ("no-op", "timeout_requeue"),
        ),
        "a9": (change(good, 28, counts=ev.Counts(no_ops=2, finished=3)), ("no-op", "2 no-op events")),
        "aa": (change(good, 27, at_us=at(1)), ("whole", "log time falls")),
        "ab": (change(good, 27, term=1), ("whole", "the term falls")),
        "ac": (_over_the_cap(both), ("P4", "2 in flight, its cap is 1")),
        "ad": (change(good, 21, fence=(2, 19)), ("no-op", "ack changes nothing after assign")),
        "ae": (
            put(good, 9, msgspec.structs.replace(good[4], index=9, at_us=good[8].at_us)),
            ("no-op", "enqueue changes nothing after fail_requeue"),
        ),
        "af": (
            put(good, 27, ev.Cancel(27, 2, at(955), JOB, by="ops", why="late")),
            ("P2", "cancel after the job had ended by ack"),
        ),
        "ba": (
            put(good, 27, ev.Redrive(27, 2, at(955), [JOB], by="ops")),
            ("P2", "redrive after the job had ended by ack"),
        ),
        "bb": (_with_default_cap(_over_the_cap(both)), ("P4", "2 in flight, its cap is 1")),
    }


def _with_default_cap(story: Story) -> Story:
    """The client has no cap of its own, and the group's settings say 1."""
    story = change(story, 3, cap_default=1)
    return put(put(story, 4, noop(4)), 17, noop(17))


def _over_the_cap(story: Story) -> Story:
    """While the first job runs again, the client's other job is assigned too, with a cap of 1."""
    story = put(story, 20, msgspec.structs.replace(story[19], index=20))
    assign = ev.Assign(21, 2, at(902), "f" * 32, "w1", 1, at(900), 3)
    ack = msgspec.structs.replace(EXAMPLES[20], index=22, at_us=at(903))
    end = ev.Ack(23, 2, at(904), "f" * 32, (2, 21), 1, "w1", started=True, tries=1, held_us=1, run_us=1)
    story = put(put(put(story, 21, assign), 22, ack), 23, end)
    return story


def _with_holes(archive: Path) -> dict[str, tuple[str, str]]:
    """A group whose first segment is gone, and one that declares so."""
    for name in ("bc", "bd"):
        first, _ = two_segments(archive, group=group_of(name))
        first.unlink()
    gap = {"gaps": [{"first": 1, "last": 28, "reason": "retention"}]}
    (archive / group_of("bd") / "gaps.json").write_text(json.dumps(gap))
    return {"bc": ("whole", "missing: no file holds these entries"), "bd": ("", "")}


def group_of(name: str) -> str:
    return name * 16


def build(spark: Any, tmp_path: Path) -> History:
    return History(spark, Warehouse(tmp_path / "warehouse"))


def test_each_planted_violation_is_found_and_nothing_else(spark: Any, tmp_path: Path) -> None:
    for name, (story, _) in planted().items():
        group = group_of(name)
        write_segments(tmp_path / "archive" / group, lines_of(story, group=group), group=group)
    history = build(spark, tmp_path)
    expected = {name: words for name, (_, words) in planted().items()} | _with_holes(tmp_path / "archive")
    taken = history.update(Sources(places=(str(tmp_path / "archive"),), skips_missing=True))
    assert taken.rejected == 2, "the two holes, and nothing else"
    report = run_audit(history, places=[str(tmp_path / "archive")])
    rows = [row.asDict() for row in history.table("violations").collect()]
    assert report.violations == len(rows)
    for name, (promise, words) in expected.items():
        found = [(row["promise"], row["what"]) for row in rows if row["group"] == group_of(name)]
        if not promise:
            assert found == [], name
        else:
            assert any(each == promise and words in what for each, what in found), (name, found)


def test_honest_histories_with_crashes_in_them_have_nothing_to_find(spark: Any, tmp_path: Path) -> None:
    receipts = tmp_path / "receipts.jsonl"
    with receipts.open("w") as file:
        for seed in SEEDS:
            each = storm(seed)
            for copy in ("one", "two"):
                write_segments(tmp_path / copy / each.group, each.lines, group=each.group)
            for line in each.lines:
                event = json.loads(line)
                if event["type"] == "enqueue":
                    file.write(json.dumps({"job_id": event["job_id"], "told": "accepted"}) + "\n")
                elif event["type"] == "ack":
                    file.write(json.dumps({"job_id": event["job_id"], "told": "done"}) + "\n")
    history = build(spark, tmp_path)
    places = (str(tmp_path / "one"), str(tmp_path / "two"))
    assert history.update(Sources(places=places)).is_clean
    report = run_audit(history, places=places, receipts=str(receipts))
    assert report.first == []
    assert report.violations == 0
    assert report.receipts > 100
    assert report.jobs == sum(line.count(b'"type":"enqueue"') for seed in SEEDS for line in storm(seed).lines)


def test_a_receipt_without_its_job_and_a_lie_about_its_end_are_found(spark: Any) -> None:
    happened = [
        (1, "enqueue", JOB, None, True), (2, "enqueue", OTHER_JOB, None, True),
        (3, "ack", JOB, "assign", True), (4, "dlq", OTHER_JOB, "assign", True),
        (5, "drop", OTHER_JOB, "dlq", True),
        (6, "ack", OTHER_JOB, "drop", False), (7, "cancel", THIRD_JOB, None, False),
    ]  # fmt: skip
    steps = spark.createDataFrame(
        [("g", *each) for each in happened],
        "group string, index long, type string, job_id string, before string, is_legal boolean",
    )
    lost, early = "019a982c" + "0" * 24, "f" * 32
    told = [
        (JOB, "accepted", 1), (JOB, "done", 2), (OTHER_JOB, "accepted", 1), (OTHER_JOB, "done", 2),
        (OTHER_JOB, "dead", 2), (OTHER_JOB, "dropped", 3), (THIRD_JOB, "cancelled", 4),
        (lost, "accepted", 1), (early, "accepted", 1), (OTHER_JOB, "refused", 1),
    ]  # fmt: skip
    receipts = spark.createDataFrame(told, "job_id string, told string, at_us long")
    checks = audit.receipts_are_in_the_log(receipts, steps, at(1000))
    found = sorted(
        (row["promise"], row["job_id"], row["what"]) for check in checks for row in check.collect()
    )
    assert found == [
        ("P1", lost, "a client holds 'accepted', and the job is not in the log"),
        ("P1", THIRD_JOB, "a client holds 'cancelled', and the job is not in the log"),
        ("P2", OTHER_JOB, "a client was told 'done', and the log does not say so"),
    ]


def test_a_job_that_is_in_no_table_is_found(spark: Any) -> None:
    accepted = spark.createDataFrame(
        [("g", 1, "enqueue", JOB)], "group string, index long, type string, job_id string"
    )
    jobs = spark.createDataFrame([("g", OTHER_JOB)], "group string, job_id string")
    (row,) = audit.jobs_are_in_the_tables(accepted, jobs).collect()
    assert (row["promise"], row["job_id"]) == ("P1", JOB)


def test_copies_that_differ_and_copies_that_rot_are_found(spark: Any, tmp_path: Path) -> None:
    group = group_of("b0")
    good = story_of()
    other = change(good, 22, exec="mail.other")
    write_segments(tmp_path / "one" / group, lines_of(good, group=group), group=group)
    write_segments(tmp_path / "two" / group, lines_of(other, group=group), group=group)
    (path,) = write_segments(tmp_path / "three" / group, lines_of(good, group=group), group=group)
    path.write_bytes(path.read_bytes().replace(b"cat.png", b"dog.png", 1))
    frames = []
    for name in ("one", "two", "three"):
        rows = spark.read.format("rollmq").option("types", "snapshot_marker").option("onDamage", "reject")
        frames.append(rows.load(str(tmp_path / name)).selectExpr("*", f"'{name}' as place"))
    markers = frames[0].unionByName(frames[1]).unionByName(frames[2])
    found = [row["what"] for check in audit.replicas_are_equal(markers) for row in check.collect()]
    assert any(what.startswith("crc") and "three" in what for what in found)
    assert "copies differ: one, three, two" in found


def test_a_hole_and_an_entry_that_is_there_twice_are_found(spark: Any) -> None:
    rows = [("g", index, 1, index) for index in (1, 2, 2, 3, 70_000, 70_001, 70_005)]
    events = spark.createDataFrame(rows, "group string, index long, term long, at_us long")
    told = "group string, index long, last_index long, kind string, reason string, place string"
    rejects = spark.createDataFrame([("g", 4, 69_999, "gap", "declared", "")], told)
    found = sorted(
        (row["index"], row["what"])
        for check in audit.log_is_whole(events, rejects)
        for row in check.collect()
    )
    assert found == [(2, "the entry is there twice"), (70_005, "entries 70002 to 70004 are in no table")]
