"""The plants fit the source as it is; `make plant` alone would say so late, after minutes."""

import re

import pytest

from tests.house_rules import ROOT
from tests.plant.bug import Bug
from tests.plant.bugs import BUGS


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_plant_fits_its_source_exactly_once(bug: Bug) -> None:
    assert (ROOT / bug.path).read_text().count(bug.old) == 1


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_plant_names_tests_that_exist(bug: Bug) -> None:
    for name in bug.tests:
        path, _, rest = name.partition("::")
        function, _, scenario = rest.rstrip("]").partition("[")
        text = (ROOT / path).read_text()
        assert re.search(rf"^def {function}\(", text, re.MULTILINE) or not function
        assert not scenario or list((ROOT / "tests" / "scenarios").rglob(f"{scenario}.txt"))


def test_no_two_plants_have_one_name() -> None:
    assert len({bug.name for bug in BUGS}) == len(BUGS)
