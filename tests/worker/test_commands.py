"""Programs as handlers: stdin, stdout, exit code, the end of stderr; a process group ends with its job."""

import asyncio
import os
import shlex
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from rollmq import limits
from rollmq.errors import HandlerProblem
from rollmq.library.command import Command, parse_command
from rollmq.library.handlers import Handler, Where
from rollmq.worker import Worker
from tests.library.played_node import SOON_S
from tests.worker.boss import Boss, Desk, running
from tests.worker.test_children import is_alive, until


def worker_of(script: str, *, hands: int = 2) -> Worker:
    """A worker whose exec `run` is a line for a shell."""
    worker = Worker(worker_id="w1", hands=hands)
    worker.handlers.add(Handler("run", Command(("sh", "-c", script)), Where.THREAD))
    return worker


def play(worker: Worker, body: Callable[[Desk], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with Boss() as boss, running(worker, boss):
            await body(await boss.desk())

    asyncio.run(main())


def test_payload_goes_in_and_the_result_comes_out() -> None:
    async def body(desk: Desk) -> None:
        for payload in (b"", b"cat", bytes(range(256)) * 8_000):
            header, result = await desk.ack_of(desk.assign("run", payload))
            assert header.ok
            assert header.run_us
            assert result == payload

    play(worker_of("cat"), body)


def test_the_exit_code_and_the_end_of_stderr_are_the_error() -> None:
    async def body(desk: Desk) -> None:
        header, detail = await desk.ack_of(desk.assign("run"))
        assert (header.ok, header.what, header.error_type) == (False, "retry", "exit code 3")
        assert header.error_message == "no such cat"
        assert detail == b"looking\nno such cat\n"

    play(worker_of("echo partial; echo looking >&2; echo no such cat >&2; exit 3"), body)


def test_of_a_long_stderr_the_end_is_kept() -> None:
    async def body(desk: Desk) -> None:
        _, detail = await desk.ack_of(desk.assign("run"))
        assert len(detail) <= limits.ERROR_DETAIL_BYTES_MAX
        assert detail.endswith(b"line 100000\n")

    play(worker_of("seq -f 'line %.0f' 100000 >&2; exit 1"), body)


def test_a_program_that_ends_by_a_signal_says_which() -> None:
    async def body(desk: Desk) -> None:
        header, _ = await desk.ack_of(desk.assign("run"))
        assert header.error_type == "SIGSEGV"
        assert "nothing to stderr" in header.error_message

    play(worker_of("kill -SEGV $$"), body)


def test_a_program_that_does_not_read_its_payload_may_succeed() -> None:
    async def body(desk: Desk) -> None:
        header, result = await desk.ack_of(desk.assign("run", bytes(4_000_000)))
        assert header.ok
        assert result == b"fine\n"

    play(worker_of("exec <&-; echo fine"), body)


def test_the_facts_of_the_job_are_in_the_environment() -> None:
    names = "JOB_ID EXEC CLIENT_ID ATTEMPT TRIES HEADERS TIMEOUT_S"

    async def body(desk: Desk) -> None:
        job = desk.assign("run", tries=2, timeout_us=2_500_000)
        _, result = await desk.ack_of(job)
        assert result.decode().splitlines() == [
            job.job_id.hex(), "run", "webshop", "3", "2", '{"trace":"7d1c"}', "2.5",
        ]  # fmt: skip

    play(worker_of(f'for name in {names}; do eval echo \\"\\$ROLLMQ_$name\\"; done'), body)


def test_too_much_output_is_a_rejected_job_and_ends_the_program() -> None:
    async def body(desk: Desk) -> None:
        header, _ = await desk.ack_of(desk.assign("run"))
        assert (header.what, header.error_type) == ("reject", "ResultTooLarge")

    play(worker_of("yes"), body)


@pytest.mark.parametrize("end", ["cancel", "timeout", "stop now"])
def test_a_stopped_job_has_its_whole_process_group_killed(tmp_path: Path, end: str) -> None:
    path = tmp_path / "pids"
    worker = worker_of(f"sleep 600 & echo $$ $! > {path}.part; mv {path}.part {path}; wait", hands=1)

    async def body(desk: Desk) -> None:
        timeout_us = 100_000 if end == "timeout" else int(SOON_S * 10_000_000)
        job = desk.assign("run", timeout_us=timeout_us)
        await until(path.exists)
        pids = [int(pid) for pid in path.read_text().split()]
        if end == "cancel":
            desk.cancel(job)
        elif end == "stop now":
            worker.stop(now=True)
        await until(lambda: not any(map(is_alive, pids)))
        if end == "timeout":
            header, _ = await desk.ack_of(job)
            assert (header.what, header.error_type) == ("retry", "Timeout")
        elif end == "stop now":
            header, _ = await desk.ack_of(job)
            assert header.what == "hand_back"
        else:
            path.unlink()
            again = desk.assign("run")
            await until(path.exists)  # the hand is free
            desk.cancel(again)

    play(worker, body)


def test_what_a_program_leaves_running_ends_with_its_job(tmp_path: Path) -> None:
    path = tmp_path / "pid"

    async def body(desk: Desk) -> None:
        header, result = await desk.ack_of(desk.assign("run"))
        assert header.ok
        assert result == b"done\n"
        await until(lambda: not is_alive(int(path.read_text())))

    play(worker_of(f"sleep 600 & echo $! > {path}; echo done"), body)


def test_programs_that_run_at_once_do_not_mix_their_output() -> None:
    async def body(desk: Desk) -> None:
        jobs = [desk.assign("run", b"%d" % number * 1000) for number in range(8)]
        for number, job in enumerate(jobs):
            _, result = await desk.ack_of(job)
            assert result == b"%d" % number * 1000

    play(worker_of("cat", hands=8), body)


def test_a_command_that_cannot_run_is_refused_with_what_to_do() -> None:
    python = shlex.quote(sys.executable)
    assert parse_command(f"{python} -c 'print(1)'") == (sys.executable, "-c", "print(1)")
    for text, says in (
        ("", "is empty"),
        ("cat 'x", "no command"),
        ("no-such-program-here x", "no program"),
        ("cat | wc -l", "sh -c"),
        (os.fspath(Path(__file__)), "no program"),
    ):
        with pytest.raises(HandlerProblem, match=says):
            parse_command(text)
