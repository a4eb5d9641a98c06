"""A real node among broken, silent, slow and hostile peers: they harm themselves, and the others work on."""

import asyncio
import contextlib
import random
import resource
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from rollmq import Client, limits
from rollmq.wire import headers as h
from rollmq.wire.codec import encode_frame, encode_header, header_of
from rollmq.wire.message import MsgType
from tests.cli.running import RunningNode, running_node
from tests.client.shop import working
from tests.system.strangers import Stranger, crowd, dial, greeted, hello, rss_bytes

pytestmark = pytest.mark.slow
SOON_S = 60.0
"""Longer than anything here takes on a busy machine."""
MIB = 1024 * 1024


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningNode]:
    with running_node(tmp_path / "state") as node:
        yield node


@contextlib.asynccontextmanager
async def shop(node: RunningNode) -> AsyncIterator[Client]:
    """A client, and a worker that serves it."""
    async with Client(node.server) as client, working(node.server):
        yield client


def within(story: Callable[[], Awaitable[None]]) -> None:
    """Run it; a story that hangs fails."""

    async def run() -> None:
        async with asyncio.timeout(SOON_S):
            await story()

    asyncio.run(run())


async def works_on(client: Client, count: int = 500) -> None:
    """Jobs go through, each with its own result."""
    payloads = [b"%d" % number for number in range(count)]
    results = {outcome.position: outcome.result async for outcome in client.map("echo", payloads)}
    assert results == dict(enumerate(payloads))


async def until(condition: Callable[[], bool]) -> None:
    """The rest is `within`'s."""
    while not condition():
        await asyncio.sleep(0.01)


def test_ten_thousand_idle_connections_cost_little_memory_and_hinder_nobody(node: RunningNode) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    count = limits.CONNECTIONS_MAX - 10
    assert hard > count + 100, "raise the limit of open files (ulimit -Hn) to run this"

    async def story() -> None:
        async with shop(node) as client:
            await works_on(client)
            before = rss_bytes(node.process.pid)
            idle = await crowd(node.port, count)
            assert [header_of(s.frames[0], h.HelloAnswerHeader).version for s in idle] == [1] * count
            await works_on(client)
            assert rss_bytes(node.process.pid) - before < count * 12_000
            beyond = await crowd(node.port, 20)
            refused = [stranger.frames[0] for stranger in beyond if stranger.frames[0].type == MsgType.ERROR]
            assert refused
            assert {header_of(frame, h.ErrorHeader).code for frame in refused} == {"too_many_connections"}
            await works_on(client)
            assert not any(stranger.ended.is_set() for stranger in idle)
            for stranger in (*idle, *beyond):
                stranger.transport.abort()
            await works_on(client)
            await until_connections(client, 10)

    within(story)
    assert node.stop() == 0


async def until_connections(client: Client, most: int) -> None:
    """No more than so many are open."""
    while (await client.status()).connections > most:
        await asyncio.sleep(0.05)


def test_a_client_that_takes_none_of_its_results_is_cut_and_they_are_kept_for_it(node: RunningNode) -> None:
    count, big = 80, bytes(MIB)
    assert count * len(big) > limits.UNSENT_BYTES_MAX

    async def story() -> None:
        async with Client(node.server) as client:
            assert (await client.status()).role == "leader"
            slow = await greeted(node.port)
            log_ms = header_of(slow.frames[0], h.HelloAnswerHeader).log_at_us // 1000
            ids = [log_ms.to_bytes(6, "big") + b"\x70\x00\x80" + bytes([n]) * 7 for n in range(count)]
            for job_id in ids:
                slow.say(encode_frame(MsgType.SUBMIT_JOB, job_id, subject="job.submit.echo", payload=big))
            await until(lambda: len(slow.frames) == 1 + count)
            slow.transport.pause_reading()
            before = rss_bytes(node.process.pid)
            async with working(node.server):
                for job_id in ids:
                    assert (await client.result(job_id.hex(), SOON_S)).result == big
                await until_connections(client, 3)
                await works_on(client)
            slow.transport.abort()
            # Payloads were there before; results take their places, and what waits for the reader is bounded.
            assert rss_bytes(node.process.pid) - before < count * len(big) + 2 * limits.UNSENT_BYTES_MAX

    within(story)
    assert node.stop() == 0


def test_garbage_and_frames_cut_anywhere_end_their_connection_and_nothing_else(node: RunningNode) -> None:
    chance = random.Random(42)
    whole = hello() + encode_frame(
        MsgType.SUBMIT_JOB, bytes(16), subject="job.submit.echo", payload=b"x" * 99
    )

    async def one() -> None:
        stranger = await dial(node.port)
        kind = chance.randrange(4)
        if kind == 0:
            stranger.say(chance.randbytes(chance.randrange(1, 5_000)))
        elif kind == 1:
            stranger.say(whole[: chance.randrange(len(whole))])
        elif kind == 2:
            at = chance.randrange(len(whole))
            stranger.say(whole[:at] + chance.randbytes(1) + whole[at + 1 :])
        else:
            stranger.say(b"GET / HTTP/1.1\r\nHost: queue\r\n\r\n")
        await asyncio.sleep(0)
        if chance.random() < 0.5:
            with contextlib.suppress(OSError):  # the node was quicker
                stranger.transport.write_eof()
                await stranger.ended.wait()
        stranger.transport.abort()

    async def story() -> None:
        async with shop(node) as client:
            for _ in range(20):
                await asyncio.gather(*(one() for _ in range(50)))
            await works_on(client)
            await until_connections(client, 5)

    within(story)
    assert node.stop() == 0
    assert not any("Traceback" in line for line in node.lines)


def test_frames_that_come_byte_by_byte_are_the_same_conversation(node: RunningNode) -> None:
    async def story() -> None:
        async with shop(node) as client:
            await works_on(client)
            stranger = await dial(node.port)
            payload = b'{"job_id":"%032x"}' % 7
            asked = encode_header(h.QueryHeader(name="result"))
            question = encode_frame(MsgType.QUERY, b"q" * 16, header=asked, payload=payload)
            for number, said in enumerate((hello(), question), start=1):
                for byte in said:
                    stranger.say(bytes([byte]))
                    await asyncio.sleep(0)
                while len(stranger.frames) < number:
                    await asyncio.sleep(0.01)
            assert [frame.type for frame in stranger.frames] == [MsgType.HELLO_CLIENT, MsgType.REPLY]
            stranger.transport.abort()

    within(story)


def test_who_is_silent_is_given_up_in_time_while_others_work(node: RunningNode) -> None:
    """All at once, for it takes its time: a handshake that dribbles, a client that answers no ping."""

    async def story() -> None:
        async with shop(node) as client:
            await works_on(client)
            loris, dumb = await dial(node.port), await dial(node.port)
            deaf = await greeted(node.port, answers_pings=False)
            lively = await greeted(node.port)
            dribble = asyncio.ensure_future(dribbles(loris))
            waiting = {asyncio.ensure_future(each.ended.wait()) for each in (loris, dumb, deaf)}
            while waiting:
                await works_on(client, 50)
                _, waiting = await asyncio.wait(waiting, timeout=0.5)
            dribble.cancel()
            assert not lively.ended.is_set()
            codes = [header_of(each.frames[-1], h.ErrorHeader).code for each in (loris, dumb, deaf)]
            assert codes == ["handshake_timeout", "handshake_timeout", "idle_timeout"]
            lively.transport.abort()

    within(story)
    assert node.stop() == 0


async def dribbles(stranger: Stranger) -> None:
    """A byte of a hello now and then."""
    for byte in hello("loris"):
        stranger.say(bytes([byte]))
        await asyncio.sleep(0.3)
