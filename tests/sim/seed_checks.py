"""What a simulator promises of its seeds: one decides everything, and one that fails does so again."""

import subprocess
import sys
from collections.abc import Iterable
from types import ModuleType

from tests.sim.check import SeedFailed

SOME = (2, 4, 16)


def decides_everything_in_every_process(check: ModuleType) -> None:
    """Other hash seeds give other orders of sets: nothing may depend on them."""
    program = f"from {check.__name__} import run_seed; print([run_seed(n).digest for n in {SOME}])"
    found = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert found[0] == found[1]
    assert found[0] == f"{[check.run_seed(n).digest for n in SOME]}\n"


def fails_alike(check: ModuleType, seeds: Iterable[int]) -> None:
    """A bug was planted: one of these seeds finds it, and its replay tells the same."""
    seed, told = next((seed, told) for seed in seeds if (told := _failure_of(check, seed)))
    assert _failure_of(check, seed) == told
    command = check.__name__.removesuffix(".check")
    assert f"replay: .venv/bin/python -m {command} seed {seed} --trace" in told


def _failure_of(check: ModuleType, seed: int) -> str:
    """What a seed says that breaks a promise; nothing of a sound one."""
    try:
        check.run_seed(seed)
    except SeedFailed as error:
        return str(error)
    return ""
