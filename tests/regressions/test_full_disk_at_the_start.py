"""A node on a full disk takes no submit, not even in its first moment as a leader."""

from pathlib import Path

from rollmq.core.effects import Refused
from rollmq.core.raft_ready import RaftSettings
from rollmq.node.starting import be_alone, open_state, start
from rollmq.store.opening import StoreOptions
from tests.replica.trio import Trio


def test_it_is_known_before_anything_is_served(tmp_path: Path) -> None:
    for free_bytes_min, is_low in ((1 << 60, True), (0, False)):
        opened = open_state(tmp_path / f"{is_low}", options=StoreOptions(disk_free_bytes_min=free_bytes_min))
        be_alone(opened.store)
        started = start(opened, raft_settings=RaftSettings())
        assert started.replica.is_disk_low is is_low
        started.store.close()


def test_a_leader_knows_it_from_the_turn_in_which_it_begins_to_lead() -> None:
    trio = Trio()
    for member in trio.members.values():
        member.replica.tell_disk(is_low=True)
    leader = trio.leader()
    trio.submit(leader)
    trio.run(500)
    assert [effect.code for effect in leader.told if isinstance(effect, Refused)] == ["disk_low"]
    leader.replica.tell_disk(is_low=False)
    job = trio.submit(leader)
    trio.run(500)
    assert job in leader.accepted()
