"""Nodes, workers and clients as processes of their own, on free ports of this machine, ended by their pid."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

READY_SECONDS = 30
END_SECONDS = 30
RUN_SECONDS = 600


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


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
def process(command: Sequence[str], *, ready: str = "") -> Iterator[int]:
    """Run a process meanwhile; `ready` is what it prints when others may come. Its pid."""
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        said = ""
        while ready and ready not in said:
            assert running.stdout is not None
            said = running.stdout.readline()
            assert said, f"{command} ended before it was ready"
        yield running.pid
    finally:
        running.send_signal(signal.SIGTERM)
        try:
            running.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()
        if running.stdout is not None:
            running.stdout.close()


@contextmanager
def node(port: int, *options: str) -> Iterator[int]:
    """A node alone, on the disk of the working directory: the usual temporary one may be memory."""
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as folder:
        serve = python("-m", "rollmq", "serve", port, "--state", Path(folder, "state"), *options)
        with process(serve, ready="event=role_changed role=leader") as pid:
            yield pid


def said_by(command: Sequence[str]) -> str:
    """What a process prints until it ends."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_SECONDS, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr[-2000:]}"
    return done.stdout.strip()
