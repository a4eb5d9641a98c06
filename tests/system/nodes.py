"""Nodes behind gates: one alone, or a group of three, reached only through a network of the test's."""

import contextlib
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from rollmq.errors import OperatorError
from rollmq.library.operator import OperatorConnection
from tests.group.real_group import RealGroup, RealNode, free_ports
from tests.system.network import Network, running_network

STORM_OPTIONS = ("--snapshot-every", "1000", "--keep-history", "1000000")
"""Snapshots early and often, and all of the history, which is to be audited."""


class GatedNode(RealNode):
    """A node that tells others to come to its gate."""

    def __init__(self, folder: Path, port: int, gate: str, options: Sequence[str]) -> None:
        super().__init__(folder, port, ["--advertise", gate, *options])
        self._gate = gate

    @property
    def address(self) -> str:
        """Where all but the test itself reach it."""
        return self._gate

    def seal(self) -> bool:
        """End the open segment; whether this node leads and there was something in it."""
        try:
            with OperatorConnection(f"127.0.0.1:{self.port}", by="test", timeout_s=2.0) as connection:
                return bool(connection.ask("marker", {}, is_command=True))
        except (OperatorError, OSError):
            return False

    def keep_history(self, number: int) -> None:
        """A copy of its sealed segments: a snapshot of somebody else takes the place of all before it."""
        shutil.copytree(
            self.state / "history", self.state.with_name(f"kept-{self.port}-{number}") / "history"
        )


class Gated(RealGroup):
    """One node without peers, or a group."""

    nodes: list[GatedNode]  # type: ignore[assignment]

    def __init__(self, folder: Path, network: Network, size: int, *, options: Sequence[str]) -> None:
        ports = free_ports(size)
        gates = [network.add(port) for port in ports]
        self.peers = ",".join(gates)
        self.folder = folder
        among = ["--peers", self.peers] if size > 1 else []
        self.nodes = [
            GatedNode(folder, port, gate, [*among, *options]) for port, gate in zip(ports, gates, strict=True)
        ]


@contextlib.contextmanager
def running_gated(
    folder: Path, size: int, *, options: Sequence[str] = STORM_OPTIONS
) -> Iterator[tuple[Gated, Network]]:
    """With a leader; processes and connections end with the block."""
    with running_network() as network:
        group = Gated(folder, network, size, options=options)
        try:
            group.start()
            group.leader()
            yield group, network
        finally:
            group.kill()
