"""Java is started in the way that suits how much there is to do."""

from pathlib import Path

import pytest

from rollmq.pipeline import amount, session
from rollmq.pipeline.amount import is_little
from rollmq.pipeline.runs import Sources
from rollmq.pipeline.warehouse import Reached, Warehouse
from tests.docs_examples import GROUP
from tests.pipeline.archives import two_segments


@pytest.mark.parametrize(
    ("reached", "most", "expected"),
    [
        (None, 31, False),
        (None, 32, True),
        (Reached(bronze_index=30, silver_index=30), 2, True),
        (Reached(bronze_index=30, silver_index=30), 1, False),
        (Reached(bronze_index=32, silver_index=20), 11, False),
        (Reached(bronze_index=32, silver_index=20), 12, True),
    ],
)
def test_what_is_new_is_counted_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reached: Reached | None, most: int, expected: bool
) -> None:
    """Entries that no table has, and those that wait to be folded."""
    monkeypatch.setattr(amount, "LITTLE_ENTRIES", most)
    two_segments(tmp_path / "archive")
    house = Warehouse(tmp_path / "warehouse")
    if reached is not None:
        with house.run() as run:
            run.publish({GROUP: reached})
    assert is_little(house, Sources(places=(str(tmp_path / "archive"),))) is expected


def test_a_short_run_gets_a_java_that_compiles_lightly_unless_the_user_says_otherwise() -> None:
    option = "spark.driver.extraJavaOptions"
    own = {option: "-XX:TieredStopAtLevel=4"}
    light = session.LIGHT_COMPILER
    assert session._settings("local[2]", {}, is_short=True)[option].endswith(light)
    assert session._settings("local[2]", own, is_short=True)[option].endswith(f"{light} {own[option]}")
    assert light not in session._settings("local[2]", {}, is_short=False)[option]
    assert light not in session._settings("spark://h:7077", {}, is_short=True)[option]
