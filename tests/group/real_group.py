"""Nodes as processes of their own, each with its directory and its log; and how to wait for what they do.

Signals go to processes that were started here, by their ids. Nothing waits for a time to pass: every wait
is for a fact, with a limit that is generous for a busy machine.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rollmq.errors import OperatorError
from rollmq.library.operator import OperatorConnection

WAIT_S = 60.0
LOOK_S = 0.05


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens at now."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def wait_for(condition: Callable[[], Any], what: str, *, limit_s: float = WAIT_S) -> Any:
    """The first true value of the condition."""
    pause = threading.Event()
    for _ in range(int(limit_s / LOOK_S)):
        value = condition()
        if value:
            return value
        pause.wait(LOOK_S)
    raise AssertionError(f"not within {limit_s:g} s: {what}")


class RealNode:
    """One node's process, which may be ended and started again on the same directory."""

    host = "127.0.0.1"

    def __init__(self, folder: Path, port: int, options: Sequence[str]) -> None:
        self.port = port
        self.state = folder / f"state-{port}"
        self.log_path = folder / f"node-{port}.log"
        self.options = list(options)
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def is_running(self) -> bool:
        """It was started and has not ended."""
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        assert not self.is_running
        command = [sys.executable, "-m", "rollmq", "serve", str(self.port), "--state", str(self.state)]
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen([*command, *self.options], stderr=log, stdout=log)

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        """As a crash of the process: nothing is said any more."""
        if self.process is not None and self.is_running:
            self.process.kill()
            self.process.wait()

    def stop(self) -> int:
        """Politely; its exit code."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(timeout=WAIT_S)

    def status(self) -> dict[str, Any] | None:
        """What it says of itself; None while it does not answer."""
        try:
            with OperatorConnection(f"{self.host}:{self.port}", by="test", timeout_s=2.0) as connection:
                found = connection.ask("status")
        except (OperatorError, OSError):
            return None
        return found if isinstance(found, dict) else json.loads(json.dumps(found))

    def log_text(self) -> str:
        return self.log_path.read_text() if self.log_path.exists() else ""


class RealGroup:
    """Some nodes with one list of peers."""

    def __init__(self, folder: Path, size: int = 3, *, options: Sequence[str] = ()) -> None:
        ports = free_ports(size)
        self.peers = ",".join(f"127.0.0.1:{port}" for port in ports)
        self.folder = folder
        self.nodes = [RealNode(folder, port, ["--peers", self.peers, *options]) for port in ports]

    def start(self) -> None:
        for node in self.nodes:
            node.start()

    def kill(self) -> None:
        for node in self.nodes:
            if node.is_running:
                with contextlib.suppress(ProcessLookupError):
                    node.signal(signal.SIGCONT)
                node.kill()

    @property
    def servers(self) -> str:
        return self.peers

    def leader(self, *, among: Sequence[RealNode] | None = None) -> RealNode:
        """Who leads, once somebody does."""
        nodes = self.nodes if among is None else among

        def look() -> RealNode | None:
            for node in nodes:
                status = node.status()
                if status is not None and status["role"] == "leader":
                    return node
            return None

        return wait_for(look, "a node leads")  # type: ignore[no-any-return]

    def others(self, node: RealNode) -> list[RealNode]:
        return [each for each in self.nodes if each is not node]

    def is_even(self) -> bool:
        """All nodes have applied the same log to its end."""
        found = [node.status() for node in self.nodes]
        ends = {(s["last_index"], s["commit_index"], s["applied_index"]) for s in found if s is not None}
        if None in found or len(ends) != 1:
            return False
        last, commit, applied = ends.pop()
        return bool(last == commit == applied)

    def wait_until_even(self) -> None:
        wait_for(self.is_even, "all nodes have applied the whole log")


@contextlib.contextmanager
def running_group(folder: Path, size: int = 3, *, options: Sequence[str] = ()) -> Iterator[RealGroup]:
    """A group that has a leader; its processes end with the block."""
    group = RealGroup(folder, size, options=options)
    try:
        group.start()
        group.leader()
        yield group
    finally:
        group.kill()


def lines_of(state: Path) -> list[bytes]:
    """All lines of a directory's log, sealed and open, headers left out."""
    files = sorted((state / "history").glob("events-*.jsonl")) + sorted((state / "wal").glob("events-*.log"))
    return [line for path in files for line in path.read_bytes().splitlines(keepends=True)[1:]]


def sealed_of(state: Path) -> dict[str, bytes]:
    """The sealed segments by name."""
    return {path.name: path.read_bytes() for path in sorted((state / "history").glob("events-*.jsonl"))}
