"""Decide early, speak late: what a leader decided and nobody committed is neither told nor kept."""

import pytest

from rollmq.core.effects import Refused
from rollmq.core.intake import Submit
from rollmq.core.line import decode_line
from rollmq.core.raft_ready import RaftSettings, Role
from tests.core.audit import audit
from tests.replica.trio import WALL_US, Member, Trio, state_of


def settle(trio: Trio) -> None:
    """Heal everything and let it come to rest."""
    trio.cut_off.clear()
    trio.leader()
    trio.run(2_000)


def assert_equal_everywhere(trio: Trio) -> None:
    members = list(trio.members.values())
    assert {member.replica.machine.last_index for member in members} == {
        trio.leader().replica.machine.last_index
    }
    assert len({state_of(member) for member in members}) == 1
    for member in members:
        audit(member.replica.machine)
        assert member.replica.machine.no_ops == 0


def test_replicas_of_a_group_have_the_same_state_byte_for_byte() -> None:
    trio = Trio()
    leader = trio.leader()
    jobs = {trio.submit(leader) for _ in range(20)}
    settle(trio)
    assert leader.accepted() == jobs
    assert_equal_everywhere(trio)


def test_a_decision_is_applied_at_once_and_told_only_when_a_majority_has_it() -> None:
    trio = Trio()
    leader = trio.leader()
    trio.cut_off = set(trio.node_ids) - {leader.node_id}
    job = trio.submit(leader)
    trio.run(50)
    assert job in leader.replica.machine.jobs
    assert job not in leader.accepted()
    trio.cut_off = set()
    trio.run(300)
    assert job in leader.accepted()


def test_uncommitted_bytes_are_bounded_and_submits_beyond_them_are_refused() -> None:
    trio = Trio()
    leader = trio.leader()
    trio.run(500)
    trio.cut_off = set(trio.node_ids) - {leader.node_id}
    leader.replica.raft._settings = RaftSettings(uncommitted_bytes_max=1_000)
    jobs = [trio.submit(leader) for _ in range(20)]
    assert jobs[0] in leader.replica.machine.jobs
    assert jobs[-1] not in leader.replica.machine.jobs
    settle(trio)
    refused = [
        effect for member in trio.members.values() for effect in member.told if isinstance(effect, Refused)
    ]
    assert {effect.code for effect in refused} == {"overloaded"}
    assert_equal_everywhere(trio)


def cut_off_leader_with_a_tail() -> tuple[Trio, Member, str]:
    """A leader that decided something alone, while the others elected another and went on."""
    trio = Trio()
    old = trio.leader()
    kept = trio.submit(old)
    trio.run(500)
    assert kept in old.accepted()
    trio.cut_off = {old.node_id}
    lost = trio.submit(old)
    new = trio.leader()
    assert new is not old
    trio.submit(new)
    trio.run(500)
    return trio, old, lost


def test_a_cut_tail_is_rolled_back_and_its_effects_are_never_told() -> None:
    trio, old, lost = cut_off_leader_with_a_tail()
    assert lost in old.replica.machine.jobs
    settle(trio)
    assert old.rebuilt_count == 1
    assert lost not in old.replica.machine.jobs
    assert all(lost not in member.accepted() for member in trio.members.values())
    assert_equal_everywhere(trio)


def test_a_leader_that_a_majority_no_longer_hears_steps_down_and_says_nothing() -> None:
    trio, old, lost = cut_off_leader_with_a_tail()
    trio.run(1_000)
    assert old.replica.leader is None
    assert lost not in old.accepted()


def test_a_node_does_not_campaign_while_its_machine_is_rebuilt(monkeypatch: pytest.MonkeyPatch) -> None:
    trio, old, _ = cut_off_leader_with_a_tail()
    monkeypatch.setattr(old, "_rebuild", lambda: None)
    trio.cut_off.clear()
    trio.run(1_000)
    term = old.replica.raft.term
    trio.cut_off = set(trio.node_ids) - {old.node_id}
    trio.run(5_000)
    assert old.replica.raft.term == term
    old.replica.raft.campaign()
    assert old.replica.raft.role is Role.FOLLOWER
    monkeypatch.undo()
    old._rebuild()
    settle(trio)
    assert_equal_everywhere(trio)


def test_a_new_leader_counts_what_the_old_one_committed_and_resent_submits_are_accepted_once() -> None:
    trio, old, lost = cut_off_leader_with_a_tail()
    settle(trio)
    leader = trio.leader()
    lines = [decode_line(line) for line in leader.lines]
    assert [event.index for event in lines] == list(range(1, len(lines) + 1))
    assert not any(getattr(event, "job_id", None) == lost for event in lines)
    del old


@pytest.mark.parametrize("seed", range(20))
def test_through_a_storm_of_partitions_nothing_told_is_lost(seed: int) -> None:
    trio = Trio(seed=seed, size=5 if seed % 4 == 0 else 3)
    told: set[str] = set()
    trio.leader()
    for _ in range(25):
        trio.cut_off = set(
            trio.chance.sample(trio.node_ids, trio.chance.randint(0, len(trio.node_ids) // 2 + 1))
        )
        for _ in range(trio.chance.randint(1, 6)):
            for member in trio.leaders():
                trio.submit(member)
            trio.run(trio.chance.choice((10, 50, 200, 600)))
    settle(trio)
    for member in trio.members.values():
        told |= member.accepted()
    assert told
    assert_equal_everywhere(trio)
    assert told <= set(trio.leader().replica.machine.jobs)


def test_what_a_leader_decides_in_the_turn_in_which_it_falls_is_in_its_log_and_is_cut() -> None:
    """Found by the group simulator: the machine kept an entry that no log had, and the node led with it."""
    trio = Trio()
    old = trio.leader()
    trio.run(500)
    replica = old.replica
    trio.cut_off = {old.node_id}
    assert replica.leader is not None
    job_id = f"{(WALL_US + trio.now_us) // 1000:012x}7{999:019x}"
    replica.leader.intake.submit(Submit(job_id, "client", "exec", b"x"), "session")
    replica.set_time(mono_us=trio.now_us + 10_000_000, wall_us=WALL_US + trio.now_us)
    assert replica.leader is None
    assert replica.machine.last_index == replica.raft.log.last_index
    trio.now_us += 10_000_000
    trio.run(2_000)
    settle(trio)
    assert job_id not in replica.machine.jobs
    assert_equal_everywhere(trio)


def test_a_delay_that_ended_in_a_term_without_entries_does_not_begin_again() -> None:
    """Found by the group simulator: log time ran backwards between two terms of one node, and a job that was
    made ready in the first was assigned, in the second, before its time."""
    trio = Trio()
    leader = trio.leader()
    trio.run(2_000)
    replica = leader.replica
    assert replica.leader is not None
    led_until_us = replica.leader.desk.now_us
    assert led_until_us > replica.machine.last_at_us + 1_000_000
    others = [node_id for node_id in trio.node_ids if node_id != leader.node_id]
    trio.cut_off = set(others)
    trio.run(600)
    assert replica.leader is None
    trio.cut_off = {others[0]}
    replica.raft.campaign()
    trio.run(200)
    assert trio.leader() is leader
    assert replica.machine.last_at_us >= led_until_us


def test_a_marker_that_comes_in_the_turn_of_a_cut_is_not_refused_for_what_was_cut() -> None:
    """Found by the group simulator: the state that was about to be dropped was compared with it, and the
    node refused a sound marker for ever."""
    trio, old, _ = cut_off_leader_with_a_tail()
    new = trio.leader()
    new.replica.mark()
    trio.run(200)
    settle(trio)
    leadership = trio.leader().replica.raft.leadership
    assert leadership is not None
    assert [progress.refused_index for progress in leadership.voting] == [0, 0]
    assert old.rebuilt_count == 1
    assert_equal_everywhere(trio)
