"""`make plant`: apply each known bug to a copy of the tree; the test named with it must turn red.

python -m tests.plant                 all
python -m tests.plant "late ack" …      those whose names contain one of the words
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.plant.bug import Bug
from tests.plant.bugs import BUGS

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("src", "tests", "docs", "bench", "pyproject.toml", "README.md")
TEST_SECONDS_MAX = 600


class PlantMisfit(Exception):
    """The text to be replaced is not there exactly once: the source moved on and the plant must follow."""


def plant(tree: Path, bug: Bug) -> None:
    """Put the bug into a copy of the tree."""
    path = tree / bug.path
    text = path.read_text()
    if text.count(bug.old) != 1:
        raise PlantMisfit(f"{bug.name}: the text to replace is {text.count(bug.old)} times in {bug.path}")
    path.write_text(text.replace(bug.old, bug.new))


def turns_red(tree: Path, bug: Bug) -> tuple[bool, str]:
    """Whether the bug's test fails with the bug in; and the end of what it printed."""
    environment = {**os.environ, "PYTHONPATH": f"{tree / 'src'}:{tree}", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *bug.tests]
    done = subprocess.run(
        command,
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TEST_SECONDS_MAX,
        check=False,
    )
    tail = "\n".join(done.stdout.splitlines()[-12:])
    # 1: tests failed. Anything else (no such test, bad usage, interrupted) proves nothing.
    return done.returncode == 1, tail


def copy_tree(target: Path) -> None:
    """What the tests need, without caches."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(
                source, target / name, ignore=shutil.ignore_patterns("__pycache__", ".hypothesis")
            )
        else:
            shutil.copy(source, target / name)


def main(words: list[str]) -> int:
    """Plant the bugs one by one; 1 when one was not caught."""
    chosen = [bug for bug in BUGS if not words or any(word in bug.name for word in words)]
    missed: list[str] = []
    for bug in chosen:
        with tempfile.TemporaryDirectory(prefix="rollmq-plant-") as folder:
            tree = Path(folder)
            copy_tree(tree)
            try:
                plant(tree, bug)
                is_red, tail = turns_red(tree, bug)
            except (PlantMisfit, subprocess.TimeoutExpired) as error:
                is_red, tail = False, str(error)
        print(f"{'caught' if is_red else 'MISSED'}  {bug.name:<44} {bug.tests[0]}", flush=True)
        if not is_red:
            missed.append(bug.name)
            print(tail)
    print(f"{len(chosen) - len(missed)} of {len(chosen)} planted bugs were caught")
    return 1 if missed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
