"""A snapshot whose lines were put into another order has sound lines and is none: an older one serves."""

import pytest

from rollmq.core.line import LineDamaged
from rollmq.core.state import dump_state
from rollmq.store import layout
from rollmq.store.layout import StateName
from rollmq.store.snapshot import check_state, write_state
from tests.properties.hall import Hall
from tests.sim.sim_disk import SimDisk


def test_a_state_file_with_swapped_lines_is_found_before_it_is_chosen() -> None:
    hall = Hall()
    for number in range(3):
        hall.submit(f"c{number}", "e")
    disk = SimDisk()
    disk.make_folder(layout.SNAPSHOTS)
    index = hall.machine.last_index
    state = StateName(index, layout.snapshot_name(index))
    lines = list(dump_state(hall.machine))
    digest, _, _ = write_state(disk, state.name, lines)
    assert check_state(disk, state).digest == digest
    lines[2], lines[3] = lines[3], lines[2]
    disk.replace(state.name, b"".join(lines))
    with pytest.raises(LineDamaged, match="order"):
        check_state(disk, state)
