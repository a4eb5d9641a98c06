"""Handlers in child processes: they report, fail, die, are killed with all they started, are replaced."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from rollmq.errors import HandlerProblem
from rollmq.library.job import Job
from rollmq.worker import Worker
from tests.house_rules import ROOT
from tests.library.played_node import SOON_S
from tests.worker import handlers_of_children as given
from tests.worker.boss import Assigned, Boss, Desk, running


def play(worker: Worker, body: Callable[[Desk], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with Boss() as boss, running(worker, boss):
            await body(await boss.desk())

    asyncio.run(main())


def worker_of(*functions: Callable[..., Any], hands: int = 2, max_jobs: int | None = None) -> Worker:
    worker = Worker(worker_id="w1", hands=hands)
    for function in functions:
        worker.handler(function.__name__, processes=True, max_jobs=max_jobs)(function)
    return worker


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] not in "ZX"


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(SOON_S):
        while not is_so():
            await asyncio.sleep(0.005)


def test_a_handler_runs_in_another_process_and_reports_from_there() -> None:
    worker = worker_of(given.pid_of, given.pid_of_async, given.report)

    async def body(desk: Desk) -> None:
        for name in ("pid_of", "pid_of_async"):
            pids = [int((await desk.ack_of(desk.assign(name)))[1]) for _ in range(2)]
            assert pids[0] == pids[1] != os.getpid(), "one child for both jobs, and not this process"
        job = desk.assign("report", b" cat", tries=1)
        header, payload = await desk.ack_of(job)
        assert header.ok
        assert header.run_us is not None
        assert payload == f"{job.job_id.hex()} report 2 webshop cat".encode()
        (progress, data), (more_time, _) = desk.said(job)
        assert (data, more_time.extend_us) == (b"half", 60_000_000)
        assert progress.fence == job.fence

    play(worker, body)


def test_what_goes_wrong_in_a_child_is_the_outcome_of_its_job_alone() -> None:
    worker = worker_of(given.fail, given.reject, given.die, given.killed, given.pid_of, hands=1)

    async def body(desk: Desk) -> None:
        async def end(name: str) -> tuple[str, str, str]:
            header, _ = await desk.ack_of(desk.assign(name))
            return header.what, header.error_type, header.error_message

        assert await end("fail") == ("retry", "ValueError", "in a child")
        assert await end("reject") == ("reject", "Reject", "never")
        what, kind, text = await end("die")
        assert (what, kind) == ("retry", "ProcessEnded")
        assert text.endswith("exit code 7")
        what, kind, text = await end("killed")
        assert (what, kind) == ("retry", "ProcessEnded")
        assert text.endswith("SIGKILL")
        assert await end("pid_of") == ("", "", "")

    play(worker, body)


def test_a_child_that_died_while_it_was_idle_costs_no_job_a_try() -> None:
    worker = worker_of(given.pid_of, hands=1)

    async def body(desk: Desk) -> None:
        first = int((await desk.ack_of(desk.assign("pid_of")))[1])
        os.kill(first, signal.SIGKILL)
        await until(lambda: not is_alive(first))
        header, payload = await desk.ack_of(desk.assign("pid_of"))
        assert header.ok
        assert int(payload) != first

    play(worker, body)


def test_children_are_replaced_after_their_number_of_jobs() -> None:
    worker = worker_of(given.pid_of, hands=1, max_jobs=2)

    async def body(desk: Desk) -> None:
        pids = [int((await desk.ack_of(desk.assign("pid_of")))[1]) for _ in range(6)]
        assert pids[0] == pids[1] != pids[2] == pids[3] != pids[4] == pids[5]
        await until(lambda: not is_alive(pids[0]) and not is_alive(pids[2]))

    play(worker, body)


def test_there_are_never_more_children_than_hands() -> None:
    worker = worker_of(given.pid_of, given.pid_of_async, given.report, hands=1)

    async def body(desk: Desk) -> None:
        first = int((await desk.ack_of(desk.assign("pid_of")))[1])
        second = int((await desk.ack_of(desk.assign("pid_of_async")))[1])
        await until(lambda: not is_alive(first))
        assert is_alive(second)
        assert int((await desk.ack_of(desk.assign("pid_of")))[1]) != first

    play(worker, body)


@pytest.mark.parametrize("end", ["cancel", "timeout", "stop now"])
def test_a_stopped_job_has_its_child_killed_with_all_that_it_started(tmp_path: Path, end: str) -> None:
    worker = worker_of(given.hang, given.pid_of, hands=1)
    path = tmp_path / "pids"

    async def body(desk: Desk) -> None:
        timeout_us = 100_000 if end == "timeout" else SOON_S * 1_000_000 * 10
        job = desk.assign("hang", str(path).encode(), timeout_us=int(timeout_us))
        await until(path.exists)
        outer, inner = map(int, path.read_text().split())
        await _end_it(worker, desk, job, end)
        await until(lambda: not is_alive(outer) and not is_alive(inner))
        if end != "stop now":
            assert int((await desk.ack_of(desk.assign("pid_of")))[1]) != outer

    play(worker, body)


async def _end_it(worker: Worker, desk: Desk, job: Assigned, end: str) -> None:
    if end == "cancel":
        desk.cancel(job)
    elif end == "timeout":
        header, _ = await desk.ack_of(job)  # no node says so: the worker stops it by itself
        assert (header.what, header.error_type) == ("retry", "Timeout")
    else:
        worker.stop(now=True)
        header, _ = await desk.ack_of(job)
        assert (header.what, header.reason) == ("hand_back", "drained")


def test_children_end_when_their_worker_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    path = tmp_path / "pids"

    async def main() -> None:
        async with Boss() as boss:
            process = subprocess.Popen([sys.executable, script, boss.address], cwd=ROOT)
            try:
                desk = await boss.desk()
                assert (await desk.ack_of(desk.assign("here", b"cat")))[1] == b"__mp_main__ CAT"
                desk.assign("hang", str(path).encode())
                await until(path.exists)
            finally:
                process.kill()
                process.wait()
            pids = [int(pid) for pid in path.read_text().split()]
            await until(lambda: not any(map(is_alive, pids)))

    asyncio.run(main())


SCRIPT = """
import asyncio, sys
sys.path.insert(0, ".")
from rollmq.worker import Worker
from tests.worker.handlers_of_children import hang
worker = Worker(sys.argv[1], hands=2)
worker.handler("hang", processes=True)(hang)

@worker.handler("here", processes=True)
def here(job):
    return __name__.encode() + b" " + job.payload.upper()

if __name__ == "__main__":
    asyncio.run(worker.run())
"""


def test_a_script_that_starts_its_worker_on_import_is_told_what_to_write(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.replace('if __name__ == "__main__":', "if True:"))
    done = subprocess.run(
        [sys.executable, script, "127.0.0.1:1"], cwd=ROOT, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert b'Start it under `if __name__ == "__main__":`' in done.stderr


def test_a_function_that_no_child_finds_is_refused() -> None:
    def inner(_job: Job) -> None: ...

    worker = Worker()
    with pytest.raises(HandlerProblem, match="top level of a module"):
        worker.handler("x", processes=True)(inner)
    with pytest.raises(HandlerProblem, match="top level of a module"):
        worker.handler("x", processes=True)(lambda job: job.payload)


def test_a_child_that_cannot_import_its_handler_stops_the_worker_before_it_takes_a_job(
    tmp_path: Path,
) -> None:
    (tmp_path / "only_in_the_parent.py").write_text(
        "import os\nif os.environ.get('ROLLMQ_CHILD_OF'):\n    raise RuntimeError('not here')\n"
        "def run(job): ...\n"
    )
    code = (
        "import asyncio, only_in_the_parent as module\nfrom rollmq.worker import Worker\n"
        "worker = Worker('127.0.0.1:1')\nworker.handler('x', processes=True)(module.run)\n"
        "asyncio.run(worker.run())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert b"HandlerProblem" in done.stderr
    assert b"not here" in done.stderr
