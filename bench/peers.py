"""rollmq beside other queues, in a harness that this repository does not contain.

    PYTHON -m bench.peers HARNESS [ARGUMENTS…]

HARNESS is the folder of the harness (bench.py, role.py, systems/). PYTHON has what its systems need, and what
rollmq needs. The harness is not changed: copies of its files run in a temporary folder, with rollmq's adapter
among its systems. ARGUMENTS are the harness's own, as `--only rollmq,redis-streams --reps 2`.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import rollmq

REGISTRY = """
from systems.registry_of_peers import ALL as PEERS
from systems.rollmq_adapter import Rollmq1, Rollmq3

ALL = [Rollmq1, Rollmq3, *PEERS]


def by_name(name):
    return next(each for each in ALL if each.name == name)
"""


def copy(source: Path, target: Path) -> None:
    """A file or a folder; copies, for whatever goes through this folder must not reach the harness."""
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        target.write_bytes(source.read_bytes())


def overlay(harness: Path, folder: Path) -> None:
    """The harness with rollmq in it."""
    (folder / "systems").mkdir()
    for path in [*harness.glob("*.py"), *(harness / "systems").iterdir()]:
        where = path.relative_to(harness)
        if where.name != "registry.py":
            copy(path, folder / where)
    copy(harness / "systems" / "registry.py", folder / "systems" / "registry_of_peers.py")
    (folder / "systems" / "registry.py").write_text(REGISTRY)
    here = Path(__file__).parent
    copy(here / "peers_adapter.py", folder / "systems" / "rollmq_adapter.py")
    package = Path(rollmq.__file__).parent
    # Behind a compiled package lies the library that its modules share.
    for path in [package, *package.parent.glob("*__mypyc.*.so")]:
        (folder / path.name).symlink_to(path)


def main(harness: str, *arguments: str) -> int:
    """Run it; its exit code."""
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as folder:
        overlay(Path(harness), Path(folder))
        command = [sys.executable, str(Path(folder, "bench.py")), *arguments]
        return subprocess.run(command, cwd=folder, check=False).returncode


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(f"{__doc__}\nbench.peers: which harness?")
    sys.exit(main(*sys.argv[1:]))
