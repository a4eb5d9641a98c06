"""Below --disk-free-min a real node refuses submits and goes on with what it has (rule 4)."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.running import PATIENCE_S, BareClient, RunningNode, clean_env, run, running_node

MORE_THAN_ANY_DISK_MIB = str(1 << 40)


def wait_for(node: RunningNode, *command: str, until: Callable[[str], bool]) -> str:
    """Ask again until the answer is this."""
    deadline = time.monotonic() + PATIENCE_S
    while not until(output := run(*command, server=node.server).output):
        assert time.monotonic() < deadline, output
    return output


def is_low(status: str) -> bool:
    return json.loads(status)["is_disk_low"] is True


def test_a_nearly_full_disk_refuses_new_jobs_and_ends_the_old_ones(tmp_path: Path) -> None:
    with running_node(tmp_path / "state") as node:
        with BareClient(node.port) as client:
            (job_id,) = client.submit("echo", payload=b"1")
        assert node.stop() == 0
    with running_node(tmp_path / "state", "--disk-free-min", MORE_THAN_ANY_DISK_MIB) as node:
        wait_for(node, "status", "--json", until=is_low)
        assert "the disk is nearly full" in run("status", server=node.server).output
        with BareClient(node.port) as client, pytest.raises(AssertionError, match="disk_low"):
            client.submit("echo", payload=b"2")
        words = [sys.executable, "-m", "rollmq", "worker", "--server", node.server, "--exec", "echo=cat"]
        with subprocess.Popen(words, env=clean_env(), stderr=subprocess.DEVNULL) as worker:
            wait_for(node, "explain", job_id, until=lambda output: output.startswith("done"))
            worker.terminate()
