"""What every test shares: one hypothesis profile. Fixtures live beside the tests that use them."""

import os

import pytest
from hypothesis import HealthCheck, settings

# The same examples on every machine and in every run: a red build can be repeated. Speed is no
# property of the code under test here (two cores may be shared), so neither a deadline nor "too slow".
settings.register_profile(
    "ci", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
# For hunting by hand: HYPOTHESIS_PROFILE=search .venv/bin/python -m pytest tests/wire
settings.register_profile("search", parent=settings.get_profile("ci"), derandomize=False, max_examples=5000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--rewrite` puts what happened into the scenario files; review the diff before you commit it."""
    parser.addoption("--rewrite", action="store_true", help="renew the transcripts of the scenario files")
