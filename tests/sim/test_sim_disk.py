"""The simulated disk loses what a real one may lose, and keeps what a real one must keep."""

import errno
from random import Random

import pytest

from tests.sim.sim_disk import PAGE_BYTES, SECTOR_BYTES, PowerCut, SimDisk


def made(disk: SimDisk, name: str, content: bytes) -> None:
    """A durable file with a durable name."""
    file = disk.open(name, "create")
    file.write_at(0, content)
    file.sync()
    file.close()
    disk.sync_folder(".")


def outcomes(count: int, prepare: object) -> set[bytes | None]:
    """What is left of the file `f` after crashes with different losses."""
    found: set[bytes | None] = set()
    for seed in range(count):
        disk = SimDisk()
        assert callable(prepare)
        prepare(disk)
        disk.crash(Random(seed))
        found.add(disk.files().get("f"))
    return found


def test_what_was_synced_survives_with_its_size() -> None:
    assert outcomes(50, lambda disk: made(disk, "f", b"x" * 10_000)) == {b"x" * 10_000}


def test_a_name_whose_folder_was_not_synced_may_be_gone() -> None:
    def prepare(disk: SimDisk) -> None:
        file = disk.open("f", "create")
        file.write_at(0, b"x")
        file.sync()

    assert outcomes(50, prepare) == {b"x", None}


def test_of_unsynced_pages_any_subset_survives_and_lost_ones_are_zeros() -> None:
    pages = 3

    def prepare(disk: SimDisk) -> None:
        made(disk, "f", b"")
        disk.open("f", "edit").write_at(0, b"x" * PAGE_BYTES * pages)

    found = outcomes(600, prepare)
    whole = [
        b"".join((b"x" if bits >> page & 1 else b"\0") * PAGE_BYTES for page in range(pages))
        for bits in range(8)
    ]
    assert set(whole) <= found
    assert {len(content) for content in found if content is not None} >= {0, PAGE_BYTES * pages}


def test_a_page_may_be_torn_between_sectors_but_never_inside_one() -> None:
    def prepare(disk: SimDisk) -> None:
        made(disk, "f", b"a" * PAGE_BYTES)
        disk.open("f", "edit").write_at(0, b"b" * PAGE_BYTES)

    found = outcomes(300, prepare)
    assert len(found) > 2, "no page was torn"
    for content in found:
        assert content is not None
        sectors = [content[at : at + SECTOR_BYTES] for at in range(0, PAGE_BYTES, SECTOR_BYTES)]
        assert all(len(set(sector)) == 1 for sector in sectors)


def test_a_rename_is_there_or_not_and_never_loses_the_file() -> None:
    found = set()
    for seed in range(100):
        disk = SimDisk()
        made(disk, "f", b"old")
        made(disk, "g", b"new")
        disk.rename("g", "f")
        disk.crash(Random(seed))
        files = disk.files()
        found.add((files.get("f"), files.get("g")))
    assert found == {(b"old", b"new"), (b"new", b"new"), (b"new", None)}


def test_a_rename_between_folders_is_lost_if_only_the_giving_folder_was_synced() -> None:
    found = set()
    for seed in range(50):
        disk = SimDisk()
        disk.make_folder("to")
        made(disk, "f", b"x")
        disk.rename("f", "to/f")
        disk.sync_folder(".")
        disk.crash(Random(seed))
        found.add(tuple(disk.files()))
    assert found == {(), ("to/f",)}


def test_changes_of_one_name_survive_in_their_order() -> None:
    found = set()
    for seed in range(200):
        disk = SimDisk()
        for content in (b"1", b"2", b"3"):
            file = disk.open("t", "create")
            file.write_at(0, content)
            file.sync()
            disk.rename("t", "f")
        disk.crash(Random(seed))
        found.add(disk.files().get("f"))
    assert found == {None, b"1", b"2", b"3"}


def test_a_truncation_that_was_not_synced_may_come_back() -> None:
    def prepare(disk: SimDisk) -> None:
        made(disk, "f", b"x" * 100)
        disk.open("f", "edit").truncate(10)

    assert {b"x" * 10, b"x" * 100} <= outcomes(50, prepare)


def test_a_killed_process_loses_nothing_that_it_wrote() -> None:
    disk = SimDisk()
    disk.open("f", "create").write_at(0, b"x")
    disk.kill()
    assert disk.files() == {"f": b"x"}


@pytest.mark.parametrize("keeps_pages", [True, False])
def test_after_a_failed_sync_the_next_one_succeeds_and_may_have_lost_the_pages(keeps_pages: bool) -> None:
    disk = SimDisk()
    made(disk, "f", b"old")
    disk.sync_errors = 1
    disk.keeps_pages_after_sync_error = keeps_pages
    file = disk.open("f", "edit")
    file.write_at(0, b"new")
    with pytest.raises(OSError) as caught:
        file.sync()
    assert caught.value.errno == errno.EIO
    file.sync()
    assert file.read_at(0, 9) == (b"new" if keeps_pages else b"old")
    disk.crash(Random(0))
    assert disk.files() == {"f": b"old"}


def test_a_full_disk_takes_what_fits_and_says_so() -> None:
    disk = SimDisk(capacity_bytes=10)
    file = disk.open("f", "create")
    with pytest.raises(OSError) as caught:
        file.write_at(0, b"0123456789abc")
    assert caught.value.errno == errno.ENOSPC
    assert disk.files() == {"f": b"0123456789"}
    file.write_at(0, b"xx")


def test_rot_and_unreadable_files_are_seen_by_readers() -> None:
    disk = SimDisk()
    made(disk, "f", b"abc")
    disk.rot("f", 1, mask=0x20)
    assert disk.open("f", "read").read_at(0, 9) == b"aBc"
    disk.unreadable.add("f")
    with pytest.raises(OSError):
        disk.open("f", "read").read_at(0, 9)


def test_the_power_is_cut_at_the_call_asked_for() -> None:
    disk = SimDisk()
    file = disk.open("f", "create")
    disk.stop_at = disk.calls + 1
    file.write_at(0, b"x")
    with pytest.raises(PowerCut, match="sync f"):
        file.sync()
