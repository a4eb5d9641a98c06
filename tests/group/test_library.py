"""The library's own client and worker across failovers of real groups: a hiccup, and nothing more."""

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rollmq import Client, ClientMulti, Worker
from rollmq.core import events as e
from rollmq.core.line import decode_line
from rollmq.library.job import Job
from tests.group.real_group import RealGroup, RealNode, lines_of, running_group, wait_for

pytestmark = pytest.mark.slow
PATIENCE_S = 60.0
LIMIT_S = 60.0


@pytest.fixture
def group(tmp_path: Path) -> Iterator[RealGroup]:
    with running_group(tmp_path) as group:
        yield group


class Crew:
    """A worker of the library in this loop, and how often each handler ran."""

    def __init__(self, servers: str, *execs: str) -> None:
        self.ran: Counter[str] = Counter()
        self.slow_began = asyncio.Event()
        self.let_go = asyncio.Event()
        self.worker = Worker(servers, worker_id="w", hands=8)
        for name in execs:
            self.worker.handler(name)(self._quick)
        self.worker.handler("slow")(self._slow)

    async def _quick(self, job: Job) -> bytes:
        self.ran[job.id] += 1
        return b"did " + job.payload

    async def _slow(self, job: Job) -> bytes:
        self.ran[job.id] += 1
        self.slow_began.set()
        await self.let_go.wait()
        return b"done at last"


@asynccontextmanager
async def working(crew: Crew) -> AsyncIterator[Crew]:
    task = asyncio.create_task(crew.worker.run())
    try:
        yield crew
    finally:
        crew.worker.stop()
        await task


def audit_logs(group: RealGroup) -> list[e.AnyEvent]:
    """All nodes stop politely with the same log; what is in it."""
    group.wait_until_even()
    for node in group.nodes:
        assert node.stop() == 0, node.log_text()[-2000:]
    logs = [lines_of(node.state) for node in group.nodes]
    shortest = min(map(len, logs))
    assert all(log[:shortest] == logs[0][:shortest] for log in logs)
    return [decode_line(line) for line in max(logs, key=len)]


def of_job(log: list[e.AnyEvent], job_id: str) -> list[str]:
    """What happened to a job."""
    return [type(event).__name__ for event in log if getattr(event, "job_id", "") == job_id]


def test_a_worker_comes_back_with_what_it_runs_and_its_result_reaches_the_session_that_moved(
    group: RealGroup,
) -> None:
    """The handler that ran through the failover is not run again, and its caller hears of it."""

    async def story() -> str:
        async with working(Crew(group.servers, "quick")) as crew, Client(group.servers) as client:
            held = await client.submit("slow", b"x")
            await asyncio.wait_for(crew.slow_began.wait(), LIMIT_S)
            old = await asyncio.to_thread(group.leader)
            await asyncio.to_thread(old.kill)
            outcomes = [
                outcome
                async for outcome in client.map("quick", [b"%d" % n for n in range(200)], outstanding=50)
            ]
            assert {outcome.result for outcome in outcomes} == {b"did %d" % n for n in range(200)}
            assert not crew.let_go.is_set()
            crew.let_go.set()
            outcome = await held.result(timeout=LIMIT_S)
            assert (outcome.ok, outcome.result, outcome.tries) == (True, b"done at last", 1)
            assert crew.ran[held.id] == 1
            old.start()
            return held.id

    held_id = asyncio.run(story())
    log = audit_logs(group)
    assert of_job(log, held_id) == ["Enqueue", "Assign", "Ack"]
    instances = {event.instance for event in log if isinstance(event, e.Worker)}
    assert len(instances) == 1, "it came back as the same one"


def test_submits_that_nobody_confirmed_are_sent_again_under_their_ids_and_answered_once(
    group: RealGroup,
) -> None:
    """The leader has them and no follower does; it dies, and another leads."""
    old = group.leader()
    followers = group.others(old)

    async def story() -> list[str]:
        async with Client(old.address + "," + group.servers, patience=PATIENCE_S) as client:
            await client.submit("quick", b"before")
            for node in followers:
                node.signal(signal.SIGSTOP)
            pending = [asyncio.create_task(client.submit("quick", b"%d" % n)) for n in range(50)]
            await asyncio.to_thread(wait_for, lambda: _has_unconfirmed(old), "the leader has them")
            assert not any(task.done() for task in pending)
            await asyncio.to_thread(old.kill)
            for node in followers:
                node.signal(signal.SIGCONT)
            jobs = await asyncio.wait_for(asyncio.gather(*pending), LIMIT_S)
            old.start()
            async with working(Crew(group.servers, "quick")):
                for job in jobs:
                    assert (await job.result(timeout=LIMIT_S)).ok
            return [job.id for job in jobs]

    ids = asyncio.run(story())
    log = audit_logs(group)
    assert len(set(ids)) == 50
    payloads = Counter(event.payload for event in log if isinstance(event, e.Enqueue))
    assert payloads == Counter([b"before", *(b"%d" % n for n in range(50))])
    assert {event.job_id for event in log if isinstance(event, e.Enqueue)} >= set(ids)


def _has_unconfirmed(leader: RealNode) -> bool:
    """Its own disk has entries that are not committed."""
    return b'"payload":"NDk="' in b"".join(lines_of(leader.state))


def test_several_groups_are_one_to_their_client_also_while_one_of_them_fails_over(tmp_path: Path) -> None:
    """Each exec has its group; the death of one group's leader holds up nobody else."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with running_group(tmp_path / "one") as one, running_group(tmp_path / "two", size=1) as two:
        groups = {"one": one.servers, "two": two.servers}

        async def story() -> dict[str, str]:
            async with ClientMulti(groups, patience=PATIENCE_S) as multi:
                home = {
                    name: next(
                        group for group, client in multi.clients.items() if client is multi.client_of(name)
                    )
                    for name in (f"exec{n}" for n in range(8))
                }
                assert set(home.values()) == {"one", "two"}
                crews = [Crew(servers, *home) for servers in groups.values()]
                async with working(crews[0]), working(crews[1]):
                    await asyncio.gather(*(_run_all(multi, name) for name in home))
                    old = await asyncio.to_thread(one.leader)
                    await asyncio.to_thread(old.kill)
                    await asyncio.gather(*(_run_all(multi, name) for name in home))
                    old.start()
                return home

        home = asyncio.run(story())
        for name, group in (("one", one), ("two", two)):
            execs = {event.exec for event in audit_logs(group) if isinstance(event, e.Enqueue)}
            assert execs == {each for each in home if home[each] == name}


async def _run_all(multi: ClientMulti, exec_name: str) -> None:
    outcomes = [outcome async for outcome in multi.map(exec_name, [b"%d" % n for n in range(40)])]
    assert {outcome.result for outcome in outcomes} == {b"did %d" % n for n in range(40)}


def test_a_group_that_assigns_eagerly_keeps_its_promises_across_a_failover(tmp_path: Path) -> None:
    """A handler may run twice; nothing is lost, and each job ends once."""
    with running_group(tmp_path, options=["--assign", "eager"]) as group:

        async def story() -> list[str]:
            async with working(Crew(group.servers, "quick")), Client(group.servers) as client:
                jobs = [job async for job in client.submit_many(("quick", b"%d" % n) for n in range(100))]
                old = await asyncio.to_thread(group.leader)
                await asyncio.to_thread(old.kill)
                jobs += [job async for job in client.submit_many(("quick", b"%d" % n) for n in range(100))]
                for job in jobs:
                    assert (await job.result(timeout=LIMIT_S)).ok
                old.start()
                return [job.id for job in jobs]

        ids = asyncio.run(story())
        log = audit_logs(group)
        ended = Counter(event.job_id for event in log if isinstance(event, e.Ack))
        assert ended == Counter(ids)
