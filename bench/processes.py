"""Nodes, workers and clients as processes of their own, on free ports of this machine, ended by their pid."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rollmq.errors import OperatorError
from rollmq.library.operator import OperatorConnection

READY_SECONDS = 30
END_SECONDS = 30
RUN_SECONDS = 600


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens at."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for sock in sockets:
            sock.bind(("127.0.0.1", 0))
        return [int(sock.getsockname()[1]) for sock in sockets]


def wait_for(port: int) -> None:
    """Until somebody listens at a port and has not said so."""
    for _ in range(READY_SECONDS * 20):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            threading.Event().wait(0.05)
        else:
            return
    raise TimeoutError(f"nobody listens at port {port}")


def python(*arguments: object) -> list[str]:
    """The command line of another Python like this one."""
    return [sys.executable, *map(str, arguments)]


def cpu_seconds(pid: int) -> float:
    """What a process has used so far, in all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def process(command: Sequence[str]) -> Iterator[int]:
    """Run a process meanwhile. Its pid."""
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield running.pid
    finally:
        running.send_signal(signal.SIGTERM)
        try:
            running.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()


@contextmanager
def group(size: int, *options: str) -> Iterator[tuple[tuple[int, ...], str]]:
    """So many nodes, on the disk of the working directory: the usual temporary one may be memory. Their
    pids and ports, the leader's first."""
    ports = free_ports(size)
    peers = ["--peers", ",".join(f"127.0.0.1:{port}" for port in ports)] if size > 1 else []
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-"))
        pids = {}
        for port in ports:
            serve = python("-m", "rollmq", "serve", port, "--state", Path(folder, f"state-{port}"))
            pids[port] = stack.enter_context(process([*serve, *peers, *options]))
        leader = leader_of(ports)
        ports.sort(key=lambda port: port != leader)
        yield tuple(pids[port] for port in ports), ",".join(map(str, ports))


def leader_of(ports: Sequence[int]) -> int:
    """Wait until one of the nodes leads; its port."""
    for _ in range(READY_SECONDS * 20):
        for port in ports:
            with contextlib.suppress(OperatorError, OSError):
                address = f"127.0.0.1:{port}"
                with OperatorConnection(address, by="bench", timeout_s=2.0) as connection:
                    leader = json.loads(json.dumps(connection.ask("status"))).get("leader")
                    if leader:
                        return int(leader.rpartition(":")[2])
        threading.Event().wait(0.05)
    raise TimeoutError(f"nobody leads at ports {ports}")


def said_by(command: Sequence[str]) -> str:
    """What a process prints until it ends."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_SECONDS, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr[-2000:]}"
    return done.stdout.strip()
