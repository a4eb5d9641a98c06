"""Real nodes ship what they sealed, whatever is killed meanwhile, and work on when the archive does not."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rollmq.library.operator import OperatorConnection
from tests.group.load import Runner, Submitter, running
from tests.group.real_group import RealGroup, RealNode, free_ports, running_group, sealed_of, wait_for

pytestmark = pytest.mark.slow


def seal(group: RealGroup) -> None:
    """End the open segment, and wait until it is sealed on every node."""
    sealed = {node.address: len(sealed_of(node.state)) for node in group.nodes}
    with OperatorConnection(group.leader().address, by="test") as leader:
        leader.ask("marker", {}, is_command=True)
    wait_for(
        lambda: all(len(sealed_of(node.state)) > sealed[node.address] for node in group.nodes),
        "every node has sealed",
    )


def archived(archive: Path) -> dict[str, bytes]:
    """What readers of the archive see."""
    return {path.name: path.read_bytes() for path in sorted(archive.glob("*/events-*.jsonl"))}


def archive_status(node: RealNode) -> dict[str, Any]:
    status = node.status()
    return status["archive"] if status is not None else {}


def submit(group: RealGroup, count: int, **options: Any) -> None:
    client = Submitter(group.servers, **options)
    client.jobs_max = count
    with running(client):
        wait_for(lambda: len(client.accepted) == count, f"{count} submits are confirmed")


def is_all_there(group: RealGroup, archive: Path) -> bool:
    there = archived(archive)
    return all(
        there.get(name) == content for node in group.nodes for name, content in sealed_of(node.state).items()
    )


def test_followers_ship_everything_and_the_archive_outlives_killed_nodes(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    with running_group(tmp_path, options=["--archive", str(archive)]) as group:
        client, worker = Submitter(group.servers), Runner(group.servers)
        with running(client, worker):
            for _ in range(4):
                goal = len(client.accepted) + 50
                wait_for(lambda goal=goal: len(client.accepted) >= goal, "more submits are confirmed")
                seal(group)
            wait_for(lambda: is_all_there(group, archive), "the archive has it all")
            leader = group.leader()
            assert archive_status(leader)["shipped"] == 0, "its followers did the work"
            assert sum(archive_status(node)["shipped"] for node in group.others(leader)) >= 4
            leader.kill()
            group.leader(among=group.others(leader))
            goal = len(client.accepted) + 50
            wait_for(lambda: len(client.accepted) >= goal, "more submits are confirmed")
            leader.start()
            wait_for(lambda: leader.status() is not None, "it is back")
            seal(group)
            wait_for(lambda: is_all_there(group, archive), "the archive has the rest")
        assert list(archive.glob("*/*.tmp")) == []


@contextlib.contextmanager
def lone_node(folder: Path, *options: str) -> Iterator[RealGroup]:
    with running_group(folder, 1, options=options) as group:
        yield group


def helpers_of(node: RealNode) -> list[int]:
    """The processes that a node has started."""
    assert node.process is not None
    children = Path(f"/proc/{node.process.pid}/task/{node.process.pid}/children")
    found = [*children.parent.parent.glob("*/children")]
    return [int(pid) for path in found for pid in path.read_text().split()]


def test_a_node_killed_in_the_middle_of_shipping_leaves_nothing_half_and_goes_on(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    with lone_node(tmp_path, "--archive", str(archive)) as group:
        (node,) = group.nodes
        left_half = 0
        for _ in range(5):
            submit(group, 24, payload=b"p" * 1_000_000, outstanding=8)
            with OperatorConnection(node.address, by="test") as leader:
                leader.ask("marker", {}, is_command=True)
            wait_for(lambda: [*archive.glob("*/*.tmp")] or is_all_there(group, archive), "it ships")
            helpers = helpers_of(node)
            node.kill()
            for pid in helpers:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            left_half += bool([*archive.glob("*/*.tmp")])
            for name, content in archived(archive).items():
                assert sealed_of(node.state)[name] == content, "what can be seen is whole"
            node.start()
            group.leader()
            wait_for(lambda: is_all_there(group, archive), "the rest is shipped after the restart")
            wait_for(lambda: not [*archive.glob("*/*.tmp")], "what was half is cleared away")
            if left_half:
                break
        assert left_half, "none of the kills came in the middle"


def test_an_archive_that_nobody_serves_is_in_nobodys_way(tmp_path: Path) -> None:
    port = free_ports(1)[0]
    with lone_node(tmp_path, "--archive", f"ftp://user:secret@127.0.0.1:{port}/archive") as group:
        (node,) = group.nodes
        submit(group, 50)
        seal(group)
        wait_for(lambda: archive_status(node)["failures"] >= 1, "the failure is counted")
        submit(group, 50)
        status = node.status()
        assert status is not None
        assert status["archive"]["place"] == f"ftp://127.0.0.1:{port}/archive"
        assert status["archive"]["waiting"] >= 1
        assert any("does not get on" in warning and "refused" in warning for warning in status["warnings"])
        assert node.stop() == 0
        assert "event=archive_failed count=1" in node.log_text()
        assert "secret" not in node.log_text()


def test_a_file_in_the_way_is_told_and_kept(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    with lone_node(tmp_path) as group:
        (node,) = group.nodes
        submit(group, 10)
        seal(group)
        status = node.status()
        assert status is not None
        assert status["archive"] is None
        assert node.stop() == 0
        name = next(iter(sealed_of(node.state)))
        (archive / status["group"]).mkdir(parents=True)
        foreign = archive / status["group"] / name
        foreign.write_bytes(b"somebody else's\n")
        node.options += ["--archive", str(archive)]
        node.start()
        wait_for(lambda: archive_status(node).get("problem"), "the conflict is shown")
        assert name in archive_status(node)["problem"]
        assert foreign.read_bytes() == b"somebody else's\n"
        assert archived(archive).keys() == {name}
        assert f"event=archive_conflict segment={name}" in node.log_text()
