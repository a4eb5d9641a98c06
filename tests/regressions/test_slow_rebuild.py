"""A machine that is rebuilt takes its time, and the log goes on meanwhile."""

from rollmq.core.line import decode_line
from rollmq.core.machine import Machine
from tests.replica.trio import Trio, state_of


def test_commits_and_cuts_during_a_rebuild_do_not_touch_what_is_loaded() -> None:
    trio = Trio(seed=3)
    old = trio.leader()
    for _ in range(3):
        trio.submit(old)
        trio.run(100)
    trio.cut_off = {old.node_id}
    for _ in range(4):
        trio.submit(old)  # applied here, and never committed
    while trio.leader() is old:
        trio.run(100)
    new = trio.leader()
    trio.run(300)
    loads: list[list[bytes]] = []
    old._rebuild = lambda: loads.append(old.lines[: old.replica.raft.commit_index])  # type: ignore[method-assign]
    trio.cut_off = set()
    while not loads:
        trio.run(10)
    for _ in range(5):
        trio.submit(new)
        trio.run(50)
    raft = old.replica.raft
    assert raft.commit_index > len(loads[0]) >= raft.log.applied_index
    machine = Machine()
    for line in loads[0]:
        machine.apply(decode_line(line))
    old.replica.rebuilt(machine, old._segment(loads[0]))
    trio.run(500)
    assert len(loads) == 1
    assert old.replica.machine.last_index == new.replica.machine.last_index
    assert state_of(old) == state_of(new)
