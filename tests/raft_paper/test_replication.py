"""Section 5.3 of the Raft paper, a test per sentence: consistency check, conflicts, back-off, pipelining."""

from dataclasses import replace

import pytest

from rollmq.core.raft_messages import AppendEntries, AppendResp, PeerMessage
from rollmq.core.raft_ready import RaftSettings, Role
from tests.raft_paper.group import MS, Disk, Group, append, disk_of, terms_of
from tests.raft_paper.storm import SMALL

LEADER_TERMS = (1, 1, 1, 4, 4, 5, 5, 6, 6, 6)
FIGURE_7 = {
    "a": (1, 1, 1, 4, 4, 5, 5, 6, 6),
    "b": (1, 1, 1, 4),
    "c": (1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 6),
    "d": (1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 7, 7),
    "e": (1, 1, 1, 4, 4, 4, 4),
    "f": (1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3),
}


def follower(*terms: int, term: int) -> Group:
    """A group of which n1 has this log, and only n1 is looked at."""
    return Group(3, disks={"n1": disk_of(*terms, term=term)})


def say(group: Group, message: PeerMessage) -> AppendResp | None:
    """Hand n1 a message; its answer once everything is on disk."""
    before_count = len(group.network)
    group["n1"].step(message)
    group.work("n1")
    while group.nodes["n1"].writing is not None:
        group.persist("n1")
    answers = [m for m in group.network[before_count:] if isinstance(m, AppendResp)]
    return answers[-1] if answers else None


def leader_of(group: Group, node_id: str = "n1") -> None:
    """n1 leads, everything is delivered, and nothing is under way."""
    group.elect(node_id)
    group.tick(group.settings.heartbeat_us)
    group.settle()


def test_a_leader_appends_a_line_and_sends_it_to_all_the_others_at_once() -> None:
    group = Group(3)
    leader_of(group)
    group.propose("n1", b"job\n")
    assert [(m.target, m.lines) for m in group.appends_from("n1")] == [("n2", [b"job\n"]), ("n3", [b"job\n"])]


def test_a_follower_that_does_not_find_the_entry_before_the_new_ones_refuses_them() -> None:
    """Pitfall 18."""
    group = follower(1, 1, term=2)
    answer = say(group, append("n1", 2, (3, 2), 2))
    assert answer is not None
    assert (answer.ok, group["n1"].log.last_index) == (False, 2)
    answer = say(group, append("n1", 2, (2, 2), 2))
    assert answer is not None
    assert not answer.ok, "an entry of the same index but another term is not the same entry"


def test_a_heartbeat_makes_the_same_consistency_check() -> None:
    """Pitfall 21."""
    group = follower(1, 1, term=2)
    answer = say(group, append("n1", 2, (2, 2), commit=2))
    assert answer is not None
    assert (answer.ok, group["n1"].commit_index) == (False, 0)


def test_an_entry_that_conflicts_is_deleted_with_all_that_follow_it() -> None:
    group = follower(1, 1, 2, 2, 2, term=3)
    say(group, append("n1", 3, (2, 1), 3))
    assert terms_of(group.nodes["n1"]) == [1, 1, 3]
    assert [t for t, _ in group.nodes["n1"].disk.entries] == [1, 1, 3]
    assert group.nodes["n1"].cuts == [3], "the host is told from where on"


def test_entries_that_are_there_already_are_not_deleted_by_a_shorter_or_older_message() -> None:
    """Pitfall 18: messages may be repeated and reordered."""
    group = follower(term=3)
    say(group, append("n1", 3, (0, 0), 1, 1, 3, 3))
    for late in (append("n1", 3, (0, 0), 1, 1), append("n1", 3, (1, 1)), append("n1", 3, (1, 1), 1, 3)):
        answer = say(group, late)
        assert answer is not None
        assert answer.ok
    assert terms_of(group.nodes["n1"]) == [1, 1, 3, 3]
    assert group.nodes["n1"].cuts == []


def test_deletion_begins_at_the_first_conflict_and_keeps_what_is_equal() -> None:
    """Pitfall 18: the lines before the conflict are not even written again."""
    group = follower(1, 1, 2, 2, term=3)
    group["n1"].step(append("n1", 3, (0, 0), 1, 1, 3, 3, 3))
    group.work("n1")
    writing = group.nodes["n1"].writing
    assert writing is not None
    assert (writing[0].truncate_from, writing[0].first_index, len(writing[0].lines)) == (3, 3, 3)


def test_nothing_is_ever_cut_at_or_below_the_commit_index() -> None:
    """Pitfall 19: a leader that contradicts a committed entry halts this node; others carry on."""
    for message in (
        append("n1", 5, (1, 1), 3, 3, 3),
        append("n1", 5, (2, 3), 3),
        append("n1", 5, (0, 0), 1, 5),
    ):
        group = follower(1, 1, 1, term=1)
        say(group, append("n1", 1, (3, 1), commit=2))
        with pytest.raises(AssertionError, match="the leader's log has what is committed here"):
            group["n1"].step(message)
        assert group["n1"].log.last_index == 3
    with pytest.raises(AssertionError, match="a committed entry is never cut"):
        group["n1"].log.cut(2)


def test_a_message_that_lies_wholly_before_the_commit_index_is_confirmed_and_changes_nothing() -> None:
    group = follower(1, 1, 1, term=1)
    say(group, append("n1", 1, (3, 1), commit=3))
    answer = say(group, append("n1", 1, (0, 0), 1, 1))
    assert answer is not None
    assert (answer.ok, answer.match_index) == (True, 2)


def test_what_is_confirmed_is_computed_from_the_request_and_not_from_the_length_of_the_log() -> None:
    """Pitfall 20: the tail may be another leader's."""
    group = follower(1, 1, 2, 2, 2, term=3)
    answer = say(group, append("n1", 3, (1, 1), 1))
    assert answer is not None
    assert (answer.ok, answer.match_index) == (True, 2)


def test_an_answer_that_waited_for_the_disk_confirms_no_more_than_its_request_either() -> None:
    """Pitfall 20: 3.2 to 5.2 are being written when the next leader sends 3.2 only."""
    group = follower(1, 1, term=2)
    group["n1"].step(append("n1", 2, (2, 1), 2, 2, 2))
    group.work("n1")
    answer = say(group, append("n1", 3, (2, 1), 2, source="n3"))
    assert answer is not None
    assert group["n1"].log.persisted_index == 5
    assert (answer.target, answer.match_index) == ("n3", 3)


def test_a_followers_commit_index_goes_no_further_than_what_was_verified() -> None:
    """Pitfall 21: min(leaderCommit, index of the last entry known to be equal)."""
    group = follower(1, 1, 2, 2, 2, term=3)
    say(group, append("n1", 3, (1, 1), commit=4))
    assert group["n1"].commit_index == 1
    say(group, append("n1", 3, (1, 1), 1, commit=4))
    assert group["n1"].commit_index == 2


@pytest.mark.parametrize("name", FIGURE_7)
def test_a_leader_brings_every_log_of_figure_7_in_line_with_its_own(name: str) -> None:
    leader_disk = disk_of(*LEADER_TERMS, term=7)
    other = disk_of(*FIGURE_7[name], term=7)
    group = Group(3, disks={"n1": leader_disk, "n2": other, "n3": disk_of(*LEADER_TERMS, term=7)})
    group.isolate("n2")
    group.elect("n1")
    group.heal()
    group.tick(group.settings.heartbeat_us)
    group.settle()
    assert terms_of(group.nodes["n2"]) == [*LEADER_TERMS, 8]
    assert group.nodes["n2"].entries() == group.nodes["n1"].entries()


def test_back_off_skips_whole_terms() -> None:
    """5.3, end; pitfall 25: one refusal per term in which the logs differ, not one per entry."""
    own = (1,) * 5 + (4,) * 50
    others = (1,) * 5 + (2,) * 60 + (3,) * 60
    group = Group(3, disks={"n1": disk_of(*own, term=4), "n2": disk_of(*others, term=4), "n3": disk_of(*own)})
    refusals = 0
    group.isolate("n2")
    group.elect("n1")
    group.heal()
    group.tick(group.settings.heartbeat_us)
    while group.network:
        refusals += sum(isinstance(m, AppendResp) and not m.ok for m in group.network)
        group.deliver()
        for node_id in group.nodes:
            group.persist(node_id)
            group.read(node_id)
    assert 1 <= refusals <= 2
    assert terms_of(group.nodes["n2"]) == [*own, 5]


def test_a_leader_never_overwrites_or_deletes_entries_in_its_own_log() -> None:
    """Leader append-only."""
    group = Group(3, disks={"n1": disk_of(1, 1, 2, term=2), "n2": disk_of(1, 1, 1, 1, 1, term=2)})
    group.elect("n1")
    assert terms_of(group.nodes["n1"]) == [1, 1, 2, 3]
    assert group.nodes["n1"].cuts == []
    assert terms_of(group.nodes["n2"]) == [1, 1, 2, 3]


def test_a_message_that_overwrites_what_the_same_leader_had_sent_is_ignored_and_counted() -> None:
    """Leader append-only, seen from a follower: whoever does that is not this term's leader."""
    group = follower(1, term=3)
    say(group, append("n1", 3, (1, 1), 2, 2))
    assert say(group, append("n1", 3, (1, 1), 3)) is None
    assert terms_of(group.nodes["n1"]) == [1, 2, 2]
    assert group["n1"].ignored_count == 1
    say(group, append("n1", 4, (1, 1), 4))
    assert (terms_of(group.nodes["n1"]), group["n1"].ignored_count) == ([1, 4], 1)


def test_match_index_only_grows_and_next_index_stays_beyond_it() -> None:
    """Pitfall 20: late and repeated answers change nothing."""
    group = Group(3)
    leader_of(group)
    group.propose("n1", b"a\n", b"b\n", b"c\n")
    group.settle()
    leadership = group["n1"]._leadership
    assert leadership is not None
    progress = leadership.progress("n2")
    assert progress is not None
    assert (progress.match_index, progress.next_index) == (4, 5)
    group["n1"].step(AppendResp("n2", "n1", 1, ok=True, prev_index=0, match_index=1))
    group["n1"].step(AppendResp("n2", "n1", 1, ok=False, prev_index=2, hint_index=0))
    assert (progress.match_index, progress.next_index) == (4, 5)
    assert not progress.is_probing, "a late refusal does not slow down what goes well"
    group.propose("n1", b"d\n")
    group["n1"].step(AppendResp("n2", "n1", 1, ok=False, prev_index=5, hint_index=0))
    assert progress.next_index > progress.match_index == 4


def test_while_it_seeks_only_the_answer_to_the_last_question_moves_the_leader_back() -> None:
    """Pitfall 25: repeated refusals do not add up."""
    group = Group(3, disks={"n1": disk_of(*[1] * 20), "n2": disk_of(*[1] * 5), "n3": disk_of(*[1] * 20)})
    group.isolate("n2")
    group.elect("n1")
    leadership = group["n1"]._leadership
    assert leadership is not None
    progress = leadership.progress("n2")
    assert progress is not None
    assert (progress.is_probing, progress.next_index) == (True, 21)
    term = group["n1"].term
    for late_index in (15, 25, 3):
        group["n1"].step(AppendResp("n2", "n1", term, ok=False, prev_index=late_index, hint_index=0))
    assert progress.next_index == 21
    group["n1"].step(AppendResp("n2", "n1", term, ok=False, prev_index=20, hint_index=5, hint_term=1))
    assert progress.next_index == 6


def test_an_answer_that_confirms_more_than_was_ever_sent_is_ignored() -> None:
    group = Group(3)
    leader_of(group)
    for source in ("n2", "n3", "stranger"):
        group["n1"].step(AppendResp(source, "n1", 1, ok=True, prev_index=0, match_index=99))
    assert group["n1"].commit_index == 1


def test_an_answer_of_an_older_term_is_ignored() -> None:
    """Pitfall 20: it was about another leader's log."""
    group = Group(3, disks={"n1": disk_of(term=5)})
    leader_of(group)
    group.isolate("n2")
    group.isolate("n3")
    index = group.propose("n1", b"job\n")
    group.persist("n1")
    group["n1"].step(AppendResp("n2", "n1", 5, ok=True, prev_index=0, match_index=index))
    assert group["n1"].commit_index == index - 1


def test_appends_are_pipelined_up_to_a_window_and_no_further() -> None:
    """Pitfall 26."""
    group = Group(3, settings=replace(RaftSettings(), appends_inflight_max=4))
    leader_of(group)
    for number in range(10):
        group.propose("n1", b"%d\n" % number)
    assert len([m for m in group.appends_from("n1") if m.target == "n2"]) == 4
    group.settle()
    assert group["n2"].log.last_index == 11


def test_the_window_is_bounded_in_bytes_too() -> None:
    """Pitfall 26."""
    group = Group(3, settings=replace(RaftSettings(), append_bytes_max=100, appends_inflight_bytes_max=250))
    leader_of(group)
    group.propose("n1", *[b"x" * 60] * 20)
    to_n2 = [m for m in group.appends_from("n1") if m.target == "n2"]
    assert [len(m.lines) for m in to_n2] == [1, 1, 1, 1, 1]
    assert sum(len(line) for m in to_n2 for line in m.lines) <= 250 + 60


def test_a_line_longer_than_every_bound_travels_alone() -> None:
    group = Group(3, settings=SMALL)
    leader_of(group)
    group.propose("n1", b"s\n", b"x" * 1000, b"t\n")
    group.settle()
    assert group.nodes["n1"].released[-3:] == [b"s\n", b"x" * 1000, b"t\n"]
    assert group["n2"].log.last_index == 4


def test_one_slow_follower_holds_up_nobody_else() -> None:
    """Pitfall 26."""
    group = Group(3, settings=SMALL)
    leader_of(group)
    group.isolate("n3")
    for number in range(50):
        group.propose("n1", b"%d\n" % number)
        group.settle()
    assert group["n1"].commit_index == 51
    assert group["n2"].log.last_index == 51


def test_lines_lost_on_the_way_show_at_the_next_heartbeat_and_are_sent_again() -> None:
    group = Group(3)
    leader_of(group)
    group.propose("n1", b"lost\n")
    group.network = [m for m in group.network if m.target != "n2"]
    group.propose("n1", b"late\n")
    group.network = [m for m in group.network if m.target != "n2"]
    group.settle()
    assert group["n2"].log.last_index == 1
    group.tick(group.settings.heartbeat_us)
    group.settle()
    assert group["n2"].log.last_index == 3


def test_while_it_seeks_the_common_entry_a_leader_sends_one_message_at_a_time() -> None:
    group = Group(3)
    group.campaign("n1")
    while group["n1"].role is not Role.LEADER:
        group.deliver()
        for node_id in group.nodes:
            group.persist(node_id)
    group.network.clear()
    for number in range(5):
        group.propose("n1", b"%d\n" % number)
    assert group.appends_from("n1") == []
    group.tick(group.settings.heartbeat_us, "n1")
    assert [(m.target, m.lines) for m in group.appends_from("n1")] == [("n2", []), ("n3", [])]


def test_a_follower_far_behind_gets_lines_that_the_host_reads_from_its_store() -> None:
    group = Group(3, settings=SMALL)
    leader_of(group)
    group.isolate("n3")
    for number in range(60):
        group.propose("n1", b"%d\n" % number)
        group.settle()
    assert group["n1"].log.held_index > 30, "memory holds a bounded tail"
    group.heal()
    group.tick(group.settings.heartbeat_us)
    asked = []
    for _ in range(200):
        group.deliver()
        asked += group.nodes["n1"].reads
        for node_id in group.nodes:
            group.persist(node_id)
            group.read(node_id)
    assert asked
    assert all(request.target == "n3" for request in asked)
    assert group.nodes["n3"].entries() == group.nodes["n1"].entries()


def test_lines_that_were_read_for_an_earlier_question_are_dropped() -> None:
    group = Group(3, settings=SMALL)
    leader_of(group)
    group.isolate("n3")
    for number in range(60):
        group.propose("n1", b"%d\n" % number)
        group.settle()
    group.heal()
    group.tick(group.settings.heartbeat_us)
    while not group.nodes["n1"].reads:
        group.deliver()
    request = group.nodes["n1"].reads[0]
    lines = [line for _, line in group.nodes["n1"].disk.entries[request.first_index - 1 : request.last_index]]
    group.network.clear()
    group["n1"].lines_read(replace(request, first_index=1), lines)
    group["n1"].lines_read(replace(request, term=7), lines)
    group["n1"].lines_read(replace(request, target="n2"), lines)
    group.work("n1")
    assert not group.appends_from("n1")
    group["n1"].lines_read(request, lines)
    group["n1"].lines_read(request, lines)
    group.work("n1")
    assert [m.prev_index for m in group.appends_from("n1")] == [request.first_index - 1]


def test_a_follower_whose_next_line_is_gone_is_marked_as_needing_a_snapshot() -> None:
    """Pitfall 25: back-off stops at the snapshot."""
    group = Group(3, settings=SMALL)
    leader_of(group)
    group.isolate("n3")
    for number in range(30):
        group.propose("n1", b"%d\n" % number)
        group.settle()
    group["n1"].log.compact_to(20)
    group.heal()
    for _ in range(3):
        group.tick(group.settings.heartbeat_us)
        group.settle()
    leadership = group["n1"]._leadership
    assert leadership is not None
    progress = leadership.progress("n3")
    assert progress is not None
    assert progress.needs_snapshot
    assert group["n1"].role is Role.LEADER
    assert group["n3"].leader_id == "n1", "it still hears heartbeats, so it does not campaign"


def test_a_store_that_no_longer_has_the_lines_asked_for_leads_to_a_snapshot() -> None:
    group = Group(3, settings=SMALL)
    leader_of(group)
    group.isolate("n3")
    for number in range(60):
        group.propose("n1", b"%d\n" % number)
        group.settle()
    group.heal()
    group.tick(group.settings.heartbeat_us)
    while not group.nodes["n1"].reads:
        group.deliver()
    leadership = group["n1"]._leadership
    assert leadership is not None
    group["n1"].lines_read(group.nodes["n1"].reads[0], [])
    progress = leadership.progress("n3")
    assert progress is not None
    assert progress.needs_snapshot


@pytest.mark.parametrize(
    "message",
    [
        AppendEntries("n2", "n1", 3, prev_index=-1, prev_term=0, commit_index=0),
        AppendEntries("n2", "n1", 3, prev_index=0, prev_term=-1, commit_index=0),
        AppendEntries("n2", "n1", 3, prev_index=0, prev_term=0, commit_index=-1),
        AppendEntries("n2", "n1", 3, prev_index=0, prev_term=4, commit_index=0),
        AppendEntries("n2", "n1", 3, prev_index=0, prev_term=0, commit_index=0, lines=[b"x"]),
        AppendEntries("n2", "n1", 3, prev_index=0, prev_term=0, commit_index=0, term_runs=((1, 1),)),
        AppendEntries(
            "n2", "n1", 3, prev_index=0, prev_term=0, commit_index=0, term_runs=((2, 1),), lines=[b"x"]
        ),
        AppendEntries(
            "n2", "n1", 3, prev_index=0, prev_term=0, commit_index=0, term_runs=((1, 4),), lines=[b"x"]
        ),
        AppendEntries(
            "n2",
            "n1",
            3,
            prev_index=0,
            prev_term=0,
            commit_index=0,
            term_runs=((1, 2), (2, 1)),
            lines=[b"x", b"y"],
        ),
        AppendEntries(
            "n2", "n1", 3, prev_index=0, prev_term=0, commit_index=0, term_runs=((1, 1), (2, 2)), lines=[b"x"]
        ),
        AppendEntries("n2", "n1", -3, prev_index=0, prev_term=0, commit_index=0),
    ],
)
def test_a_message_that_can_describe_no_log_is_ignored_and_counted(message: AppendEntries) -> None:
    group = Group(3, disks={"n1": Disk()})
    group["n1"].step(message)
    group.work("n1")
    assert group["n1"].ignored_count == 1
    assert group["n1"].log.last_index == 0


def test_counts_of_the_state_are_told_in_answers_also_across_terms() -> None:
    """Rule 5: replicas compare what they hold."""
    group = follower(term=1)
    group["n1"].tell_counts(7, b"digest")
    for term in (1, 2):
        answer = say(group, append("n1", term, (0, 0)))
        assert answer is not None
        assert (answer.counts_index, answer.counts) == (7, b"digest")


def test_a_leader_sends_heartbeats_in_every_interval_and_says_who_leads() -> None:
    group = Group(3)
    leader_of(group)
    group.tick(149 * MS)
    assert not group.appends_from("n1")
    group.tick(1 * MS)
    assert len(group.appends_from("n1")) == 2
    group.settle()
    assert {node.raft.leader_id for node in group.nodes.values()} == {"n1"}
