"""What must be on disk before what may be said (figure 2, "persistent state"; section 5.2 and 10.2.1)."""

import pytest

from rollmq.core.raft_messages import AppendEntries, AppendResp, PeerMessage, RequestVote, VoteResp
from rollmq.core.raft_ready import HardState, Role
from tests.raft_paper.group import MS, Group, append, disk_of, terms_of


def written(group: Group, node_id: str) -> HardState | None:
    """Term and vote in the Write that is out."""
    writing = group.nodes[node_id].writing
    return writing[0].hard_state if writing else None


def test_a_vote_is_on_disk_before_the_answer_that_gives_it() -> None:
    """Pitfall 1; pitfall 2: term and vote in one record."""
    group = Group(3)
    group["n1"].step(RequestVote("n2", "n1", 1, last_index=0, last_term=0))
    group.work("n1")
    assert group.network == []
    assert written(group, "n1") == HardState(1, "n2")
    group.persist("n1")
    assert [type(message) for message in group.network] == [VoteResp]


def test_a_candidates_vote_for_itself_is_on_disk_before_it_asks() -> None:
    """Pitfall 3."""
    group = Group(3)
    group.campaign("n1")
    group.deliver()
    group.deliver()
    assert group["n1"].role is Role.CANDIDATE
    assert not [m for m in group.sent(RequestVote) if m.term == 1 and not getattr(m, "pre", True)]
    assert written(group, "n1") == HardState(1, "n1")
    group.persist("n1")
    assert len(group.sent(RequestVote)) == 2


def test_a_newer_term_is_on_disk_before_any_message_reveals_it() -> None:
    """Pitfall 1: even a refusal."""
    group = Group(3)
    group["n1"].step(append("n1", 4, (7, 3)))
    group.work("n1")
    assert group.network == []
    group.persist("n1")
    assert [(type(m), m.term) for m in group.network] == [(AppendResp, 4)]


def test_a_node_that_crashes_after_voting_does_not_vote_again_in_that_term() -> None:
    group = Group(3)
    group["n1"].step(RequestVote("n2", "n1", 1, last_index=0, last_term=0))
    group.work("n1")
    group.persist("n1")
    group.crash("n1")
    group.start("n1")
    group.network.clear()
    group["n1"].step(RequestVote("n3", "n1", 1, last_index=0, last_term=0))
    group.work("n1")
    assert [m.granted for m in group.network if isinstance(m, VoteResp)] == [False]


def test_a_vote_that_was_lost_in_a_crash_was_never_told() -> None:
    group = Group(3)
    group["n1"].step(RequestVote("n2", "n1", 1, last_index=0, last_term=0))
    group.work("n1")
    group.crash("n1")
    assert group.network == []


def test_a_follower_confirms_lines_only_when_they_are_on_its_disk() -> None:
    """Pitfall 4."""
    group = Group(3, disks={"n1": disk_of(term=1)})
    group["n1"].step(append("n1", 1, (0, 0), 1, 1))
    group.work("n1")
    assert group.network == []
    group.persist("n1")
    assert [m.match_index for m in group.network if isinstance(m, AppendResp)] == [2]


def test_a_heartbeat_during_a_slow_fsync_is_answered_but_confirms_only_what_is_on_disk() -> None:
    """Pitfall 4: a sign of life is no confirmation."""
    group = Group(3, disks={"n1": disk_of(1, term=1)})
    group["n1"].step(append("n1", 1, (1, 1), 1, 1))
    group.work("n1")
    group["n1"].step(append("n1", 1, (3, 1)))
    group.work("n1")
    answers = [m for m in group.network if isinstance(m, AppendResp)]
    assert [(m.ok, m.prev_index, m.match_index) for m in answers] == [(True, 3, 1)]


def test_lines_that_arrive_during_a_write_go_into_the_next_and_are_confirmed_with_it() -> None:
    """Group commit: one Write is out at a time."""
    group = Group(3, disks={"n1": disk_of(term=1)})
    for index in range(4):
        group["n1"].step(append("n1", 1, (index, 1 if index else 0), 1))
        group.work("n1")
    group.persist("n1")
    assert [m.match_index for m in group.sent(AppendResp) if isinstance(m, AppendResp)] == [1]
    writing = group.nodes["n1"].writing
    assert writing is not None
    assert (writing[0].first_index, len(writing[0].lines)) == (2, 3)
    group.persist("n1")
    assert [m.match_index for m in group.sent(AppendResp) if isinstance(m, AppendResp)] == [1, 4]


def test_the_same_lines_sent_again_while_they_are_being_written_are_confirmed_after_that_write() -> None:
    group = Group(3, disks={"n1": disk_of(term=1)})
    for _ in range(2):
        group["n1"].step(append("n1", 1, (0, 0), 1, 1))
        group.work("n1")
    group.persist("n1")
    assert [m.match_index for m in group.network if isinstance(m, AppendResp)] == [2, 2]
    assert group.nodes["n1"].writing is None


def test_a_leader_sends_lines_beside_its_own_write_but_counts_itself_only_after_it() -> None:
    """10.2.1, pitfall 4."""
    group = Group(3)
    group.elect("n1")
    index = group.propose("n1", b"job\n")
    assert len(group.appends_from("n1")) == 2, "sent before its own fsync"
    group.deliver()
    group.isolate("n3")
    group.network.clear()
    group.persist("n2")
    group.deliver()
    assert group["n1"].commit_index == index - 1, "one of three: only n2 has it on disk"
    group.persist("n1")
    assert group["n1"].commit_index == index


def test_lines_may_be_committed_by_the_others_before_they_are_on_the_leaders_disk() -> None:
    """The one order of pointers that does not hold: commit_index may be ahead of persisted_index."""
    group = Group(3)
    group.elect("n1")
    index = group.propose("n1", b"job\n")
    group.deliver()
    group.persist("n2")
    group.persist("n3")
    group.deliver()
    log = group["n1"].log
    assert (log.commit_index, log.persisted_index) == (index, index - 1)
    assert group.nodes["n1"].released[-1] == b"job\n"


def test_a_single_voter_commits_only_after_its_fsync() -> None:
    """Pitfall 4: alone, too."""
    group = Group(1)
    group.tick(0)
    group.settle()
    index = group.propose("n1", b"job\n")
    assert group["n1"].commit_index == index - 1
    group.propose("n1", b"next\n")
    group.persist("n1")
    assert (group["n1"].commit_index, group.nodes["n1"].released[-1]) == (index, b"job\n")


def test_a_restarted_single_voter_keeps_term_vote_and_log_and_leads_in_a_new_term() -> None:
    group = Group(1)
    group.tick(0)
    group.settle()
    group.propose("n1", b"a\n", b"b\n")
    group.settle()
    group.crash("n1")
    group.start("n1")
    group.tick(0)
    group.settle()
    assert (group["n1"].term, terms_of(group.nodes["n1"])) == (2, [1, 1, 1, 2])
    assert group.nodes["n1"].released == [b"noop-1\n", b"a\n", b"b\n", b"noop-2\n"]


def test_a_write_that_was_begun_before_a_crash_leaves_a_usable_beginning() -> None:
    group = Group(1)
    group.tick(0)
    group.settle()
    group.propose("n1", b"a\n", b"b\n", b"c\n")
    group.crash("n1", begun=True, lines_count=2)
    group.start("n1")
    group.tick(0)
    group.settle()
    assert group.nodes["n1"].released == [b"noop-1\n", b"a\n", b"b\n", b"noop-2\n"]


def test_a_line_that_was_cut_while_it_was_being_written_does_not_count_as_written() -> None:
    """It may even return with the same index and term: the disk will first cut it, then write it again."""
    group = Group(3, disks={"n1": disk_of(1, term=1)})
    core = group["n1"]
    core.step(append("n1", 1, (1, 1), 1, 1))
    group.work("n1")
    core.step(append("n1", 2, (1, 1), 2, source="n3"))
    group.work("n1")
    core.step(append("n1", 3, (1, 1), 1, 1, 3))
    group.work("n1")
    group.network.clear()
    group.persist("n1")
    assert core.log.persisted_index == 1
    writing = group.nodes["n1"].writing
    assert writing is not None
    assert (writing[0].truncate_from, writing[0].first_index, len(writing[0].lines)) == (2, 2, 3)
    group.persist("n1")
    assert (core.log.persisted_index, group.nodes["n1"].cuts) == (4, [2, 2])
    assert [t for t, _ in group.nodes["n1"].disk.entries] == [1, 1, 1, 3]


def test_answers_of_an_older_term_that_wait_for_the_disk_are_never_sent() -> None:
    group = Group(3, disks={"n1": disk_of(1, term=1)})
    group["n1"].step(append("n1", 1, (1, 1), 1, 1))
    group["n1"].step(RequestVote("n3", "n1", 2, last_index=9, last_term=1, transfer=True))
    group.work("n1")
    group.persist("n1")
    kinds: list[type[PeerMessage]] = [type(message) for message in group.network]
    assert kinds == [VoteResp]


def test_requests_for_votes_of_a_term_that_is_over_are_never_sent() -> None:
    """They waited for the disk; meanwhile a newer term came."""
    group = Group(3)
    group.campaign("n1")
    group.deliver()
    group.deliver()
    group.network.clear()
    group["n1"].step(append("n1", 5, (0, 0)))
    group.work("n1")
    group.persist("n1")
    group.persist("n1")
    assert [type(m) for m in group.network if m.term < 5] == [RequestVote, RequestVote], (
        "these were in the Write"
    )
    assert [type(m) for m in group.network if m.term == 5] == [AppendResp]
    assert group.nodes["n1"].disk.hard_state == HardState(5, None)


def test_a_vote_that_no_write_has_carried_yet_is_not_told_once_the_term_is_over() -> None:
    group = Group(3)
    group["n1"].step(append("n1", 1, (0, 0)))
    group.work("n1")
    group["n1"].step(RequestVote("n3", "n1", 2, last_index=0, last_term=0, transfer=True))
    group.work("n1")
    group["n1"].step(append("n1", 3, (0, 0)))
    group.work("n1")
    group.persist("n1")
    group.persist("n1")
    assert [type(m) for m in group.network] == [AppendResp, AppendResp]
    assert [m.term for m in group.network] == [1, 3]


def test_a_write_is_bounded_and_the_rest_follows_in_the_next() -> None:
    group = Group(1)
    group.tick(0)
    group.settle()
    bound = group.settings.write_bytes_max
    group.propose("n1", b"x" * (bound // 2), b"y" * (bound // 2), b"z" * (bound + 1), b"end\n")
    sizes = []
    while (writing := group.nodes["n1"].writing) is not None:
        sizes.append(len(writing[0].lines))
        group.persist("n1")
    assert sizes == [2, 1, 1]


def test_a_follower_confirms_part_of_a_message_when_only_part_is_written() -> None:
    """The confirmation never exceeds what one bounded Write made durable."""
    group = Group(3, disks={"n1": disk_of(term=1)})
    half = b"x" * (group.settings.write_bytes_max // 2)
    message = AppendEntries(
        "n2", "n1", 1, prev_index=0, prev_term=0, commit_index=0, term_runs=((1, 1),), lines=[half] * 3
    )
    group["n1"].step(message)
    group.work("n1")
    group.persist("n1")
    group.persist("n1")
    assert [m.match_index for m in group.network if isinstance(m, AppendResp)] == [2, 3]


def test_the_host_may_report_only_the_write_that_is_out() -> None:
    group = Group(1)
    group.tick(0)
    writing = group.nodes["n1"].writing
    assert writing is not None
    group.persist("n1")
    with pytest.raises(AssertionError, match="the one Write"):
        group["n1"].persisted(writing[0])


def test_a_log_newer_than_the_term_on_disk_is_refused_at_start() -> None:
    with pytest.raises(AssertionError, match="the term is on disk before any line of it"):
        Group(1, disks={"n1": disk_of(3, term=2)})


def test_time_never_runs_backwards() -> None:
    group = Group(3)
    group.tick(10 * MS)
    with pytest.raises(AssertionError, match="monotonic"):
        group["n1"].tick(9 * MS)
