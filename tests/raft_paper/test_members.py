"""Changes of membership, one server at a time (section 6 of the paper; chapter 4 of the thesis)."""

import pytest

from rollmq.core.raft_messages import AppendEntries, RequestVote, TimeoutNow
from rollmq.core.raft_ready import Role
from tests.raft_paper.group import MS, Group, append

TRIO = ("n1", "n2", "n3")


def led_group(size: int = 3) -> Group:
    """n1 leads and has committed something; the members are in the log."""
    group = Group(size)
    group.elect("n1")
    group.change_members("n1", *sorted(group.voters))
    group.settle()
    return group


def beat(group: Group, times: int = 1) -> None:
    """Heartbeats, and all that follows."""
    for _ in range(times):
        group.tick(group.settings.heartbeat_us)
        group.settle()


def test_a_learner_gets_the_log_and_counts_for_nothing_until_it_is_promoted() -> None:
    """Pitfall 35: it learns first, and votes when it has caught up (thesis 4.2.1)."""
    group = led_group()
    group.join("n4")
    group.change_members("n1", *TRIO, learners=["n4"])
    beat(group, 3)
    assert group.nodes["n4"].entries() == group.nodes["n1"].entries()
    group.isolate("n2")
    group.isolate("n3")
    index = group.propose("n1", b"not by a learner\n")
    group.settle()
    assert group["n1"].commit_index < index


def test_a_learner_does_not_stand_for_election_but_a_promoted_one_may_win() -> None:
    """Pitfall 35."""
    group = led_group()
    group.join("n4")
    group.change_members("n1", *TRIO, learners=["n4"])
    beat(group, 3)
    group["n4"].campaign()
    assert group["n4"].role is Role.FOLLOWER
    group.change_members("n1", *TRIO, "n4")
    beat(group)
    group.elect("n4")
    assert group["n4"].role is Role.LEADER


def test_whether_a_learner_has_caught_up_is_known() -> None:
    """Pitfall 35: the host promotes nobody before."""
    group = led_group()
    group.join("n4")
    group.change_members("n1", *TRIO, learners=["n4"])
    leadership = group["n1"].leadership
    assert leadership is not None
    assert not leadership.is_caught_up("n4", group.now_us)
    beat(group, 3)
    assert leadership.is_caught_up("n4", group.now_us)
    assert not leadership.is_caught_up("n9", group.now_us)
    group.crash("n4")
    group.tick(150 * MS)
    group.settle()
    group.tick(400 * MS)
    group.settle()
    assert not leadership.is_caught_up("n4", group.now_us)


def test_a_change_holds_from_when_it_is_appended_and_is_undone_when_it_is_cut() -> None:
    """Pitfall 33."""
    group = led_group()
    group.isolate("n1")
    group.change_members("n1", *TRIO, learners=["n4"])
    group.settle()
    assert group["n1"].log.membership.current.learners == {"n4"}
    group.elect("n2")
    group.heal()
    beat(group, 3)
    assert group["n1"].role is Role.FOLLOWER
    assert group["n1"].log.membership.current.learners == set()
    assert group.nodes["n1"].entries() == group.nodes["n2"].entries()


def test_which_members_are_committed_is_known_apart_from_which_are_in_force() -> None:
    """A new node that is let in believes it for good: it may be told of nothing that can be cut again."""
    group = led_group()
    group.isolate("n1")
    group.change_members("n1", *TRIO, learners=["n4"])
    group.settle()
    membership = group["n1"].log.membership
    assert "n4" in membership.current.all
    assert "n4" not in membership.committed.all
    group.heal()
    beat(group, 3)
    assert group["n1"].role is Role.LEADER
    assert "n4" in membership.committed.all


def test_a_follower_uses_the_newest_configuration_in_its_log_committed_or_not() -> None:
    """Pitfall 33: two majorities of neighbouring configurations have a node in common only then."""
    group = led_group()
    group.cut("n2", "n1")
    group.cut("n3", "n1")
    group.change_members("n1", "n1", "n2")
    group.settle()
    assert group["n1"].log.membership.index > group["n1"].commit_index
    assert group["n2"].log.membership.current.voters == {"n1", "n2"}


def test_one_change_at_a_time() -> None:
    """Pitfall 33: until it is committed there is no other."""
    group = led_group()
    group.isolate("n1")
    group.change_members("n1", *TRIO, learners=["n4"])
    assert group["n1"].members_problem == "another change of members is not committed yet"


def test_a_new_leader_changes_no_members_before_an_entry_of_its_own_term_is_committed() -> None:
    """Pitfall 34: an unknown change of an earlier leader may still come into force."""
    group = led_group()
    group.campaign("n2")
    while group["n2"].role is not Role.LEADER:
        group.deliver()
        for node_id in TRIO:
            group.persist(node_id)
    assert group["n2"].members_problem == "this leader is new and has not committed anything yet"
    group.settle()
    assert group["n2"].members_problem is None


@pytest.mark.parametrize("shape", ["two are added", "two are removed", "one is added and one removed"])
def test_the_bug_of_2015_in_three_shapes_commits_nothing_twice(shape: str) -> None:
    """Pitfall 34: an uncommitted change, another one by the next leader, and the first one back again."""
    group = led_group(4 if shape != "two are removed" else 5)
    everybody = sorted(group.voters)
    last = everybody[-1]
    first_change, second_change = {
        "two are added": ([*everybody, "n8"], [*everybody, "n9"]),
        "two are removed": ([n for n in everybody if n != last], [n for n in everybody if n != "n2"]),
        "one is added and one removed": ([*everybody, "n8"], [n for n in everybody if n != last]),
    }[shape]
    group.isolate("n1")
    group.change_members("n1", *first_change)
    group.settle()
    group.elect("n3")
    assert group["n3"].members_problem is None
    group.change_members("n3", *second_change)
    group.settle()
    committed = list(group.committed)
    assert len(committed) == group["n3"].commit_index
    group.heal()
    beat(group, 4)
    # The harness compares what each node commits with what the others did (state-machine safety).
    assert group.committed[: len(committed)] == committed
    assert group["n1"].log.membership.current == group["n3"].log.membership.current


def test_a_removed_leader_leads_until_that_is_committed_and_names_an_heir() -> None:
    """Pitfall 35; thesis 4.2.2."""
    group = led_group()
    group.change_members("n1", "n2", "n3")
    assert group["n1"].role is Role.LEADER
    for node_id in TRIO:
        group.persist(node_id)
    group.deliver()
    for node_id in TRIO:
        group.persist(node_id)
    group.deliver()
    assert group["n1"].role is Role.FOLLOWER
    assert group.sent(TimeoutNow, source="n1")
    group.settle()
    leaders = [n for n in ("n2", "n3") if group[n].role is Role.LEADER]
    assert len(leaders) == 1
    group.propose(leaders[0], b"goes on\n")
    group.settle()
    assert group.committed[-1][1] == b"goes on\n"


def test_a_removed_leader_does_not_count_itself() -> None:
    """Pitfall 27."""
    group = led_group()
    group.isolate("n3")
    group.change_members("n1", "n2", "n3")
    group.settle()
    # n1 and n2 have it on disk; n1 no longer votes, so only n2 of n2 and n3 counts.
    assert group["n1"].commit_index < group["n1"].log.last_index


def test_a_removed_server_that_knows_it_does_not_disturb_and_one_that_does_not_is_refused() -> None:
    """Pitfalls 16 and 35."""
    group = led_group()
    group.isolate("n3")
    group.change_members("n1", "n1", "n2")
    group.settle()
    beat(group)
    group.heal()
    term = group["n1"].term
    for _ in range(20):
        group.tick(100 * MS)
        group.settle()
    assert group["n1"].role is Role.LEADER
    assert group["n1"].term == term


def test_a_node_that_joins_knows_nobody_and_asks_nobody_for_votes() -> None:
    """Pitfall 35: until an entry names it, it has no vote."""
    group = led_group()
    group.join("n4")
    for _ in range(20):
        group.tick(100 * MS)
    assert not group.sent(RequestVote, source="n4")
    assert group["n4"].term == 0


def test_a_restarted_node_finds_the_members_in_its_log() -> None:
    """Pitfall 33: also after a crash."""
    group = led_group()
    group.change_members("n1", "n1", "n2")
    group.settle()
    group.crash("n2")
    group.start("n2")
    assert group["n2"].log.membership.current.voters == {"n1", "n2"}


def test_a_removed_followers_answers_count_for_nothing() -> None:
    """Pitfall 27: a majority is counted in the current configuration."""
    group = led_group()
    group.change_members("n1", "n1", "n2")
    group.settle()
    group.isolate("n2")
    index = group.propose("n1", b"x\n")
    leadership = group["n1"].leadership
    assert leadership is not None
    assert leadership.progress("n3") is None
    group["n3"].step(append("n3", 1, (index - 1, 1), 1, source="n1"))
    group.work("n3")
    group.settle()
    assert group["n1"].commit_index < index


def test_a_group_of_one_may_grow() -> None:
    """Rule 8, and pitfall 36: a change never leaves a group without a live majority that it had."""
    group = Group(1)
    group.tick(1)
    group.settle()
    group.change_members("n1", "n1")
    group.settle()
    group.join("n2")
    group.change_members("n1", "n1", learners=["n2"])
    beat(group, 3)
    leadership = group["n1"].leadership
    assert leadership is not None
    assert leadership.is_caught_up("n2", group.now_us)
    group.change_members("n1", "n1", "n2")
    beat(group, 2)
    assert group["n1"].commit_index == group["n1"].log.last_index == group["n2"].commit_index
    assert not any(isinstance(message, AppendEntries) and message.lines for message in group.network)
