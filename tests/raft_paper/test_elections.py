"""Sections 5.2 and 5.4.1 of the Raft paper, pre-vote and check-quorum of the thesis: a test per sentence."""

import pytest

from rollmq.core.members import Configuration
from rollmq.core.raft_election import Ballot, quorum_of
from rollmq.core.raft_messages import AppendEntries, AppendResp, RequestVote, TimeoutNow, VoteResp
from rollmq.core.raft_ready import HardState, Role
from tests.raft_paper.group import MS, Group, disk_of

TIMEOUT = 500 * MS


def ask(source: str, target: str, term: int, *, last: tuple[int, int] = (0, 0), **flags: bool) -> RequestVote:
    """A RequestVote whose sender's log ends with `last` = (term, index)."""
    return RequestVote(source, target, term, last_index=last[1], last_term=last[0], **flags)


def votes_given(group: Group) -> list[VoteResp]:
    """Answers to votes that are under way."""
    return [message for message in group.network if isinstance(message, VoteResp)]


def test_servers_start_as_followers() -> None:
    group = Group(3)
    assert {node.raft.role for node in group.nodes.values()} == {Role.FOLLOWER}
    assert group["n1"].leader_id is None


def test_a_follower_that_hears_nothing_over_the_election_timeout_begins_an_election() -> None:
    group = Group(3)
    group.tick(249 * MS)
    assert group["n1"].role is Role.FOLLOWER
    group.tick(251 * MS)
    assert group["n1"].role is Role.PRE_CANDIDATE


def test_election_timeouts_are_chosen_randomly_anew_for_each_election() -> None:
    """Pitfall 13."""
    chances = iter([0.0, 0.5, 1.0, 0.25])
    group = Group(3, chance=lambda: next(chances, 0.9))
    assert [group[n].deadline_us for n in ("n1", "n2", "n3")] == [250 * MS, 375 * MS, 500 * MS]
    group.tick(250 * MS, "n1")
    assert group["n1"].deadline_us == (250 + 312) * MS + 500


def test_a_candidate_increments_its_term_votes_for_itself_and_asks_all_the_others() -> None:
    group = Group(3)
    group.campaign("n1")
    group.deliver()
    group.deliver()
    group.persist("n1")
    assert (group["n1"].role, group["n1"].term, group["n1"].voted_for) == (Role.CANDIDATE, 1, "n1")
    assert {m.target for m in group.sent(RequestVote) if m.term == 1} == {"n2", "n3"}


def test_a_candidate_wins_with_votes_of_a_majority_for_the_same_term() -> None:
    group = Group(5)
    group.isolate("n4")
    group.isolate("n5")
    group.elect("n1")
    assert group["n1"].role is Role.LEADER
    assert group["n1"].commit_index == 1


def test_two_of_five_votes_are_not_a_majority() -> None:
    group = Group(5)
    for node_id in ("n3", "n4", "n5"):
        group.isolate(node_id)
    group.campaign("n1")
    group.settle()
    assert group["n1"].role is Role.PRE_CANDIDATE
    assert group["n1"].term == 0


@pytest.mark.parametrize(("voters", "quorum"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (6, 4), (7, 4)])
def test_a_majority_is_more_than_half(voters: int, quorum: int) -> None:
    assert quorum_of(voters) == quorum


def test_a_server_votes_for_at_most_one_candidate_in_a_term_first_come_first_served() -> None:
    """Pitfall 10."""
    group = Group(3)
    group["n1"].step(ask("n2", "n1", 1))
    group["n1"].step(ask("n3", "n1", 1))
    group.work("n1")
    group.persist("n1")
    assert [(v.target, v.granted) for v in votes_given(group)] == [("n2", True), ("n3", False)]
    group["n1"].step(ask("n2", "n1", 1))
    group.work("n1")
    assert votes_given(group)[-1].granted, "the same candidate may ask again: its answer was lost"


def test_votes_are_counted_once_per_voter_and_strangers_not_at_all() -> None:
    """Pitfall 10."""
    ballot = Ballot(asked_term=4, is_pre=False, voters=frozenset({"a", "b", "c", "d", "e"}))
    for voter in ("a", "b", "b", "b", "stranger", "another"):
        ballot.record(voter, granted=True)
    assert not ballot.is_won
    ballot.record("c", granted=False)
    ballot.record("c", granted=True)
    assert not ballot.is_won
    ballot.record("d", granted=True)
    assert ballot.is_won


def test_a_vote_for_an_earlier_term_does_not_count_in_this_one() -> None:
    """Pitfall 10: the candidate of term 2 gets late answers of term 1."""
    group = Group(3)
    group["n1"].step(AppendEntries("n2", "n1", 1, prev_index=0, prev_term=0, commit_index=0))
    group.work("n1")
    group.persist("n1")
    group.network.clear()
    group.tick(TIMEOUT, "n1")
    group["n1"].step(VoteResp("n2", "n1", 1, asked_term=2, granted=True, pre=True))
    group.work("n1")
    group.persist("n1")
    assert (group["n1"].role, group["n1"].term) == (Role.CANDIDATE, 2)
    group["n1"].step(VoteResp("n3", "n1", 2, asked_term=1, granted=True))
    group["n1"].step(VoteResp("n3", "n1", 1, asked_term=2, granted=True, pre=True))
    assert group["n1"].role is Role.CANDIDATE
    group["n1"].step(VoteResp("n3", "n1", 2, asked_term=2, granted=True))
    assert group["n1"].role is Role.LEADER


def test_a_candidate_that_hears_a_leader_of_its_term_returns_to_follower() -> None:
    group = Group(3)
    group.campaign("n1")
    group.deliver()
    group.deliver()
    group.persist("n1")
    assert group["n1"].role is Role.CANDIDATE
    group["n1"].step(AppendEntries("n2", "n1", 1, prev_index=0, prev_term=0, commit_index=0))
    assert (group["n1"].role, group["n1"].leader_id) == (Role.FOLLOWER, "n2")


def test_a_candidate_that_becomes_follower_in_its_term_keeps_its_vote() -> None:
    """Pitfall 6: otherwise it could vote again, and the term would have two leaders."""
    group = Group(3)
    group.campaign("n1")
    group.deliver()
    group.deliver()
    group.persist("n1")
    group["n1"].hold_campaign(True)
    assert (group["n1"].role, group["n1"].voted_for) == (Role.FOLLOWER, "n1")
    group["n1"].step(ask("n2", "n1", 1))
    group.work("n1")
    assert [v.granted for v in votes_given(group) if v.target == "n2"] == [False]


def test_a_leader_that_steps_down_in_its_term_keeps_its_vote() -> None:
    """Pitfall 6."""
    group = Group(3)
    group.elect("n1")
    group.isolate("n1")
    group.tick(600 * MS, "n1")
    assert (group["n1"].role, group["n1"].voted_for) == (Role.FOLLOWER, "n1")


def test_a_candidate_ignores_an_append_of_a_smaller_term_and_remains_candidate() -> None:
    """Pitfall 12: it is refused with our term."""
    group = Group(3, disks={"n1": disk_of(term=3)})
    group["n1"].step(AppendEntries("n2", "n1", 2, prev_index=0, prev_term=0, commit_index=0))
    group.work("n1")
    assert group["n1"].leader_id is None
    answer = group.sent(AppendResp)[0]
    assert isinstance(answer, AppendResp)
    assert (answer.ok, answer.term) == (False, 3)


def test_when_votes_are_split_a_new_election_begins_after_the_timeout() -> None:
    group = Group(3)
    group.campaign("n1")
    group.deliver()
    group.deliver()
    group.persist("n1")
    group.isolate("n1")
    group.network.clear()
    group.tick(TIMEOUT, "n1")
    assert group["n1"].role is Role.PRE_CANDIDATE
    assert group["n1"].term == 1


@pytest.mark.parametrize(
    ("candidate_last", "is_granted"),
    [((2, 1), True), ((1, 9), False), ((1, 3), False), ((2, 3), True), ((2, 2), False), ((3, 1), True)],
)
def test_a_voter_denies_its_vote_if_its_own_log_is_more_up_to_date(
    candidate_last: tuple[int, int], is_granted: bool
) -> None:
    """5.4.1, pitfall 9: the later last term wins; with equal terms the longer log."""
    own = (1, 1, 2) if candidate_last != (2, 1) else (2,)
    group = Group(3, disks={"n1": disk_of(*own, term=4)})
    group["n1"].step(ask("n2", "n1", 5, last=candidate_last))
    group.work("n1")
    group.persist("n1")
    assert [v.granted for v in votes_given(group)] == [is_granted]
    assert group["n1"].term == 5, "the newer term is adopted in any case"


def test_a_refused_candidate_does_not_delay_the_voters_own_election() -> None:
    """Pitfall 13: timers restart on a vote given, not on one refused."""
    group = Group(3, disks={"n1": disk_of(1, 1, term=1)}, chance=lambda: 0.5)
    group.tick(100 * MS, "n1")
    group["n1"].step(ask("n2", "n1", 2, last=(1, 1)))
    assert group["n1"].deadline_us <= 375 * MS
    group["n1"].step(ask("n3", "n1", 2, last=(1, 2)))
    assert group["n1"].voted_for == "n3"
    assert group["n1"].deadline_us == 475 * MS


def test_a_newer_term_in_any_message_is_adopted_and_persisted() -> None:
    """5.1, pitfall 11: also in answers and in messages that nobody handles yet."""
    for message in (
        AppendResp("n2", "n1", 7, ok=False, prev_index=0),
        VoteResp("n2", "n1", 7, asked_term=3, granted=False),
        VoteResp("n2", "n1", 7, asked_term=3, granted=False, pre=True),
        TimeoutNow("n2", "n1", 7),
        ask("n2", "n1", 7),
        AppendEntries("n2", "n1", 7, prev_index=9, prev_term=1, commit_index=0),
    ):
        group = Group(3)
        group["n1"].step(message)
        group.work("n1")
        group.persist("n1")
        assert group.nodes["n1"].disk.hard_state.term == 7


def test_a_leader_that_discovers_a_newer_term_reverts_to_follower() -> None:
    group = Group(3)
    group.elect("n1")
    group["n1"].step(AppendResp("n2", "n1", 5, ok=False, prev_index=0))
    assert (group["n1"].role, group["n1"].term, group["n1"].leader_id) == (Role.FOLLOWER, 5, None)
    assert not group["n1"].can_propose


def test_a_vote_request_of_a_smaller_term_is_refused_with_ours() -> None:
    """Pitfall 12."""
    group = Group(3, disks={"n1": disk_of(term=6)})
    group["n1"].step(ask("n2", "n1", 5))
    group.work("n1")
    assert [(v.granted, v.term) for v in votes_given(group)] == [(False, 6)]


# Pre-vote (thesis 9.6)


def test_a_pre_vote_changes_neither_term_nor_vote_nor_timer_of_who_is_asked() -> None:
    """Pitfall 14."""
    group = Group(3)
    deadline_us = group["n1"].deadline_us
    group["n1"].step(ask("n2", "n1", 8, pre=True))
    group.work("n1")
    assert votes_given(group)[0].granted
    assert (group["n1"].term, group["n1"].voted_for) == (0, None)
    assert group["n1"].deadline_us == deadline_us
    assert group.nodes["n1"].writing is None


def test_a_pre_candidate_does_not_increment_its_term_until_a_majority_would_vote_for_it() -> None:
    group = Group(3)
    group.isolate("n1")
    for _ in range(20):
        group.tick(TIMEOUT, "n1")
        group.settle()
    assert (group["n1"].term, group["n1"].role) == (0, Role.PRE_CANDIDATE)


def test_a_pre_vote_is_refused_while_a_leader_is_heard() -> None:
    """Pitfall 14, thesis 4.2.3: a node that comes back from a cut disturbs nobody."""
    group = Group(3)
    group.elect("n1")
    group.tick(150 * MS, "n1", "n2")
    group.settle()
    group["n2"].step(ask("n3", "n2", 2, last=(9, 9), pre=True))
    group.work("n2")
    assert [v.granted for v in votes_given(group)] == [False]


def test_a_pre_vote_is_given_to_the_leader_itself_when_it_stands_again() -> None:
    """Pitfall 14: loyalty to a leader is no reason against that leader."""
    group = Group(3)
    group.elect("n1")
    assert group["n2"].leader_id == "n1"
    group["n2"].step(ask("n1", "n2", 2, last=(1, 1), pre=True))
    group.work("n2")
    assert [v.granted for v in votes_given(group)] == [True]


def test_a_pre_vote_is_refused_for_a_term_that_is_not_new_or_a_log_that_is_old() -> None:
    group = Group(3, disks={"n1": disk_of(3, 3, term=4)})
    group["n1"].step(ask("n2", "n1", 4, last=(9, 9), pre=True))
    group["n1"].step(ask("n2", "n1", 5, last=(3, 1), pre=True))
    group.work("n1")
    assert [(v.granted, v.term) for v in votes_given(group)] == [(False, 4), (False, 4)]


def test_pre_votes_count_although_their_givers_are_in_older_terms() -> None:
    group = Group(3, disks={"n1": disk_of(term=9)})
    group.elect("n1")
    assert group["n2"].term == 10


def test_a_node_that_returns_from_a_cut_with_an_old_log_does_not_depose_the_leader() -> None:
    group = Group(3)
    group.elect("n1")
    group.isolate("n3")
    for _ in range(20):
        group.tick(100 * MS)
        group.settle()
        group.propose("n1", b"more\n")
    group.heal()
    for _ in range(20):
        group.tick(100 * MS)
        group.settle()
    assert (group["n1"].role, group["n1"].term) == (Role.LEADER, 1)
    assert group["n3"].leader_id == "n1"


# Loyalty and check-quorum (thesis 4.2.3 and 6.2)


def test_a_vote_request_is_ignored_within_the_minimum_election_timeout_of_hearing_a_leader() -> None:
    """Pitfall 16: its term is not adopted either."""
    group = Group(3)
    group.elect("n1")
    group["n2"].step(ask("n3", "n2", 5, last=(1, 1)))
    assert (group["n2"].term, group["n2"].leader_id) == (1, "n1")
    group.tick(251 * MS, "n2")
    group["n2"].step(ask("n3", "n2", 5, last=(1, 1)))
    assert (group["n2"].term, group["n2"].voted_for) == (5, "n3")


def test_a_vote_request_of_a_leadership_transfer_is_not_ignored() -> None:
    """Pitfall 16."""
    group = Group(3)
    group.elect("n1")
    group["n2"].step(ask("n3", "n2", 2, last=(1, 1), transfer=True))
    assert (group["n2"].term, group["n2"].voted_for) == (2, "n3")


def test_a_leader_steps_down_if_no_majority_answers_for_an_election_timeout() -> None:
    """Pitfall 15."""
    group = Group(3)
    group.elect("n1")
    group.isolate("n1")
    group.tick(450 * MS, "n1")
    assert group["n1"].role is Role.LEADER
    group.tick(100 * MS, "n1")
    assert (group["n1"].role, group["n1"].leader_id, group["n1"].term) == (Role.FOLLOWER, None, 1)


def test_a_leader_that_one_of_two_followers_answers_stays_leader() -> None:
    group = Group(3)
    group.elect("n1")
    group.isolate("n3")
    for _ in range(30):
        group.tick(50 * MS)
        group.settle()
    assert (group["n1"].role, group["n1"].term) == (Role.LEADER, 1)


def test_a_leader_that_was_paused_steps_down_before_it_does_anything() -> None:
    """Pitfall 40: after a SIGSTOP the clock has moved, and its first tick shows it."""
    group = Group(3)
    group.elect("n1")
    group.network.clear()
    group.tick(60_000 * MS, "n1")
    assert group["n1"].role is Role.FOLLOWER
    assert not group.appends_from("n1")


# Who may not stand, who may not vote


def test_a_single_voter_elects_itself_at_its_first_tick() -> None:
    group = Group(1)
    group.tick(0)
    assert group["n1"].role is Role.CANDIDATE, "its vote for itself is not on disk yet"
    group.persist("n1")
    assert group["n1"].role is Role.LEADER
    assert group.nodes["n1"].disk.hard_state == HardState(1, "n1")


def test_a_node_whose_campaign_is_held_does_not_stand_but_votes() -> None:
    group = Group(3)
    group["n1"].hold_campaign(True)
    for _ in range(5):
        group.tick(TIMEOUT, "n1")
    assert (group["n1"].role, group.network) == (Role.FOLLOWER, [])
    group["n1"].step(ask("n2", "n1", 1))
    assert group["n1"].voted_for == "n2"
    group["n1"].hold_campaign(False)
    group.tick(TIMEOUT, "n1")
    assert group["n1"].role is Role.PRE_CANDIDATE


def test_a_single_voter_stands_as_soon_as_its_campaign_is_no_longer_held() -> None:
    group = Group(1)
    group["n1"].hold_campaign(True)
    group.tick(0)
    assert group["n1"].role is Role.FOLLOWER
    group["n1"].hold_campaign(False)
    group.tick(0)
    assert group["n1"].role is Role.CANDIDATE


def test_a_node_without_a_vote_gives_none_confirms_nothing_and_never_stands() -> None:
    """Rule 7: a damaged node counts for nothing until it is repaired."""
    group = Group(3, disks={"n1": disk_of(1, 1)})
    group.crash("n1")
    group.start("n1", has_vote=False)
    group["n1"].step(ask("n2", "n1", 2, last=(1, 2), pre=True))
    group.work("n1")
    group["n1"].step(ask("n2", "n1", 2, last=(1, 2)))
    group.work("n1")
    group.persist("n1")
    assert [v.granted for v in votes_given(group)] == [False, False]
    group["n1"].step(
        AppendEntries(
            "n2", "n1", 2, prev_index=2, prev_term=1, commit_index=3, term_runs=((3, 2),), lines=[b"x"]
        )
    )
    group.work("n1")
    assert (group["n1"].leader_id, group["n1"].log.last_index, group["n1"].commit_index) == ("n2", 2, 0)
    assert not group.sent(AppendResp)
    group.tick(TIMEOUT, "n1")
    assert group["n1"].role is Role.FOLLOWER


def test_a_node_that_is_no_voter_does_not_stand() -> None:
    group = Group(3)
    group["n1"].log.membership.set_founders(Configuration(frozenset({"n2", "n3"})))
    group.tick(TIMEOUT, "n1")
    assert group["n1"].role is Role.FOLLOWER


def test_a_message_for_somebody_else_or_from_oneself_is_ignored_and_counted() -> None:
    """Pitfall 37."""
    group = Group(3)
    group["n1"].step(ask("n2", "n3", 9))
    group["n1"].step(ask("n1", "n1", 9))
    assert (group["n1"].term, group["n1"].ignored_count) == (0, 2)


def test_a_second_leader_in_ones_own_term_is_not_believed() -> None:
    """5.2: at most one leader per term, and this node is it."""
    group = Group(3)
    group.elect("n1")
    group["n1"].step(AppendEntries("n2", "n1", 1, prev_index=0, prev_term=0, commit_index=0))
    assert (group["n1"].role, group["n1"].ignored_count) == (Role.LEADER, 1)


def test_a_vote_that_was_not_asked_for_yet_is_ignored() -> None:
    """The request leaves only when the candidate's own vote is on disk, so no answer can be honest."""
    group = Group(3)
    group.campaign("n1")
    group.deliver()
    group.deliver()
    assert group["n1"].role is Role.CANDIDATE
    group["n1"].step(VoteResp("n2", "n1", 1, asked_term=1, granted=True))
    group["n1"].step(VoteResp("n3", "n1", 1, asked_term=1, granted=True))
    assert (group["n1"].role, group["n1"].ignored_count) == (Role.CANDIDATE, 2)
