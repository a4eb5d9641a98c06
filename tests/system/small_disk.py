"""A file system of the test's own that can be filled: tmpfs, mounted by whoever may.

Who may not mount runs the same test in a user namespace, in which everybody may.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.house_rules import ROOT

MIB = 1024 * 1024
INSIDE = "ROLLMQ_TESTS_MAY_MOUNT"


class SmallDisk:
    """A mounted file system with a file in it that takes what room there is."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._filler = path / "filler"

    def fill(self, *, leave_bytes: int = 0) -> None:
        """Take all room but so much, whatever else is being written meanwhile."""
        with contextlib.suppress(OSError), self._filler.open("ab", buffering=0) as file:  # full is full
            while (free := self.free_bytes() - leave_bytes) > 0:
                file.write(bytes(min(free, MIB)))

    def free(self) -> None:
        """Give it back."""
        self._filler.unlink()

    def free_bytes(self) -> int:
        """What there is."""
        stats = os.statvfs(self.path)
        return stats.f_bavail * stats.f_frsize


@contextlib.contextmanager
def small_disk(path: Path, *, mib: int) -> Iterator[SmallDisk]:
    """Mounted for as long as the block lasts. The processes that use it must have ended by then."""
    path.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mib}m,mode=755", "rollmq-test", path], check=True)
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", path], check=True)


def may_mount() -> bool:
    """Whether this process may mount; else the test is to run `in_namespace`."""
    probe = ["unshare", "--mount", "true"]
    return INSIDE in os.environ or subprocess.run(probe, capture_output=True, check=False).returncode == 0


def run_in_namespace(test_id: str) -> None:
    """Run one test in a user namespace of its own, where it may mount."""
    command = ["unshare", "--map-root-user", "--mount", sys.executable, "-m", "pytest", "-q", test_id]
    found = subprocess.run(
        command, cwd=ROOT, env={**os.environ, INSIDE: "1"}, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, f"run it as root, or where user namespaces are allowed\n{found.stdout}"
