"""The quick storms: real nodes, clients and workers under weather, for seconds. `make storm-real` goes on."""

from pathlib import Path

import pytest

from tests.system.storm import run_storm

pytestmark = pytest.mark.slow


def test_one_node_in_a_storm_loses_nothing_and_tells_nothing_untrue(tmp_path: Path) -> None:
    report = run_storm(tmp_path, seed=7, size=1, seconds=12)
    print(report)
    assert report.counts["kills of nodes"] >= 1
    assert report.counts["jobs done"] >= 100


def test_a_group_of_three_in_a_storm_loses_nothing_and_tells_nothing_untrue(tmp_path: Path) -> None:
    report = run_storm(tmp_path, seed=7, size=3, seconds=20)
    print(report)
    assert report.counts["kills of nodes"] >= 1
    assert report.counts["jobs done"] >= 100
