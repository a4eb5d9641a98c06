"""Markers: when a leader ends a segment (rule 5), and the census that it writes into it."""

import msgspec
import pytest

from rollmq.core.events import Counts, ExecCensus, SnapshotMarker
from rollmq.core.leader import SegmentFacts
from rollmq.core.line import decode_line
from rollmq.limits import (
    CENSUS_EXECS_MAX,
    CENSUS_WORKERS_MAX,
    MARKER_EVERY_BYTES,
    MARKER_EVERY_ENTRIES,
    MARKER_EVERY_US,
)
from tests.properties.hall import Hall

FACTS = SegmentFacts(1, 4711, "d" * 64, 3, "e" * 64)


def is_due(hall: Hall, *, first_index: int = 1, size_bytes: int = 100) -> bool:
    return hall.leader.is_marker_due(segment_first_index=first_index, segment_bytes=size_bytes)


def marked(hall: Hall) -> SnapshotMarker:
    """End the segment; the marker as it stands in the log."""
    hall.leader.desk.take_lines()
    hall.leader.mark(FACTS)
    (line,) = hall.leader.desk.take_lines()
    event = decode_line(line)
    assert isinstance(event, SnapshotMarker)
    return event


# -- when


def test_a_marker_is_due_a_minute_after_the_last_one() -> None:
    hall = Hall()
    marked(hall)
    first_index = hall.leader.desk.next_index
    hall.submit("c", "e")
    hall.pass_time(MARKER_EVERY_US - 1)
    assert not is_due(hall, first_index=first_index)
    hall.pass_time(1)
    assert is_due(hall, first_index=first_index)


@pytest.mark.parametrize("has_pipeline", [False, True])
def test_without_news_no_time_is_too_long_and_a_pipeline_is_no_news(has_pipeline: bool) -> None:
    """A quiet group writes nothing: a marker for each confirmation would be confirmed in turn, for ever."""
    hall = Hall()
    marked(hall)
    first_index = hall.leader.desk.next_index
    if has_pipeline:
        hall.leader.operate.confirm_pipeline("lake", 1, to=None)
    hall.pass_time(100 * MARKER_EVERY_US)
    assert not is_due(hall, first_index=first_index)


def test_a_marker_is_due_after_so_many_entries() -> None:
    hall = Hall()
    hall.machine.last_index = MARKER_EVERY_ENTRIES - 1
    assert not is_due(hall)
    hall.machine.last_index = MARKER_EVERY_ENTRIES
    assert is_due(hall)


def test_a_marker_is_due_after_so_many_bytes() -> None:
    hall = Hall()
    assert not is_due(hall, size_bytes=MARKER_EVERY_BYTES - 1)
    assert is_due(hall, size_bytes=MARKER_EVERY_BYTES)


# -- what


def test_a_marker_says_what_the_segment_is_and_how_much_of_everything_there_is() -> None:
    hall = Hall()
    hall.submit("c", "e")
    hall.worker("w", credit=1)
    (assigned,) = hall.told()
    hall.submit("c", "e")
    marker = marked(hall)
    assert (marker.segment_digest, marker.snapshot_index, marker.snapshot_digest) == ("d" * 64, 3, "e" * 64)
    assert marker.counts == Counts(queued=1, inflight=1, clients=1, workers=1)
    assert marker.counts == hall.machine.counts(), "a marker changes nothing"
    assert assigned.event.index < marker.index


def test_the_census_counts_queued_delayed_running_credit_and_capped_clients() -> None:
    hall = Hall()
    hall.cap("capped", cap=1)
    for _ in range(3):
        hall.submit("capped", "image.resize")
    hall.submit("free", "image.resize", delay_us=1_000_000)
    hall.submit("free", "mail.send")
    hall.worker("images", "job.assign.image.*", credit=9)
    hall.worker("all", "job.assign.image.>", "job.assign.nothing", credit=2)
    hall.told()
    by_exec = {census.exec: census for census in marked(hall).execs}
    assert by_exec == {
        "image.resize": ExecCensus("image.resize", 3, 1, 1, 10, 1),
        "mail.send": ExecCensus("mail.send", queued=1),
    }


def test_the_census_names_the_busiest_execs_and_no_more_than_its_bound() -> None:
    hall = Hall()
    for number in range(CENSUS_EXECS_MAX + 20):
        hall.submit("c", f"quiet{number}")
    for _ in range(3):
        hall.submit("c", "busiest")
    for _ in range(2):
        hall.submit("c", "busy")
    names = [census.exec for census in marked(hall).execs]
    assert names[:2] == ["busiest", "busy"]
    assert len(names) == CENSUS_EXECS_MAX


def test_the_census_names_the_connected_workers_and_no_more_than_its_bound() -> None:
    hall = Hall()
    for number in range(3):
        hall.worker(f"w{number}")
    hall.leader.liveness.broken("w1")
    assert marked(hall).workers == ["w0", "w2"], "w1 may come back, but is not connected"
    for number in range(3, CENSUS_WORKERS_MAX + 20):
        hall.worker(f"w{number}")
    assert len(marked(hall).workers) == CENSUS_WORKERS_MAX


def test_the_census_is_no_part_of_the_proof() -> None:
    """Another leader has other workers and credit: replicas agree on a marker whatever its census says."""
    hall = Hall()
    hall.submit("c", "e")
    marker = marked(hall)
    other = msgspec.structs.replace(marker, execs=[], workers=["somebody"], index=marker.index + 1)
    before = hall.machine.counts()
    hall.machine.apply(other)
    assert hall.machine.counts() == before
