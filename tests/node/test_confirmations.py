"""AckDone: said with the next thing that is said to the worker, or at the next check."""

from rollmq.wire import job_headers as j
from rollmq.wire.codec import header_of
from rollmq.wire.message import MsgType
from tests.node.stage import Host, Peer, ack, client, submit, worker

TICK_US = 20_000


def _acked(host: Host) -> tuple[Peer, Peer]:
    """A worker whose one job's ack is committed, and the client."""
    runner, peer = worker(host), client(host)
    peer.say(submit(1, host))
    (assign,) = runner.take(MsgType.ASSIGN_JOB)
    runner.say(ack(assign, 1))
    return runner, peer


def test_an_ack_is_confirmed_at_once_unless_the_host_promises_to_look_again() -> None:
    host = Host()
    runner, _ = _acked(host)
    assert len(runner.take(MsgType.ACK_DONE)) == 1


def test_a_confirmation_waits_until_time_is_looked_at() -> None:
    host = Host()
    host.door.holds_confirmations = True
    runner, _ = _acked(host)
    host.turn()
    assert runner.take(MsgType.ACK_DONE) == []
    host.pass_time(TICK_US)
    (done,) = runner.take(MsgType.ACK_DONE)
    assert header_of(done, j.AckDoneHeader).seq == 1
    host.pass_time(TICK_US)
    assert runner.take(MsgType.ACK_DONE) == []


def test_a_confirmation_goes_along_with_the_next_assign() -> None:
    host = Host()
    host.door.holds_confirmations = True
    runner, peer = _acked(host)
    peer.say(submit(2, host))
    assert len(runner.take(MsgType.ASSIGN_JOB)) == 1
    assert len(runner.take(MsgType.ACK_DONE)) == 1


def test_what_was_not_yet_confirmed_is_confirmed_before_the_connection_closes() -> None:
    host = Host()
    host.door.holds_confirmations = True
    runner, _ = _acked(host)
    host.door.drop(runner.conn)
    assert len(runner.take(MsgType.ACK_DONE)) == 1
