"""The examples of docs/library.md that stand in files run as the page says."""

import asyncio
import hashlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from rollmq.client import Client
from tests.cli.running import clean_env, running_node
from tests.house_rules import ROOT

PAGE = (ROOT / "docs" / "library.md").read_text()
FILE = re.compile(r"<!-- file: (\S+) -->\n```python\n(.*?)```", re.DOTALL)
CALLER_OUTPUT = re.compile(r"\$ python caller\.py\n(.*?)\n```", re.DOTALL)
SOON_S = 60.0


def write_files(folder: Path) -> None:
    for name, text in FILE.findall(PAGE):
        (folder / name).write_text(text)


def start(folder: Path, server: str, *words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, *words],
        cwd=folder,
        env=clean_env(ROLLMQ_SERVER=server, PYTHONPATH=os.fspath(ROOT / "src")),
        stdout=subprocess.PIPE,
        text=True,
    )


def end(process: "subprocess.Popen[str]") -> int:
    process.send_signal(signal.SIGTERM)
    try:
        process.communicate(timeout=SOON_S)
    finally:
        process.kill()
        process.communicate()
    return process.returncode


def test_the_typed_task_and_its_caller_print_what_the_page_says(tmp_path: Path) -> None:
    write_files(tmp_path)
    (shown,) = CALLER_OUTPUT.findall(PAGE)
    with running_node(tmp_path / "state") as node:
        worker = start(tmp_path, node.server, "-m", "rollmq", "worker", "--app", "tasks:app")
        try:
            caller = start(tmp_path, node.server, "caller.py")
            output, _ = caller.communicate(timeout=SOON_S)
            assert output.strip() == shown
        finally:
            code = end(worker)
        assert code == 0


def test_the_worker_of_the_page_runs_each_kind_of_handler(tmp_path: Path) -> None:
    write_files(tmp_path)

    async def ask(server: str) -> list[bytes]:
        async with Client(server) as client:
            jobs = [
                await client.submit(f"text.{name}", b"two words") for name in ("shout", "count", "digest")
            ]
            return [(await job.result(SOON_S)).result for job in jobs]

    with running_node(tmp_path / "state") as node:
        worker = start(tmp_path, node.server, "worker.py")
        try:
            digest = hashlib.sha256(b"two words").hexdigest().encode()
            assert asyncio.run(ask(node.server)) == [b"TWO WORDS", b"2", digest]
        finally:
            worker.kill()
            worker.communicate()
