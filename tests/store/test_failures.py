"""A disk that fails, fills up, is taken or forbidden: the store says so and takes nothing more."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from rollmq.core.raft_ready import HardState
from rollmq.errors import (
    DirectoryInUse,
    NotAStateDirectory,
    StateDamaged,
    StateError,
    StateNotAccessible,
    StoreFailed,
)
from rollmq.store import layout
from rollmq.store.disk import GuardedDisk, OsDisk
from rollmq.store.opening import StoreOptions
from rollmq.store.store import Store
from tests.sim.sim_disk import SimDisk
from tests.store.making import GROUP, NODE, SMALL, LogMaker, filled_store, lines_of, new_store, open_store

CALLS: list[Callable[[Store], object]] = [
    lambda store: store.write([LogMaker().enqueue()], store.next_index),
    lambda store: store.cut(store.next_index),
    lambda store: store.seal(0),
    lambda store: store.save_vote(HardState(term=9)),
    lambda store: store.read_lines(1, 100),
    lambda store: store.segment_digest(),
    lambda store: store.drop_history(0),
    lambda store: store.set_group(GROUP),
]


def assert_is_dead(store: Store) -> None:
    """Every later call says the same, and nothing is tried again."""
    failure = store.failure
    assert failure is not None
    for call in CALLS:
        with pytest.raises(StoreFailed) as caught:
            call(store)
        assert caught.value is failure


@pytest.mark.parametrize("keeps_pages", [True, False])
def test_a_failed_fsync_stops_the_store_although_the_next_one_would_succeed(keeps_pages: bool) -> None:
    """Pitfall 5: the pages may be gone; the next fsync would succeed over nothing."""
    disk, log = SimDisk(), LogMaker()
    store = filled_store(disk, [log.enqueues(3)])
    disk.sync_errors = 1
    disk.keeps_pages_after_sync_error = keeps_pages
    with pytest.raises(StoreFailed, match="fdatasync failed") as caught:
        store.write(log.enqueues(2), 4)
    assert not caught.value.is_full
    calls = disk.calls
    assert_is_dead(store)
    assert disk.calls == calls, "something was tried after the failure"
    store.close()
    disk.crash(Random(1))
    _, recovered = open_store(disk)
    assert 3 <= recovered.last_index <= 5
    assert lines_of(recovered) == log.lines[: recovered.last_index]


@pytest.mark.parametrize("seed", range(10))
def test_what_a_failed_fsync_left_in_memory_is_written_again_before_it_counts(seed: int) -> None:
    """The kernel holds the pages as clean although the disk never got them; the next process reads them,
    and an fsync alone would report success over nothing."""
    disk, log = SimDisk(), LogMaker()
    store = filled_store(disk, [[*log.enqueues(3), log.marker()], log.enqueues(3)])
    disk.sync_errors = 1
    disk.keeps_pages_after_sync_error = True
    with pytest.raises(StoreFailed):
        store.write(log.enqueues(2), 8)
    disk.kill()
    calls: list[str] = []
    disk.on_call = calls.append
    _, seen = open_store(disk)
    assert f"write {layout.open_name(5)}" in calls
    assert f"write {layout.open_name(1)}" not in calls, "what the mark vouches for is left alone"
    disk.crash(Random(seed))
    _, again = open_store(disk)
    assert again.last_index == seen.last_index == 9


def live(store: Store, log: LogMaker, acknowledged: list[int]) -> None:
    """Write, seal and vote, noting what was acknowledged."""
    for _ in range(3):
        store.write([*log.enqueues(2), log.marker()], store.next_index)
        acknowledged[0] = store.next_index - 1
        store.seal(store.next_index - 1)
    store.write(log.enqueues(4), store.next_index)
    acknowledged[0] = store.next_index - 1
    store.save_vote(HardState(term=2))


def test_a_failure_at_any_call_stops_the_store_and_loses_nothing_acknowledged() -> None:
    """Pitfall 5: the same for every write, rename and folder."""
    probe = SimDisk()
    store = new_store(probe)
    first = probe.calls
    live(store, LogMaker(), [0])
    assert probe.calls > first + 30
    for at in range(first, probe.calls):
        disk, log, acknowledged = SimDisk(), LogMaker(), [0]
        disk.error_at = at
        store = new_store(disk)
        with pytest.raises(StoreFailed):
            live(store, log, acknowledged)
        assert_is_dead(store)
        disk.crash(Random(at))
        _, recovered = open_store(disk)
        assert acknowledged[0] <= recovered.last_index <= len(log.lines)
        assert lines_of(recovered) == log.lines[: recovered.last_index]


def test_a_file_is_given_back_after_a_failure_without_failing_again() -> None:
    """Whoever cleans up behind the first failure shall not meet it a second time and report that instead."""
    sim = SimDisk()
    disk = GuardedDisk(sim)
    disk.make_folder("wal")
    file = disk.open("wal/x", "create")
    disk.failure = StoreFailed(path="wal/y", operation="write", reason="No space left", is_full=True)
    file.close()
    with pytest.raises(StoreFailed):
        disk.open("wal/z", "create")


def test_a_full_disk_stops_the_store_and_is_named() -> None:
    disk, log = SimDisk(), LogMaker()
    store = filled_store(disk, [log.enqueues(3)])
    disk.capacity_bytes = sum(map(len, disk.files().values())) + 100
    with pytest.raises(StoreFailed, match="Free some disk space") as caught:
        store.write(log.enqueues(3), 4)
    assert caught.value.is_full
    assert_is_dead(store)
    disk.kill()
    with pytest.raises(StoreFailed, match="Free some disk space"):
        open_store(disk)
    disk.capacity_bytes += 10_000
    _, recovered = open_store(disk)
    assert lines_of(recovered) == log.lines[:3]
    assert recovered.torn is not None


def test_starts_that_fail_on_a_full_disk_leave_one_copy_of_what_is_torn() -> None:
    disk, log = SimDisk(), LogMaker()
    store = filled_store(disk, [log.enqueues(3)])
    used = sum(map(len, disk.files().values()))
    disk.capacity_bytes = used + 100
    with pytest.raises(StoreFailed):
        store.write(log.enqueues(3), 4)
    disk.kill()
    tail = disk.content(layout.open_name(1))[-100:]
    for room in (0, 30, 60, 60):
        disk.capacity_bytes = used + 100 + room
        with pytest.raises(StoreFailed, match="Free some disk space"):
            open_store(disk)
        ((_, name),) = layout.torn_copies(disk)
        assert disk.content(name) == tail[:room]
        disk.kill()
    disk.capacity_bytes = used + 10_000
    store, recovered = open_store(disk)
    assert recovered.torn is not None
    assert [name for _, name in layout.torn_copies(disk)] == [recovered.torn.copy_name]
    assert disk.content(recovered.torn.copy_name) == tail
    store.close()


def test_a_node_whose_disk_is_full_starts_on_its_ballast_and_lays_it_again_when_there_is_room() -> None:
    options = StoreOptions(disk_free_bytes_min=30_000, ballast_bytes=25_000)
    disk, log = SimDisk(capacity_bytes=100_000), LogMaker()
    store, _ = Store.open(disk, fresh_node_id=NODE, options=options)
    assert len(disk.content(layout.BALLAST_FILE)) == 25_000
    store.set_group(GROUP)
    store.save_vote(HardState(term=1))
    assert not store.is_disk_low()
    store.write(log.enqueues(1, payload_bytes=50_000), 1)
    assert store.is_disk_low()
    with pytest.raises(StoreFailed):
        store.write(log.enqueues(1, payload_bytes=50_000), 2)
    disk.kill()
    store, recovered = Store.open(disk, fresh_node_id=NODE, options=options)
    assert recovered.is_ballast_spent
    assert layout.BALLAST_FILE not in disk.files()
    assert store.is_disk_low()
    log.cut(2)
    store.save_vote(HardState(term=log.term))
    store.write([log.noop()], 2)
    store.close()
    disk.capacity_bytes = 200_000
    store, recovered = Store.open(disk, fresh_node_id=NODE, options=options)
    assert not recovered.is_ballast_spent
    assert len(disk.content(layout.BALLAST_FILE)) == 25_000
    assert not store.is_disk_low()


# -- a real directory


def test_a_directory_serves_one_process_at_a_time_and_names_it(tmp_path: Path) -> None:
    store, _ = Store.open(OsDisk(tmp_path), fresh_node_id=NODE, holder="4711", options=SMALL)
    with pytest.raises(DirectoryInUse, match="process 4711"):
        Store.open(OsDisk(tmp_path), fresh_node_id=NODE, holder="4712", options=SMALL)
    store.close()
    Store.open(OsDisk(tmp_path), fresh_node_id=NODE, holder="4713", options=SMALL)[0].close()


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib\n"
        "from rollmq.store.disk import GuardedDisk, OsDisk\n"
        "disk = OsDisk(pathlib.Path(sys.argv[1]))\n"
        "assert disk.lock('lock', 'child') is None\n"
        "print('locked', flush=True)\n"
        "sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        with pytest.raises(DirectoryInUse, match="process child"):
            Store.open(OsDisk(tmp_path), fresh_node_id=NODE, options=SMALL)
        process.kill()
    Store.open(OsDisk(tmp_path), fresh_node_id=NODE, options=SMALL)[0].close()


def test_a_refused_start_gives_the_lock_back(tmp_path: Path) -> None:
    Store.open(OsDisk(tmp_path), fresh_node_id=NODE, options=SMALL)[0].close()
    vote = (tmp_path / layout.VOTE_FILE).read_bytes()
    (tmp_path / layout.VOTE_FILE).write_bytes(b"x")
    with pytest.raises(StateDamaged):
        Store.open(OsDisk(tmp_path), fresh_node_id=NODE, options=SMALL)
    (tmp_path / layout.VOTE_FILE).write_bytes(vote)
    Store.open(OsDisk(tmp_path), fresh_node_id=NODE, options=SMALL)[0].close()


def test_a_log_in_real_files_is_read_back(tmp_path: Path) -> None:
    log = LogMaker()
    store, _ = Store.open(OsDisk(tmp_path / "deep" / "state"), fresh_node_id=NODE, options=SMALL)
    store.set_group(GROUP)
    store.save_vote(HardState(term=1))
    store.write([*log.enqueues(3), log.marker(), *log.enqueues(2)], 1)
    store.seal(4)
    store.cut(6)
    assert store.read_lines(1, 10_000) == log.lines[:4]
    store.close()
    store, recovered = Store.open(OsDisk(tmp_path / "deep" / "state"), fresh_node_id="x", options=SMALL)
    assert lines_of(recovered) == log.lines[:5]
    assert recovered.identity.node_id == NODE
    store.close()


def test_what_a_node_keeps_is_for_its_user_only(tmp_path: Path) -> None:
    root = tmp_path / "state"
    Store.open(OsDisk(root), fresh_node_id=NODE, options=SMALL)[0].close()
    assert {oct(path.stat().st_mode & 0o777) for path in root.rglob("*")} == {"0o600", "0o700"}


def test_the_ballast_takes_real_room(tmp_path: Path) -> None:
    options = StoreOptions(disk_free_bytes_min=0, ballast_bytes=1_000_000)
    Store.open(OsDisk(tmp_path), fresh_node_id=NODE, options=options)[0].close()
    assert (tmp_path / layout.BALLAST_FILE).stat().st_blocks * 512 >= 1_000_000


def test_a_folder_of_something_else_is_refused_untouched(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(NotAStateDirectory, match=r"letter\.txt"):
        Store.open(OsDisk(tmp_path), fresh_node_id=NODE, options=SMALL)
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "state"
    file.write_text("x")
    with pytest.raises(NotAStateDirectory, match="it is a file"):
        Store.open(OsDisk(file), fresh_node_id=NODE, options=SMALL)


def test_a_forbidden_folder_is_told_from_a_failing_disk() -> None:
    class Forbidden(SimDisk):
        def lock(self, name: str, holder: str) -> str | None:
            raise PermissionError(13, "Permission denied", f"{name} {holder}")

    with pytest.raises(StateNotAccessible, match="Permission denied"):
        Store.open(Forbidden(), fresh_node_id=NODE, options=SMALL)


def test_a_read_only_disk_is_told_from_a_failing_disk() -> None:
    class ReadOnly(SimDisk):
        def make_folder(self, name: str) -> None:
            raise OSError(30, "Read-only file system", name)

    with pytest.raises(StateNotAccessible, match="Read-only file system"):
        Store.open(ReadOnly(), fresh_node_id=NODE, options=SMALL)


def test_every_error_says_where_and_that_nothing_was_changed(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("x")
    errors: list[StateError] = []
    for root in (tmp_path, tmp_path / "x"):
        with pytest.raises(StateError) as caught:
            Store.open(OsDisk(root), fresh_node_id=NODE, options=SMALL)
        errors.append(caught.value)
    for error in errors:
        assert str(tmp_path) in str(error)
        assert "Nothing was changed" in str(error)


def test_a_short_write_of_the_system_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: real(fd, bytes(data[:7]), offset))
    disk = OsDisk(tmp_path)
    file = disk.open("f", "create")
    file.write_at(0, b"0123456789" * 5)
    file.close()
    assert (tmp_path / "f").read_bytes() == b"0123456789" * 5
