"""Sections 5.4.2, 5.5 and 8 of the Raft paper: what is committed, when, and what a new leader does first."""

from dataclasses import replace

import pytest

from rollmq.core.members import Configuration
from rollmq.core.raft_messages import AppendResp
from rollmq.core.raft_ready import RaftSettings, Role
from tests.raft_paper.group import MS, Group, disk_of, terms_of


def test_an_entry_of_an_older_term_is_not_committed_by_counting_replicas() -> None:
    """Figure 8, pitfall 22: three of five have the entry of term 2, and still it is not committed."""
    disks = {"n1": disk_of(1, 2, term=3), "n2": disk_of(1, 2, term=3), "n3": disk_of(1, term=3)}
    disks |= {"n4": disk_of(1, term=3), "n5": disk_of(1, 3, term=3)}
    group = Group(5, disks=disks)
    group.cut("n1", "n4")
    group.cut("n1", "n5")
    group.on_ready = lambda _node, _ready: None
    core = group["n1"]
    group.isolate("n5")
    group.isolate("n4")
    group.campaign("n1")
    while core.role is not Role.LEADER:
        group.deliver()
        for node_id in group.nodes:
            group.persist(node_id)
    # Only the answers about entries 1 and 2 arrive; the noop is on no disk but the leader's.
    group.network.clear()
    group.persist("n1")
    for source in ("n2", "n3"):
        core.step(AppendResp(source, "n1", core.term, ok=True, prev_index=1, match_index=2))
    assert core.commit_index == 0
    core.step(AppendResp("n2", "n1", core.term, ok=True, prev_index=2, match_index=3))
    core.step(AppendResp("n3", "n1", core.term, ok=True, prev_index=2, match_index=3))
    assert core.commit_index == 3, "an entry of its own term commits all before it"


def test_an_entry_that_was_on_a_majority_in_an_older_term_can_still_be_overwritten() -> None:
    """Figure 8 (d): so nothing computed from it may have left."""
    disks = {"n1": disk_of(1, 2, term=4), "n2": disk_of(1, 2, term=4), "n3": disk_of(1, 2, term=4)}
    disks |= {"n4": disk_of(1, term=4), "n5": disk_of(1, 3, term=4)}
    group = Group(5, disks=disks)
    group.elect("n5")
    assert {tuple(terms_of(node)) for node in group.nodes.values()} == {(1, 3, 5)}
    assert [node.cuts for node in group.nodes.values()] == [[2], [2], [2], [], []]


def test_a_new_leader_commits_what_its_predecessors_left_with_its_first_own_entry() -> None:
    """5.4.2, pitfall 23."""
    group = Group(3, disks={"n1": disk_of(1, 1, term=1), "n2": disk_of(1, 1, term=1)})
    group.elect("n1")
    assert group.nodes["n1"].released == [b"1.1\n", b"1.2\n", b"noop-2\n"]


def test_a_new_leader_is_told_to_propose_a_noop_and_proposes_nothing_before_it() -> None:
    """8, pitfall 23."""
    group = Group(1)
    group.tick(0)
    core = group["n1"]
    writing = group.nodes["n1"].writing
    assert writing is not None
    core.persisted(writing[0])
    assert core.needs_noop
    assert not core.can_propose
    with pytest.raises(AssertionError, match="the noop comes first"):
        core.propose([b"job\n"])
    ready = core.ready()
    assert ready is not None
    assert (ready.needs_noop, ready.role, ready.role_changed) == (True, Role.LEADER, True)
    assert core.propose_noop(b"noop\n") == 1
    assert core.can_propose
    with pytest.raises(AssertionError, match="one noop per term"):
        core.propose_noop(b"noop\n")


def test_only_a_leader_proposes() -> None:
    group = Group(3)
    with pytest.raises(AssertionError, match="only a leader proposes"):
        group["n1"].propose([b"job\n"])
    with pytest.raises(AssertionError, match="only a leader proposes"):
        group["n1"].propose_noop(b"noop\n")


def test_next_index_and_term_are_those_that_the_proposed_line_gets() -> None:
    group = Group(3)
    group.elect("n1")
    core = group["n1"]
    expected = core.next_index
    assert core.propose([b"a\n", b"b\n"]) == expected
    assert core.next_index == expected + 2
    assert core.log.term_at(expected) == core.term


def test_an_entry_is_committed_once_a_majority_has_it_on_disk() -> None:
    """5.3, for groups of every size."""
    for size in range(1, 7):
        group = Group(size)
        if size == 1:
            group.tick(0)
            group.settle()
        else:
            group.elect("n1")
        index = group.propose("n1", b"job\n")
        group.network.clear()
        group.persist("n1")
        needed_count = size // 2
        for number in range(2, needed_count + 2):
            assert group["n1"].commit_index == index - 1, f"{number - 1} of {size}"
            group["n1"].step(AppendResp(f"n{number}", "n1", 1, ok=True, prev_index=1, match_index=index))
        assert group["n1"].commit_index == index, f"{needed_count + 1} of {size}"


def test_a_leader_that_is_no_voter_does_not_count_itself() -> None:
    """Pitfall 27."""
    group = Group(3)
    group.elect("n1")
    index = group.propose("n1", b"members\n")
    group["n1"].members_proposed(index, Configuration(frozenset({"n2", "n3"})))
    group.persist("n1")
    group["n1"].step(AppendResp("n2", "n1", 1, ok=True, prev_index=1, match_index=index))
    assert group["n1"].commit_index == index - 1
    group["n1"].step(AppendResp("n3", "n1", 1, ok=True, prev_index=1, match_index=index))
    assert group["n1"].commit_index == index


def test_followers_learn_what_is_committed_from_the_next_message() -> None:
    group = Group(3)
    group.elect("n1")
    group.propose("n1", b"job\n")
    group.settle()
    assert (group["n1"].commit_index, group["n2"].commit_index) == (2, 1)
    group.tick(group.settings.heartbeat_us)
    group.settle()
    assert group["n2"].commit_index == 2


def test_what_was_committed_survives_every_change_of_leader() -> None:
    """Leader completeness."""
    group = Group(5)
    for number, leader in enumerate(("n1", "n2", "n3", "n4", "n5", "n1"), start=1):
        for node in group.nodes.values():
            if node.raft.role is Role.LEADER:
                group.isolate(node.node_id)
                group.tick(600 * MS, node.node_id)
                group.heal()
        group.elect(leader)
        group.propose(leader, b"job-%d\n" % number)
        group.settle()
    group.tick(group.settings.heartbeat_us)
    group.settle()
    jobs = [[line for line in node.released if line.startswith(b"job")] for node in group.nodes.values()]
    assert jobs == [[b"job-%d\n" % number for number in range(1, 7)]] * 5


def test_a_deposed_leaders_uncommitted_lines_are_cut_and_its_host_is_told_from_where() -> None:
    """Rule 3: decided early, never spoken."""
    group = Group(3)
    group.elect("n1")
    group.isolate("n1")
    group.propose("n1", b"never\n", b"heard\n")
    group.settle()
    group.tick(600 * MS, "n1")
    assert not group["n1"].can_propose
    group.elect("n2")
    group.heal()
    group.tick(group.settings.heartbeat_us)
    group.settle()
    assert group.nodes["n1"].cuts == [2]
    assert group.nodes["n1"].entries() == group.nodes["n2"].entries()
    assert b"never\n" not in group.nodes["n1"].released


def test_a_deposed_leaders_lines_that_the_next_leader_has_are_committed_after_all() -> None:
    """Pitfall 39: an outcome that its client was told is unknown may be done."""
    group = Group(3)
    group.elect("n1")
    group.propose("n1", b"survives\n")
    group.cut("n1", "n3")
    group.cut("n2", "n1")
    group.deliver()
    group.settle()
    assert group["n1"].commit_index == 1
    group.isolate("n1")
    group.elect("n2")
    assert group.nodes["n2"].released[-2:] == [b"survives\n", b"noop-2\n"]
    group.heal()
    group.tick(700 * MS)
    group.settle()
    assert group.nodes["n1"].cuts == []


def test_uncommitted_bytes_are_bounded_and_freed_by_commit() -> None:
    """Pitfall 26."""
    group = Group(3, settings=replace(RaftSettings(), uncommitted_bytes_max=1000))
    group.elect("n1")
    assert group["n1"].can_propose
    group.propose("n1", b"x" * 1000)
    assert not group["n1"].can_propose
    group.settle()
    assert group["n1"].can_propose
    assert group["n1"].log.uncommitted_bytes == 0


def test_uncommitted_bytes_of_a_cut_tail_are_freed() -> None:
    group = Group(3)
    group.elect("n1")
    group.isolate("n1")
    group.propose("n1", b"x" * 1000)
    group.settle()
    group.tick(600 * MS, "n1")
    group.elect("n2")
    group.heal()
    group.tick(group.settings.heartbeat_us)
    group.settle()
    group.tick(group.settings.heartbeat_us)
    group.settle()
    assert (group["n1"].log.uncommitted_bytes, group["n1"].commit_index) == (0, 2)


def test_nothing_is_ready_when_nothing_happened() -> None:
    group = Group(3)
    group.elect("n1")
    assert [node.raft.ready() for node in group.nodes.values()] == [None, None, None]
    group.nodes["n2"].readies.clear()
    group.tick(10 * MS)
    assert group.nodes["n2"].readies == []


def test_a_change_of_term_role_or_leader_is_told_once() -> None:
    group = Group(3)
    group.elect("n1")
    changes = [(r.term, r.role, r.leader_id) for r in group.nodes["n2"].readies if r.role_changed]
    assert changes == [
        (0, Role.FOLLOWER, None),
        (1, Role.FOLLOWER, None),
        (1, Role.FOLLOWER, "n1"),
    ]
