"""Reads confirmed by read index (section 8; thesis 6.4): who answers has led after the question."""

from rollmq.core.raft_ready import ReadTicket, Role
from tests.raft_paper.group import MS, Group


def led_group() -> Group:
    group = Group(3)
    group.elect("n1")
    group.propose("n1", b"a\n")
    group.settle()
    return group


def ask(group: Group, node_id: str) -> ReadTicket:
    ticket = group[node_id].request_read()
    assert ticket is not None
    return ticket


def test_a_read_is_confirmed_by_a_round_of_heartbeats_that_began_after_it_was_asked() -> None:
    """Pitfall 40."""
    group = led_group()
    group.tick(150 * MS)  # A round is under way: it began before the question.
    ticket = ask(group, "n1")
    under_way, group.network = group.network, []
    group.work("n1")
    asked, group.network = group.network, under_way
    group.settle()
    assert group["n1"].is_read_confirmed(ticket) is False
    group.network = asked
    group.settle()
    assert group["n1"].is_read_confirmed(ticket) is True


def test_a_leader_that_is_cut_off_confirms_nothing() -> None:
    """Pitfall 40: another one may lead by now."""
    group = led_group()
    group.isolate("n1")
    group.elect("n2")
    ticket = ask(group, "n1")
    group.work("n1")
    group.settle()
    assert group["n1"].is_read_confirmed(ticket) is False
    group.tick(600 * MS, "n1")
    assert group["n1"].is_read_confirmed(ticket) is None


def test_a_leader_that_was_paused_does_not_answer_from_what_it_remembers() -> None:
    """Pitfall 40: after a pause the first tick deposes it."""
    group = led_group()
    ticket = ask(group, "n1")
    group.now_us += 10_000 * MS
    group["n1"].tick(group.now_us)
    assert group["n1"].role is Role.FOLLOWER
    assert group["n1"].is_read_confirmed(ticket) is None
    assert group["n1"].request_read() is None


def test_a_read_of_a_new_leader_waits_for_its_first_entry() -> None:
    """Pitfalls 23 and 40: before that it does not know what is committed."""
    group = led_group()
    group.campaign("n2")
    while group["n2"].role is not Role.LEADER or group["n2"].needs_noop:
        group.deliver()
        for node_id in group.nodes:
            group.persist(node_id)
    ticket = ask(group, "n2")
    assert ticket.index >= group["n2"].log.last_index
    assert group["n2"].is_read_confirmed(ticket) is False
    group.settle()
    group.tick(150 * MS)
    group.settle()
    assert group["n2"].is_read_confirmed(ticket) is True


def test_nobody_but_a_leader_gives_a_ticket() -> None:
    group = led_group()
    assert group["n2"].request_read() is None


def test_many_reads_of_one_turn_share_a_round() -> None:
    group = led_group()
    rounds = {ask(group, "n1").round for _ in range(10)}
    assert len(rounds) == 1


def test_alone_a_read_is_confirmed_at_once() -> None:
    group = Group(1)
    group.tick(1)
    group.settle()
    ticket = ask(group, "n1")
    assert group["n1"].is_read_confirmed(ticket) is True


def test_a_ticket_of_an_earlier_term_is_worth_nothing() -> None:
    """Pitfall 40."""
    group = led_group()
    ticket = ask(group, "n1")
    group.work("n1")
    group.network.clear()
    group.elect("n2")
    group.elect("n1")
    assert group["n1"].is_read_confirmed(ticket) is None
