"""Lines that a node reads back for its own machine (limits.APPLIES_PER_TURN at a time)."""

from rollmq.core.raft_messages import AppendEntries
from rollmq.core.raft_own_lines import OwnLines
from rollmq.core.raft_ready import ReadLines
from tests.raft_paper.group import Group, disk_of


def request(first_index: int, last_index: int) -> ReadLines:
    return ReadLines("n1", 1, first_index, last_index, 1 << 20)


def test_what_one_turn_does_not_take_is_there_for_the_next() -> None:
    own = OwnLines()
    asked = request(5, 8)
    assert own.take(asked, 3) is None
    assert own.take(request(5, 8), 3) is None
    assert own.reads == [asked], "one read at a time"
    own.read(asked, [b"5", b"6", b"7", b"8"])
    assert own.take(request(5, 9), 3) == [b"5", b"6", b"7"]
    assert own.take(request(8, 9), 3) == [b"8"]
    assert own.take(request(9, 9), 3) is None
    assert own.reads[-1] == request(9, 9)


def test_no_more_is_given_than_is_asked_for() -> None:
    """What is behind it may not be committed."""
    own = OwnLines()
    asked = request(5, 8)
    own.take(asked, 9)
    own.read(asked, [b"5", b"6", b"7", b"8"])
    assert own.take(request(5, 6), 9) == [b"5", b"6"]


def test_what_was_read_before_a_cut_is_not_given_after_it() -> None:
    """A new leader reads its whole log, deposed it applied what another had overwritten."""
    group = Group(3, disks={"n1": disk_of(1, 1)})
    core = group["n1"]
    assert core.want_own_lines(1, 2, lines_max=2) is None
    group.work("n1")
    (asked,) = group.nodes["n1"].reads
    core.step(AppendEntries("n2", "n1", 2, 0, 0, 0, term_runs=((1, 2),), lines=[b"2.1\n"]))
    group.work("n1")
    core.lines_read(asked, [b"1.1\n", b"1.2\n"])
    assert core.want_own_lines(1, 1, lines_max=2) is None


def test_what_lay_there_when_the_log_was_cut_is_gone() -> None:
    own = OwnLines()
    asked = request(5, 8)
    own.take(asked, 1)
    own.read(asked, [b"5", b"6", b"7", b"8"])
    own.cut()
    assert own.take(request(5, 8), 1) is None
