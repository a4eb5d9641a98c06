"""Fuzz every target in turn: `python -m tests.fuzz [SECONDS per target] [NAME …]`; 60 seconds by default.

What the fuzzer learned is kept in build/fuzz/NAME and used again; a finding is written beside it, and the
command that replays it is printed. Installs atheris on demand: only this command needs it.
"""

import hashlib
import importlib.util
import subprocess
import sys
from pathlib import Path

from tests.fuzz.targets import TARGETS

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = ROOT / "build" / "fuzz"
ATHERIS = "atheris>=2.3,<4"
INPUT_BYTES_MAX = 16_384
INPUT_SECONDS_MAX = 10
MEMORY_MEGABYTES_MAX = 1024


def main() -> int:
    """0: nothing was found; 1: something was, or atheris cannot be installed; 2: used wrongly."""
    arguments = sys.argv[1:]
    seconds = int(arguments.pop(0)) if arguments and arguments[0].isdigit() else 60
    names = arguments or list(TARGETS)
    if unknown := [name for name in names if name not in TARGETS]:
        print(f"there is no target {', '.join(unknown)}; there are {', '.join(TARGETS)}", file=sys.stderr)
        return 2
    if not _has_atheris():
        return 1
    found = [name for name in names if not _fuzz(name, seconds)]
    print(f"fuzz: {len(names)} targets, {seconds} s each, findings in: {', '.join(found) or 'none'}")
    return 1 if found else 0


def _has_atheris() -> bool:
    if importlib.util.find_spec("atheris") is not None:
        return True
    print(f"fuzz: installing {ATHERIS}, which only this command needs")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", ATHERIS]
    if subprocess.run(install, check=False).returncode == 0:
        return True
    print(
        f"fuzz: {ATHERIS} could not be installed for Python {sys.version.split()[0]} (wheels exist for Linux"
        " on x86-64). Nothing was fuzzed. `make test` runs the same targets, without guidance by coverage.",
        file=sys.stderr,
    )
    return False


def _fuzz(name: str, seconds: int) -> bool:
    """Run one target for so long; whether nothing was found."""
    corpus = BUILD / name
    corpus.mkdir(parents=True, exist_ok=True)
    for seed in TARGETS[name].seeds:
        (corpus / hashlib.sha256(seed).hexdigest()[:16]).write_bytes(seed)
    command = [sys.executable, "-m", "tests.fuzz.run_target", name]
    options = [
        f"-max_total_time={seconds}",
        f"-artifact_prefix={BUILD / name}-finding-",
        f"-max_len={INPUT_BYTES_MAX}",
        f"-timeout={INPUT_SECONDS_MAX}",
        f"-rss_limit_mb={MEMORY_MEGABYTES_MAX}",
        "-print_final_stats=1",
        "-verbosity=0",
    ]
    print(f"fuzz: {name}, {seconds} s", flush=True)
    if subprocess.run([*command, str(corpus), *options], cwd=ROOT, check=False).returncode == 0:
        return True
    for finding in sorted(BUILD.glob(f"{name}-finding-*")):
        print(
            f"fuzz: replay with: .venv/bin/python -m tests.fuzz.run_target {name} {finding.relative_to(ROOT)}"
        )
    return False


if __name__ == "__main__":
    sys.exit(main())
