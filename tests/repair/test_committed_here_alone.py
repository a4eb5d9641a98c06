"""A node that knows its damaged lines to be committed, among others that do not know it yet."""

from rollmq.store import layout
from rollmq.store.store import Store
from tests.repair.clinic import IDS, Clinic, usual_disks, usual_log
from tests.sim.sim_disk import SimDisk
from tests.store.making import SMALL

ME, SECOND, THIRD = IDS
SEALED = layout.sealed_name(9, 12)


def seal_the_third_segment(disk: SimDisk) -> None:
    """It has heard that entry 12 is committed."""
    store, _ = Store.open(disk, fresh_node_id="ff" * 16, options=SMALL)
    store.seal(12)
    store.close()


def rot_a_line(disk: SimDisk, name: str, number: int) -> None:
    lines = disk.content(name).splitlines(keepends=True)
    disk.rot(name, sum(map(len, lines[:number])) + 30)


def test_lines_that_only_this_node_knows_to_be_committed_are_had_by_what_follows_them() -> None:
    """The others cannot say that entry 10 is committed, but their log is the same behind it."""
    disks = usual_disks()
    seal_the_third_segment(disks[0])
    rot_a_line(disks[0], SEALED, 2)
    clinic = Clinic(disks, away=[THIRD])
    clinic.run()
    assert not clinic.ill, clinic.ill[0].plan.wait
    assert clinic.lines(ME) == usual_log().lines


def test_nobody_waits_in_a_circle_for_what_is_committed() -> None:
    """Seed 714 of the simulator of groups: one has lost the end of its log and waits for the newest log of
    all; that one lacks a line which is committed; the third is well, and commits nothing alone."""
    disks = usual_disks()
    seal_the_third_segment(disks[0])
    rot_a_line(disks[0], SEALED, 2)
    disks[1].rot(layout.SYNCED_FILE, 40)
    clinic = Clinic(disks)
    assert set(clinic.refused) == {ME, SECOND}
    clinic.run()
    assert not clinic.ill, [node.plan.wait for node in clinic.ill]
    assert all(clinic.lines(node_id) == usual_log().lines for node_id in IDS)
