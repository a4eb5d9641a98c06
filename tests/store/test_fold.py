"""Snapshots are the previous one folded with the log since, by a helper process; the bytes are the same."""

from pathlib import Path
from random import Random

import pytest

from rollmq.core.events import SnapshotMarker
from rollmq.core.line import decode_line
from rollmq.core.machine import Machine
from rollmq.core.raft_ready import HardState
from rollmq.core.state import dump_state
from rollmq.errors import StateDamaged, WalCorrupt
from rollmq.limits import FOLD_BYTES_MIN, FOLD_RETRY_FIRST_US, FOLD_RETRY_MAX_US
from rollmq.store import compact, layout
from rollmq.store.disk import OsDisk
from rollmq.store.fold import FoldResult, LogSince, fold_base, fold_snapshot, is_fold_due
from rollmq.store.fold_helper import FoldDone, FoldHelper
from rollmq.store.opening import StoreOptions
from rollmq.store.store import Store
from rollmq.store.verify import verify_directory
from tests.sim.sim_disk import PowerCut, SimDisk
from tests.store.making import GROUP, NODE, SMALL, LogMaker, new_store, open_store, state_of


def applied(lines: list[bytes]) -> bytes:
    """The state after applying all of these lines to an indexed machine, as a replica does."""
    machine = Machine()
    for line in lines:
        machine.apply(decode_line(line))
    return b"".join(dump_state(machine))


def write_segment(store: Store, log: LogMaker, count: int = 3) -> None:
    store.write([*log.enqueues(count), log.marker()], store.next_index)
    store.seal(store.next_index - 1)


def fold_and_adopt(disk: SimDisk, store: Store) -> FoldResult:
    result = fold_snapshot(disk)
    assert result is not None
    store.adopt_snapshot(result)
    return result


def test_folded_snapshots_are_the_bytes_of_the_full_apply() -> None:
    disk, log, random = SimDisk(), LogMaker(), Random(4)
    store = new_store(disk)
    for _ in range(6):
        for _ in range(random.randint(1, 3)):
            write_segment(store, log, random.randint(0, 6))
        result = fold_and_adopt(disk, store)
        assert disk.content(layout.snapshot_name(result.last_index)) == applied(log.lines)


def test_the_newest_two_snapshots_are_kept() -> None:
    disk, log = SimDisk(), LogMaker()
    store = new_store(disk)
    for _ in range(4):
        write_segment(store, log)
        fold_and_adopt(disk, store)
    assert [state.last_index for state in layout.snapshots(disk)] == [16, 12]
    assert store.snapshot is not None
    assert store.snapshot.last_index == 16


def test_a_fold_takes_what_is_sealed_and_nothing_newer() -> None:
    disk, log = SimDisk(), LogMaker()
    store = new_store(disk)
    write_segment(store, log)
    store.write([*log.enqueues(2), log.marker()], store.next_index)
    assert fold_and_adopt(disk, store).last_index == 4
    again = fold_snapshot(disk)
    assert again is not None
    assert (again.start_index, again.last_index) == (4, 4)


def test_where_nothing_was_sealed_there_is_nothing_to_fold() -> None:
    disk = SimDisk()
    store = new_store(disk)
    store.write([LogMaker().enqueue()], 1)
    assert fold_snapshot(disk) is None


def test_a_helper_that_dies_at_any_call_is_made_up_for_by_the_next_one() -> None:
    """Also when it dies between the rename and its answer: then the file is there, and must be told."""
    probe, store, _ = with_segments()
    before = probe.calls
    fold_snapshot(probe)
    for at in range(probe.calls - before):
        for seed in range(4):
            disk, store, log = with_segments()
            disk.stop_at = disk.calls + at
            with pytest.raises(PowerCut):
                fold_snapshot(disk, writer="4711")
            disk.stop_at = None
            result = fold_snapshot(disk, writer="4712")
            assert result is not None
            store.adopt_snapshot(result)
            assert not [name for name in disk.files() if name.endswith(layout.TEMPORARY)]
            assert store.snapshot is not None
            assert (store.snapshot.last_index, store.is_fold_due()) == (8, False)
            disk.crash(Random(seed))
            assert open_store(disk)[1].state_index == 8
            assert disk.content(layout.snapshot_name(8)) == applied(log.lines)


def with_segments() -> tuple[SimDisk, Store, LogMaker]:
    """A store with two sealed segments, whose fold is due."""
    options = StoreOptions(disk_free_bytes_min=0, ballast_bytes=0, snapshot_every_entries=8)
    disk, log = SimDisk(), LogMaker()
    store = new_store(disk, options)
    for _ in range(2):
        write_segment(store, log)
    return disk, store, log


def test_a_start_loads_the_snapshot_and_applies_only_what_follows() -> None:
    disk, log = SimDisk(), LogMaker()
    store = new_store(disk)
    write_segment(store, log)
    fold_and_adopt(disk, store)
    write_segment(store, log)
    store.write(log.enqueues(2), store.next_index)
    store.close()
    _, recovered = open_store(disk)
    assert recovered.state_index == 4
    assert [entry.index for entry in recovered.entries()] == [5, 6, 7, 8, 9, 10]
    assert state_of(recovered) == applied(log.lines)


def test_a_fold_refuses_a_segment_that_is_not_what_its_marker_says() -> None:
    disk, log = SimDisk(), LogMaker()
    store = new_store(disk)
    write_segment(store, log)
    other = LogMaker()
    lines = [other.noop(), *other.enqueues(2)]
    name = layout.sealed_name(1, 4)
    header = disk.content(name).splitlines(keepends=True)[0]
    disk.replace(name, b"".join([header, *lines, log.lines[3]]))
    with pytest.raises(WalCorrupt, match="digest"):
        fold_snapshot(disk)
    disk.rot(name, len(header) + 50)
    with pytest.raises(WalCorrupt, match="crc"):
        fold_snapshot(disk)
    assert layout.snapshots(disk) == []


def test_a_fold_that_comes_to_another_state_than_the_marker_says_tells_it() -> None:
    """The marker may be that of an odd leader: refused, no replica could ever fold again."""
    disk, log = SimDisk(), LogMaker()
    store = new_store(disk)
    write_segment(store, log)
    fold_and_adopt(disk, store)
    log.machine.no_ops += 1
    write_segment(store, log)
    folded = fold_snapshot(disk)
    assert folded is not None
    assert folded.last_index == 8
    assert folded.doubt.startswith("as of entry 8 the log comes to ")


def test_a_fold_passes_over_a_damaged_snapshot_or_says_that_none_is_left() -> None:
    disk, log = SimDisk(), LogMaker()
    store = new_store(disk)
    for _ in range(3):
        write_segment(store, log)
        fold_and_adopt(disk, store)
    disk.rot(layout.snapshot_name(12), 200)
    write_segment(store, log)
    assert fold_and_adopt(disk, store).last_index == 16
    assert disk.content(layout.snapshot_name(16)) == applied(log.lines)
    assert [state.last_index for state in layout.snapshots(disk)] == [16, 8], "a damaged one is not kept"
    write_segment(store, log)
    disk.remove(layout.sealed_name(1, 4))
    for state in layout.snapshots(disk):
        disk.rot(state.name, 200)
    with pytest.raises(StateDamaged, match="no sound state"):
        fold_snapshot(disk)


# -- when


def test_how_often_follows_from_the_sizes_and_is_capped() -> None:
    def is_due(snapshot_bytes: int, size_bytes: int, entries_count: int = 10) -> bool:
        since = LogSince(size_bytes=size_bytes, entries_count=entries_count)
        return is_fold_due(snapshot_bytes=snapshot_bytes, since=since, snapshot_every_entries=1000)

    assert not is_due(0, FOLD_BYTES_MIN - 1)
    assert is_due(0, FOLD_BYTES_MIN)
    assert not is_due(10 * FOLD_BYTES_MIN, 4 * FOLD_BYTES_MIN)
    assert is_due(10 * FOLD_BYTES_MIN, 5 * FOLD_BYTES_MIN)
    assert not is_due(10 * FOLD_BYTES_MIN, 1, entries_count=999)
    assert is_due(10 * FOLD_BYTES_MIN, 1, entries_count=1000)


def test_the_store_asks_for_a_fold_once_enough_is_sealed() -> None:
    options = StoreOptions(disk_free_bytes_min=0, ballast_bytes=0, snapshot_every_entries=8)
    disk, log = SimDisk(), LogMaker()
    store = new_store(disk, options)
    write_segment(store, log)
    assert not store.is_fold_due()
    write_segment(store, log)
    assert store.is_fold_due()
    fold_and_adopt(disk, store)
    assert not store.is_fold_due()
    store.write(log.enqueues(20), store.next_index)
    assert not store.is_fold_due(), "what is not sealed cannot be folded"


def test_a_rotten_old_segment_does_not_stop_whoever_asks_for_folds() -> None:
    options = StoreOptions(disk_free_bytes_min=0, ballast_bytes=0, snapshot_every_entries=8)
    disk, log = SimDisk(), LogMaker()
    store = new_store(disk, options)
    for _ in range(2):
        write_segment(store, log)
    fold_and_adopt(disk, store)
    oldest = layout.sealed_segments(disk)[0].name
    store.close()
    store, _ = Store.open(disk, fresh_node_id=NODE, options=options)
    disk.rot(oldest, len(disk.content(oldest)) - 5)
    for _ in range(2):
        write_segment(store, log)
    assert store.is_fold_due()


# -- history


def drop_due(
    disk: SimDisk, store: Store, *, now_us: int = 0, confirmed_index: int | None = None
) -> int | None:
    index = store.base_index_due(now_us=now_us, confirmed_index=confirmed_index)
    if index is not None:
        fold_base(disk, until_index=index)
        store.drop_history(index)
    return index


def furnished(keep_history_bytes: int, keep_history_us: int = 10**15) -> tuple[SimDisk, Store, LogMaker]:
    """Six sealed segments of four entries; the two snapshots are as of 16 and 20."""
    options = StoreOptions(
        disk_free_bytes_min=0,
        ballast_bytes=0,
        keep_history_bytes=keep_history_bytes,
        keep_history_us=keep_history_us,
    )
    disk, log = SimDisk(), LogMaker()
    store = new_store(disk, options)
    for number in range(6):
        write_segment(store, log)
        if number in (3, 4):
            fold_and_adopt(disk, store)
    return disk, store, log


SEGMENT_BYTES = len(furnished(10**9)[0].content(layout.sealed_name(9, 12)))


def test_history_over_its_bytes_goes_oldest_first_behind_a_base() -> None:
    disk, store, log = furnished(keep_history_bytes=4 * SEGMENT_BYTES + 100)
    assert drop_due(disk, store) == 8
    assert [segment.first_index for segment in layout.sealed_segments(disk)] == [9, 13, 17, 21]
    assert disk.content(layout.base_name(8)) == applied(log.lines[:8])
    verdict = verify_directory(disk)
    assert verdict.is_clean
    assert [(gap.first, gap.last, gap.reason) for gap in verdict.gaps.gaps] == [(1, 8, "retention")]
    assert drop_due(disk, store) is None
    store.close()
    assert state_of(open_store(disk)[1]) == applied(log.lines)


def test_nothing_behind_the_older_snapshot_goes_however_little_may_be_kept() -> None:
    disk, store, log = furnished(keep_history_bytes=0)
    assert drop_due(disk, store) == 16
    assert [segment.first_index for segment in layout.sealed_segments(disk)] == [17, 21]
    disk.rot(layout.snapshot_name(20), 200)
    store.close()
    assert state_of(open_store(disk)[1]) == applied(log.lines)


def test_a_second_drop_folds_the_base_on_and_removes_the_first() -> None:
    disk, store, log = furnished(keep_history_bytes=4 * SEGMENT_BYTES + 100)
    assert drop_due(disk, store) == 8
    write_segment(store, log)
    fold_and_adopt(disk, store)
    assert drop_due(disk, store) == 12
    assert [base.last_index for base in layout.bases(disk)] == [12]
    assert disk.content(layout.base_name(12)) == applied(log.lines[:12])


def test_old_history_goes_by_log_time_unless_a_pipeline_has_not_taken_it() -> None:
    second = 1_000_000
    disk, store, _ = furnished(keep_history_bytes=10**9, keep_history_us=2 * second)
    now_us = 11 * second  # entry n was written at second n: older than two seconds are 1 to 8
    assert drop_due(disk, store, now_us=now_us, confirmed_index=3) is None
    assert drop_due(disk, store, now_us=now_us, confirmed_index=5) == 4
    assert drop_due(disk, store, now_us=now_us) == 8
    assert drop_due(disk, store, now_us=now_us) is None


def test_a_pipeline_that_takes_nothing_does_not_pin_the_history_beyond_its_bytes() -> None:
    disk, store, _ = furnished(keep_history_bytes=4 * SEGMENT_BYTES + 100)
    assert drop_due(disk, store, confirmed_index=0) == 8


def test_without_two_snapshots_nothing_goes() -> None:
    options = StoreOptions(disk_free_bytes_min=0, ballast_bytes=0, keep_history_bytes=0)
    disk, log = SimDisk(), LogMaker()
    store = new_store(disk, options)
    for _ in range(3):
        write_segment(store, log)
    fold_and_adopt(disk, store)
    assert drop_due(disk, store) is None


def test_the_age_of_a_segment_with_a_very_long_marker_line_is_read() -> None:
    disk, log = SimDisk(), LogMaker()
    store = new_store(disk, StoreOptions(disk_free_bytes_min=0, ballast_bytes=0, keep_history_bytes=0))
    for _ in range(2):
        store.write(log.enqueues(2), store.next_index)
        marker = SnapshotMarker(*log._stamp(), counts=log.machine.counts(), workers=["w" * 100] * 2000)
        store.write([log._add(marker)], store.next_index)
        store.seal(store.next_index - 1)
        fold_and_adopt(disk, store)
    assert drop_due(disk, store) == 3


# -- the process


def real_store(root: Path) -> tuple[Store, LogMaker]:
    log = LogMaker()
    store, _ = Store.open(OsDisk(root), fresh_node_id=NODE, options=SMALL)
    store.set_group(GROUP)
    store.save_vote(HardState(term=1))
    for _ in range(3):
        write_segment(store, log)
    return store, log


def wait_for(helper: FoldHelper, now_us: int) -> FoldDone | None:
    """Until the helper process has ended."""
    assert helper._process is not None
    helper._process.wait(timeout=60)
    return helper.poll(now_us)


def test_the_helper_process_folds_beside_a_running_store(tmp_path: Path) -> None:
    store, log = real_store(tmp_path)
    helper = FoldHelper(tmp_path)
    assert helper.can_start(0)
    helper.start(now_us=0)
    assert helper.is_running
    assert not helper.can_start(0)
    done = wait_for(helper, 0)
    assert done is not None
    assert done.result is not None
    store.adopt_snapshot(done.result)
    assert (tmp_path / layout.snapshot_name(12)).read_bytes() == applied(log.lines)
    helper.start(now_us=0, base_index=8)
    done = wait_for(helper, 0)
    assert done is not None
    assert (done.base_index, done.result and done.result.last_index) == (8, 8)
    store.drop_history(8)
    helper.start(now_us=0)
    done = wait_for(helper, 0)
    assert done is not None
    assert done.result is not None
    assert (done.result.start_index, done.result.last_index) == (12, 12)
    store.close()
    assert verify_directory(OsDisk(tmp_path)).is_clean


def test_a_failed_helper_is_counted_and_tried_again_after_a_growing_pause(tmp_path: Path) -> None:
    store, _ = real_store(tmp_path)
    path = tmp_path / layout.sealed_name(5, 8)
    sound = path.read_bytes()
    path.write_bytes(sound[:-20])
    helper, now_us, pauses = FoldHelper(tmp_path), 1000, []
    for number in range(1, 4):
        helper.start(now_us=now_us)
        assert wait_for(helper, now_us) is None
        assert (helper.failures_count, helper.failures_in_row) == (number, number)
        assert str(path) in helper.last_error
        assert not helper.can_start(now_us)
        pauses.append(helper._not_before_us - now_us)
        now_us = helper._not_before_us
        assert helper.can_start(now_us)
    assert pauses == [FOLD_RETRY_FIRST_US, 2 * FOLD_RETRY_FIRST_US, 4 * FOLD_RETRY_FIRST_US]
    path.write_bytes(sound)
    helper.start(now_us=0)
    assert wait_for(helper, now_us) is not None
    assert (helper.failures_count, helper.failures_in_row) == (3, 0)
    store.close()


def test_the_pause_after_failures_is_bounded(tmp_path: Path) -> None:
    helper = FoldHelper(tmp_path)
    for _ in range(100):
        helper._failed(0, "x")
    assert helper._not_before_us == FOLD_RETRY_MAX_US


def test_a_stopped_helper_leaves_nothing_that_a_start_minds(tmp_path: Path) -> None:
    store, log = real_store(tmp_path)
    helper = FoldHelper(tmp_path)
    helper.start(now_us=0)
    helper.stop()
    assert helper.poll(0) is None
    (tmp_path / f"{layout.snapshot_name(12)}.4711{layout.TEMPORARY}").write_bytes(b"half")
    store.close()
    store, recovered = Store.open(OsDisk(tmp_path), fresh_node_id=NODE, options=SMALL)
    assert state_of(recovered) == applied(log.lines)
    assert not list(tmp_path.rglob("*.tmp"))
    store.close()


def test_a_helper_whose_node_is_gone_gives_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, _ = real_store(tmp_path)
    assert compact.main(["--nice", "0", "--parent", "0", str(tmp_path)]) == 1
    assert "has ended" in capsys.readouterr().err
    assert not list((tmp_path / layout.SNAPSHOTS).iterdir())
    assert compact.main(["--nice", "0", str(tmp_path)]) == 0
    assert '"last_index":12' in capsys.readouterr().out
    store.close()


def test_the_helper_says_in_a_line_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compact.main(["--nice", "0", str(tmp_path / "nowhere")]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1
