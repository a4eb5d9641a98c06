"""Every file of tests/scenarios/raft, played on Raft cores. Renew with `pytest --rewrite` and review."""

from pathlib import Path

import pytest

from tests.raft_scenarios import Play
from tests.scenario_runner import run_file

FOLDER = Path(__file__).parent.parent / "scenarios" / "raft"
FILES = sorted(FOLDER.glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_group_does_what_its_scenario_says(path: Path, request: pytest.FixtureRequest) -> None:
    run_file(path, Play().run, rewrite=request.config.getoption("--rewrite"))


def test_every_raft_scenario_begins_by_saying_what_it_is_about() -> None:
    assert FILES
    assert [path.name for path in FILES if not path.read_text().startswith("# ")] == []
