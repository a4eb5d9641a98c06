"""Client against a real node: what users do, and what they are told."""

import asyncio
import zlib
from collections.abc import Coroutine, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from rollmq import (
    Backoff,
    Client,
    ClientMulti,
    JobUnknown,
    KeyConflict,
    Outcome,
    ResultTimeout,
    SubmitRefused,
)
from rollmq.errors import BadServerList, ClientClosed, CodecFailed, NotAuthorized, RequestRefused
from tests.cli.running import RunningNode, running_node
from tests.client.shop import SOON_S, working
from tests.library.played_node import free_port_taken_by_nobody


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with running_node(tmp_path_factory.mktemp("node") / "state") as running:
        yield running


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, SOON_S))


# --- one job ------------------------------------------------------------------------------------------


def test_a_job_is_submitted_and_its_result_awaited(node: RunningNode) -> None:
    async def story() -> None:
        async with Client(node.server) as client, working(node.server):
            job = await client.submit("echo", b"hello")
            outcome = await job.result(timeout=SOON_S)
            again = await client.result(job.id)
            assert (again.state, again.result, again.tries) == (outcome.state, outcome.result, outcome.tries)
            assert (outcome.ok, outcome.state, outcome.result, outcome.error) == (True, "done", b"hello", "")
            assert (outcome.tries, outcome.job_id) == (1, job.id)
            assert outcome.run_us is not None

    run(story())


def test_a_job_that_fails_is_an_outcome_that_says_why(node: RunningNode) -> None:
    async def story() -> None:
        async with Client(node.server) as client, working(node.server):
            job = await client.submit("fail", b"no such picture")
            outcome = await job.result()
            assert (outcome.ok, outcome.state, outcome.reason) == (False, "dead", "rejected")
            assert "no such picture" in outcome.error
            assert outcome.result == b""

    run(story())


def test_options_reach_the_handler(node: RunningNode) -> None:
    async def story() -> None:
        async with Client(node.server, client_id="webshop") as client, working(node.server):
            job = await client.submit(
                "labels",
                headers={"trace": "42"},
                content_type="text/plain",
                tries_max=7,
                priority=9,
                delay=timedelta(milliseconds=10),
                not_before=datetime.now(UTC),
                expires_in=SOON_S,
                timeout=30,
                backoff=Backoff(first=0.1, longest=3),
            )
            assert (await job.result()).result == b"{'trace': '42'} text/plain webshop 7"

    run(story())


def test_waiting_for_a_result_ends_after_its_timeout_and_the_job_goes_on(node: RunningNode) -> None:
    async def story() -> None:
        async with Client(node.server) as client:
            job = await client.submit("echo", b"later")
            with pytest.raises(ResultTimeout, match=job.id):
                await job.result(timeout=0.01)
            waits = [asyncio.ensure_future(job.result()) for _ in range(3)]
            async with working(node.server):
                assert {(await wait).result for wait in waits} == {b"later"}

    run(story())


def test_progress_is_told_until_the_job_has_ended(node: RunningNode) -> None:
    async def story() -> None:
        async with Client(node.server) as client:
            job = await client.submit("count", b"3")
            told = asyncio.ensure_future(_all_of(job.progress()))
            async with working(node.server):
                assert (await job.result()).result == b"counted"
                assert await told == [b"0", b"1", b"2"]

    run(story())


async def _all_of(news: Any) -> list[bytes]:
    return [data async for data in news]


def test_a_running_job_is_cancelled_and_a_finished_one_is_not(node: RunningNode) -> None:
    async def story() -> None:
        async with Client(node.server) as client, working(node.server):
            job = await client.submit("hang")
            while (await job.explain()).state != "inflight":
                await asyncio.sleep(0.01)
            await job.cancel("changed my mind")
            outcome = await job.result()
            assert (outcome.ok, outcome.state, outcome.error) == (False, "cancelled", "changed my mind")
            with pytest.raises(RequestRefused, match="job_finished"):
                await job.cancel()

    run(story())


def test_explain_and_status_say_where_things_stand(node: RunningNode) -> None:
    async def story() -> None:
        async with Client(node.server) as client:
            job = await client.submit("nobody.does.this")
            explanation = await job.explain()
            assert (explanation.state, explanation.reason) == ("queued", "no_worker")
            status = await client.status()
            assert status.role == "leader"
            assert status.execs["nobody.does.this"].queued == 1
            await job.cancel()

    run(story())


# --- keys, refusals, errors -----------------------------------------------------------------------------


def test_a_key_is_accepted_once_and_its_repeat_is_the_first_job(node: RunningNode) -> None:
    async def story() -> None:
        async with Client(node.server) as client, working(node.server):
            first = await client.submit("echo", b"order 1", key="k1")
            second = await client.submit("echo", b"order 1", key="k1")
            assert (first.is_repeat, second.is_repeat) == (False, True)
            assert first.id == second.id
            assert (await first.result()).result == (await second.result()).result == b"order 1"
            with pytest.raises(KeyConflict, match="k1"):
                await client.submit("echo", b"order 2", key="k1")

    run(story())


@pytest.mark.parametrize(
    ("exec_name", "payload", "options", "code"),
    [
        ("not a name", b"", {}, "bad_job"),
        ("echo", bytes(9_000_000), {}, "payload_too_large"),
        ("echo", b"", {"priority": 10}, "bad_job"),
        ("echo", b"", {"timeout": 0}, "bad_job"),
        ("echo", b"", {"tries_max": 0}, "bad_job"),
        ("echo", b"", {"delay": float("nan")}, "bad_job"),
        ("echo", b"", {"expires_in": float("inf")}, "bad_job"),
        ("echo", b"", {"not_before": float("nan")}, "bad_job"),
        ("echo", b"", {"backoff": float("inf")}, "bad_job"),
        ("echo", b"", {"not_before": datetime(2030, 1, 1)}, "bad_job"),
        ("echo", b"", {"headers": {"big": "x" * 33_000}}, "header_too_large"),
        ("echo", b"", {"headers": {"big": "x" * 5_000}}, "bad_job"),
    ],
)
def test_what_the_queue_would_never_take_is_refused(
    node: RunningNode, exec_name: str, payload: bytes, options: dict[str, Any], code: str
) -> None:
    async def story() -> None:
        async with Client(node.server) as client:
            with pytest.raises(SubmitRefused) as refusal:
                await client.submit(exec_name, payload, **options)
            assert (refusal.value.code, refusal.value.retryable) == (code, False)

    run(story())


def test_a_payload_that_is_no_bytes_is_an_error_of_the_caller(node: RunningNode) -> None:
    async def story() -> None:
        async with Client(node.server) as client:
            with pytest.raises(TypeError, match="encode it first"):
                await client.submit("echo", "text")  # type: ignore[arg-type]

    run(story())


def test_an_option_that_is_none_is_named_with_those_that_there_are(node: RunningNode) -> None:
    async def story() -> None:
        async with Client(node.server) as client:
            with pytest.raises(TypeError, match="no option 'prio'; it has key, headers, priority, "):
                await client.submit("echo", prio=9)  # type: ignore[call-arg]

    run(story())


def test_a_client_that_is_not_open_sends_nothing(node: RunningNode) -> None:
    async def story() -> None:
        client = Client(node.server)
        with pytest.raises(ClientClosed):
            await client.submit("echo")
        async with client:
            job = await client.submit("nobody.does.this")
        for call in (client.submit("echo"), job.result(), job.cancel(), client.status()):
            with pytest.raises(ClientClosed):
                await call

    run(story())


def test_who_waits_when_the_client_closes_is_told(node: RunningNode) -> None:
    async def story() -> None:
        async with Client(node.server) as client:
            job = await client.submit("nobody.does.this")
            waiting = asyncio.ensure_future(job.result())
            await asyncio.sleep(0)
        with pytest.raises(ClientClosed):
            await waiting

    run(story())


def test_a_submit_that_finds_no_server_is_refused_when_patience_ends() -> None:
    async def story() -> None:
        server = f"127.0.0.1:{free_port_taken_by_nobody()}"
        async with Client(server, patience=0.2) as client:
            with pytest.raises(SubmitRefused, match="never sent") as refusal:
                await client.submit("echo")
            assert refusal.value.retryable
            assert f"({server}: connection refused)" in str(refusal.value)

    run(story())


def test_options_that_make_no_client_are_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROLLMQ_SERVER", raising=False)
    with pytest.raises(BadServerList, match="HOST:PORT"):
        Client()
    for options in ({"client_id": ""}, {"cap": -1}, {"weight": 0}, {"patience": 0}):
        with pytest.raises(ValueError):
            Client("127.0.0.1:5000", **options)


def test_the_environment_names_the_server(node: RunningNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLMQ_SERVER", node.server)

    async def story() -> None:
        async with Client() as client:
            assert (await client.status()).role == "leader"

    run(story())


def test_a_wrong_token_is_told_to_everybody_who_waits(tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    token_file.write_text("right")

    async def story(server: str) -> None:
        async with Client(server, token="wrong") as client:
            with pytest.raises(NotAuthorized):
                await client.submit("echo")
            with pytest.raises(NotAuthorized):
                await client.status()
        async with Client(server, token="right") as client:
            await client.status()

    with running_node(tmp_path / "state", "--token-file", str(token_file)) as guarded:
        run(story(guarded.server))


@pytest.mark.parametrize(
    ("job_id", "why"), [("", "no job id"), ("nonsense", "no job id"), ("0" * 32, "never accepted")]
)
def test_a_job_that_nobody_knows_is_unknown(node: RunningNode, job_id: str, why: str) -> None:
    async def story() -> None:
        async with Client(node.server) as client:
            with pytest.raises(JobUnknown, match=why):
                await client.result(job_id)

    run(story())


# --- many jobs ----------------------------------------------------------------------------------------


def test_map_yields_an_outcome_per_payload(node: RunningNode) -> None:
    async def story() -> None:
        async with Client(node.server) as client, working(node.server):
            payloads = [str(number).encode() for number in range(2000)]
            outcomes: dict[int, Outcome] = {}
            async for outcome in client.map("echo", payloads, outstanding=100):
                outcomes[outcome.position] = outcome
            assert [outcomes[position].result for position in range(2000)] == payloads
            assert len({outcome.job_id for outcome in outcomes.values()}) == 2000

    run(story())


def test_map_never_has_more_under_way_than_it_may(node: RunningNode) -> None:
    taken: list[int] = []

    def payloads() -> Iterator[bytes]:
        for number in range(50):
            taken.append(number)
            yield b"x"

    async def story() -> None:
        async with Client(node.server) as client, working(node.server):
            seen_count = 0
            async for _ in client.map("echo", payloads(), outstanding=8):
                seen_count += 1
                # A batch that is through was taken out before it is handed on one by one.
                assert len(taken) <= seen_count + 2 * 8
            assert seen_count == 50

    run(story())


def test_map_says_of_each_payload_what_became_of_it(node: RunningNode) -> None:
    async def story() -> None:
        async with Client(node.server) as client, working(node.server):
            payloads = [b"a", bytes(9_000_000), b"c"]
            outcomes = [outcome async for outcome in client.map("fail", payloads)]
            by_position = {outcome.position: outcome for outcome in outcomes}
            assert [by_position[position].state for position in range(3)] == ["dead", "refused", "dead"]
            assert "payload_too_large" in by_position[1].error
            assert not any(outcome.ok for outcome in outcomes)

    run(story())


def test_submit_many_yields_each_job_once_it_is_accepted(node: RunningNode) -> None:
    async def story() -> None:
        async with Client(node.server) as client, working(node.server):
            items = [("echo", str(number).encode(), {"priority": number % 10}) for number in range(500)]
            jobs = [job async for job in client.submit_many(items, outstanding=64)]
            assert sorted(job.position for job in jobs) == list(range(500))
            for job in jobs:
                assert (await job.result()).result == str(job.position).encode()

    run(story())


def test_submit_many_yields_what_is_under_way_before_it_tells_of_a_refusal(node: RunningNode) -> None:
    async def story() -> None:
        async with Client(node.server) as client, working(node.server):
            items = [("echo", b"1"), ("not a name", b"2"), ("echo", b"3")]
            jobs = []
            with pytest.raises(SubmitRefused) as refusal:  # noqa: PT012
                async for job in client.submit_many(items):
                    jobs.append(job)
            assert refusal.value.position == 1  # type: ignore[attr-defined]
            assert {job.position for job in jobs} >= {0}

    run(story())


def test_submits_beyond_the_bound_wait_for_room(node: RunningNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollmq.limits.UNANSWERED_MAX", 4)

    async def story() -> None:
        async with Client(node.server) as client, working(node.server):
            jobs = await asyncio.gather(*(client.submit("echo", b"x") for _ in range(100)))
            assert len({job.id for job in jobs}) == 100
            assert len([job async for job in client.submit_many([("echo", b"x")] * 50)]) == 50

    run(story())


# --- codec --------------------------------------------------------------------------------------------


class Squeeze:
    """Compresses, and takes nothing that was not."""

    def encode(self, data: bytes) -> tuple[bytes, str]:
        return zlib.compress(data), "zlib-1"

    def decode(self, data: bytes, key_id: str) -> bytes:
        if key_id != "zlib-1":
            raise ValueError("not compressed by us")
        return zlib.decompress(data)


def test_a_codec_stands_between_the_caller_and_the_wire(node: RunningNode) -> None:
    async def story() -> None:
        async with Client(node.server, codec=Squeeze()) as client, Client(node.server) as plain:
            job = await client.submit("codec.echo", b"x" * 1000, key="same")
            async with working(node.server):
                # This worker has no codec: what it returns was never encoded, and that is told.
                answer = await client.submit("echo", b"x" * 1000)
                with pytest.raises(CodecFailed, match="not compressed by us"):
                    await answer.result()
                raw = await plain.result(answer.id)
                assert zlib.decompress(raw.result) == b"x" * 1000
                [gone] = [outcome async for outcome in client.map("echo", [b"x"])]
                assert (gone.state, gone.ok) == ("gone", False)
            # The digest is taken before the codec, so a repeat in clear is the same content.
            repeat = await plain.submit("codec.echo", b"x" * 1000, key="same")
            assert repeat.id == job.id
            await job.cancel()

    run(story())


# --- several groups -----------------------------------------------------------------------------------


def test_each_exec_has_one_group_and_keeps_it(node: RunningNode, tmp_path: Path) -> None:
    async def story(other: str) -> None:
        groups = {"one": node.server, "two": other}
        async with ClientMulti(groups) as multi, working(node.server), working(other):
            names = [f"exec{number}" for number in range(100)]
            homes = {name: multi.client_of(name) for name in names}
            shares = [list(homes.values()).count(client) for client in multi.clients.values()]
            assert min(shares) > 20
            assert (await (await multi.submit("echo", b"1")).result()).result == b"1"
            assert [outcome.ok async for outcome in multi.map("echo", [b"1", b"2"])] == [True, True]
            more = ClientMulti({**groups, "three": "127.0.0.1:1"})
            kept = [name for name in names if more.client_of(name) is not more.clients["three"]]
            moved_count = len(names) - len(kept)
            assert 15 < moved_count < 55
            for name in kept:
                (group,) = [each for each, client in multi.clients.items() if client is homes[name]]
                assert more.client_of(name) is more.clients[group]

    with running_node(tmp_path / "two") as second:
        run(story(second.server))
