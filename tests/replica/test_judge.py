"""Rule 5: a marker is not confirmed before it is judged, and it can always be judged."""

from rollmq.core.raft_messages import RequestVote
from rollmq.core.raft_ready import Role
from tests.replica.stopping import Stopping, change_a_line, led, restarted
from tests.replica.trio import Member


def with_a_tail(*, size: int = 3) -> tuple[Stopping, Member, Member]:
    """One that led has entries that nobody else has, and is cut off; another one leads."""
    trio, old, _ = led(size=size)
    trio.cut_off = {old.node_id}
    for _ in range(5):
        trio.submit(old)
    new = trio.leader()
    trio.run(300)
    return trio, old, new


def marked(leader: Member) -> int:
    """It proposes a marker; its index."""
    leader.replica.mark()
    return leader.replica.segment_first_index - 1


def holding(*, is_leader_odd: bool, size: int = 3) -> tuple[Stopping, Member, Member, int]:
    """One that has just started got a marker behind a cut, and its disk is slow: it cannot judge it yet."""
    trio, fresh, leader = with_a_tail(size=size)
    restarted(trio, fresh)
    fresh.is_slow_to_read = True
    if is_leader_odd:
        change_a_line(leader)
    marker = marked(leader)
    is_seen_by_others = is_leader_odd and size == 3
    trio.cut_off = set() if is_seen_by_others else set(trio.members) - {fresh.node_id, leader.node_id}
    trio.run(300)
    assert fresh.replica._unjudged == [marker]
    assert trio.stopped == {}
    return trio, fresh, leader, marker


def match_index(leader: Member, follower: Member) -> int:
    leadership = leader.replica.raft.leadership
    assert leadership is not None
    progress = leadership.progress(follower.node_id)
    assert progress is not None
    return progress.match_index


def assert_all_go_on(trio: Stopping) -> None:
    trio.cut_off = set()
    trio.run(2_000)
    leader = trio.leader()
    job = trio.submit(leader)
    trio.run(500)
    assert job in leader.accepted()
    assert all(member.lines == leader.lines for member in trio.members.values())


def test_a_marker_whose_lines_are_only_on_disk_is_not_confirmed_until_they_are_read() -> None:
    """Or a leader that differs has its majority with one that did not look, and who is right stops."""
    trio, fresh, odd, marker = holding(is_leader_odd=True)
    assert match_index(odd, fresh) == marker - 1
    assert odd.replica.raft.commit_index == marker - 1
    fresh.is_slow_to_read = False
    trio.run(500)
    assert list(trio.stopped) == [odd.node_id]
    assert len(fresh.lines) >= marker - 1
    assert_all_go_on(trio)


def test_a_marker_that_waited_for_the_disk_is_confirmed_when_it_is_right() -> None:
    trio, fresh, leader, marker = holding(is_leader_odd=False)
    assert match_index(leader, fresh) == marker - 1
    fresh.is_slow_to_read = False
    trio.run(500)
    assert match_index(leader, fresh) >= marker
    assert trio.stopped == {}
    assert_all_go_on(trio)


def test_a_marker_of_an_older_term_is_judged_though_nothing_before_it_can_be_committed() -> None:
    """All lost power, so nobody knows what is committed; only an entry behind that marker can tell."""
    trio, fresh, leader = with_a_tail()
    (third,) = set(trio.members) - {fresh.node_id, leader.node_id}
    trio.cut_off = {fresh.node_id, third}
    marker = marked(leader)
    trio.run(50)
    for member in (fresh, leader):
        restarted(trio, member)
    fresh.is_slow_to_read = True
    trio.cut_off = {third}
    assert trio.leader() is leader
    trio.run(500)
    term = leader.replica.raft.term
    assert fresh.replica._unjudged == [marker]
    assert fresh.replica.raft.commit_index == leader.replica.raft.commit_index == 0
    fresh.is_slow_to_read = False
    trio.run(500)
    assert leader.replica.raft.commit_index > marker
    assert (leader.replica.raft.role, leader.replica.raft.term) == (Role.LEADER, term)
    assert trio.stopped == {}
    assert_all_go_on(trio)


def test_a_leader_that_was_deposed_judges_no_marker_by_what_is_cut_in_the_same_turn() -> None:
    """Nor does it confirm it: its state is loaded anew first."""
    trio, old, odd = with_a_tail()
    change_a_line(odd)
    marked(odd)
    trio.cut_off = set()
    trio.run(500)
    assert old.rebuilt_count == 1
    assert list(trio.stopped) == [odd.node_id]
    assert_all_go_on(trio)


def test_a_marker_that_is_cut_while_it_is_held_back_is_forgotten() -> None:
    """The next leader never had it."""
    trio, fresh, odd, marker = holding(is_leader_odd=True, size=5)
    trio.cut_off = {odd.node_id}
    new = trio.leader()
    trio.run(500)
    assert new.replica.raft.commit_index >= marker
    fresh.is_slow_to_read = False
    trio.run(500)
    assert fresh.lines == new.lines
    assert trio.stopped == {}
    assert_all_go_on(trio)


def test_a_marker_of_a_deposed_leader_that_proves_wrong_is_no_reproach_to_the_next() -> None:
    """It is judged when this node has heard of the next term and of nothing that its leader has."""
    trio, fresh, odd, marker = holding(is_leader_odd=True, size=5)
    trio.cut_off = {odd.node_id, fresh.node_id}
    new = trio.leader()
    trio.run(500)
    assert new.replica.raft.commit_index >= marker
    term, log = new.replica.raft.term, new.replica.raft.log
    asked = RequestVote(
        new.node_id,
        fresh.node_id,
        term,
        last_index=log.last_index,
        last_term=log.last_term,
        pre=False,
        transfer=True,
    )
    fresh.replica.step(asked)
    fresh.is_slow_to_read = False
    for _ in range(50):
        fresh.turn()
    assert fresh.replica.raft.term == term
    trio.cut_off = {odd.node_id}
    trio.run(500)
    assert trio.stopped == {}
    assert fresh.lines == new.lines


def test_a_node_stands_for_election_only_when_it_knows_that_its_log_is_its_own() -> None:
    """Its log is the longest: it would be elected with a marker that stops it."""
    trio, fresh, odd, marker = holding(is_leader_odd=True)
    trio.cut_off = {odd.node_id}
    trio.run(2_000)
    fresh.is_slow_to_read = False
    new = trio.leader()
    trio.run(500)
    assert new is not odd
    assert new.replica.raft.commit_index >= marker
    assert trio.stopped == {}
