"""An app's tasks in a test: what they submit comes to the queue of the test, and runs there."""

import asyncio
import zlib
from datetime import timedelta

import pytest

from rollmq.errors import ArgumentsWrong, TaskFailed
from rollmq.library.job import Job
from rollmq.tasks import App
from rollmq.testing import Queue, SyncQueue
from rollmq.worker import Worker

app = App("shop")
mails: list[str] = []


@app.task(tries_max=2)
def resize(url: str, width: int) -> str:
    if width == 0:
        raise ValueError("no width")
    return f"{url}@{width}"


@app.task
async def order(number: int) -> str:
    mails.append(f"order {number}")
    job = await resize.options(delay=60).submit("pic", number)
    return await job.value()


def test_a_task_runs_with_its_types_in_a_plain_test(rollmq: SyncQueue) -> None:
    rollmq.add(app)
    job = rollmq.await_(resize.submit("a.png", 300))
    assert rollmq.await_(job.value()) == "a.png@300"
    with pytest.raises(ArgumentsWrong):
        rollmq.await_(resize.submit("a.png", "wide"))  # type: ignore[arg-type]
    failing = rollmq.await_(resize.submit("a.png", 0))
    with pytest.raises(TaskFailed, match="no width"):
        rollmq.await_(failing.value())


def test_a_task_that_submits_another_one_is_run_to_its_end() -> None:
    async def story() -> None:
        async with Queue() as queue:
            queue.add(app)
            began = queue.now
            assert await (await order.submit(7)).value() == "pic@7"
            assert queue.now - began == timedelta(seconds=60)
            assert mails == ["order 7"]

    asyncio.run(story())
    assert app.stand_in is None


class Packed:
    """A codec that compresses."""

    def encode(self, data: bytes) -> tuple[bytes, str]:
        return zlib.compress(data), "z1"

    def decode(self, data: bytes, key_id: str) -> bytes:
        assert key_id == "z1"
        return zlib.decompress(data)


def test_a_codec_is_applied_to_everything_that_goes_through_the_queue() -> None:
    worker = Worker("unused:1", codec=Packed())

    @worker.handler("echo")
    def echo(job: Job) -> bytes:
        job.progress(b"half")
        return job.payload

    with SyncQueue(codec=Packed()) as queue:
        queue.add(worker)
        job = queue.submit("echo", b"x" * 10_000)
        assert job.result().result == b"x" * 10_000
        assert job.reports == [b"half"]
        assert all(len(line) < 1_000 for line in queue.engine.node.lines)
