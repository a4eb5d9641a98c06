"""Disks that are full: what was accepted is kept, the node says what it needs, and goes on when it has it."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from rollmq import Client, Job
from rollmq.errors import SubmitRefused
from rollmq.store.disk import OsDisk
from rollmq.store.verify import verify_directory
from tests.cli.running import RunningNode, free_port, rollmq, running_node
from tests.client.shop import working
from tests.group.real_group import RealNode, wait_for
from tests.system.crew import running_crew
from tests.system.namespaces import may_unshare, run_in_namespace
from tests.system.network import running_network
from tests.system.nodes import STORM_OPTIONS, Gated
from tests.system.proof import Books, prove
from tests.system.small_disk import MIB, SmallDisk, small_disk
from tests.system.storm import goes_on, settle

pytestmark = pytest.mark.slow
SOON_S = 60.0
LOW = ("--disk-free-min", "100")
"""More than the ballast that a full node is given back."""


def test_a_node_on_a_full_disk_stops_says_why_and_goes_on_without_loss(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if not may_unshare("--mount"):
        run_in_namespace(request.node.nodeid, "--mount")
        return
    with small_disk(tmp_path / "disk", size="256m") as disk:
        with running_node(disk.path / "state", *LOW) as node:
            asyncio.run(fills_up(node, disk))
        assert verify_directory(OsDisk(node.state)).is_clean


async def fills_up(node: RunningNode, disk: SmallDisk) -> None:
    """First its disk is low: no submits, but acks. Then it is full."""
    async with asyncio.timeout(SOON_S), Client(node.server) as client:
        jobs = [await client.submit("echo", b"%d" % number) for number in range(100)]
        disk.fill(leave_bytes=50 * MIB)
        while not (await client.status()).is_disk_low:
            await asyncio.sleep(0.05)
        with pytest.raises(SubmitRefused) as refused:
            await client.submit("echo")
        assert (refused.value.code, refused.value.retryable) == ("disk_low", True)
        async with working(node.server):
            assert all([(await job.result()).ok for job in jobs])
        disk.free()
        await has_room(client)
        rest = [await client.submit("echo", b"%d" % number) for number in range(100)]
        disk.fill()
        async with working(node.server):
            assert await asyncio.to_thread(node.wait) == 1
            told = "\n".join(node.lines)
            assert "No space left on device" in told
            assert "Free some disk space and start the node again" in told
            assert "Traceback" not in told
            await begins_again(node, disk, client, rest)


async def begins_again(node: RunningNode, disk: SmallDisk, client: Client, jobs: list[Job]) -> None:
    """On the ballast alone the queue empties; with room it takes submits again."""
    again = await asyncio.to_thread(lambda: RunningNode(node.state, *LOW, port=node.port))
    try:
        assert any("event=disk_full" in line for line in again.lines)
        with pytest.raises(SubmitRefused, match="disk_low"):
            await client.submit("echo")
        for number, job in enumerate(jobs):
            assert (await job.result()).result == b"%d" % number
        disk.free()
        await has_room(client)
        assert (await (await client.submit("echo", b"again")).result()).result == b"again"
        assert await asyncio.to_thread(again.stop) == 0
    finally:
        again.process.kill()


async def has_room(client: Client) -> None:
    """The node has noticed that there is room: it takes submits again."""
    while True:
        try:
            await client.submit("echo")
        except SubmitRefused:
            await asyncio.sleep(0.05)
        else:
            return


def test_a_first_start_that_found_no_room_is_repeated_when_there_is_some(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if not may_unshare("--mount"):
        run_in_namespace(request.node.nodeid, "--mount")
        return
    for kib in (4, 8, 16):
        with small_disk(tmp_path / f"{kib}", size=f"{kib}k") as disk:
            refused = rollmq("serve", free_port(), "--state", disk.path / "state")
            assert refused.returncode == 1, refused.stderr
            assert "No space left on device" in refused.stderr
            assert "Free some disk space and start the node again" in refused.stderr
            assert "Traceback" not in refused.stderr
            disk.grow("64m")
            with running_node(disk.path / "state") as node:
                assert node.stop() == 0
            assert verify_directory(OsDisk(disk.path / "state")).is_clean


def ended(node: RealNode) -> int:
    """Its exit code, once it has one."""
    wait_for(lambda: not node.is_running, f"it stops, see {node.log_path}")
    assert node.process is not None
    return node.process.returncode


def test_a_full_disk_on_the_leader_and_then_on_a_follower_costs_the_group_nothing(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if not may_unshare("--mount"):
        run_in_namespace(request.node.nodeid, "--mount")
        return
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(running_network())
        group = Gated(tmp_path, network, 3, options=[*STORM_OPTIONS, "--disk-free-min", "8"])
        disks = [stack.enter_context(small_disk(node.state, size="160m")) for node in group.nodes]
        disk_of = {node.port: disk for node, disk in zip(group.nodes, disks, strict=True)}
        stack.callback(group.kill)
        # The state is a folder of it: a file that fills the disk is no part of a state.
        for node in group.nodes:
            node.state = node.state / "state"
        group.start()
        leader = group.leader()
        crew = stack.enter_context(running_crew(tmp_path, group.servers))
        goes_on(group, crew)
        for victim in (leader, group.others(group.leader())[0]):
            disk_of[victim.port].fill()
            assert ended(victim) == 1
            assert "Free some disk space and start the node again" in victim.log_text()
            assert "Traceback" not in victim.log_text()
            rest = [node for node in group.nodes if node is not victim]
            group.leader(among=rest)
            goes_on(group, crew, among=rest)
            disk_of[victim.port].free()
            victim.start()
            goes_on(group, crew)
        settle(group, crew)
        books = Books.in_folder(tmp_path)
        prove([node.state for node in group.nodes], books)
