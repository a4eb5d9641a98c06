"""Async tests of a user: handlers run as tasks of the test's own loop."""

import asyncio
from datetime import timedelta

from rollmq.errors import ResultTimeout
from rollmq.library.job import Job
from rollmq.testing import Queue, SyncQueue


def test_a_result_that_is_awaited_lets_time_skip_to_what_is_due() -> None:
    async def story() -> None:
        async with Queue() as queue:
            queue.handler("echo")(_echo)
            began = queue.now
            job = await queue.submit("echo", b"x", delay=86_400)
            assert (await job.result()).result == b"x"
            assert queue.now - began == timedelta(days=1)

    asyncio.run(story())


def test_while_a_handler_works_time_stands_still() -> None:
    async def story() -> None:
        async with Queue() as queue:
            gate = asyncio.Event()

            @queue.handler("wait")
            async def wait(_job: Job) -> bytes:
                await gate.wait()
                return b"done"

            job, later = await queue.submit("wait"), await queue.submit("wait", delay=60)
            began = queue.now
            waiting = asyncio.ensure_future(job.result())
            for _ in range(50):
                await asyncio.sleep(0)
            assert not waiting.done()
            gate.set()
            assert (await waiting).ok
            assert queue.now == began
            assert later.state == "queued"

    asyncio.run(story())


def test_handlers_wait_for_jobs_of_their_own_and_time_skips_for_them() -> None:
    async def story() -> None:
        async with Queue() as queue:
            queue.handler("echo")(_echo)

            @queue.handler("twice")
            async def twice(job: Job) -> bytes:
                jobs = [await queue.submit("echo", job.payload, delay=delay) for delay in (30, 10)]
                return b"".join([(await each.result()).result for each in jobs])

            began = queue.now
            assert (await (await queue.submit("twice", b"ab")).result()).result == b"abab"
            assert queue.now - began == timedelta(seconds=30)

    asyncio.run(story())


def test_more_than_one_may_wait_at_once() -> None:
    async def story() -> None:
        async with Queue() as queue:
            queue.handler("echo")(_echo)
            jobs = [await queue.submit("echo", b"%d" % number, delay=number * 10) for number in range(5)]
            outcomes = await asyncio.gather(*(job.result() for job in jobs))
            assert [outcome.result for outcome in outcomes] == [b"0", b"1", b"2", b"3", b"4"]

    asyncio.run(story())


def test_a_timeout_of_a_result_is_of_the_queues_time() -> None:
    async def story() -> None:
        async with Queue() as queue:
            queue.handler("echo")(_echo)
            job = await queue.submit("echo", delay=100)
            began = queue.now
            try:
                await job.result(timeout=60)
            except ResultTimeout:
                assert queue.now - began == timedelta(seconds=60)
            assert (await job.result(timeout=60)).ok

    asyncio.run(story())


def test_advance_passes_handlers_that_wait_and_run_waits_for_them() -> None:
    async def story() -> None:
        async with Queue() as queue:

            @queue.handler("nap")
            async def nap(_job: Job) -> bytes:
                await asyncio.sleep(0.01)
                return b"ok"

            job = await queue.submit("nap")
            await queue.advance(5)
            assert job.state == "inflight"
            await queue.run()
            assert job.state == "done"

    asyncio.run(story())


def test_progress_and_cancelling_reach_a_running_handler() -> None:
    async def story() -> None:
        async with Queue() as queue:
            stopped: list[str] = []

            @queue.handler("steps")
            async def steps(job: Job) -> bytes:
                await job.progress(b"1")
                await job.progress(b"2")
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    stopped.append(job.id)
                    raise
                return b""

            job = await queue.submit("steps")
            told: list[bytes] = []
            async for report in job.progress():
                told.append(report)
                if len(told) == 2:
                    await job.cancel("enough")
            assert told == [b"1", b"2"]
            assert (await job.result()).state == "cancelled"
            await queue.advance(0)
            assert stopped == [job.id]

    asyncio.run(story())


def test_plain_code_and_async_code_may_share_one_queue() -> None:
    async def story() -> None:
        async with Queue() as queue:
            plain = SyncQueue(same_as=queue)

            @queue.handler("outer")
            def outer(job: Job) -> bytes:
                return plain.submit("inner", job.payload).id.encode()

            queue.handler("inner")(_echo)
            inner_id = (await (await queue.submit("outer", b"x")).result()).result
            await queue.run()
            assert queue.explain(inner_id.decode()).state == "done"

    asyncio.run(story())


async def _echo(job: Job) -> bytes:
    await asyncio.sleep(0)
    return job.payload
