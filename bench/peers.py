"""rollmq beside other queues, in a harness that this repository does not contain.

    PYTHON -m bench.peers HARNESS [ARGUMENTS…]

HARNESS is the folder of the harness (bench.py, role.py, systems/). PYTHON has what its systems need, and what
rollmq needs. The harness is not changed: it runs in a temporary folder of links to its files, with rollmq's
adapter among its systems. ARGUMENTS are the harness's own, as `--only rollmq,redis-streams --reps 2`.
"""

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


def overlay(harness: Path, folder: Path) -> None:
    """The harness with rollmq in it."""
    (folder / "systems").mkdir()
    for path in [*harness.glob("*.py"), *(harness / "systems").iterdir()]:
        where = path.relative_to(harness)
        if where.name != "registry.py":
            (folder / where).symlink_to(path.absolute())
    (folder / "systems" / "registry_of_peers.py").symlink_to((harness / "systems" / "registry.py").absolute())
    (folder / "systems" / "registry.py").write_text(REGISTRY)
    here = Path(__file__).parent
    (folder / "systems" / "rollmq_adapter.py").symlink_to((here / "peers_adapter.py").absolute())
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
