"""`--assign eager` (rule 3): an assign may leave before it is committed; nothing else does, and only of a job
whose enqueue is committed."""

import pytest

from rollmq.core.effects import Accepted, AckDone, Assigned, Ended
from rollmq.core.liveness import Hello
from rollmq.core.requests import Outcome
from tests.replica.trio import Member, Trio


def worker(leader: Member, *, credit: int) -> None:
    """A worker that takes everything connects."""
    assert leader.replica.leader is not None
    hello = Hello("w", "a", ["job.assign.>"], hands=8, credit=credit)
    assert leader.replica.leader.liveness.hello(hello) is None


def assigned(leader: Member) -> list[str]:
    """The jobs that the worker was told to run."""
    return [effect.job.id for effect in leader.told if isinstance(effect, Assigned)]


def lonely_leader(*, is_eager: bool) -> tuple[Trio, Member, str]:
    """A leader with one committed job that nobody hears any more: what it decides now stays uncommitted."""
    trio = Trio(is_eager=is_eager)
    leader = trio.leader()
    job_id = trio.submit(leader)
    trio.run(300)
    assert leader.accepted() == {job_id}
    trio.cut_off = {leader.node_id}
    return trio, leader, job_id


@pytest.mark.parametrize("is_eager", [False, True])
def test_an_assign_of_a_committed_job_leaves_at_once_only_if_the_node_is_eager(is_eager: bool) -> None:
    _, leader, job_id = lonely_leader(is_eager=is_eager)
    worker(leader, credit=9)
    leader.turn()
    assert leader.replica.machine.last_index > leader.replica.raft.commit_index
    assert assigned(leader) == ([job_id] if is_eager else [])


def test_an_eager_node_assigns_no_job_whose_enqueue_may_yet_be_cut() -> None:
    trio, leader, job_id = lonely_leader(is_eager=True)
    worker(leader, credit=9)
    trio.submit(leader)
    leader.turn()
    assert len(leader.replica.machine.inflight.held_by("w")) == 2, "both are assigned"
    assert assigned(leader) == [job_id], "one is told"
    assert leader.accepted() == {job_id}


def test_an_eager_node_says_nothing_else_before_its_commit() -> None:
    trio, leader, job_id = lonely_leader(is_eager=True)
    worker(leader, credit=9)
    leader.turn()
    job = leader.replica.machine.jobs[job_id]
    assert job.fence is not None
    assert leader.replica.leader is not None
    leader.replica.leader.attempts.outcome("w", Outcome(job_id, job.fence))
    leader.turn()
    assert job_id in leader.replica.machine.finished.by_id, "it is decided"
    late = (Accepted, AckDone, Ended)
    assert [effect for effect in leader.told if isinstance(effect, late)][1:] == []
    trio.cut_off = set()
    trio.run(400)
    assert [type(effect) for effect in leader.told if isinstance(effect, (AckDone, Ended))] in (
        [Ended, AckDone],
        [AckDone, Ended],
    )


def test_an_early_assign_that_came_to_nothing_ends_no_attempt_of_the_next_leader() -> None:
    """The job may run twice then, but what the first run says carries a fence that nobody knows."""
    trio, old, job_id = lonely_leader(is_eager=True)
    worker(old, credit=9)
    old.turn()
    lost_fence = old.replica.machine.jobs[job_id].fence
    trio.run(2_000)
    new = trio.leader()
    trio.cut_off = set()
    trio.run(1_000)
    assert new is not old
    worker(new, credit=9)
    trio.run(200)
    job = new.replica.machine.jobs[job_id]
    assert assigned(new) == [job_id]
    assert new.replica.leader is not None
    assert lost_fence is not None
    assert lost_fence != job.fence
    new.replica.leader.attempts.outcome("w", Outcome(job_id, lost_fence))
    assert job_id in new.replica.machine.jobs
