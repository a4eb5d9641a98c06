"""Who plays in the demo: three nodes and some workers, each a real process, none of which outlives the demo.

It starts, kills and asks them, and tells nothing.
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from rollmq.errors import OperatorError, RollmqError
from rollmq.library.operator import OperatorConnection
from rollmq.library.process_group import ProcessGroup, how_it_ended

NODES_COUNT: Final = 3
GENERAL: Final = ("image.resize", "mail.send", "report.daily")
RISKY: Final = ("video.convert",)
HANDS: Final = 16
PATIENCE_S: Final = 90.0
"""For anything that takes a second on an idle machine."""
LOOK_S: Final = 0.05
ASK_S: Final = 2.0
LOG_LINES_TOLD: Final = 8

T = TypeVar("T")


class DemoFailed(RollmqError):
    """The demo could not be played to its end. All its processes were ended; its directory was kept."""


class Player:
    """One process; what it prints goes into a file."""

    def __init__(self, name: str, words: Sequence[str], log_path: Path) -> None:
        self.name = name
        self.log_path = log_path
        self._words = words
        self._group: ProcessGroup | None = None

    def start(self) -> None:
        """Begin, or begin again."""
        assert self._group is None, "it runs already"
        env = {name: value for name, value in os.environ.items() if not name.startswith("ROLLMQ_")}
        with self.log_path.open("ab") as log:
            self._group = ProcessGroup(
                [sys.executable, "-m", *self._words],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log.fileno(),
                stderr=log.fileno(),
            )

    def kill(self) -> None:
        """SIGKILL: as a crash, or a power cut for this process alone. Returns when it is gone."""
        if self._group is not None:
            self._group.end()
            self._group = None

    async def stop(self) -> None:
        """SIGTERM, and wait until it has ended."""
        group = self._group
        if group is None:
            return
        os.kill(group.pid, signal.SIGTERM)  # it is not reaped, so the number is still its own
        await until(group.has_ended, f"{self.name} stops")
        self.kill()

    @property
    def fell(self) -> bool:
        """It has ended, and nobody here did it."""
        return self._group is not None and self._group.has_ended()

    def how_it_ended(self) -> str:
        """In words, after it has fallen."""
        group, self._group = self._group, None
        return how_it_ended(group.end()) if group is not None else "did not run"

    def last_lines(self) -> str:
        """The end of what it printed."""
        lines = self.log_path.read_text(errors="replace").splitlines() if self.log_path.exists() else []
        return "\n".join(f"    {line}" for line in lines[-LOG_LINES_TOLD:])


class Node(Player):
    """`rollmq serve` on a directory of its own."""

    def __init__(self, name: str, port: int, peers: str, folder: Path) -> None:
        self.port = port
        self.address = f"127.0.0.1:{port}"
        self.state = folder / name
        words = ["rollmq", "serve", str(port), "--state", str(self.state), "--peers", peers]
        super().__init__(name, words, folder / f"{name}.log")

    def ask(self, name: str, *, is_command: bool = False, arguments: object | None = None) -> Any:
        """A question to this very node, or None when it does not answer."""
        try:
            with OperatorConnection(self.address, by="demo", timeout_s=ASK_S) as connection:
                return connection.ask(name, arguments, is_command=is_command)
        except OperatorError:
            return None


class Cast:
    """All of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        ports = free_ports(NODES_COUNT)
        self.servers = ",".join(f"127.0.0.1:{port}" for port in ports)
        self.nodes = [Node(f"n{n + 1}", port, self.servers, folder) for n, port in enumerate(ports)]
        self.workers: list[Player] = []

    def start_worker(self, execs: Sequence[str] = GENERAL, *, hands: int = HANDS) -> Player:
        """One more worker, under the next name."""
        name = f"w{len(self.workers) + 1}"
        words = ["rollmq.cli.demo.handlers", self.servers, name, str(hands), *execs]
        worker = Player(name, words, self.folder / f"{name}.log")
        self.workers.append(worker)
        worker.start()
        return worker

    def end(self) -> None:
        """Nobody is left, whatever happened."""
        for player in (*self.workers, *self.nodes):
            player.kill()

    async def leader(self, among: Sequence[Node] | None = None) -> Node:
        """Who leads, once somebody does."""

        def look() -> Node | None:
            self.check()
            for node in self.nodes if among is None else among:
                status = node.ask("status")
                if status is not None and status["role"] == "leader":
                    return node
            return None

        return await until(look, "one of the nodes leads", is_slow=True)

    async def ask(self, name: str, arguments: object | None = None, *, is_command: bool = False) -> Any:
        """What the leader says."""

        def ask() -> Any:
            with OperatorConnection(self.servers, by="demo") as connection:
                return connection.ask(name, arguments, is_command=is_command)

        return await asyncio.to_thread(ask)

    async def workers_connected(self) -> dict[str, int]:
        """Worker -> how many jobs it has."""
        page = await self.ask("workers")
        return {row["worker_id"]: row["held"] for row in page["workers"]}

    def check(self, players: Iterable[Player] | None = None) -> None:
        """Who ended by itself will not do what is waited for: say why, at once. Raises DemoFailed. Without
        `players` of the nodes: a worker may fall in the story."""
        for player in self.nodes if players is None else players:
            if player.fell:
                lines = player.last_lines()
                raise DemoFailed(f"{player.name} {player.how_it_ended()}. It said last:\n{lines}\n")


async def until(look: Callable[[], T | None], what: str, *, is_slow: bool = False) -> T:
    """The first true value; `is_slow`: it blocks, so a thread looks. Raises DemoFailed."""
    end_s = time.monotonic() + PATIENCE_S
    while not (found := await asyncio.to_thread(look) if is_slow else look()):
        if time.monotonic() > end_s:
            raise DemoFailed(f"it did not come about within {PATIENCE_S:g} s that {what}.")
        await asyncio.sleep(LOOK_S)
    return found


def free_ports(count: int) -> list[int]:
    """Ports of loopback at which nobody listens now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]
    finally:
        for each in sockets:
            each.close()
