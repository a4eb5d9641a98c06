"""Three real nodes, damaged while they are down: they repair themselves before they count."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rollmq.errors import OperatorError
from rollmq.library.operator import OperatorConnection
from rollmq.store.disk import OsDisk
from rollmq.store.verify import verify_directory
from tests.group.load import Runner, Submitter, running
from tests.group.real_group import WAIT_S, RealGroup, RealNode, running_group, sealed_of, wait_for
from tests.group.test_catching_up import seal
from tests.group.test_failover import audit, grows, settle

pytestmark = pytest.mark.slow


@pytest.fixture
def group(tmp_path: Path) -> Iterator[RealGroup]:
    with running_group(tmp_path) as group:
        yield group


def flip(path: Path, share: float) -> None:
    """One bit, so far into the file."""
    content = bytearray(path.read_bytes())
    content[int(len(content) * share)] ^= 0x10
    path.write_bytes(content)


def segments(node: RealNode) -> list[Path]:
    """Sealed, then open ones."""
    history = sorted((node.state / "history").glob("events-*.jsonl"))
    return history + sorted((node.state / "wal").glob("events-*.log"))


def fill(group: RealGroup, client: Submitter) -> None:
    """Some sealed segments and an open one."""
    for count in (1, 2):
        grows(client, 100)
        seal(group.leader())
        wait_for(lambda n=count: all(len(sealed_of(each.state)) >= n for each in group.nodes), "sealed")
    grows(client, 100)


def repaired(node: RealNode) -> None:
    wait_for(lambda: "event=repair_done" in node.log_text(), f"{node.address} has repaired itself")
    wait_for(lambda: (node.status() or {}).get("role") in ("leader", "follower"), "it counts again")


def is_whole(group: RealGroup) -> None:
    """Nothing of the damage is left, and what is sealed has the same bytes everywhere."""
    for node in group.nodes:
        verdict = verify_directory(OsDisk(node.state))
        assert verdict.is_clean, verdict.damages
    histories = [sealed_of(node.state) for node in group.nodes]
    common = set.intersection(*(set(history) for history in histories))
    assert len(common) >= 2
    assert all(len({history[name] for history in histories}) == 1 for name in common)


def test_a_node_that_is_damaged_while_it_is_down_repairs_itself_while_the_others_serve(
    group: RealGroup,
) -> None:
    client, worker = Submitter(group.servers, outstanding=4), Runner(group.servers)
    with running(client, worker):
        fill(group, client)
        node = group.others(group.leader())[0]
        node.kill()
        first, second, *_, newest = segments(node)
        flip(first, 0.5)
        second.unlink()
        flip(newest, 0.3)
        (node.state / "synced").unlink()
        flip(node.state / "vote.json", 0.9)
        node.start()
        grows(client, 100)
        repaired(node)
        settle(group, client)
    audit(group, client)
    is_whole(group)
    assert "event=peer_repairs_itself" in group.others(node)[0].log_text()


def test_a_group_that_is_damaged_in_another_place_on_every_node_recovers(group: RealGroup) -> None:
    client, worker = Submitter(group.servers, outstanding=4), Runner(group.servers)
    with running(client, worker):
        fill(group, client)
        group.kill()
        for node, share in zip(group.nodes, (0.2, 0.5, 0.8), strict=True):
            for path in segments(node)[:2]:
                flip(path, share)
        group.start()
        for node in group.nodes:
            repaired(node)
        grows(client, 100)
        settle(group, client)
    audit(group, client)
    is_whole(group)


def read_all(connection: OperatorConnection) -> None:
    at = 1
    while True:
        at = connection.read_log(at, bytes_max=1 << 16).last_index + 1


def test_damage_that_is_found_while_a_node_runs_is_not_served_and_repaired_at_its_next_start(
    group: RealGroup,
) -> None:
    client, worker = Submitter(group.servers, outstanding=4), Runner(group.servers)
    with running(client, worker):
        fill(group, client)
        node = group.others(group.leader())[0]
        flip(segments(node)[0], 0.5)
        with OperatorConnection(node.address, by="test") as connection, pytest.raises(OperatorError):
            read_all(connection)
        assert node.process is not None
        assert node.process.wait(WAIT_S) == 1
        assert "event=damage_found" in node.log_text()
        node.start()
        repaired(node)
        settle(group, client)
    audit(group, client)
    is_whole(group)


def test_a_damaged_node_says_for_whom_it_waits(group: RealGroup) -> None:
    client, worker = Submitter(group.servers), Runner(group.servers)
    with running(client, worker):
        grows(client, 50)
    group.kill()
    node = group.nodes[0]
    (node.state / "synced").unlink()
    node.start()
    wait_for(lambda: (node.status() or {}).get("role") == "repairing", "it answers")
    wait_for(lambda: "event=repair_waits" in node.log_text(), "it says that it waits")
    status = node.status()
    assert status is not None
    assert "synced" in str(status)
    assert node.stop() == 0
    assert not verify_directory(OsDisk(node.state)).is_clean
