"""Compiles the hot path when a wheel is built with ROLLMQ_COMPILE=1; otherwise the wheel is pure Python.

The sources are the same, and both builds pass the same tests (docs/decisions/0011-compiled-core.md). Nothing
is ever compiled beside the sources: an edit there would then have no effect, and nobody would know why.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# Every module that runs for every job, and nothing else. Modules with msgspec structs, dataclasses or enums
# stay out: mypyc drops the keywords of a class statement (frozen=, tag=) without a word.
COMPILED = (
    "core/ahead.py",
    "core/attempts.py",
    "core/dedup.py",
    "core/desk.py",
    "core/inflight.py",
    "core/intake.py",
    "core/leader.py",
    "core/line.py",
    "core/liveness.py",
    "core/log_time.py",
    "core/machine.py",
    "core/parties.py",
    "core/pattern_tree.py",
    "core/queues.py",
    "core/raft.py",
    "core/raft_candidacy.py",
    "core/raft_follower.py",
    "core/raft_leader.py",
    "core/raft_log.py",
    "core/raft_outbox.py",
    "core/replica.py",
    "core/sanity.py",
    "core/scheduler.py",
    "core/subject.py",
    "core/timers.py",
    "library/awaited.py",
    "library/client_core.py",
    "library/dialog.py",
    "library/handling.py",
    "library/loop_runner.py",
    "library/mailbox.py",
    "library/submits.py",
    "library/together.py",
    "library/worker_core.py",
    "node/cluster_node.py",
    "node/conn.py",
    "node/door.py",
    "node/from_clients.py",
    "node/from_workers.py",
    "node/peer_link.py",
    "node/peers.py",
    "node/runs.py",
    "node/telling.py",
    "wire/codec.py",
    "wire/liveness.py",
    "wire/many.py",
    "wire/peer.py",
    "wire/readers.py",
    "wire/session.py",
)
NEEDED = ("core", "wire", "store", "node", "library", "errors", "limits.py", "compiled.py")
"""What those import: the rest of the package, and what it imports in turn, need not be there."""
MYPY = "mypy>=2.4,<3"  # mypyc is part of it
SETUPTOOLS = "setuptools>=65,<83"  # mypyc drives the C compiler through it


class CustomBuildHook(BuildHookInterface[Any]):
    """Adds the compiled modules to a wheel that was asked for with ROLLMQ_COMPILE=1."""

    def dependencies(self) -> list[str]:
        """What compiling needs besides a C compiler; an ordinary build needs nothing."""
        used = [each for each in self.metadata.core.dependencies if each.startswith(("msgspec", "uvloop"))]
        return [MYPY, SETUPTOOLS, *used] if _is_wanted() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile a copy of the package, and put what came of it into the wheel, beside the sources."""
        if not _is_wanted() or self.target_name != "wheel":
            return
        if version == "editable":
            raise RuntimeError("ROLLMQ_COMPILE=1 needs an ordinary installation, not an editable one")
        built = Path(tempfile.mkdtemp(prefix="rollmq-compiled-"))
        (built / "rollmq").mkdir()
        for name in NEEDED:
            source = Path(self.root, "src", "rollmq", name)
            copy = shutil.copytree if source.is_dir() else shutil.copy
            copy(source, built / "rollmq" / name)
        shutil.copy(Path(self.root, "pyproject.toml"), built)  # what the type checker is told
        # The real one names clients and workers, for type checkers.
        (built / "rollmq" / "__init__.py").write_text('__version__ = ""\n')
        files = [f"rollmq/{name}" for name in COMPILED]
        options = ["--strict", "--python-version", f"{sys.version_info.major}.{sys.version_info.minor}"]
        environment = {**os.environ, "MYPYC_OPT_LEVEL": "3"}
        command = [sys.executable, "-m", "mypyc", *options, *files]
        subprocess.run(command, cwd=built, env=environment, check=True)
        shutil.rmtree(built / "build")
        found = sorted(path.relative_to(built) for path in built.rglob("*.so"))
        assert len(found) == len(COMPILED) + 1, "each module, and the library that they share"
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["force_include"].update({str(built / path): str(path) for path in found})
        self._built = built

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """The wheel holds it now."""
        del version, build_data, artifact_path
        if hasattr(self, "_built"):
            shutil.rmtree(self._built)


def _is_wanted() -> bool:
    return os.environ.get("ROLLMQ_COMPILE") == "1"
