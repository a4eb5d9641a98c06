"""Answers and refusals wait for a read index (section 8): another leader may have changed what they say."""

from rollmq.core.effects import Answer, Refused
from rollmq.core.intake import Submit
from tests.replica.trio import Member, Trio


def led() -> tuple[Trio, Member]:
    trio = Trio()
    leader = trio.leader()
    trio.run(500)
    return trio, leader


def ask(trio: Trio, member: Member) -> None:
    """A question that needs nothing but what is committed already."""
    assert member.replica.leader is not None
    desk = member.replica.leader.desk
    desk.say(Answer(desk.last_index, "operator", desk.last_index))
    trio.flying += member.turn()


def answers(member: Member) -> list[Answer]:
    return [effect for effect in member.told if isinstance(effect, Answer)]


def test_an_answer_waits_until_a_majority_confirmed_that_this_node_leads() -> None:
    """Pitfall 40."""
    trio, leader = led()
    ask(trio, leader)
    assert answers(leader) == [], "all that it says is committed, but who leads now?"
    trio.run(100)
    assert len(answers(leader)) == 1


def test_a_leader_that_was_replaced_behind_its_back_answers_nothing() -> None:
    """Pitfall 40: it does not know yet, and what it remembers is no longer true."""
    trio, old = led()
    trio.cut_off = {old.node_id}
    new = trio.leader()
    assert new is not old
    assert old.replica.leader is not None
    ask(trio, old)
    trio.run(2_000)
    assert old.replica.leader is None, "check-quorum deposed it"
    trio.cut_off = set()
    trio.run(1_000)
    assert answers(old) == [], "who asked is sent to the new leader, and asks there"


def test_a_refusal_waits_too_for_a_copy_may_have_been_accepted_elsewhere() -> None:
    """Rule 3: a resend is refused only after a read index."""
    trio, leader = led()
    assert leader.replica.leader is not None
    leader.replica.leader.intake.is_disk_low = True
    job_id = trio.submit(leader)
    assert [effect for effect in leader.told if isinstance(effect, Refused)] == []
    trio.run(100)
    (refused,) = [effect for effect in leader.told if isinstance(effect, Refused)]
    assert (refused.job_id, refused.code) == (job_id, "disk_low")


def test_alone_an_answer_waits_for_nobody() -> None:
    trio = Trio(size=1)
    leader = trio.leader()
    trio.run(100)
    ask(trio, leader)
    assert len(answers(leader)) == 1


def test_effects_are_told_in_the_order_of_their_entries_also_around_a_read() -> None:
    trio, leader = led()
    assert leader.replica.leader is not None
    for number in range(5):
        trio.submit(leader)
        ask(trio, leader)
        leader.replica.leader.intake.submit(Submit("x", "client", "exec", b"x"), number)
    trio.run(500)
    indexes = [effect.index for effect in leader.told]
    assert indexes == sorted(indexes)
    assert len(answers(leader)) == 5
