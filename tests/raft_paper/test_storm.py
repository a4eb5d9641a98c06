"""Properties of figure 3 under storms: the checkers are in group.py, the storms in storm.py."""

import pytest

from tests.raft_paper.storm import Storm

SEEDS_PER_BLOCK = 30


@pytest.mark.parametrize("block", range(5))
@pytest.mark.parametrize("size", [1, 3, 5])
def test_no_storm_breaks_a_safety_property_and_calm_brings_progress(size: int, block: int) -> None:
    """Election safety, log matching, leader completeness, state-machine safety; then liveness."""
    for seed in range(block * SEEDS_PER_BLOCK, (block + 1) * SEEDS_PER_BLOCK):
        try:
            Storm(size, seed).run()
        except AssertionError as error:
            error.add_note(f"replay: python -m tests.raft_paper.storm {size} {seed}")
            raise
