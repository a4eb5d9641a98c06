"""Every law of the judge can be broken, and says which: a check that cannot fail proves nothing."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from rollmq.core.effects import Accepted, Answer
from rollmq.core.events import Ack, Assign, Members
from rollmq.core.line import decode_line, encode_line
from rollmq.core.raft_ready import HardState, Write
from tests.groupsim import check
from tests.groupsim.stories import Story
from tests.sim.ledger import Ledger
from tests.sim.world import Violation


@pytest.fixture(scope="module")
def story() -> Story:
    """A group that has worked for a while."""
    story = Story("laws", jobs_max=20)
    story.leader()
    story.run(5_000)
    assert story.oracle.counts["told Ended"]
    return story


def entry(story: Story, kind: type) -> Any:
    """The first committed event of this kind."""
    return next(event for event in map(decode_line, story.oracle.lines) if isinstance(event, kind))


def two_leaders(story: Story) -> None:
    story.group.oracle.leads(story.followers()[0], story.leader().replica.raft.term)


def a_leader_without_what_is_committed(story: Story) -> None:
    story.group.oracle.terms.append(99)
    try:
        story.group.oracle.leads(story.leader(), story.leader().replica.raft.term)
    finally:
        story.group.oracle.terms.pop()


def another_entry_of_the_same_index_and_term(story: Story) -> None:
    story.group.oracle.has_entries(story.leader(), 3, [b"another\n"])


def another_entry_committed(story: Story) -> None:
    story.group.oracle.commits(story.leader(), 3, [b"another\n"])


def committed_without_a_majority(story: Story) -> None:
    story.group.oracle.is_on_majority(story.leader(), len(story.oracle.lines), [story.leader()])


def two_votes_changed_at_once(story: Story) -> None:
    event: Members = entry(story, Members)
    story.group.oracle._check_members(msgspec.structs.replace(event, members=event.members[:1]))


def a_segment_with_other_bytes(story: Story) -> None:
    law = story.group.oracle
    law.has_file(story.leader(), "a segment", b"one")
    law.has_file(story.followers()[0], "a segment", b"other")


def a_state_that_differs(story: Story) -> None:
    law, machine = story.group.oracle, story.leader().replica.machine
    law.has_state(story.leader(), machine)
    machine.no_ops += 1
    try:
        law.has_state(story.leader(), machine)
    finally:
        machine.no_ops -= 1


def told_before_its_commit(story: Story) -> None:
    story.leader().oracle.told(Accepted(len(story.oracle.lines) + 1, None, "a" * 32, "a" * 32))


def accepted_and_not_in_the_log(story: Story) -> None:
    story.leader().oracle.told(Accepted(1, None, "a" * 32, "a" * 32))


def told_another_end(story: Story) -> None:
    event: Ack = entry(story, Ack)
    story.oracle.final_received(event.job_id, "done", b"another result")


def assigned_without_credit(story: Story) -> None:
    event: Assign = entry(story, Assign)
    witness = story.leader().oracle
    allowed, witness.allowed = witness.allowed, {event.worker_id: (0, 5)}
    try:
        witness.decided([encode_line(event)], first_index=event.index)
    finally:
        witness.allowed = allowed


def read_twice(story: Story, kind: type) -> None:
    """The log's ledger, up to the first event of this kind, and that once more as another entry."""
    ledger = Ledger()
    for line in story.oracle.lines:
        event = decode_line(line)
        ledger.read(event)
        if isinstance(event, kind):
            ledger.read(msgspec.structs.replace(event, index=event.index + 1))


def ahead_of_all_clocks_but_one(story: Story) -> None:
    law, event = story.group.oracle, entry(story, Assign)
    story.group.nodes[0].wall_offset_us = 3_600_000_000
    try:
        law.look_at_clocks(story.group.nodes)
        law.is_in_time(story.leader(), encode_line(event))
        ahead = msgspec.structs.replace(event, at_us=story.group.nodes[0].wall_us)
        law.is_in_time(story.leader(), encode_line(ahead))
    finally:
        story.group.nodes[0].wall_offset_us = 0


def assigned_twice(story: Story) -> None:
    read_twice(story, Assign)


def ended_twice(story: Story) -> None:
    read_twice(story, Ack)


def answered_by_a_deposed_leader(story: Story) -> None:
    witness, effect = story.leader().oracle, Answer(1, None, "as it was")
    witness.asked([effect], term=0)
    witness.told(effect)


def lost_what_was_confirmed(story: Story) -> None:
    witness = story.followers()[0].oracle
    witness.found("n9", witness.on_disk[:-1], witness.vote)


def forgot_its_vote(story: Story) -> None:
    witness = story.followers()[0].oracle
    witness.found("n9", witness.on_disk, HardState(witness.vote.term, "another"))


def wrote_with_a_gap(story: Story) -> None:
    witness = story.followers()[0].oracle
    witness.wrote(Write(None, None, len(witness.on_disk) + 2, [b"x"], ()))


@pytest.mark.parametrize(
    ("law", "words"),
    [
        (two_leaders, "election safety"),
        (a_leader_without_what_is_committed, "leader completeness"),
        (another_entry_of_the_same_index_and_term, "log matching"),
        (another_entry_committed, "state-machine safety"),
        (committed_without_a_majority, "P1: .* only on the disks of"),
        (two_votes_changed_at_once, "changes the votes of"),
        (a_segment_with_other_bytes, "P6"),
        (a_state_that_differs, "P6"),
        (told_before_its_commit, "P5"),
        (accepted_and_not_in_the_log, "P1"),
        (told_another_end, "P2"),
        (assigned_without_credit, "P4"),
        (ahead_of_all_clocks_but_one, "log time"),
        (assigned_twice, "P3: .* assigns a job that is inflight"),
        (ended_twice, "P[23]"),
        (answered_by_a_deposed_leader, "another had replaced"),
        (lost_what_was_confirmed, "P1"),
        (forgot_its_vote, "had voted"),
        (wrote_with_a_gap, "is written after"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_the_judge_sees_it_when_a_law_is_broken(
    story: Story, law: Callable[[Story], None], words: str
) -> None:
    with pytest.raises(Violation, match=words):
        law(story)


def test_a_job_that_never_ends_is_seen_in_the_calm(monkeypatch: pytest.MonkeyPatch) -> None:
    """P7: whoever takes jobs and never answers holds up the calm."""
    monkeypatch.setattr(check, "CALM_MAX_US", 60_000_000)
    story = Story("never ends", jobs_max=3)
    story.leader()
    for worker in story.workers:
        worker.hang_up()
        worker.is_alive = False
        worker.begin = lambda *_: None  # type: ignore[method-assign]
    with pytest.raises(Violation, match="P7"):
        story.calm()


def test_replicas_that_do_not_converge_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """P7: one that stays behind for ever."""
    monkeypatch.setattr(check, "STALL_US_MAX", 2_000_000)
    story = Story("stays behind", jobs_max=3)
    story.leader()
    story.calm()
    away = story.followers()[0]
    away.is_gone = True
    away.crash(is_power_cut=False)
    with pytest.raises(Violation, match="P7: the replicas do not converge"):
        story.accounts()
