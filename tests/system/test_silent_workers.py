"""Workers that hold jobs and fall silent: stopped in the middle, or behind a connection that is half open."""

import contextlib
import signal
from pathlib import Path

import pytest

from rollmq.errors import OperatorError
from rollmq.library.operator import OperatorConnection
from tests.group.real_group import wait_for
from tests.system.crew import running_crew
from tests.system.network import OTHERS, running_network
from tests.system.nodes import STORM_OPTIONS, Gated
from tests.system.proof import Books, prove
from tests.system.storm import goes_on, settle

pytestmark = pytest.mark.slow


def held_by(group: Gated) -> dict[str, int]:
    """How many jobs each connected worker holds."""
    with (
        contextlib.suppress(OperatorError),  # an election
        OperatorConnection(f"127.0.0.1:{group.nodes[0].port}", by="test") as connection,
    ):
        return {row["worker_id"]: row["held"] for row in connection.ask("workers")["workers"]}
    return {}


def test_jobs_of_workers_that_fall_silent_go_to_others_and_their_late_answers_harm_nothing(
    tmp_path: Path,
) -> None:
    with running_network() as network:
        group = Gated(tmp_path, network, 1, options=STORM_OPTIONS)
        side_gate = network.add(group.nodes[0].port)
        try:
            group.start()
            group.leader()
            crews = running_crew(
                tmp_path, group.servers, workers_servers=[group.servers, side_gate, group.servers]
            )
            with crews as crew:
                goes_on(group, crew)
                wait_for(lambda: len(held := held_by(group)) == 3 and all(held.values()), "all are busy")
                crew.workers[0].signal(signal.SIGSTOP)
                network.cut([(OTHERS, side_gate), (side_gate, OTHERS)])
                wait_for(lambda: set(held_by(group)) == {"w2"}, "both are given up")
                goes_on(group, crew)
                crew.workers[0].signal(signal.SIGCONT)
                network.heal(resets=True)
                wait_for(lambda: len(held_by(group)) == 3, "both are back")
                goes_on(group, crew)
                settle(group, crew)
            prove([node.state for node in group.nodes], Books.in_folder(tmp_path))
        finally:
            group.kill()
