"""`rollmq worker` as a process: it runs programs and modules, stops politely, and says what is wrong."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from rollmq.cli.main import main
from rollmq.wire.codec import encode_header
from rollmq.wire.headers import ErrorHeader
from rollmq.wire.message import Frame, MsgType
from tests.library.played_node import SOON_S
from tests.worker.boss import Boss

APP = """
from rollmq.worker import Worker
worker = Worker(hands=3)

@worker.handler("shout")
async def shout(job):
    return job.payload.upper()

@worker.handler("whisper", processes=True)
def whisper(job):
    return job.payload.lower()
"""


@contextlib.contextmanager
def rollmq(*arguments: str, cwd: Path) -> Iterator["subprocess.Popen[str]"]:
    """The command as a process of its own, which is gone at the end."""
    process = subprocess.Popen(
        [sys.executable, "-c", "from rollmq.cli.main import main; main()", *arguments],
        cwd=cwd,
        stderr=subprocess.PIPE,
        text=True,
        env={key: value for key, value in os.environ.items() if not key.startswith("ROLLMQ")},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


def refused(*arguments: str) -> str:
    """What it says when it does not start."""
    done = CliRunner().invoke(main, ["worker", "--server", "127.0.0.1:1", *arguments])
    assert done.exit_code in (1, 2)
    assert done.exception is None or isinstance(done.exception, SystemExit)
    return done.output


async def ended(process: "subprocess.Popen[str]") -> int:
    async with asyncio.timeout(SOON_S):
        while process.poll() is None:
            await asyncio.sleep(0.01)
    assert process.returncode is not None
    return process.returncode


def test_programs_and_a_module_run_side_by_side_and_a_signal_stops_politely(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APP)

    async def play() -> None:
        async with Boss() as boss:
            with rollmq(
                *("worker", "--server", boss.address, "--exec", "count=wc -c", "--exec", "slow=sleep 1"),
                *("--app", "shop:worker", "--hands", "2", "--id", "w7", "--release", "2026.11"),
                cwd=tmp_path,
            ) as process:
                desk = await boss.desk()
                assert (desk.hello.worker_id, desk.hello.hands, desk.hello.release) == ("w7", 2, "2026.11")
                assert len(desk.hello.patterns) == 4
                assert (await desk.ack_of(desk.assign("count", b"12345")))[1].strip() == b"5"
                assert (await desk.ack_of(desk.assign("shout", b"cat")))[1] == b"CAT"
                assert (await desk.ack_of(desk.assign("whisper", b"CAT")))[1] == b"cat"
                slow, waiting = desk.assign("slow"), [desk.assign("slow") for _ in range(2)][-1]
                await desk.start_of(slow)
                process.send_signal(signal.SIGTERM)
                header, _ = await desk.ack_of(waiting)
                assert (header.what, header.reason) == ("hand_back", "drained")
                assert (await desk.ack_of(slow))[0].ok
                await boss.until(lambda: len(desk.acks()) == 6)
                desk.confirm(6)
                assert await ended(process) == 0

    asyncio.run(play())


@pytest.mark.parametrize("how", ["second signal", "grace"])
def test_a_stop_does_not_wait_for_ever_if_it_is_told_so(tmp_path: Path, how: str) -> None:
    async def play() -> None:
        async with Boss() as boss:
            options = ("--grace", "0.1") if how == "grace" else ()
            with rollmq(
                "worker", "--server", boss.address, "--exec", "hang=sleep 600", *options, cwd=tmp_path
            ) as process:
                desk = await boss.desk()
                job = desk.assign("hang")
                await desk.start_of(job)
                process.send_signal(signal.SIGINT)
                if how != "grace":
                    await boss.until(lambda: desk.visit.frames[-1].type == MsgType.GOODBYE)
                    process.send_signal(signal.SIGINT)
                header, _ = await desk.ack_of(job)
                assert header.what == "hand_back"
                assert await ended(process) == 0

    asyncio.run(play())


def test_a_node_that_refuses_it_ends_the_command_with_what_it_said(tmp_path: Path) -> None:
    async def play() -> None:
        async with Boss() as boss:
            with rollmq("worker", "--server", boss.address, "--exec", "run=cat", cwd=tmp_path) as process:
                visit = await boss.visit()
                error = ErrorHeader(code="not_authorized", text="no token was given", closes=True)
                visit.say(Frame(MsgType.ERROR, header=encode_header(error)))
                assert await ended(process) == 1
                assert process.stderr is not None
                said = process.stderr.read()
                assert "no token was given" in said
                assert "ROLLMQ_TOKEN" in said
                assert "Traceback" not in said

    asyncio.run(play())


def test_wrong_options_are_told_in_a_line_that_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("good.py").write_text(APP)
    Path("empty.py").write_text("from rollmq.worker import Worker\nworker = Worker()\nnumber = 3\n")
    Path("broken.py").write_text("import no_such_thing_at_all\n")
    Path("raises.py").write_text("raise SystemExit('not today')\n")
    assert "--exec NAME=COMMAND, or --app" in refused()
    assert "write NAME=COMMAND" in refused("--exec", "resize")
    assert "no program" in refused("--exec", "resize=no-such-program-here")
    assert "no name of an exec" in refused("--exec", "a..b=cat")
    assert "two handlers" in refused("--exec", "a=cat", "--exec", "a=cat")
    assert "0 is not in the range" in refused("--exec", "a=cat", "--hands", "0")
    assert "worker_id" in refused("--exec", "a=cat", "--id", "a.b")
    assert "Run the command in the folder" in refused("--app", "nowhere:app")
    assert "write MODULE:NAME" in refused("--app", "good.py")
    assert "has no 'app'. It has good:worker." in refused("--app", "good")
    assert "number is int" in refused("--app", "empty:number").replace("empty:", "")
    assert "has no tasks and no handlers" in refused("--app", "empty:worker")
    assert "No module named 'no_such_thing_at_all'" in refused("--app", "broken:app")
    assert "not today" in refused("--app", "raises:app")
