"""The static pair: one node leads because an operator says so, another only sends everybody there."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rollmq import Client
from tests.group.real_group import RealNode, free_ports, wait_for

pytestmark = pytest.mark.slow


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[RealNode, RealNode]]:
    one, other = free_ports(2)
    leader = RealNode(tmp_path, one, ["--role", "leader"])
    follower = RealNode(tmp_path, other, ["--role", "follower", "--leader", leader.address])
    leader.start()
    follower.start()
    for node in (leader, follower):
        wait_for(lambda node=node: "event=ready" in node.log_text(), f"{node.address} is ready")
    yield leader, follower
    for node in (leader, follower):
        node.kill()


async def submit(servers: str, payload: bytes) -> str:
    async with Client(servers) as client:
        return (await client.submit("resize", payload)).id


async def state_of(servers: str, job_id: str) -> str:
    async with Client(servers) as client:
        return (await client.job(job_id).explain()).state


def test_a_static_follower_stores_nothing_and_sends_everybody_to_its_leader(
    pair: tuple[RealNode, RealNode],
) -> None:
    leader, follower = pair
    job_id = asyncio.run(submit(follower.address, b"x"))
    status = leader.status()
    assert status is not None
    assert status["queued"] == 1
    assert asyncio.run(state_of(follower.address, job_id)) == "queued"
    told = follower.status()
    assert told is not None
    assert (told["role"], told["leader"]) == ("follower", leader.address)
    assert not follower.state.exists()
    assert follower.stop() == 0


def test_switching_by_hand_means_moving_the_state_directory(pair: tuple[RealNode, RealNode]) -> None:
    leader, follower = pair
    job_id = asyncio.run(submit(leader.address, b"x"))
    assert leader.stop() == 0
    assert follower.stop() == 0
    leader.state.rename(follower.state)
    follower.options = ["--role", "leader"]
    follower.start()
    wait_for(lambda: (follower.status() or {}).get("role") == "leader", "it leads")
    leader.options = ["--role", "follower", "--leader", follower.address]
    leader.start()
    wait_for(lambda: (leader.status() or {}).get("leader") == follower.address, "it redirects")
    assert asyncio.run(state_of(leader.address, job_id)) == "queued"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--role", "follower"], "--role follower and --leader H:P go together"),
        (["--leader", "10.0.0.1:5000"], "--role follower and --leader H:P go together"),
        (["--role", "leader", "--peers", "10.0.0.1:5000"], "--role leader is a group of one"),
    ],
)
def test_roles_that_contradict_each_other_are_a_usage_error(
    tmp_path: Path, options: list[str], text: str
) -> None:
    command = [sys.executable, "-m", "rollmq", "serve", "5999", "--state", str(tmp_path / "state"), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert text in done.stderr
    assert not (tmp_path / "state").exists()
