"""One Spark for all tests: it takes seconds to start, and its first query more."""

from collections.abc import Iterator
from typing import Any

import pytest

from rollmq.pipeline.session import SparkRun

SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    # A few rows each: compiling a query would take longer than running it.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    with SparkRun(master="local[2]", conf=SETTINGS) as run:
        yield run.spark


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whoever uses Spark is marked so, and runs in one process with all others that do."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.xdist_group("spark"))
