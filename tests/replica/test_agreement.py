"""Rule 5: a replica that is another one than the group's is found at the next marker, and stops."""

import pytest

from rollmq.core.agreement import Agreement
from rollmq.core.raft_ready import Role
from tests.replica.stopping import Stopping, change_a_line, led, restarted
from tests.replica.trio import Member


def test_nobody_stops_while_all_agree() -> None:
    trio, leader, followers = led()
    leader.replica.mark()
    trio.run(1_000)
    assert trio.stopped == {}
    assert leader.replica.agreement.differing == {}
    marker = leader.replica.segment_first_index - 1
    for follower in followers:
        progress = leader.replica.raft.leadership.progress(follower.node_id)  # type: ignore[union-attr]
        assert progress is not None
        assert (progress.counts_index, progress.refused_index) == (marker, 0)


def test_a_follower_with_another_segment_refuses_the_marker_and_stops_when_it_is_committed() -> None:
    trio, leader, (odd, other) = led()
    change_a_line(odd)
    leader.replica.mark()
    marker = leader.replica.segment_first_index - 1
    trio.run(1_000)
    assert list(trio.stopped) == [odd.node_id]
    assert (
        f"the segment that this marker ends (entry {marker}) is not the same here"
        in trio.stopped[odd.node_id]
    )
    assert len(odd.lines) == marker - 1, "the marker never came to its disk"
    job = trio.submit(leader)
    trio.run(500)
    assert job in leader.accepted()
    assert other.replica.machine.last_index == leader.replica.machine.last_index


def test_a_follower_that_gets_the_marker_when_it_is_committed_already_stops_just_so() -> None:
    """It was away, or slow: there is nothing left to refuse."""
    trio, leader, (odd, _) = led()
    trio.cut_off = {odd.node_id}
    leader.replica.mark()
    marker = leader.replica.segment_first_index - 1
    trio.run(200)
    assert leader.replica.raft.commit_index >= marker
    change_a_line(odd)
    trio.cut_off = set()
    trio.run(2_000)
    assert list(trio.stopped) == [odd.node_id]
    assert f"(entry {marker}) is not the same here as in the group" in trio.stopped[odd.node_id]


def test_a_refuser_confirms_nothing_from_the_marker_on_and_says_which_it_refuses() -> None:
    trio, leader, (odd, other) = led()
    trio.cut_off = {other.node_id}
    change_a_line(odd)
    leader.replica.mark()
    marker = leader.replica.segment_first_index - 1
    job = trio.submit(leader)
    trio.run(400)
    leadership = leader.replica.raft.leadership
    assert leadership is not None
    progress = leadership.progress(odd.node_id)
    assert progress is not None
    assert (progress.match_index, progress.refused_index) == (marker - 1, marker)
    assert leader.replica.raft.commit_index == marker - 1
    assert job not in leader.accepted()
    assert trio.stopped == {}


def test_a_leader_whose_marker_a_majority_refuses_stops_and_the_others_go_on_without_it() -> None:
    trio, leader, followers = led()
    change_a_line(leader)
    leader.replica.mark()
    marker = leader.replica.segment_first_index - 1
    trio.run(200)
    assert list(trio.stopped) == [leader.node_id]
    assert f"(entry {marker}) is not the same here as in the group" in trio.stopped[leader.node_id]
    new = trio.leader()
    assert new in followers
    trio.run(500)
    job = trio.submit(new)
    new.replica.mark()
    trio.run(1_000)
    assert job in new.accepted()
    assert len(trio.stopped) == 1
    (rest,) = [member for member in followers if member is not new]
    assert rest.lines == new.lines


def test_what_was_refused_of_one_leader_is_no_reproach_to_the_next() -> None:
    """The next leader may never have had that marker: another entry stands at its index, and commits."""
    trio, leader, (odd, other) = led()
    trio.cut_off = {other.node_id}
    change_a_line(leader)
    leader.replica.mark()
    marker = leader.replica.segment_first_index - 1
    trio.run(100)
    odd.replica.raft.hold_campaign(True)  # or it might lead itself, and nobody could reproach it
    trio.cut_off = {leader.node_id}
    new = trio.leader()
    assert new is other
    trio.run(2_000)
    assert new.replica.raft.commit_index >= marker
    assert trio.stopped == {}
    assert odd.lines == other.lines


def test_a_marker_that_comes_when_it_is_committed_stops_whoever_has_another_segment() -> None:
    """It was away: it is not asked any more."""
    trio, leader, (odd, other) = led()
    trio.cut_off = {odd.node_id}
    change_a_line(odd)
    leader.replica.mark()
    marker = leader.replica.segment_first_index - 1
    trio.run(400)
    assert other.replica.raft.commit_index >= marker
    trio.cut_off = set()
    trio.run(2_000)
    assert list(trio.stopped) == [odd.node_id]
    assert f"the segment that this marker ends (entry {marker})" in trio.stopped[odd.node_id]


def rebuilding(trio: Stopping, leader: Member) -> Member:
    """The old leader, whose tail another one has cut: its state is being loaded anew, which takes time."""
    trio.cut_off = {leader.node_id}
    for _ in range(5):
        trio.submit(leader)
    new = trio.leader()
    trio.run(300)
    leader._rebuild = lambda: None  # type: ignore[method-assign]
    trio.cut_off = set()
    trio.run(400)
    assert leader.replica.is_rebuilding
    return new


def finish(trio: Stopping, member: Member) -> None:
    del member._rebuild  # type: ignore[method-assign]
    member._rebuild()
    trio.run(1_000)


def test_a_node_that_loads_its_state_anew_confirms_no_marker_that_it_cannot_judge() -> None:
    """With it a leader that differs would have a majority, and the only one that is right would stop."""
    trio, old, (one, other) = led()
    new = rebuilding(trio, old)
    right = other if new is one else one
    change_a_line(new)
    new.replica.mark()
    marker = new.replica.segment_first_index - 1
    trio.run(400)
    leadership = new.replica.raft.leadership
    assert leadership is not None
    progress = leadership.progress(old.node_id)
    assert progress is not None
    assert progress.match_index == marker - 1
    assert trio.stopped == {}
    finish(trio, old)
    assert list(trio.stopped) == [new.node_id]
    assert set(trio.members) == {old.node_id, right.node_id}


def test_a_marker_that_waited_for_the_state_is_confirmed_when_it_is_right() -> None:
    trio, old, _ = led()
    new = rebuilding(trio, old)
    new.replica.mark()
    marker = new.replica.segment_first_index - 1
    trio.run(400)
    finish(trio, old)
    assert trio.stopped == {}
    assert old.lines == new.lines
    progress = new.replica.raft.leadership.progress(old.node_id)  # type: ignore[union-attr]
    assert progress is not None
    assert progress.match_index >= marker


def test_a_node_that_has_just_started_judges_markers_before_it_has_applied_its_log() -> None:
    """Or a leader that differs could have its marker committed by one that has not looked."""
    trio, leader, (fresh, other) = led()
    fresh.is_slow_to_read = True
    restarted(trio, fresh)
    trio.run(300)
    assert fresh.replica.machine.last_index == 0, "its host does not come to read what is to be applied"
    change_a_line(leader)
    leader.replica.mark()
    trio.run(200)
    assert list(trio.stopped) == [leader.node_id]
    trio.run(2_000)
    assert set(trio.members) == {fresh.node_id, other.node_id}


def started_behind_a_cut(trio: Stopping, *, marks: bool = False) -> tuple[Member, Member, Member]:
    """(a new leader, one that has just started and whose end the leader has cut, the third). What the one
    found at its start is no longer its log, and nothing of its log is applied or in memory."""
    old = trio.leader()
    trio.cut_off = {old.node_id}
    for _ in range(3):
        trio.submit(old)
    new = trio.leader()
    (third,) = (each for each in trio.members.values() if each not in (old, new))
    if marks:
        new.replica.mark()
        trio.run(100)
    restarted(trio, old)
    old.is_slow_to_read = True
    trio.cut_off = {third.node_id}
    trio.run(700)
    assert trio.leader() is new
    assert old.replica.machine.last_index == 0
    return new, old, third


@pytest.mark.parametrize("is_right", [True, False])
def test_a_marker_behind_a_cut_is_held_until_the_log_before_it_is_read(is_right: bool) -> None:
    """Confirmed unseen, a leader that differs had a majority, and the only one that was right stopped."""
    trio, _, _ = led()
    new, fresh, third = started_behind_a_cut(trio)
    if not is_right:
        change_a_line(new)
    new.replica.mark()
    marker = new.replica.segment_first_index - 1
    trio.run(300)
    assert new.replica.raft.commit_index < marker
    trio.cut_off = set()
    fresh.is_slow_to_read = False
    fresh.replica.raft._own_lines.cut()  # its host reads only now
    trio.run(1_500)
    assert list(trio.stopped) == ([] if is_right else [new.node_id])
    if is_right:
        assert new.replica.raft.commit_index >= marker
        assert fresh.lines == new.lines == third.lines


def test_a_held_marker_that_comes_in_the_turn_of_a_cut_stays_held_and_is_judged() -> None:
    """The cut is told behind it: it was forgotten that it waits, and nothing more was ever confirmed."""
    trio, _, _ = led()
    new, fresh, third = started_behind_a_cut(trio, marks=True)
    trio.cut_off = set()
    fresh.is_slow_to_read = False
    fresh.replica.raft._own_lines.cut()
    trio.run(1_500)
    trio.submit(new)
    trio.run(500)
    assert fresh.lines == new.lines == third.lines
    progress = new.replica.raft.leadership.progress(fresh.node_id)  # type: ignore[union-attr]
    assert progress is not None
    assert progress.match_index == new.replica.raft.log.last_index


def other_counts(member: Member) -> None:
    """As a bug would: its state is not what its log says."""
    member.replica.machine.no_ops += 1


def test_a_follower_whose_state_differs_from_a_majoritys_is_told_so_and_stops() -> None:
    trio, leader, (odd, _) = led()
    other_counts(odd)
    leader.replica.mark()
    marker = leader.replica.segment_first_index - 1
    trio.run(1_000)
    assert list(trio.stopped) == [odd.node_id]
    assert f"the counts of the state as of this marker (entry {marker})" in trio.stopped[odd.node_id]
    assert leader.replica.agreement.differing == {odd.node_id: marker}


def test_one_that_counts_as_the_others_since_it_was_started_anew_is_not_stopped_again() -> None:
    """What its leader says of it is still of the process before it."""
    trio, leader, (odd, _) = led()
    other_counts(odd)
    leader.replica.mark()
    marker = leader.replica.segment_first_index - 1
    trio.run(1_000)
    assert list(trio.stopped) == [odd.node_id]
    odd.replica.machine.no_ops -= 1
    odd.replica.agreement = Agreement()
    odd.replica.agreement.counted(marker, odd.replica.machine.counts())
    trio.members[odd.node_id] = odd
    trio.stopped.clear()
    trio.run(1_000)
    assert trio.stopped == {}
    assert leader.replica.agreement.differing == {}, "and it is heard"


def test_a_leader_whose_state_differs_from_a_majoritys_stops() -> None:
    trio, leader, followers = led()
    other_counts(leader)
    leader.replica.mark()
    trio.run(1_000)
    assert list(trio.stopped) == [leader.node_id]
    assert "the counts of the state" in trio.stopped[leader.node_id]
    assert trio.leader() in followers


def test_without_a_majority_that_agrees_nobody_stops_and_it_is_shown() -> None:
    """Of two that differ nobody knows who is wrong."""
    trio, leader, (odd, other) = led()
    trio.cut_off = {other.node_id}
    other_counts(odd)
    leader.replica.mark()
    marker = leader.replica.segment_first_index - 1
    trio.run(1_000)
    assert trio.stopped == {}
    assert leader.replica.agreement.differing == {odd.node_id: marker}
    trio.cut_off = set()
    trio.run(1_000)
    assert list(trio.stopped) == [odd.node_id], "the third one tells who it is"


def test_counts_of_a_marker_that_is_not_committed_are_not_compared() -> None:
    """Another marker may come to stand in its place."""
    trio, old, (one, other) = led()
    trio.cut_off = {old.node_id}
    old.replica.mark()
    marker = old.replica.segment_first_index - 1
    assert old.replica.raft.role is Role.LEADER
    new = trio.leader()
    trio.run(300)
    assert old.replica.raft._following.counts == (0, b""), "nothing is told yet"
    while new.replica.machine.last_index < marker - 1:
        trio.submit(new)
        trio.run(50)
    new.replica.mark()
    trio.cut_off = set()
    trio.run(2_000)
    assert trio.stopped == {}
    assert one.lines == other.lines == old.lines
