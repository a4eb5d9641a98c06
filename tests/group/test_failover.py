"""Three real nodes under load: whoever is killed or stopped, what was accepted is there, once, everywhere."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from rollmq.core.events import Ack, Enqueue
from rollmq.core.line import decode_line
from tests.group.load import Runner, Submitter, running
from tests.group.real_group import RealGroup, RealNode, lines_of, running_group, wait_for

pytestmark = pytest.mark.slow
JOBS = 300


@pytest.fixture
def group(tmp_path: Path) -> Iterator[RealGroup]:
    with running_group(tmp_path) as group:
        yield group


def grows(client: Submitter, by: int = JOBS) -> None:
    """More submits are confirmed from now on."""
    goal = len(client.accepted) + by
    wait_for(lambda: len(client.accepted) >= goal, f"{by} more submits are confirmed")


def settle(group: RealGroup, client: Submitter) -> None:
    """No new submits; every accepted job ends; all nodes are even."""
    client.jobs_max = 0
    wait_for(lambda: not client.unconfirmed, "every submit is confirmed")
    leader = group.leader()

    def is_done() -> bool:
        status = leader.status()
        return status is not None and status["queued"] == status["inflight"] == 0

    wait_for(is_done, "every job has ended")
    group.wait_until_even()


def audit(group: RealGroup, client: Submitter, *, but: RealNode | None = None) -> None:
    """Counted in and out: what was confirmed is in the log once and ended once; all logs are the same, `but`
    that of one which does not go back to the beginning."""
    assert not client.errors
    for node in group.nodes:
        assert node.stop() == 0, node.log_text()[-2000:]
    logs = [lines_of(node.state) for node in group.nodes if node is not but]
    shortest = min(len(log) for log in logs)
    assert all(log[:shortest] == logs[0][:shortest] for log in logs)
    events = [decode_line(line) for line in max(logs, key=len)]
    entered = [event.job_id for event in events if isinstance(event, Enqueue)]
    ended = [event.job_id for event in events if isinstance(event, Ack)]
    assert len(set(entered)) == len(entered)
    assert len(set(ended)) == len(ended)
    assert set(client.accepted) <= set(entered)
    assert set(client.accepted) <= set(ended)
    assert all(states == ["done"] for states in client.results.values())


def test_a_killed_leader_is_replaced_and_nothing_that_was_accepted_is_lost(group: RealGroup) -> None:
    client, worker = Submitter(group.servers), Runner(group.servers)
    with running(client, worker):
        grows(client)
        old = group.leader()
        old.kill()
        grows(client)
        old.start()
        grows(client)
        settle(group, client)
    audit(group, client)


def test_a_stopped_leader_that_comes_back_steps_down_and_follows(group: RealGroup) -> None:
    client, worker = Submitter(group.servers), Runner(group.servers)
    with running(client, worker):
        grows(client)
        old = group.leader()
        old.signal(signal.SIGSTOP)
        new = group.leader(among=group.others(old))
        grows(client)
        old.signal(signal.SIGCONT)
        settle(group, client)
        assert new is not old
    audit(group, client)


def test_with_both_followers_stopped_nothing_is_confirmed_and_then_it_goes_on(group: RealGroup) -> None:
    client, worker = Submitter(group.servers), Runner(group.servers)
    with running(client, worker):
        grows(client)
        followers = group.others(group.leader())
        for node in followers:
            node.signal(signal.SIGSTOP)
        leader = next(node for node in group.nodes if node not in followers)
        wait_for(lambda: not _leads(leader), "a leader without a majority steps down")
        before = len(client.accepted)
        for node in followers:
            node.signal(signal.SIGCONT)
        grows(client)
        assert len(client.accepted) > before
        settle(group, client)
    audit(group, client)


def test_all_three_killed_at_once_come_back_with_everything(group: RealGroup) -> None:
    client, worker = Submitter(group.servers), Runner(group.servers)
    with running(client, worker):
        grows(client)
        for node in group.nodes:
            node.kill()
        for node in group.nodes:
            node.start()
        grows(client)
        settle(group, client)
    audit(group, client)


def test_a_polite_stop_hands_the_leadership_over_within_a_heartbeat_or_two(group: RealGroup) -> None:
    client, worker = Submitter(group.servers), Runner(group.servers)
    with running(client, worker):
        grows(client)
        old = group.leader()
        assert old.stop() == 0
        assert "event=leadership_offered" in old.log_text()
        grows(client)
        old.start()
        settle(group, client)
    audit(group, client)


def _leads(node: RealNode) -> bool:
    status = node.status()
    return status is not None and status["role"] == "leader"
