"""Every file of tests/scenarios/queue, played on a real leader. Renew with `pytest --rewrite` and review."""

from pathlib import Path

import pytest

from tests.core.stage import Stage
from tests.scenario_runner import parse, run_file

FOLDER = Path(__file__).parent.parent / "scenarios" / "queue"
FILES = sorted(FOLDER.glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_queue_does_what_its_scenario_says(path: Path, request: pytest.FixtureRequest) -> None:
    stage = Stage()
    run_file(path, stage.run, rewrite=request.config.getoption("--rewrite"))
    stage.finish()


def test_every_scenario_is_listed_with_the_rule_that_it_proves() -> None:
    page = (FOLDER / "README.md").read_text()
    assert [path.name for path in FILES if f"`{path.stem}`" not in page] == []


def test_every_scenario_begins_by_saying_what_it_is_about() -> None:
    assert [path.name for path in FILES if not path.read_text().startswith("# ")] == []
    assert all(any(True for _ in parse(path.read_text())) for path in FILES)
