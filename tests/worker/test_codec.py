"""The codec hook in a worker: payloads in, results, progress and error details out, wherever handlers run."""

import asyncio
import zlib
from typing import Any

import pytest

from rollmq import limits
from rollmq.library.job import Job
from rollmq.worker import Worker
from tests.worker import handlers_of_children as given
from tests.worker.boss import Boss, Desk, running

KEY = "k1"


class Zipped:
    """Compresses, and knows its key."""

    def encode(self, data: bytes) -> tuple[bytes, str]:
        if data == b"forbidden":
            raise ValueError("not this")
        return zlib.compress(data), KEY

    def decode(self, data: bytes, key_id: str) -> bytes:
        if key_id != KEY:
            raise KeyError(key_id)
        return zlib.decompress(data)


class Swelling(Zipped):
    """Makes everything as long as nothing may be."""

    def encode(self, data: bytes) -> tuple[bytes, str]:
        return data + bytes(limits.PAYLOAD_BYTES_MAX), KEY


def worker_with(codec: Any) -> Worker:
    worker = Worker(worker_id="w1", codec=codec)

    @worker.handler("loop")
    async def loop(job: Job) -> bytes:
        await job.progress(b"half")
        if job.payload == b"fail":
            raise ValueError("broken")
        return job.payload

    @worker.handler("thread")
    def thread(job: Job) -> bytes:
        return job.payload

    worker.handler("child", processes=True)(given.report)
    return worker


def play(worker: Worker, body: Any) -> None:
    async def main() -> None:
        async with Boss() as boss, running(worker, boss):
            await body(await boss.desk())

    asyncio.run(main())


def test_payload_result_progress_and_detail_go_through_it_and_nothing_else() -> None:
    async def body(desk: Desk) -> None:
        for name in ("loop", "thread", "child"):
            job = desk.assign(name, zlib.compress(b" cat"), key_id=KEY)
            header, result = await desk.ack_of(job)
            assert (header.ok, header.key_id) == (True, KEY)
            assert zlib.decompress(result).endswith(b" cat")
            for said, data in desk.said(job):
                if not said.extend_us:
                    assert (said.key_id, zlib.decompress(data)) == (KEY, b"half")
        header, detail = await desk.ack_of(desk.assign("loop", zlib.compress(b"fail"), key_id=KEY))
        assert (header.error_type, header.error_message, header.key_id) == ("ValueError", "broken", KEY)
        assert b"ValueError: broken" in zlib.decompress(detail)

    play(worker_with(Zipped()), body)


@pytest.mark.parametrize("name", ["loop", "thread", "child"])
def test_what_cannot_be_decoded_or_encoded_is_a_failed_try_that_says_so(name: str) -> None:
    async def body(desk: Desk) -> None:
        header, _ = await desk.ack_of(desk.assign(name, b"cat", key_id="k0"))
        assert (header.what, header.error_type) == ("retry", "CodecFailed")
        assert "'k0'" in header.error_message
        if name != "child":
            header, _ = await desk.ack_of(desk.assign(name, zlib.compress(b"forbidden"), key_id=KEY))
            assert (header.what, header.error_type) == ("retry", "CodecFailed")
            assert "not this" in header.error_message

    play(worker_with(Zipped()), body)


def test_what_the_codec_makes_too_long_is_refused_here_and_not_by_the_node() -> None:
    async def body(desk: Desk) -> None:
        header, _ = await desk.ack_of(desk.assign("loop", zlib.compress(b"cat"), key_id=KEY))
        assert (header.what, header.error_type) == ("reject", "ResultTooLarge")
        header, detail = await desk.ack_of(desk.assign("loop", zlib.compress(b"fail"), key_id=KEY))
        assert (header.what, header.error_type, detail) == ("retry", "ValueError", b"")

    play(worker_with(Swelling()), body)
