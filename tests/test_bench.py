"""The parts of `make bench` fit together: one that lost a name of another's would be noticed by nobody."""

import importlib
import inspect

import pytest

from bench.__main__ import PARTS


@pytest.mark.parametrize("part", PARTS)
def test_a_part_can_be_loaded_and_gives_rows(part: str) -> None:
    run = importlib.import_module(f"bench.{part}").run
    needed = [each for each in inspect.signature(run).parameters.values() if each.default is each.empty]
    assert needed == []
