"""A node that was away gets what it missed: lines, or a snapshot when its leader no longer keeps them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rollmq.library.operator import OperatorConnection
from tests.group.load import Runner, Submitter, running
from tests.group.real_group import RealGroup, RealNode, running_group, sealed_of, wait_for
from tests.group.test_failover import audit, grows, settle

pytestmark = pytest.mark.slow


@pytest.fixture
def group(tmp_path: Path) -> Iterator[RealGroup]:
    with running_group(tmp_path, options=["--snapshot-every", "1000"]) as group:
        yield group


def seal(node: RealNode) -> None:
    with OperatorConnection(node.address, by="test") as connection:
        connection.ask("marker", is_command=True)


def fold_once(leader: RealNode, client: Submitter) -> None:
    """The leader seals what it has and makes a snapshot of it."""
    before = leader.log_text().count("event=snapshot_folded")
    grows(client, 500)
    seal(leader)
    wait_for(lambda: leader.log_text().count("event=snapshot_folded") > before, "a snapshot is folded")


def test_a_follower_that_was_away_for_long_gets_a_snapshot_while_the_leader_serves(group: RealGroup) -> None:
    client, worker = Submitter(group.servers, outstanding=256), Runner(group.servers, credit=256)
    with running(client, worker):
        grows(client)
        leader = group.leader()
        away = group.others(leader)[0]
        away.kill()
        for _ in range(3):
            fold_once(leader, client)
        away.start()
        wait_for(lambda: "event=snapshot_installed" in away.log_text(), "the snapshot is installed")
        grows(client)
        settle(group, client)
        seal(group.leader())
        group.wait_until_even()
    histories = [sealed_of(node.state) for node in group.nodes]
    common = set.intersection(*(set(history) for history in histories))
    assert common, "segments were sealed after the install"
    assert all(len({history[name] for history in histories}) == 1 for name in common)
    assert "event=snapshot_offered" in leader.log_text()
    audit(group, client, but=away)


def test_a_follower_that_was_away_for_a_while_gets_the_lines_that_it_missed(group: RealGroup) -> None:
    client, worker = Submitter(group.servers), Runner(group.servers)
    with running(client, worker):
        grows(client)
        leader = group.leader()
        away = group.others(leader)[0]
        away.kill()
        fold_once(leader, client)
        away.start()
        settle(group, client)
    assert "event=snapshot_installed" not in away.log_text()
    audit(group, client)
