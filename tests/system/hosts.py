"""Hosts of a test's own: a network namespace for each node, joined by a bridge, with cables to pull.

Whoever does not answer here does so as on a real network: nobody is told that a connection is over, a connect
gets no answer, and what is resent comes later and later. The namespaces are anonymous: they vanish with the
processes in them, whatever becomes of the test.
"""

import contextlib
import ctypes
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.group.real_group import RealGroup, RealNode

CLONE_NEWNET = 0x40000000
PORT = 5000
HERE = Path("/proc/self/ns/net")


def _address(number: int) -> str:
    return f"10.77.0.{number}"


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def _call(name: str, *arguments: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), f"{name} of a network namespace")


@contextlib.contextmanager
def _inside(descriptor: int) -> Iterator[None]:
    """What this thread opens and starts meanwhile is there."""
    home = os.open(HERE, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _call("setns", descriptor, CLONE_NEWNET)
        yield
    finally:
        _call("setns", home, CLONE_NEWNET)
        os.close(home)


def _new_namespace() -> int:
    """One with nothing in it but its loopback."""
    home = os.open(HERE, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _call("unshare", CLONE_NEWNET)
        _ip("link", "set", "lo", "up")
        return os.open(HERE, os.O_RDONLY | os.O_CLOEXEC)
    finally:
        _call("setns", home, CLONE_NEWNET)
        os.close(home)


class HostNode(RealNode):
    """A node on a host of its own."""

    def __init__(self, folder: Path, number: int, namespace: int, options: Sequence[str]) -> None:
        super().__init__(folder, PORT, ["--host", _address(number), *options])
        self.host = _address(number)
        self.state = folder / f"state-{number}"
        self.log_path = folder / f"node-{number}.log"
        self._cable = f"cable{number}"
        self._namespace = namespace

    def start(self) -> None:
        """On its host."""
        with _inside(self._namespace):
            super().start()

    def pull_cable(self) -> None:
        """Nobody reaches it, and it nobody."""
        _ip("link", "set", self._cable, "down")

    def plug_cable(self) -> None:
        """It is back."""
        _ip("link", "set", self._cable, "up")


class HostGroup(RealGroup):
    """A group of nodes, each on a host of its own."""

    nodes: list[HostNode]  # type: ignore[assignment]

    def __init__(self, folder: Path, namespaces: Sequence[int], *, options: Sequence[str]) -> None:
        numbers = range(1, len(namespaces) + 1)
        self.peers = ",".join(f"{_address(number)}:{PORT}" for number in numbers)
        self.folder = folder
        among = ["--peers", self.peers, *options]
        self.nodes = [
            HostNode(folder, number, namespace, among)
            for number, namespace in zip(numbers, namespaces, strict=True)
        ]


@contextlib.contextmanager
def running_hosts(folder: Path, size: int, *, options: Sequence[str]) -> Iterator[HostGroup]:
    """With a leader. The test itself, and what it starts, stands at the bridge meanwhile."""
    with contextlib.ExitStack() as stack:
        middle = _new_namespace()
        stack.callback(os.close, middle)
        stack.enter_context(_inside(middle))
        _ip("link", "add", "bridge", "type", "bridge")
        _ip("address", "add", f"{_address(254)}/24", "dev", "bridge")
        _ip("link", "set", "bridge", "up")
        namespaces = []
        for number in range(1, size + 1):
            namespaces.append(_new_namespace())
            stack.callback(os.close, namespaces[-1])
            _wire(number, namespaces[-1])
        group = HostGroup(folder, namespaces, options=options)
        stack.callback(group.kill)
        group.start()
        group.leader()
        yield group


def _wire(number: int, namespace: int) -> None:
    there = f"/proc/{os.getpid()}/fd/{namespace}"
    cable = f"cable{number}"
    _ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", there)
    _ip("link", "set", cable, "master", "bridge", "up")
    with _inside(namespace):
        _ip("address", "add", f"{_address(number)}/24", "dev", "eth0")
        _ip("link", "set", "eth0", "up")
