"""Damage that is found while a node runs: nobody is given it, and the next start repairs all there is."""

import pytest

from rollmq.errors import StateDamaged, WalCorrupt
from rollmq.limits import SNAPSHOT_CHUNK_BYTES_MAX
from rollmq.store import layout
from rollmq.store.fold import fold_base, fold_snapshot
from rollmq.store.snapshot import check_state
from rollmq.store.store import Store
from rollmq.store.verify import verify_directory
from tests.repair.clinic import IDS, Clinic, usual_disks, usual_log, write_log
from tests.sim.sim_disk import SimDisk
from tests.store.making import SMALL

ME = IDS[0]


def opened(disk: SimDisk) -> Store:
    store, _ = Store.open(disk, fresh_node_id=ME, options=SMALL)
    return store


def test_a_damaged_snapshot_is_not_given_to_anybody() -> None:
    disk = usual_disks()[0]
    store = opened(disk)
    disk.rot(layout.snapshot_name(8), 300)
    assert store.read_chunk(8, 0, SNAPSHOT_CHUNK_BYTES_MAX) is None
    assert isinstance(store.found_damage, StateDamaged)


def test_a_damaged_line_is_remembered_by_the_store() -> None:
    disk = usual_disks()[0]
    store = opened(disk)
    disk.rot(layout.sealed_name(1, 4), 500)
    with pytest.raises(WalCorrupt):
        store.read_lines(1, 1 << 20)
    assert isinstance(store.found_damage, WalCorrupt)


def test_after_a_checkup_was_asked_for_a_start_repairs_what_it_would_not_have_read() -> None:
    disks = usual_disks()
    before = disks[0].files()
    store = opened(disks[0])
    store.ask_checkup()
    store.close()
    disks[0].kill()
    disks[0].rot(layout.sealed_name(1, 4), 500)
    clinic = Clinic(disks)
    assert "while the node ran" in str(clinic.refused[ME])
    clinic.run()
    assert clinic.lines(ME) == usual_log().lines
    assert disks[0].content(layout.sealed_name(1, 4)) == before[layout.sealed_name(1, 4)]
    assert layout.CHECKUP_FILE not in disks[0].files()
    assert verify_directory(disks[0]).is_clean


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_base_that_is_lost_is_replaced_and_the_history_begins_behind_the_state(is_gone: bool) -> None:
    disks = usual_disks()
    store = opened(disks[0])
    fold_base(disks[0], until_index=4)
    store.drop_history(4)
    store.ask_checkup()
    store.close()
    disks[0].kill()
    if is_gone:
        disks[0].remove(layout.base_name(4))
    else:
        disks[0].rot(layout.base_name(4), 300)
    clinic = Clinic(disks)
    clinic.run()
    assert not clinic.ill
    (base,) = layout.bases(disks[0])
    assert check_state(disks[0], base).last_index == 8
    assert verify_directory(disks[0]).is_clean


def test_a_base_that_is_lost_is_replaced_when_the_state_holds_the_whole_log() -> None:
    """Then no segment is left, and the mark must not go on naming one."""
    disks = [SimDisk() for _ in IDS]
    for disk, node_id in zip(disks, IDS, strict=True):
        write_log(disk, node_id, usual_log(), until_index=8)
        store = opened(disk)
        store.seal(8)
        result = fold_snapshot(disk)
        assert result is not None
        store.adopt_snapshot(result)
        store.close()
    store = opened(disks[0])
    fold_base(disks[0], until_index=4)
    store.drop_history(4)
    store.ask_checkup()
    store.close()
    disks[0].kill()
    disks[0].rot(layout.base_name(4), 300)
    clinic = Clinic(disks)
    clinic.run()
    assert not clinic.ill
    assert "while the node ran" in str(clinic.refused[ME]), "once it is repaired it starts, the first time"
    assert clinic.store(ME).next_index == 9
    assert verify_directory(disks[0]).is_clean


def test_a_damaged_older_snapshot_is_set_aside_by_a_checkup() -> None:
    disks = usual_disks()
    store = opened(disks[0])
    store.ask_checkup()
    store.close()
    disks[0].kill()
    disks[0].rot(layout.snapshot_name(4), 300)
    clinic = Clinic(disks)
    clinic.run()
    assert [each.last_index for each in layout.snapshots(disks[0])] == [8]
    assert verify_directory(disks[0]).is_clean
