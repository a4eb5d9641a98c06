"""The log is written in batches, split at markers, cut, sealed and read back as the very bytes."""

import hashlib
from random import Random

import pytest

from rollmq.core.raft_ready import HardState, Write
from rollmq.core.segment_digest import SegmentDigest, header_line
from rollmq.errors import EntriesGone
from rollmq.limits import SPARSE_EVERY_BYTES, WAL_BATCH_BYTES_MAX
from rollmq.store import layout
from rollmq.store.mark import Mark, read_mark
from tests.sim.sim_disk import SimDisk
from tests.store.making import GROUP, LogMaker, filled_store, lines_of, new_store, open_store


def test_what_was_written_is_read_back_after_a_restart() -> None:
    disk, log = SimDisk(), LogMaker()
    store = filled_store(disk, [log.enqueues(3), log.enqueues(1), log.enqueues(5)])
    assert store.next_index == 10
    store.close()
    _, recovered = open_store(disk)
    assert lines_of(recovered) == log.lines
    assert (recovered.last_index, recovered.last_term, recovered.last_at_us) == (9, 1, 9_000_000)


def test_nothing_behind_a_marker_goes_into_its_file() -> None:
    disk, log = SimDisk(), LogMaker()
    batch = [*log.enqueues(2), log.marker(), *log.enqueues(1), log.marker(), log.marker(), *log.enqueues(2)]
    filled_store(disk, [batch])
    files = {name: content for name, content in disk.files().items() if name.startswith("wal/")}
    assert files == {
        layout.open_name(1): header_line(group=GROUP, first_index=1) + b"".join(log.lines[:3]),
        layout.open_name(4): header_line(group=GROUP, first_index=4) + b"".join(log.lines[3:5]),
        layout.open_name(6): header_line(group=GROUP, first_index=6) + log.lines[5],
        layout.open_name(7): header_line(group=GROUP, first_index=7) + b"".join(log.lines[6:]),
    }


def test_the_next_file_is_made_only_once_the_marker_is_durable() -> None:
    disk, log = SimDisk(), LogMaker()
    calls: list[str] = []
    store = new_store(disk)
    disk.on_call = calls.append
    store.write([log.enqueue(), log.marker(), log.enqueue()], 1)
    first, second = layout.open_name(1), layout.open_name(3)
    assert calls[calls.index(f"write {first}", 3) :] == [
        f"write {first}",
        f"sync {first}",
        "write synced",
        f"create {second}",
        f"write {second}",
        f"sync {second}",
        "sync folder wal",
        "write synced",
        "sync synced",
        f"write {second}",
        f"sync {second}",
        "write synced",
    ]


def test_a_batch_costs_one_sync() -> None:
    disk, log = SimDisk(), LogMaker()
    store = filled_store(disk, [log.enqueues(1)])
    calls: list[str] = []
    disk.on_call = calls.append
    store.write(log.enqueues(500), 2)
    name = layout.open_name(1)
    assert calls == [f"write {name}", f"sync {name}", "write synced"]


def test_a_batch_larger_than_a_torn_tail_may_be_is_synced_in_parts() -> None:
    disk, log = SimDisk(), LogMaker()
    store = new_store(disk)
    calls: list[str] = []
    disk.on_call = calls.append
    lines = log.enqueues(5, payload_bytes=5 * 1024 * 1024)
    assert sum(map(len, lines)) > WAL_BATCH_BYTES_MAX
    store.write(lines, 1)
    name = layout.open_name(1)
    assert calls.count(f"sync {name}") == 4  # the header, three parts


def test_the_mark_follows_every_sync() -> None:
    disk, log = SimDisk(), LogMaker()
    store = filled_store(disk, [log.enqueues(2)])
    size_bytes = len(disk.content(layout.open_name(1)))
    assert read_mark(disk) == Mark(1, size_bytes, 2)
    store.write([log.marker()], 3)
    store.write(log.enqueues(1), 4)
    assert read_mark(disk) == Mark(4, len(disk.content(layout.open_name(4))), 4)
    store.cut(2)
    kept = len(header_line(group=GROUP, first_index=1)) + len(log.lines[0])
    assert read_mark(disk) == Mark(1, kept, 1)


@pytest.mark.parametrize("from_index", range(1, 10))
def test_a_cut_forgets_exactly_the_entries_from_there_on(from_index: int) -> None:
    disk, log = SimDisk(), LogMaker()
    store = filled_store(
        disk, [[*log.enqueues(2), log.marker(), *log.enqueues(2), log.marker(), *log.enqueues(2)]]
    )
    before = log.lines[: from_index - 1]
    store.cut(from_index)
    assert store.next_index == from_index
    log.cut(from_index)
    store.save_vote(HardState(term=2))
    store.write(log.enqueues(3), from_index)
    assert store.segment_digest().hexdigest() == log._digest.hexdigest()
    store.close()
    _, recovered = open_store(disk)
    assert lines_of(recovered) == before + log.lines[from_index - 1 :]


def test_what_is_sealed_is_never_cut() -> None:
    disk, log = SimDisk(), LogMaker()
    store = filled_store(disk, [[log.enqueue(), log.marker(), log.enqueue()]])
    store.seal(2)
    with pytest.raises(AssertionError):
        store.cut(2)
    store.cut(3)
    assert store.next_index == 3


def test_only_segments_whose_marker_is_committed_are_sealed() -> None:
    disk, log = SimDisk(), LogMaker()
    store = filled_store(disk, [[log.enqueue(), log.marker(), log.enqueue(), log.marker(), log.enqueue()]])
    assert store.seal(1) == []
    assert [name.name for name in store.seal(3)] == [layout.sealed_name(1, 2)]
    assert [name.name for name in store.seal(5)] == [layout.sealed_name(3, 4)]
    assert disk.names_in("wal") == ["events-0000000000000005.log"]
    assert disk.content(layout.sealed_name(3, 4)).endswith(log.lines[3])


def test_sealed_segments_are_the_same_bytes_however_the_lines_came() -> None:
    """Boundaries are in the log: another grouping into batches changes no file."""
    log = LogMaker()
    for _ in range(4):
        log.enqueues(7)
        log.marker()
    histories = []
    for seed in range(3):
        random, disk, at = Random(seed), SimDisk(), 0
        store = new_store(disk)
        while at < len(log.lines):
            count = random.randint(1, 12)
            store.write(log.lines[at : at + count], at + 1)
            at += count
        store.seal(len(log.lines))
        histories.append({name: disk.content(name) for name in disk.files() if name.startswith("history/")})
    assert len(histories[0]) == 4
    assert histories[0] == histories[1] == histories[2]


def test_the_segment_digest_is_that_of_the_file_before_the_marker() -> None:
    disk, log = SimDisk(), LogMaker()
    store = filled_store(disk, [[*log.enqueues(2), log.marker(), *log.enqueues(3)]])
    content = disk.content(layout.open_name(4))
    assert store.segment_digest().hexdigest() == hashlib.sha256(content).hexdigest()
    store.close()
    reopened, _ = open_store(disk)
    digest = reopened.segment_digest()
    assert digest.hexdigest() == hashlib.sha256(content).hexdigest()
    assert digest.next_index == 7
    digest.add(log.enqueue())
    assert reopened.segment_digest().hexdigest() == hashlib.sha256(content).hexdigest(), "it was a copy"


def test_a_digest_begins_anew_behind_a_marker() -> None:
    log = LogMaker()
    digest = SegmentDigest(group=GROUP, first_index=1)
    digest.add_all([*log.enqueues(2), log.marker()])
    assert (digest.first_index, digest.next_index) == (4, 4)
    assert digest.hexdigest() == hashlib.sha256(header_line(group=GROUP, first_index=4)).hexdigest()


# -- reading


@pytest.fixture(scope="module")
def long_log() -> tuple[SimDisk, LogMaker]:
    """Segments larger than what one remembered offset covers, lines from small to larger than that."""
    disk, log, random = SimDisk(), LogMaker(), Random(3)
    store = new_store(disk)
    for _ in range(3):
        for _ in range(20):
            sizes = [random.choice((0, 100, 5000)) for _ in range(10)]
            store.write([log.enqueue(size) for size in sizes], store.next_index)
        store.write([log.enqueue(3 * SPARSE_EVERY_BYTES), log.marker()], store.next_index)
    store.write(log.enqueues(5), store.next_index)
    store.seal(450)
    store.close()
    return disk, log


@pytest.mark.parametrize("bytes_max", [1, 1000, 100_000, 10_000_000])
def test_any_entry_is_found_in_open_and_sealed_segments(
    long_log: tuple[SimDisk, LogMaker], bytes_max: int
) -> None:
    disk, log = long_log
    store, _ = open_store(disk)
    for first in range(1, len(log.lines) + 1, 1 if bytes_max == 1 else 17):
        lines = store.read_lines(first, bytes_max)
        assert lines == log.lines[first - 1 : first - 1 + len(lines)]
        assert len(lines) == 1 or sum(map(len, lines)) <= bytes_max
    store.close()


def test_reading_on_and_on_gives_the_whole_log(long_log: tuple[SimDisk, LogMaker]) -> None:
    disk, log = long_log
    store, _ = open_store(disk)
    lines: list[bytes] = []
    while more := store.read_lines(len(lines) + 1, 50_000):
        lines += more
    assert lines == log.lines
    store.close()


def test_what_was_written_anew_behind_a_cut_is_found_where_it_now_is() -> None:
    disk, log = SimDisk(), LogMaker()
    store = filled_store(disk, [log.enqueues(1, payload_bytes=SPARSE_EVERY_BYTES) for _ in range(6)])
    store.cut(3)
    log.cut(3)
    store.save_vote(HardState(term=2))
    for _ in range(6):
        store.write(log.enqueues(1, payload_bytes=2 * SPARSE_EVERY_BYTES), store.next_index)
    for first in range(1, 9):
        assert store.read_lines(first, 1) == [log.lines[first - 1]]


def test_entries_that_are_not_there_are_refused_with_what_is_there() -> None:
    disk, log = SimDisk(), LogMaker()
    store = filled_store(disk, [log.enqueues(3)])
    assert store.read_lines(4, 100) == []
    for index in (0, 5):
        with pytest.raises(EntriesGone, match="holds 1 to 3"):
            store.read_lines(index, 100)


# -- what the Raft core asks for


def test_a_write_of_the_core_saves_vote_cut_and_lines_in_this_order() -> None:
    disk, log = SimDisk(), LogMaker()
    store = filled_store(disk, [log.enqueues(3)])
    log.cut(3)
    calls: list[str] = []
    disk.on_call = calls.append
    store.persist(
        Write(
            hard_state=HardState(term=2),
            truncate_from=3,
            first_index=3,
            lines=log.enqueues(2),
            messages_after=(),
        )
    )
    name = layout.open_name(1)
    assert [call for call in calls if call.startswith(("rename", "truncate", f"write {name}"))] == [
        "rename vote.json.tmp",
        f"truncate {name}",
        f"write {name}",
    ]
    store.close()
    _, recovered = open_store(disk)
    assert recovered.hard_state == HardState(term=2)
    assert lines_of(recovered) == log.lines


def test_a_vote_never_changes_in_its_term_and_a_term_never_falls() -> None:
    store = new_store(SimDisk())
    store.save_vote(HardState(term=5, voted_for="cc" * 16))
    for wrong in (HardState(5, "dd" * 16), HardState(5, None), HardState(4, "cc" * 16)):
        with pytest.raises(AssertionError):
            store.save_vote(wrong)


def test_no_line_is_written_before_the_group_has_formed() -> None:
    store, _ = open_store(SimDisk())
    with pytest.raises(AssertionError, match="group"):
        store.write([LogMaker().enqueue()], 1)


def test_a_gap_in_the_indexes_handed_in_is_refused() -> None:
    store = new_store(SimDisk())
    with pytest.raises(AssertionError, match="where 1 belongs"):
        store.write([LogMaker().enqueue()], 2)
