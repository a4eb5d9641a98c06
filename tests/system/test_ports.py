"""A port that somebody else takes while its node is down: the library waits, the node says what is wrong."""

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from rollmq import Client
from tests.cli.running import RunningNode, answers_http, listening, rollmq, running_node
from tests.client.shop import working

pytestmark = pytest.mark.slow
SOON_S = 60.0


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningNode]:
    with running_node(tmp_path / "state") as node:
        yield node


def test_a_thief_on_the_port_of_a_dead_node_gets_no_job_and_loses_none(node: RunningNode) -> None:
    asyncio.run(robbed(node))


async def robbed(node: RunningNode) -> None:
    """Client and worker live through it and go on."""
    visits: list[bytes] = []

    def visited(connection: object) -> None:
        answers_http(connection)  # type: ignore[arg-type]
        visits.append(b"")

    async with asyncio.timeout(SOON_S), Client(node.server) as client, working(node.server):
        before = await client.submit("echo", b"before")
        assert (await before.result()).ok
        hanging = await client.submit("echo", b"later", delay=1.0)
        await asyncio.to_thread(node.stop, signal.SIGKILL)
        with listening(visited, node.port):
            meanwhile = asyncio.ensure_future(client.submit("echo", b"meanwhile"))
            while len(visits) < 6:  # both have tried more than once
                await asyncio.sleep(0.05)
            refused = await asyncio.to_thread(rollmq, "serve", node.port, "--state", node.state)
            assert refused.returncode == 1
            assert f"cannot listen at {node.server}: another process listens there" in refused.stderr
            assert "Traceback" not in refused.stderr
            assert not meanwhile.done()
        again = await asyncio.to_thread(lambda: RunningNode(node.state, port=node.port))
        try:
            assert (await (await meanwhile).result()).result == b"meanwhile"
            assert (await hanging.result()).result == b"later"
            assert (await client.result(before.id)).result == b"before"
            assert await asyncio.to_thread(again.stop) == 0
        finally:
            again.process.kill()
