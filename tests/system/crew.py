"""The clients and workers of a storm, each a process that may be killed and started again.

Signals go to processes that were started here, by their ids.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.cli.running import clean_env
from tests.group.real_group import wait_for
from tests.house_rules import ROOT
from tests.system.shopper import receipts_path

WORKERS = 2
SETTLE_S = 120.0
"""For the last jobs: a worker that died with its leader is waited for some 25 s."""


class Member:
    """One process."""

    def __init__(self, name: str, folder: Path, command: Sequence[str], env: Mapping[str, str]) -> None:
        self.name = name
        self.log_path = folder / f"{name}.log"
        self._command = command
        self._env = env
        self._log_bytes = 0
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        """It was started and has not ended."""
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        """Begin, or begin again."""
        assert not self.is_running
        with self.log_path.open("ab") as log:
            self._log_bytes = log.tell()
            self.process = subprocess.Popen(
                self._command, stdout=log, stderr=log, env=self._env, cwd=ROOT, start_new_session=True
            )

    def signal(self, number: signal.Signals) -> None:
        """To this process alone."""
        if self.process is not None and self.process.poll() is None:
            os.kill(self.process.pid, number)

    def kill(self) -> None:
        """As a crash: nothing is said any more."""
        self.signal(signal.SIGKILL)
        if self.process is not None:
            self.process.wait()

    def ask_to_finish(self) -> None:
        """Politely. One that has not begun yet could not hear it: it is waited for."""
        wait_for(lambda: self.has_begun or not self.is_running, f"{self.name} has begun")
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)

    @property
    def has_begun(self) -> bool:
        """It has said so since it was started last."""
        return self.log_path.stat().st_size > self._log_bytes

    def has_finished(self) -> None:
        """Until it has, and everything was in order."""
        wait_for(lambda: not self.is_running, f"{self.name} finishes, see {self.log_path}", limit_s=SETTLE_S)
        assert self.process is not None
        assert self.process.returncode == 0, self.log_path.read_text()[-3000:]


class Crew:
    """All clients and workers of one storm."""

    def __init__(self, folder: Path, servers: str, *, workers_servers: Sequence[str] = ()) -> None:
        self.folder = folder
        env = clean_env(PYTHONPATH=os.pathsep.join([str(ROOT / "src"), str(ROOT)]))
        self.clients = [
            Member(name, folder, _client(servers, folder, name, mode), env)
            for name, mode in (("ada", "async"), ("bob", "sync"))
        ]
        self.workers = [
            Member(f"w{number}", folder, _worker(at, f"w{number}"), _worker_env(env, folder, f"w{number}"))
            for number, at in enumerate(workers_servers or [servers] * WORKERS)
        ]

    @property
    def everybody(self) -> list[Member]:
        """All processes."""
        return [*self.clients, *self.workers]

    def told_bytes(self) -> int:
        """A number that grows with what clients are told."""
        paths = [receipts_path(self.folder, client.name) for client in self.clients]
        return sum(path.stat().st_size for path in paths if path.exists())

    def finish(self) -> None:
        """Clients end once all they submitted has ended, then workers."""
        for members in (self.clients, self.workers):
            for member in members:
                member.ask_to_finish()
            for member in members:
                member.has_finished()


@contextlib.contextmanager
def running_crew(folder: Path, servers: str, *, workers_servers: Sequence[str] = ()) -> Iterator[Crew]:
    """At work; all processes end with the block. Workers may have servers of their own, one each."""
    crew = Crew(folder, servers, workers_servers=workers_servers)
    try:
        for member in crew.everybody:
            member.start()
        yield crew
    finally:
        for member in crew.everybody:
            member.kill()


def _client(servers: str, folder: Path, name: str, mode: str) -> list[str]:
    return [sys.executable, "-m", "tests.system.shopper", servers, str(folder), name, mode]


def _worker(servers: str, name: str) -> list[str]:
    app = ["--app", "tests.system.shop_worker:worker", "--id", name, "--hands", "12"]
    return [sys.executable, "-m", "rollmq", "worker", "--server", servers, *app]


def runs_path(folder: Path, name: str) -> Path:
    """Where a worker's handlers note that they run."""
    return folder / f"runs-{name}.jsonl"


def _worker_env(env: Mapping[str, str], folder: Path, name: str) -> dict[str, str]:
    return {**env, "STORM_RUNS": str(runs_path(folder, name)), "STORM_WORKER": name}
