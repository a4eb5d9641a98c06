"""The plugin as pytest finds it in a project of a user."""

import subprocess
import sys
from pathlib import Path

TEST_OF_A_USER = """
import asyncio

def test_plain(rollmq):
    rollmq.handler("add")(lambda job: b"%d" % sum(job.payload))
    assert rollmq.submit("add", bytes([1, 2])).result().result == b"3"

def test_async(rollmq_async):
    async def story():
        rollmq_async.handler("add")(lambda job: b"%d" % sum(job.payload))
        job = await rollmq_async.submit("add", bytes([1, 2]), delay=60)
        assert (await job.result()).ok
    asyncio.run(story())
"""
WITHOUT_A_QUEUE = """
import sys
import rollmq.pytest_plugin
print(sorted(name for name in sys.modules if name.startswith("rollmq") or name in ("msgspec", "uvloop")))
"""


def test_the_fixtures_are_there_without_any_import(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(TEST_OF_A_USER)
    command = [sys.executable, "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_the_plugin_costs_nothing_while_no_test_uses_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_A_QUEUE], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "['rollmq', 'rollmq.pytest_plugin']\n"
