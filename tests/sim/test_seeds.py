"""Hundreds of seeds: each a storm of its own mixture of faults, then a calm in which every job must end."""

import pytest

from tests.sim import check, seed_checks

SEEDS_PER_CHUNK = 25
CHUNKS = 20
"""In all 500 seeds, about 0.4 s each: some three and a half minutes of one core."""


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_seed_keeps_every_promise(chunk: int) -> None:
    for seed in range(chunk * SEEDS_PER_CHUNK, (chunk + 1) * SEEDS_PER_CHUNK):
        check.run_seed(seed)


def test_a_few_seeds_keep_every_promise() -> None:
    for seed in range(1_000, 1_010):
        check.run_seed(seed)


def test_a_seed_decides_everything_in_every_process() -> None:
    seed_checks.decides_everything_in_every_process(check)


def test_a_failing_seed_says_how_to_replay_it_and_fails_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug is planted: recovery forgets the last entry."""
    from tests.sim.node import SimNode

    load = SimNode._load

    def forgetful(recovered):  # type: ignore[no-untyped-def]
        machine, lines, runs = load(recovered)
        return machine, lines[:-1], runs

    monkeypatch.setattr(SimNode, "_load", staticmethod(forgetful))
    seed_checks.fails_alike(check, range(100))
