"""What a planted bug is, and where the rooms are that they are planted in."""

from typing import Final, NamedTuple


class Bug(NamedTuple):
    """One planted bug."""

    name: str
    path: str
    old: str
    new: str
    tests: tuple[str, ...]


CORE: Final = "src/rollmq/core/"
STORE: Final = "src/rollmq/store/"
NODE: Final = "src/rollmq/node/"
RAFT: Final = "tests/raft_paper/"
REPLICA: Final = "tests/replica/"


def scenario(name: str) -> str:
    """The node id of a scenario of the queue."""
    return f"tests/core/test_scenarios.py::test_the_queue_does_what_its_scenario_says[{name}]"
