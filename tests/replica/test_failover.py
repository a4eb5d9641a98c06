"""What clients and workers rely on when another node takes over: ids, fences, graces, and silence."""

from rollmq.core.effects import Accepted, AckDone, Assigned
from rollmq.core.events import Ack, Assign, Enqueue, WorkerDownRequeue
from rollmq.core.intake import Submit
from rollmq.core.line import decode_line
from rollmq.core.requests import Hello, Outcome
from rollmq.limits import LEADER_GRACE_US
from tests.replica.trio import Member, Trio

WORKER = Hello("w1", "instance", ["job.assign.>"], hands=1, credit=1)


def led_trio() -> tuple[Trio, Member]:
    """A trio whose leader has a worker."""
    trio = Trio()
    leader = trio.leader()
    trio.run(500)
    connect(trio, leader)
    return trio, leader


def connect(trio: Trio, member: Member) -> None:
    """The worker comes to this node."""
    assert member.replica.leader is not None
    assert member.replica.leader.liveness.hello(WORKER) is None
    trio.flying += member.turn()


def cut_off(trio: Trio, member: Member) -> Member:
    """This node is alone; whoever leads then."""
    trio.cut_off = {member.node_id}
    new = trio.leader()
    assert new is not member
    trio.run(300)
    return new


def events_of(member: Member, kind: type) -> list[object]:
    """The events of this kind in its log."""
    return [event for event in map(decode_line, member.lines) if isinstance(event, kind)]


def assigns_told(member: Member) -> list[Assigned]:
    return [effect for effect in member.told if isinstance(effect, Assigned)]


def test_a_submit_that_is_sent_again_after_a_failover_gets_the_first_answer_and_runs_once() -> None:
    """Pitfall 38: what guards against repeats is in the log itself."""
    trio, old = led_trio()
    job_id = trio.submit(old)
    trio.run(300)
    assert job_id in old.accepted()
    new = cut_off(trio, old)
    assert new.replica.leader is not None
    new.replica.leader.intake.submit(Submit(job_id, "client", "exec", b"x"), "again")
    trio.flying += new.turn()
    trio.run(300)
    assert [effect.first_id for effect in new.told if isinstance(effect, Accepted)] == [job_id]
    assert len(events_of(new, Enqueue)) == 1


def test_a_worker_hears_of_no_assignment_that_is_not_committed() -> None:
    """Pitfall 43: else two leaders could assign one attempt."""
    trio, old = led_trio()
    trio.cut_off = {old.node_id}
    trio.submit(old)
    trio.run(200)
    log = old.replica.raft.log
    assert b'"type":"assign"' in b"".join(log.lines(log.commit_index + 1, log.last_index))
    trio.run(2_000)
    trio.cut_off = set()
    trio.run(2_000)
    assert assigns_told(old) == []


def test_an_answer_under_an_old_leaders_fence_ends_no_attempt_of_the_new_one() -> None:
    """Pitfall 41: an assignment is valid only with its fence."""
    trio, old = led_trio()
    job_id = trio.submit(old)
    trio.run(300)
    (first,) = assigns_told(old)
    new = cut_off(trio, old)
    connect(
        trio, new
    )  # It lists nothing: the assign never reached it, so the job goes back and is given out anew.
    trio.run(500)
    (second,) = assigns_told(new)
    assert second.event.attempt == 2
    assert new.replica.leader is not None
    stale = (first.event.term, first.event.index)
    new.replica.leader.attempts.outcome("w1", Outcome(job_id, stale, result=b"late"))
    trio.flying += new.turn()
    trio.run(300)
    assert events_of(new, Ack) == []
    assert [effect.is_late for effect in new.told if isinstance(effect, AckDone)] == [True]
    new.replica.leader.attempts.outcome(
        "w1", Outcome(job_id, (second.event.term, second.event.index), result=b"good")
    )
    trio.flying += new.turn()
    trio.run(300)
    assert len(events_of(new, Ack)) == 1


def test_a_new_leader_gives_workers_time_to_find_it_and_then_requeues_by_an_event() -> None:
    """Pitfall 42: deadlines are the leader's, take effect as committed events, and begin with a grace."""
    trio, old = led_trio()
    trio.submit(old)
    trio.run(300)
    assert len(events_of(old, Assign)) == 1
    new = cut_off(trio, old)
    trio.run(LEADER_GRACE_US // 1_000 - 5_000)
    assert events_of(new, WorkerDownRequeue) == []
    trio.run(10_000)
    (requeue,) = events_of(new, WorkerDownRequeue)
    assert isinstance(requeue, WorkerDownRequeue)
    assert requeue.index <= new.replica.raft.commit_index


def test_what_a_deposed_leader_had_accepted_and_not_committed_is_unknown_and_may_be_sent_again() -> None:
    """Pitfall 39: it is neither confirmed nor refused, and a repeat is safe."""
    trio, old = led_trio()
    trio.cut_off = {old.node_id}
    job_id = trio.submit(old)
    new = cut_off(trio, old)
    trio.run(1_000)
    assert job_id not in old.accepted()
    assert new.replica.leader is not None
    new.replica.leader.intake.submit(Submit(job_id, "client", "exec", b"x"), "again")
    trio.flying += new.turn()
    trio.cut_off = set()
    trio.run(2_000)
    assert job_id in new.accepted()
    assert len(events_of(trio.leader(), Enqueue)) == 1
