"""Where a client goes next, when hints lead nowhere."""

import pytest

from rollmq.library.operator import Address
from rollmq.library.route import Route, name_of

SERVERS = [("10.0.0.1", 5000), ("10.0.0.2", 5000), ("10.0.0.3", 5000), ("10.0.0.4", 5000)]
LEADER = SERVERS[3]
STEPS_MAX = 12


@pytest.mark.parametrize("stale_hints", [{0: 0, 1: 0, 2: 0}, {0: 1, 1: 0, 2: 0}, {0: 2, 1: 0, 2: 1}])
@pytest.mark.parametrize("begin", [0.0, 0.3, 0.6])
def test_nodes_that_were_removed_and_name_each_other_do_not_hide_the_leader(
    stale_hints: dict[int, int], begin: float
) -> None:
    """From a node that led nowhere the next in the list was the one that had sent there: for ever."""
    route = Route(",".join(map(name_of, SERVERS)), lambda: begin)
    step, seen = route.first(), list[Address]()
    while step.address != LEADER:
        seen.append(step.address)
        assert len(seen) < STEPS_MAX * len(SERVERS), seen
        number = SERVERS.index(step.address)
        hinted = stale_hints[number]
        step = (
            route.failed(step.address, "it knows no leader")
            if hinted == number
            else route.redirected(step.address, name_of(SERVERS[hinted]))
        )
