"""Nothing that a peer can make a node do in one turn costs more the more is queued.

Lines of Python are counted, as in tests/core/test_cost.py: deterministic, and no loop escapes.
"""

from collections.abc import Callable

import pytest

from rollmq.wire.codec import encode_frame
from rollmq.wire.message import MsgType
from tests.core.test_cost import lines_of
from tests.node.stage import Host, Peer, ack, client, submit, worker
from tests.node.test_hostile_peers import operator, query

GROWTH_MAX = 3.0
SMALL, LARGE = 200, 10_000


def backlog(jobs_count: int) -> Host:
    """A node with so many jobs queued, and nobody who runs them."""
    host = Host()
    peer = client(host, "busy")
    for number in range(0, jobs_count, 100):
        host.door.receive(peer.conn, b"".join(submit(number + each, host) for each in range(100)))
        host.turn()
    assert len(peer.take(MsgType.ACCEPTED)) == jobs_count
    return host


def one_submit(host: Host) -> Callable[[], object]:
    peer = client(host)
    return lambda: peer.say(submit(1 << 20, host))


def one_assign_and_ack(host: Host) -> Callable[[], object]:
    runner = worker(host, hands=1, credit=1)
    (assign,) = runner.take(MsgType.ASSIGN_JOB)
    return lambda: runner.say(ack(assign, 1))


def a_worker_that_comes(host: Host) -> Callable[[], object]:
    return lambda: worker(host, "another", credit=1)


def a_worker_that_breaks_away(host: Host) -> Callable[[], object]:
    runner = worker(host, credit=100)
    return lambda: host.door.drop(runner.conn)


def a_worker_that_is_given_up(host: Host) -> Callable[[], object]:
    runner = worker(host, credit=100)
    host.door.drop(runner.conn)
    return lambda: host.pass_time(6_000_000)


def a_client_that_leaves(host: Host) -> Callable[[], object]:
    peer = next(iter(host.door.conns))
    return lambda: host.door.drop(peer)


def a_quiet_tick(host: Host) -> Callable[[], object]:
    return lambda: host.pass_time(20_000)


def a_drain(host: Host) -> Callable[[], object]:
    return host.door.say_goodbye


def asked(name: str, **arguments: object) -> Callable[[Host], Callable[[], object]]:
    def ask(host: Host) -> Callable[[], object]:
        peer: Peer = operator(host)
        return lambda: peer.say(query(name, arguments))

    return ask


def a_farewell(host: Host) -> Callable[[], object]:
    runner = worker(host, credit=100)
    return lambda: runner.say(encode_frame(MsgType.GOODBYE))


@pytest.mark.parametrize(
    "make",
    [
        one_submit,
        one_assign_and_ack,
        a_worker_that_comes,
        a_worker_that_breaks_away,
        a_worker_that_is_given_up,
        a_client_that_leaves,
        a_quiet_tick,
        a_drain,
        a_farewell,
        asked("status"),
        asked("execs"),
        asked("jobs", limit=10),
        asked("workers"),
        asked("clients"),
        asked("pause", exec="e"),
        asked("resume", exec="e"),
        asked("client_set", client_id="busy", cap=1),
        asked("dlq_list"),
    ],
    ids=lambda make: getattr(make, "__name__", "query"),
)
def test_a_turn_costs_the_same_with_any_backlog(make: Callable[[Host], Callable[[], object]]) -> None:
    small, large = (lines_of(make(backlog(count))) for count in (SMALL, LARGE))
    assert large <= GROWTH_MAX * small, f"{small} lines with {SMALL} jobs queued, {large} with {LARGE}"
