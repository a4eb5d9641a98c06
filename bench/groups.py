"""A group of three real nodes for benches that stop and start them, and load in this process."""

import asyncio
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from rollmq import Client
from tests.group.real_group import RealGroup, RealNode, wait_for

PACE_S: Final = 0.02
"""How often a paced load submits its next few jobs."""


@contextmanager
def group() -> Iterator[RealGroup]:
    """Three nodes with a leader, on the disk of the working directory."""
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as folder:
        nodes = RealGroup(Path(folder), 3)
        nodes.start()
        try:
            leader_of(nodes)
            yield nodes
        finally:
            nodes.kill()


def leader_of(nodes: RealGroup) -> tuple[RealNode, dict[str, Any]]:
    """The node that leads with both others behind it, and what it says of itself."""

    def look() -> tuple[RealNode, dict[str, Any]] | None:
        for node in nodes.nodes:
            status = node.status()
            if status is not None and status["role"] == "leader":
                return node, status
        return None

    found: tuple[RealNode, dict[str, Any]] = wait_for(look, "a leader")
    return found


def behind(status: dict[str, Any], node: RealNode) -> int | None:
    """How many entries a node lacks, as the leader knows; None when it does not answer."""
    for member in status["members"]:
        if member["address"] == node.address:
            return member.get("behind")
    return None


def wait_for_all(nodes: RealGroup, *, within: int = 50_000, limit_s: float = 200.0) -> None:
    """Until nobody is far behind."""

    def are_near() -> bool:
        _, status = leader_of(nodes)
        found = [behind(status, node) for node in nodes.nodes]
        return all(count is not None and count <= within for count in found)

    wait_for(are_near, "all nodes near the end of the log", limit_s=limit_s)


def wait_until_applied(nodes: RealGroup, *, within: int = 5_000, limit_s: float = 200.0) -> None:
    """Until every node has applied what it knows to be committed: one that comes back has a segment to go."""

    def have_applied() -> bool:
        found = [node.status() for node in nodes.nodes]
        return all(s is not None and s["commit_index"] - s["applied_index"] <= within for s in found)

    wait_for(have_applied, "all nodes have applied the log", limit_s=limit_s)


async def paced(client: Client, exec_name: str, *, jobs_per_s: float, until: Callable[[], bool]) -> int:
    """Submit at a rate until it is told to end; how many were accepted."""
    loop = asyncio.get_running_loop()
    count, began = 0, loop.time()
    while not until():
        due = int((loop.time() - began) * jobs_per_s) - count
        if due > 0:
            items = ((exec_name, b"p" * 100) for _ in range(due))
            async for _ in client.submit_many(items, outstanding=4096):
                count += 1
        await asyncio.sleep(PACE_S)
    return count
