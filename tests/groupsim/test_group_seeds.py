"""Hundreds of seeds of whole groups: each a storm, then a calm in which all must elect, finish and agree."""

import subprocess
import sys

import pytest

from rollmq.core.raft_log import RaftLog
from tests.groupsim.check import run_seed
from tests.sim.check import SeedFailed

SEEDS_PER_CHUNK = 25
CHUNKS = 20
"""In all 500 seeds, about 0.3 s each: some two and a half minutes of one core."""


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_seed_of_a_group_keeps_every_promise(chunk: int) -> None:
    for seed in range(chunk * SEEDS_PER_CHUNK, (chunk + 1) * SEEDS_PER_CHUNK):
        run_seed(seed)


def test_a_few_seeds_of_a_group_keep_every_promise() -> None:
    for seed in range(1_000, 1_010):
        run_seed(seed)


def test_a_seed_decides_a_whole_group_in_every_process() -> None:
    """Other hash seeds give other orders of sets: nothing may depend on them."""
    program = "from tests.groupsim.check import run_seed; print([run_seed(n).digest for n in (2, 4, 16)])"
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
    assert found[0] == f"{[run_seed(n).digest for n in (2, 4, 16)]}\n"


@pytest.mark.pure
def test_a_failing_seed_of_a_group_says_how_to_replay_it_and_fails_alike(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A bug is planted: every log is new enough to lead (5.4.1)."""

    def is_whatever(self: RaftLog, *, last_index: int, last_term: int) -> bool:
        del self, last_index, last_term
        return True

    monkeypatch.setattr(RaftLog, "is_up_to_date", is_whatever)
    told = []
    for _ in range(2):
        with pytest.raises(SeedFailed) as failure:
            _run_seeds()
        told.append(str(failure.value))
    assert told[0] == told[1]
    assert "replay: .venv/bin/python -m tests.groupsim seed" in told[0]


def _run_seeds() -> None:
    for seed in range(20):
        run_seed(seed)
