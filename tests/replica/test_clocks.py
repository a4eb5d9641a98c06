"""Log time and wall clocks (rule 2): one clock moves nothing far, a majority's do, a wrong one hands over."""

import pytest

from rollmq.core.clocks import agreed_gap_us, better_clock
from rollmq.core.line import decode_line
from tests.replica.trio import WALL_US, Member, Trio

SECOND_US = 1_000_000
HOUR_US = 3_600 * SECOND_US


def led(*, size: int = 3) -> tuple[Trio, Member]:
    trio = Trio(size=size)
    leader = trio.leader()
    trio.submit(leader)
    trio.run(1_000)
    return trio, leader


def log_us(member: Member) -> int:
    """Log time, as its leader has it."""
    assert member.replica.leader is not None
    return member.replica.leader.desk.now_us - WALL_US


def test_a_leaders_clock_that_jumps_ahead_alone_moves_log_time_by_nothing_but_the_slew() -> None:
    trio, leader = led()
    before_us, begin_us = log_us(leader), trio.now_us
    leader.wall_offset_us = 20 * SECOND_US
    trio.run(5_000)
    assert trio.leader() is leader
    assert log_us(leader) - before_us <= (trio.now_us - begin_us) * 1.06


def test_a_jump_in_any_moment_is_held_against_what_the_others_clocks_say_now() -> None:
    """What is known of theirs is a heartbeat old: it must not move with the leader's own clock."""
    trio, leader = led()
    for _ in range(25):
        trio.run(440)
        leader.wall_offset_us = 20 * SECOND_US
        trio.run(1_100)
        leader.wall_offset_us = 0
    assert trio.leader() is leader
    assert log_us(leader) < trio.now_us + 5 * SECOND_US


def test_log_time_steps_forward_when_a_majoritys_clocks_are_there() -> None:
    """A group that was down for an hour, say."""
    trio, leader = led()
    other = next(member for member in trio.members.values() if member is not leader)
    leader.wall_offset_us = other.wall_offset_us = HOUR_US
    trio.run(3_000)
    assert abs(log_us(trio.leader()) - trio.now_us - HOUR_US) < SECOND_US


def test_log_time_steps_no_further_than_a_majoritys_clocks() -> None:
    trio, leader = led()
    other = next(member for member in trio.members.values() if member is not leader)
    leader.wall_offset_us, other.wall_offset_us = 2 * HOUR_US, HOUR_US
    trio.run(3_000)
    assert log_us(trio.leader()) - trio.now_us <= HOUR_US + SECOND_US


def test_a_step_of_time_leaves_log_time_in_order() -> None:
    trio, leader = led()
    for member in trio.members.values():
        member.wall_offset_us = HOUR_US
    trio.submit(leader)
    trio.run(3_000)
    trio.submit(trio.leader())
    for member in trio.members.values():
        member.wall_offset_us = 0
    trio.run(3_000)
    trio.submit(trio.leader())
    trio.run(500)
    times = [decode_line(line).at_us for line in trio.leader().lines]
    assert times == sorted(times)
    assert times[-1] - times[0] > HOUR_US


@pytest.mark.parametrize("offset_us", [-HOUR_US, HOUR_US, -31 * SECOND_US])
def test_a_leader_whose_clock_all_others_find_off_hands_over(offset_us: int) -> None:
    trio, leader = led()
    leader.wall_offset_us = offset_us
    trio.run(5_000)
    new = trio.leader()
    assert new is not leader
    assert leader.replica.offered_to == new.node_id
    trio.run(5_000)
    assert trio.leader() is new, "and nobody finds fault with the new one"


def test_clocks_that_are_all_set_at_once_depose_nobody() -> None:
    """For a moment a leader knows of the others' clocks only what they said before."""
    trio, leader = led()
    for number in range(25):
        trio.run(1_540)
        for member in trio.members.values():
            member.wall_offset_us = HOUR_US * (number % 2)
    assert trio.leader() is leader
    assert leader.replica.offered_to is None


def test_a_clock_that_only_one_other_finds_off_may_lead() -> None:
    """A majority of all members must find it, the leader itself not counted."""
    trio, leader = led()
    other = next(member for member in trio.members.values() if member is not leader)
    other.wall_offset_us = HOUR_US
    trio.run(5_000)
    assert trio.leader() is leader
    assert leader.replica.offered_to is None


def test_clocks_that_are_all_apart_end_with_the_middle_one_as_leader() -> None:
    """And not in a leadership that goes round and round."""
    trio, leader = led()
    one, other = [member for member in trio.members.values() if member is not leader]
    one.wall_offset_us, other.wall_offset_us = HOUR_US, 2 * HOUR_US
    trio.run(5_000)
    assert trio.leader() is one
    trio.run(70_000)
    assert trio.leader() is one


def test_the_time_of_a_new_group_begins_with_a_majoritys_clocks() -> None:
    """The first leader's own may be years ahead, and log time never goes back."""
    first_id = Trio().leader().node_id
    trio = Trio()
    trio.members[first_id].wall_offset_us = 1_000 * HOUR_US
    trio.leader()
    trio.run(1_000)
    leader = trio.leader()
    assert leader.node_id != first_id, "it handed over, too"
    assert log_us(leader) < trio.now_us + 2 * SECOND_US
    assert decode_line(leader.lines[0]).term < leader.replica.raft.term
    assert all(decode_line(line).at_us >= WALL_US for line in leader.lines)


def test_alone_no_clock_but_an_operator_moves_log_time() -> None:
    trio, leader = led(size=1)
    leader.wall_offset_us = HOUR_US
    trio.run(3_000)
    assert log_us(leader) < trio.now_us + SECOND_US
    leader.replica.step_time()
    assert log_us(leader) >= trio.now_us + HOUR_US - SECOND_US


def test_what_a_majority_of_clocks_says() -> None:
    assert agreed_gap_us([0, 5, 9], 3) == 5
    assert agreed_gap_us([0, -5, -9], 3) == -5
    assert agreed_gap_us([0], 3) is None
    assert agreed_gap_us([0, 7], 3) == 0
    assert agreed_gap_us([0, 7, 8, 9, -1], 5) == 7


def test_whose_clock_is_better() -> None:
    minute = 60 * SECOND_US
    assert better_clock({"b": minute, "c": minute}, 3) in ("b", "c")
    assert better_clock({"b": minute, "c": 0}, 3) is None
    assert better_clock({"b": minute, "c": -minute}, 3) is None, "the leader is in the middle"
    assert better_clock({"b": minute, "c": minute}, 5) is None, "two of five are no majority"
    assert better_clock({"b": -minute, "c": -minute, "d": -minute, "e": 0}, 5) in ("b", "c", "d")
