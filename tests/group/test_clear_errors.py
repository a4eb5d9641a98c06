"""What people meet when they set a group up wrongly, or lose a majority of it: each says what to do."""

import asyncio
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rollmq import Client, SubmitRefused
from rollmq.errors import NoLeader
from rollmq.library.operator import OperatorConnection
from rollmq.wire.codec import FrameDecoder, encode_frame, encode_header, header_of
from rollmq.wire.headers import ErrorHeader
from rollmq.wire.message import PROTOCOL_VERSION, Frame, MsgType
from rollmq.wire.peer_headers import LeaderHelloHeader
from tests.group.real_group import RealGroup, RealNode, free_ports, running_group, wait_for

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealGroup]:
    """No test but the last changes it."""
    with running_group(tmp_path_factory.mktemp("group")) as group:
        yield group


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RealNode]:
    """One that is set up wrongly; the test says how."""
    (port,) = free_ports(1)
    node = RealNode(tmp_path, port, [])
    yield node
    node.kill()


def says(node: RealNode, *texts: str) -> None:
    """All these stand in its log, now or soon."""
    wait_for(lambda: all(text in node.log_text() for text in texts), f"{texts} in the log of {node.address}")


def test_a_node_with_another_group_name_is_told_which(group: RealGroup, node: RealNode) -> None:
    node.options = ["--peers", f"{group.peers},{node.address}", "--group", "other"]
    node.start()
    says(node, "wrong_group", "is of the group 'default', the other of 'other': see --group")
    says(group.nodes[0], "event=peer_refused", "is of the group 'default', the other of 'other'")


def test_a_directory_of_another_group_is_refused_by_the_uuid(group: RealGroup, node: RealNode) -> None:
    """Pitfall 37."""
    node.start()
    wait_for(lambda: (node.status() or {}).get("role") == "leader", "it leads a group of its own")
    node.stop()
    node.options = ["--peers", f"{group.peers},{node.address}"]
    node.start()
    says(node, "wrong_group", "its --peers or its state directory are those of another group")


def test_a_copied_directory_is_refused_while_its_node_lives(group: RealGroup, node: RealNode) -> None:
    """Pitfall 37: it would vote twice."""
    original = group.others(group.leader())[0]
    shutil.copytree(original.state, node.state, ignore=shutil.ignore_patterns("lock"))
    node.options = ["--peers", f"{group.peers},{node.address}"]
    node.start()
    says(node, "node_exists")
    texts = [each.log_text() for each in group.nodes]
    assert any("its directory was copied to" in text or "both have the id" in text for text in texts)


def test_lists_of_peers_that_differ_are_said_to_differ(tmp_path: Path) -> None:
    ports = free_ports(3)
    one, two, three = (RealNode(tmp_path, port, []) for port in ports)
    every = ",".join(each.address for each in (one, two, three))
    for each in (one, two, three):
        each.options = ["--peers", every if each is not three else f"{one.address},{three.address}"]
        each.start()
    try:
        says(one, f"--peers differ: {one.address} has found 3 nodes, {three.address} has found 2")
        says(three, f"--peers differ: {three.address} has found 2 nodes, {one.address} has found 3")
    finally:
        for each in (one, two, three):
            each.kill()


@pytest.mark.parametrize(
    ("version", "version_min", "theirs"),
    [(PROTOCOL_VERSION + 8, PROTOCOL_VERSION + 7, "8 to 9"), (0, 0, "0 to 0")],
    ids=["too new", "too old"],
)
def test_a_peer_of_another_version_is_told_which_are_spoken(
    group: RealGroup, version: int, version_min: int, theirs: str
) -> None:
    hello = LeaderHelloHeader(
        version=version, version_min=version_min, node_id="a" * 32, address="10.0.0.9:1"
    )
    with socket.create_connection(("127.0.0.1", group.nodes[0].port), timeout=30) as line:
        line.sendall(encode_frame(MsgType.LEADER_HELLO, b"h" * 16, header=encode_header(hello)))
        decoder, frames = FrameDecoder(1 << 20), list[object]()
        while not frames:
            data = line.recv(65536)
            assert data, "it says why before it hangs up"
            frames += decoder.feed(data)
    answer = frames[0]
    assert isinstance(answer, Frame)
    error = header_of(answer, ErrorHeader)
    assert error.code == "unsupported_version"
    spoken = f"this one {PROTOCOL_VERSION} to {PROTOCOL_VERSION}"
    assert (
        error.text
        == f"the other side speaks version {theirs} of the protocol, {spoken}; update the older one"
    )


def test_a_member_of_several_does_not_start_as_a_leader_by_itself(group: RealGroup, node: RealNode) -> None:
    original = group.others(group.leader())[0]
    shutil.copytree(original.state, node.state, ignore=shutil.ignore_patterns("lock"))
    command = [sys.executable, "-m", "rollmq", "serve", str(node.port), "--state", str(node.state)]
    done = subprocess.run(
        [*command, "--role", "leader"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "belongs to a member of a group of 3" in done.stderr
    assert "Start it with --peers and without --role leader" in done.stderr


def test_without_a_majority_clients_and_operators_are_told_that_nobody_leads_and_why(
    group: RealGroup,
) -> None:
    left, *others = group.nodes
    for each in others:
        each.kill()

    def is_leaderless() -> bool:
        status = left.status()
        return status is not None and status["leader"] is None

    wait_for(is_leaderless, "it knows that nobody leads")
    status = left.status()
    assert status is not None
    dead = [each.address for each in others]
    assert any(all(address in text for address in dead) for text in status["warnings"]), status["warnings"]
    with (
        pytest.raises(NoLeader, match=f"no leader is known .* not reached: .*{dead[0]}"),
        OperatorConnection(left.address, by="test", timeout_s=2.0) as connection,
    ):
        connection.ask("pause", {"exec": "resize"}, is_command=True)

    async def submit() -> None:
        async with Client(left.address, patience=2.0) as client:
            await client.submit("resize", b"x")

    with pytest.raises(SubmitRefused, match=f"no leader took it .* no leader is known .*{dead[0]}"):
        asyncio.run(submit())
    left.signal(signal.SIGTERM)
    assert left.process is not None
    assert left.process.wait(timeout=60) == 0
