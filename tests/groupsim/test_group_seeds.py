"""Hundreds of seeds of whole groups: each a storm, then a calm in which all must elect, finish and agree."""

import pytest

from rollmq.core.raft_log import RaftLog
from tests.groupsim import check
from tests.sim import seed_checks

SEEDS_PER_CHUNK = 25
CHUNKS = 20
"""In all 500 seeds, about 0.3 s each: some two and a half minutes of one core."""


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_seed_of_a_group_keeps_every_promise(chunk: int) -> None:
    for seed in range(chunk * SEEDS_PER_CHUNK, (chunk + 1) * SEEDS_PER_CHUNK):
        check.run_seed(seed)


def test_a_few_seeds_of_a_group_keep_every_promise() -> None:
    for seed in range(1_000, 1_010):
        check.run_seed(seed)


def test_a_seed_decides_a_whole_group_in_every_process() -> None:
    seed_checks.decides_everything_in_every_process(check)


@pytest.mark.pure
def test_a_failing_seed_of_a_group_says_how_to_replay_it_and_fails_alike(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A bug is planted: every log is new enough to lead (5.4.1)."""

    def is_whatever(self: RaftLog, *, last_index: int, last_term: int) -> bool:
        del self, last_index, last_term
        return True

    monkeypatch.setattr(RaftLog, "is_up_to_date", is_whatever)
    seed_checks.fails_alike(check, range(20))
