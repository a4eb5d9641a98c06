"""A worker towards its node: what it says before, while and after its handlers run, whatever they do."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from rollmq.errors import HandlerProblem
from rollmq.library.job import Job
from rollmq.library.verdicts import Reject, Retry, Snooze
from rollmq.wire.message import MsgType
from rollmq.worker import Worker
from tests.library.played_node import SOON_S
from tests.worker.boss import Boss, Desk, running

Body = Callable[[Desk], Coroutine[Any, Any, None]]


def play(worker: Worker, body: Body) -> None:
    """Run a worker beside a test that plays its node."""

    async def main() -> None:
        async with Boss() as boss, running(worker, boss):
            await body(await boss.desk())

    asyncio.run(main())


def test_async_handlers_and_plain_functions_run_and_are_acked() -> None:
    worker = Worker(worker_id="w1", hands=4)
    names = []

    @worker.handler("shout")
    async def shout(job: Job) -> bytes:
        return job.payload.upper()

    @worker.handler("wait")
    async def wait(job: Job) -> bytes:
        await asyncio.sleep(0.001)
        return job.payload

    @worker.handler("plain")
    def plain(job: Job) -> bytes:
        names.append(threading.current_thread().name)
        return b"plain " + job.payload

    async def body(desk: Desk) -> None:
        assert desk.hello.worker_id == "w1"
        assert set(desk.hello.patterns) == {"job.assign.shout", "job.assign.wait", "job.assign.plain"}
        assert (desk.hello.hands, desk.hello.credit) == (4, 8)
        jobs = [desk.assign(name, b"cat") for name in ("shout", "wait", "plain")]
        answers = [await desk.ack_of(job) for job in jobs]
        assert [payload for _, payload in answers] == [b"CAT", b"cat", b"plain cat"]
        assert all(header.ok and header.run_us is not None for header, _ in answers)
        assert desk.started() == [job.job_id.hex() for job in jobs]
        assert names[0].startswith("rollmq-hand")

    play(worker, body)


def test_a_handler_is_told_as_started_before_it_runs() -> None:
    worker = Worker(hands=1)
    seen: list[bool] = []
    open_desk: list[Desk] = []

    @worker.handler("look")
    def look(_job: Job) -> None:
        # The node is in this process: what it has heard so far can be seen from here.
        until = time.monotonic() + SOON_S
        while not open_desk[0].started() and time.monotonic() < until:
            threading.Event().wait(0.001)
        seen.append(bool(open_desk[0].started()) and not open_desk[0].acks())

    async def body(desk: Desk) -> None:
        open_desk.append(desk)
        await desk.ack_of(desk.assign("look"))
        assert seen == [True]

    play(worker, body)


def test_what_a_handler_is_given_is_the_job_as_it_was_submitted() -> None:
    worker = Worker()
    seen: list[Job] = []

    @worker.handler("look")
    async def look(job: Job) -> None:
        seen.append(job)

    async def body(desk: Desk) -> None:
        job = desk.assign("look", b"cat", tries=2)
        await desk.ack_of(job)
        (given,) = seen
        assert (given.id, given.exec, given.payload) == (job.job_id.hex(), "look", b"cat")
        assert (given.attempt, given.tries, given.client_id) == (3, 2, "webshop")
        assert given.headers == {"trace": "7d1c"}
        assert not given.is_stopped

    play(worker, body)


def test_what_handlers_raise_decides_what_becomes_of_their_jobs() -> None:
    worker = Worker()

    @worker.handler("verdict")
    async def verdict(job: Job) -> object:
        if job.payload == b"retry":
            raise Retry("later", after=3)
        if job.payload == b"snooze":
            raise Snooze(after=0.5)
        if job.payload == b"reject":
            raise Reject("never")
        if job.payload == b"text":
            return "text"
        raise ValueError("a bug")

    async def body(desk: Desk) -> None:
        async def end(payload: bytes) -> tuple[str, int | None, str, str]:
            header, _ = await desk.ack_of(desk.assign("verdict", payload))
            assert not header.ok
            return header.what, header.after_us, header.error_type, header.error_message

        assert await end(b"retry") == ("retry", 3_000_000, "Retry", "later")
        assert await end(b"snooze") == ("snooze", 500_000, "Snooze", "")
        assert await end(b"reject") == ("reject", None, "Reject", "never")
        assert (await end(b"text"))[:3] == ("reject", None, "ResultNotBytes")
        assert await end(b"bug") == ("retry", None, "ValueError", "a bug")

    play(worker, body)


def test_never_more_run_than_there_are_hands_and_no_more_are_asked_for_than_credit() -> None:
    worker = Worker(hands=2, credit=3)
    release = threading.Event()
    running_count, most = [0], [0]

    @worker.handler("wait")
    async def wait(_job: Job) -> None:
        running_count[0] += 1
        most[0] = max(most[0], running_count[0])
        while not release.is_set():
            await asyncio.sleep(0.001)
        running_count[0] -= 1

    async def body(desk: Desk) -> None:
        assert desk.hello.credit == 3
        jobs = [desk.assign("wait") for _ in range(3)]
        await desk.boss.until(lambda: len(desk.started()) == 2)
        release.set()
        for job in jobs:
            await desk.ack_of(job)
        assert most == [2]
        last_pair = [header.credit for _, header, _ in desk.acks() if header.credit is not None][-1]
        assert last_pair == (3, 3)

    play(worker, body)


def test_progress_and_more_time_are_said_at_once() -> None:
    worker = Worker()

    @worker.handler("long")
    async def long(job: Job) -> None:
        await job.progress(b"half")
        job.extend(90)

    @worker.handler("plain")
    def plain(job: Job) -> None:
        job.progress(b"half")
        job.extend(90)

    async def body(desk: Desk) -> None:
        for name in ("long", "plain"):
            job = desk.assign(name)
            await desk.ack_of(job)
            (first, data), (second, nothing) = desk.said(job)
            assert (data, first.final, first.fence) == (b"half", False, job.fence)
            assert (nothing, second.extend_us) == (b"", 90_000_000)

    play(worker, body)


def test_a_cancelled_job_has_its_handler_cancelled_and_nothing_of_it_is_told() -> None:
    worker = Worker()
    ends: list[str] = []

    @worker.handler("wait")
    async def wait(_job: Job) -> None:
        try:
            await asyncio.sleep(SOON_S)
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise

    @worker.handler("plain")
    def plain(job: Job) -> None:
        until = time.monotonic() + SOON_S
        while not job.is_stopped and time.monotonic() < until:
            threading.Event().wait(0.001)
        ends.append("stopped" if job.is_stopped else "late")

    @worker.handler("quick")
    async def quick(_job: Job) -> None: ...

    async def body(desk: Desk) -> None:
        for name, end in (("wait", "cancelled"), ("plain", "stopped")):
            job = desk.assign(name)
            await desk.start_of(job)
            desk.cancel(job)
            await desk.ack_of(desk.assign("quick"))
            async with asyncio.timeout(SOON_S):
                while end not in ends:
                    await asyncio.sleep(0.001)
        await desk.ack_of(desk.assign("quick"))
        assert len(desk.acks()) == 3

    play(worker, body)


def test_a_job_that_waits_is_given_back_when_it_is_asked_for() -> None:
    worker = Worker(hands=1, credit=2)
    release = asyncio.Event()

    @worker.handler("wait")
    async def wait(_job: Job) -> None:
        await release.wait()

    async def body(desk: Desk) -> None:
        first, second = desk.assign("wait"), desk.assign("wait")
        await desk.start_of(first)
        desk.cancel(second, "take_back")
        header, _ = await desk.ack_of(second)
        assert (header.ok, header.what, header.reason) == (False, "hand_back", "taken back")
        release.set()
        await desk.ack_of(first)
        assert second.job_id.hex() not in desk.started()

    play(worker, body)


def test_a_job_without_a_handler_goes_back_and_the_others_run() -> None:
    worker = Worker(patterns=["job.assign.image.*"])

    @worker.handler("image.resize")
    async def resize(_job: Job) -> bytes:
        return b"small"

    async def body(desk: Desk) -> None:
        assert desk.hello.patterns == ("job.assign.image.*",)
        header, _ = await desk.ack_of(desk.assign("image.paint"))
        assert (header.what, header.reason) == ("hand_back", "refused")
        assert (await desk.ack_of(desk.assign("image.resize")))[1] == b"small"

    play(worker, body)


def test_a_handler_for_a_pattern_takes_every_exec_that_matches() -> None:
    worker = Worker()

    @worker.handler("image.*")
    async def image(job: Job) -> bytes:
        return job.exec.encode()

    @worker.handler("image.resize")
    async def resize(_job: Job) -> bytes:
        return b"exact"

    async def body(desk: Desk) -> None:
        assert (await desk.ack_of(desk.assign("image.paint")))[1] == b"image.paint"
        assert (await desk.ack_of(desk.assign("image.resize")))[1] == b"exact"

    play(worker, body)


def test_a_blocked_loop_keeps_its_pings() -> None:
    worker = Worker()
    release = threading.Event()

    @worker.handler("block")
    async def block(_job: Job) -> None:
        release.wait(SOON_S)  # what nobody should do

    def run_worker(address: str) -> None:
        worker.servers = address
        asyncio.run(worker.run())

    async def main() -> None:
        async with Boss() as boss:
            thread = threading.Thread(target=run_worker, args=(boss.address,), daemon=True)
            thread.start()
            desk = await boss.desk(ping_every_us=50_000)
            job = desk.assign("block")
            await desk.start_of(job)

            def pings_count() -> int:
                return len([frame for frame in desk.visit.frames if frame.type == MsgType.PING])

            before = pings_count()
            await boss.until(lambda: pings_count() >= before + 5)
            assert not desk.acks()
            release.set()
            await desk.ack_of(job)
            worker.stop()
            await asyncio.to_thread(thread.join, SOON_S)
            assert not thread.is_alive()

    asyncio.run(main())


def test_outcomes_are_told_again_on_the_next_connection_until_they_are_confirmed() -> None:
    worker = Worker(hands=2)
    release = asyncio.Event()

    @worker.handler("quick")
    async def quick(_job: Job) -> bytes:
        return b"done"

    @worker.handler("wait")
    async def wait(_job: Job) -> bytes:
        await release.wait()
        return b"late"

    async def main() -> None:
        async with Boss() as boss, running(worker, boss):
            desk = await boss.desk()
            quick_job, wait_job = desk.assign("quick"), desk.assign("wait")
            await boss.until(lambda: len(desk.acks()) == 1 and len(desk.started()) == 2)
            desk.visit.transport.abort()
            again = await boss.desk()
            assert again.hello.instance == desk.hello.instance
            assert [(held.job_id, held.started) for held in again.listed.held] == [
                (wait_job.job_id.hex(), True)
            ]
            assert [outcome.job_id for outcome in again.listed.outcomes] == [quick_job.job_id.hex()]
            release.set()
            assert (await again.ack_of(quick_job))[1] == b"done"
            assert (await again.ack_of(wait_job))[1] == b"late"
            again.visit.transport.abort()
            assert (await boss.desk()).listed.outcomes == ()

    asyncio.run(main())


def test_a_polite_stop_finishes_what_runs_and_hands_back_the_rest() -> None:
    worker = Worker(hands=1, credit=3)
    release = asyncio.Event()

    @worker.handler("wait")
    async def wait(_job: Job) -> bytes:
        await release.wait()
        return b"finished"

    async def main() -> None:
        async with Boss() as boss, running(worker, boss) as run:
            desk = await boss.desk()
            first, second, third = (desk.assign("wait") for _ in range(3))
            await desk.start_of(first)
            await boss.until(lambda: worker_holds(worker) == 3)
            worker.stop()
            for job in (second, third):
                header, _ = await desk.ack_of(job)
                assert (header.what, header.reason) == ("hand_back", "drained")
            assert not run.done()
            release.set()
            assert (await desk.ack_of(first))[1] == b"finished"
            async with asyncio.timeout(SOON_S):
                await run

    asyncio.run(main())


def worker_holds(worker: Worker) -> int:
    """Jobs that it has received and not ended. Read from another thread: a count, nothing more."""
    assert worker._thread is not None
    return len(worker._thread._core.held)


@pytest.mark.parametrize("kind", ["async", "stubborn", "plain"])
def test_a_stop_that_does_not_wait_hands_back_what_runs(kind: str) -> None:
    worker = Worker(hands=1)
    release = threading.Event()

    if kind == "plain":

        @worker.handler("wait")
        def plain(_job: Job) -> None:
            release.wait(SOON_S)

    else:

        @worker.handler("wait")
        async def wait(_job: Job) -> None:
            while not release.is_set():
                try:
                    await asyncio.sleep(0.01)
                except asyncio.CancelledError:
                    if kind == "async":
                        raise

    async def main() -> None:
        async with Boss() as boss, running(worker, boss) as run:
            desk = await boss.desk()
            job = desk.assign("wait")
            await desk.start_of(job)
            worker.stop(now=True)
            header, _ = await desk.ack_of(job)
            assert (header.what, header.reason) == ("hand_back", "drained")
            async with asyncio.timeout(SOON_S):
                await run
            release.set()

    asyncio.run(main())


def test_options_that_make_no_worker_are_refused_before_anything_happens() -> None:
    for options in (
        {"hands": 0},
        {"hands": 5000},
        {"credit": 0},
        {"worker_id": "a.b"},
        {"token": "t" * 9999},
    ):
        with pytest.raises(HandlerProblem):
            Worker(**options)  # type: ignore[arg-type]
    worker = Worker("127.0.0.1:1", patterns=["job.assign.image.paint"])
    with pytest.raises(HandlerProblem, match="no handlers"):
        asyncio.run(worker.run())

    @worker.handler("image.resize")
    async def resize(_job: Job) -> None: ...

    with pytest.raises(HandlerProblem, match=r"image\.paint"):
        asyncio.run(worker.run())
    with pytest.raises(HandlerProblem, match="two handlers"):
        worker.handler("image.resize")(resize)
    with pytest.raises(HandlerProblem, match="no name of an exec"):
        worker.handler("image..resize")(resize)
    with pytest.raises(HandlerProblem, match="max_jobs"):
        worker.handler("other", max_jobs=3)(resize)
    with pytest.raises(HandlerProblem, match="child process"):
        worker.handler("other", processes=True)(resize)
