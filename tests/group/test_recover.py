"""The last resort: two of three nodes are gone for good, the third begins a new group with what it has."""

import hashlib
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rollmq.cli.main import main
from rollmq.core.events import Enqueue
from rollmq.core.line import decode_line
from rollmq.library.operator import OperatorConnection
from rollmq.store.disk import OsDisk
from rollmq.store.verify import verify_directory
from tests.group.load import Runner, Submitter, running
from tests.group.real_group import RealNode, free_ports, lines_of, running_group, wait_for
from tests.group.test_failover import grows

pytestmark = pytest.mark.slow


def recover(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["recover", *map(str, arguments), "--yes"])


def fingerprint(folder: Path) -> dict[str, str]:
    """Every file with its bytes."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "lock"
    }


def alone(folder: Path, state: Path) -> RealNode:
    (port,) = free_ports(1)
    node = RealNode(folder, port, [])
    node.state = state
    node.start()
    wait_for(lambda: (node.status() or {}).get("role") == "leader", "the new group leads")
    return node


def test_a_group_that_lost_its_majority_goes_on_as_a_new_one_with_every_job_that_was_left(
    tmp_path: Path,
) -> None:
    with running_group(tmp_path) as group:
        client = Submitter(group.servers)
        client.jobs_max = 500
        with running(client):
            wait_for(lambda: len(client.accepted) == 500, "500 submits are confirmed")
        group.wait_until_even()
        survivor = group.others(group.leader())[0]
    before = fingerprint(survivor.state)
    new = tmp_path / "new"
    done = recover(survivor.state, "--into", new, "--force-new-group", "--json")
    assert done.exit_code == 0, done.output
    report = json.loads(done.output)
    assert report["counts"]["queued"] == 500
    assert report["last_index"] == len(lines_of(survivor.state))
    assert fingerprint(survivor.state) == before, "the old directory is only read"
    assert verify_directory(OsDisk(new)).is_clean

    node = alone(tmp_path, new)
    status = node.status()
    assert status is not None
    assert (status["queued"], status["group"]) == (500, report["group"])
    assert [member["node_id"] for member in status["members"]] == [report["node_id"]]
    (port,) = free_ports(1)
    second = RealNode(tmp_path, port, ["--peers", f"{node.address},127.0.0.1:{port}"])
    second.start()
    try:
        _join(node, second)
        # What was accepted before is not accepted again, and runs once, in the new group.
        worker, again = Runner(node.address), Submitter(node.address)
        again.jobs_max = 0
        again.unconfirmed = dict.fromkeys(map(bytes.fromhex, client.accepted), 0.0)
        with running(worker, again):
            wait_for(lambda: set(again.accepted) == set(client.accepted), "each is known")
            wait_for(lambda: len(again.results) == 500, "each has ended")
            again.jobs_max = 1 << 60
            grows(again, by=100)
        assert all(count == 1 for count in worker.runs.values())
        node.stop()
        entered = [decode_line(line) for line in lines_of(new)]
        assert not {event.job_id for event in entered if isinstance(event, Enqueue)} & set(client.accepted)
    finally:
        node.kill()
        second.kill()


def _join(node: RealNode, second: RealNode) -> None:
    """A new, empty node gets the state as a snapshot, and votes."""

    def is_in() -> bool:
        with OperatorConnection(node.address, by="test") as connection:
            found = connection.ask("members")
            assert isinstance(found, dict)
            if second.address in [each["address"] for each in found["asking"]]:
                connection.ask("members_add", {"node": second.address}, is_command=True)
            return second.address in [each["address"] for each in found["members"] if each["voter"]]

    wait_for(is_in, "the new node votes")


def test_a_node_of_the_old_group_is_refused_by_the_new_one(tmp_path: Path) -> None:
    with running_group(tmp_path) as group:
        one, other, _ = group.nodes
        group.wait_until_even()
    new = tmp_path / "new"
    assert recover(one.state, "--into", new, "--force-new-group").exit_code == 0
    node = alone(tmp_path, new)
    other.options = ["--peers", f"{node.address},{other.address}"]
    other.start()
    try:
        wait_for(lambda: "those of another group" in other.log_text(), "the old node is told")
    finally:
        other.kill()
        node.kill()


def test_nothing_is_made_without_the_flag_of_nothing_or_into_something(tmp_path: Path) -> None:
    empty, full = tmp_path / "empty", tmp_path / "full"
    empty.mkdir()
    full.mkdir()
    (full / "something").write_text("of somebody")
    into = tmp_path / "into"
    assert "--force-new-group" in recover(empty, "--into", into).output
    assert recover(empty, "--into", into).exit_code == 2
    for arguments, text in (
        ([tmp_path / "nowhere", "--into", into], "there is no such directory"),
        ([empty, "--into", full], "it is not empty"),
        ([empty, "--into", into], "is not a state directory"),
    ):
        done = recover(*arguments, "--force-new-group")
        assert done.exit_code == 1
        assert text in done.output
        assert "Nothing was changed" in done.output
    assert not into.exists()


def test_a_directory_in_use_is_refused_and_of_a_damaged_one_is_saved_what_precedes_the_damage(
    tmp_path: Path,
) -> None:
    with running_group(tmp_path, size=1) as group:
        (node,) = group.nodes
        client = Submitter(group.servers)
        with running(client):
            grows(client, by=50)
        done = recover(node.state, "--into", tmp_path / "into", "--force-new-group")
        assert done.exit_code == 1
        assert "is in use by another node" in done.output
    (path,) = (node.state / "wal").glob("events-*.log")
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 1
    path.write_bytes(content)
    before, into = fingerprint(node.state), tmp_path / "into"
    asked = CliRunner().invoke(main, ["recover", str(node.state), "--into", str(into), "--force-new-group"])
    assert asked.exit_code == 2
    assert "add --yes" in asked.output
    assert not into.exists(), "nobody has agreed"
    done = recover(node.state, "--into", into, "--force-new-group")
    assert done.exit_code == 0, done.output
    assert f"damaged   {path}" in done.output
    assert "left out" in done.output
    assert fingerprint(node.state) == before, "the old directory is only read"
    assert verify_directory(OsDisk(into)).is_clean
    found = alone(tmp_path, into)
    try:
        status = found.status()
        assert status is not None
        assert 0 < status["queued"] < len(client.accepted)
    finally:
        found.kill()
