"""Handing the leadership over (thesis 3.10), and elections after a connection was reset."""

import itertools

import pytest

from rollmq.core.raft_messages import AppendEntries, RequestVote, TimeoutNow
from rollmq.core.raft_ready import Role
from rollmq.limits import RESET_ELECTION_US_MAX, UNAPPLIED_SOON_MAX
from tests.raft_paper.group import MS, Group, disk_of


def led_group() -> Group:
    group = Group(3)
    group.elect("n1")
    group.propose("n1", b"a\n")
    group.settle()
    return group


def leaders(group: Group) -> list[str]:
    return [name for name, node in group.nodes.items() if node.core and node.core.role is Role.LEADER]


def test_a_transfer_makes_the_named_node_leader_at_once_without_a_timeout() -> None:
    """Pitfall 17: it asks everybody at once, and their loyalty to the old leader does not count."""
    group = led_group()
    now_us = group.now_us
    assert group["n1"].transfer("n3") is None
    group.work("n1")
    group.settle()
    assert leaders(group) == ["n3"]
    assert group.now_us == now_us
    assert group["n1"].role is Role.FOLLOWER


def test_without_a_name_the_one_that_has_most_is_the_heir() -> None:
    group = led_group()
    group.isolate("n2")
    group.propose("n1", b"b\n")
    group.settle()
    group.heal()
    assert group["n1"].transfer() is None
    group.work("n1")
    assert [message.target for message in group.sent(TimeoutNow)] == ["n3"]


def test_the_heir_gets_the_whole_log_before_it_is_asked() -> None:
    """Pitfall 17: catch the target up."""
    group = led_group()
    group.propose("n1", b"b\n")
    assert group["n1"].transfer("n2") is None
    group.work("n1")
    assert not group.sent(TimeoutNow)
    group.settle()
    assert leaders(group) == ["n2"]
    assert b"b\n" in [line for _, line in group.nodes["n2"].entries()]


def test_during_a_transfer_nothing_is_proposed() -> None:
    """Pitfall 17: stop proposals."""
    group = led_group()
    group.propose("n1", b"b\n")
    assert group["n1"].can_propose
    assert group["n1"].transfer("n2") is None
    assert group["n1"].is_transferring
    assert not group["n1"].can_propose
    assert group["n1"].members_problem == "the leadership is being handed over"


def test_a_transfer_is_given_up_after_one_election_timeout_and_the_leader_goes_on() -> None:
    """Pitfall 17."""
    group = led_group()
    assert group["n1"].transfer("n2") is None
    group.work("n1")
    group.network.clear()
    group.crash("n2")
    for _ in range(6):
        group.tick(100 * MS)
        group.settle()
    assert leaders(group) == ["n1"]
    assert group["n1"].can_propose


def test_leadership_is_handed_only_to_a_voter_that_answers() -> None:
    """Pitfall 17."""
    group = led_group()
    group.crash("n3")
    for _ in range(6):
        group.tick(100 * MS)
        group.settle()
    assert group["n1"].transfer("n3") == "n3 votes and answers" or not group["n1"].is_transferring
    assert group["n1"].transfer("n9") is not None
    assert group["n2"].transfer() == "this node does not lead"


def test_only_the_leader_can_ask_for_an_election() -> None:
    """Pitfall 17: from anybody else it would be a way to disturb."""
    group = led_group()
    group["n3"].step(TimeoutNow("n2", "n3", group["n3"].term))
    group.work("n3")
    assert group["n3"].role is Role.FOLLOWER
    assert not group.sent(RequestVote)


# -- a connection that was reset


def test_a_reset_by_the_leader_brings_a_pre_vote_within_sixty_milliseconds() -> None:
    """Pitfall 14: a dead process is replaced before any timeout has run."""
    group = led_group()
    group.crash("n1")
    for node_id in ("n2", "n3"):
        group[node_id].peer_reset("n1")
    for _ in range(8):
        group.tick(10 * MS)
        group.settle()
    assert len(leaders(group)) == 1


@pytest.mark.parametrize("chance", [0.0, 0.5, 0.99])
@pytest.mark.parametrize("size", [3, 5])
def test_after_a_reset_all_that_are_left_stand_at_different_moments(size: int, chance: float) -> None:
    """9.3: the first has won before the second asks; nobody splits the votes."""
    group = Group(size, chance=lambda: chance)
    group.elect("n2")
    group.crash("n2")
    left = sorted(group.voters - {"n2"})
    for node_id in left:
        group[node_id].peer_reset("n2")
    moments = [group[node_id].deadline_us - group.now_us for node_id in left]
    assert moments[0] <= 15 * MS
    assert moments[-1] <= RESET_ELECTION_US_MAX
    apart_us = [later - earlier for earlier, later in itertools.pairwise(moments)]
    assert min(apart_us) >= RESET_ELECTION_US_MAX // (size - 1) - 1


def test_who_refuses_a_shorter_log_stands_soon_itself() -> None:
    """5.4.1: the one with the shorter log can never win, so whoever it asks in vain does not wait for a
    timeout, even if it has asked before, when the other had not noticed yet that the leader is gone."""
    group = Group(3, chance=lambda: 0.5)
    group.elect("n1")
    group.isolate("n2")
    group.propose("n1", b"a\n")
    group.settle()
    group.heal()
    group.crash("n1")
    group["n3"].peer_reset("n1")
    group.tick(40 * MS, "n3")
    group.network.clear()
    assert group["n3"].role is Role.PRE_CANDIDATE
    group["n2"].peer_reset("n1")
    group.tick(10 * MS, "n2")
    group.settle()
    assert group["n2"].role is Role.PRE_CANDIDATE
    group.tick(15 * MS, "n3")
    group.settle()
    assert leaders(group) == ["n3"]


def test_who_was_refused_because_the_reset_was_not_noticed_yet_asks_again_soon() -> None:
    """Pitfall 16: until then the other is loyal to the dead leader. It may be busy with much to apply."""
    group = led_group()
    group.crash("n1")
    group["n2"].peer_reset("n1")
    group.tick(15 * MS, "n2")
    assert len(group.sent(RequestVote)) == 2
    group.settle()
    assert group["n2"].role is Role.PRE_CANDIDATE
    group["n3"].peer_reset("n1")
    group.tick(61 * MS, "n2")
    group.settle()
    assert leaders(group) == ["n2"]


def test_who_asked_in_vain_twice_waits_for_its_timeout() -> None:
    """9.3: it is likely to be the one that is cut off."""
    group = led_group()
    group.isolate("n2")
    group["n2"].peer_reset("n1")
    for _ in range(2):
        group.tick(61 * MS, "n2")
    assert len(group.sent(RequestVote)) == 4
    assert group["n2"].deadline_us >= group.now_us + 250 * MS


def test_who_has_much_to_apply_leaves_it_to_the_others_to_stand_soon() -> None:
    """A new leader applies its whole log before it decides anything: a node that has just started would take
    long. Its usual timeout goes on, for the others may be gone."""
    much = disk_of(*[1] * (UNAPPLIED_SOON_MAX + 1))
    group = Group(3, disks={"n3": much, "n2": disk_of(*[1] * UNAPPLIED_SOON_MAX)}, chance=lambda: 0.5)
    for node_id in ("n2", "n3"):
        group[node_id].step(AppendEntries("n1", node_id, 1, prev_index=0, prev_term=0, commit_index=0))
        group[node_id].peer_reset("n1")
    assert group["n2"].deadline_us <= RESET_ELECTION_US_MAX
    assert group["n3"].deadline_us >= 250 * MS


def test_a_leader_that_lives_loses_nothing_by_a_reset() -> None:
    """Pitfall 16: who hears it since is loyal."""
    group = led_group()
    group.tick(150 * MS)
    group.settle()
    group["n2"].peer_reset("n1")
    for _ in range(10):
        group.tick(10 * MS)
        group.settle()
    assert leaders(group) == ["n1"]
    assert group["n1"].term == 1


def test_a_reset_by_somebody_else_means_nothing() -> None:
    group = led_group()
    group["n2"].peer_reset("n3")
    assert group["n2"].leader_id == "n1"
