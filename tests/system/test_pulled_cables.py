"""Three nodes on three hosts, and their cables pulled: nobody is told that a connection is over."""

from pathlib import Path

import pytest

from tests.group.real_group import RealNode, wait_for
from tests.system.crew import running_crew
from tests.system.hosts import running_hosts
from tests.system.namespaces import may_unshare, run_in_namespace
from tests.system.nodes import STORM_OPTIONS
from tests.system.proof import Books, prove
from tests.system.storm import goes_on, settle

pytestmark = pytest.mark.slow


def leads(node: RealNode) -> bool:
    """It says so itself."""
    status = node.status()
    return status is not None and status["role"] == "leader"


def test_whoever_loses_its_cable_or_dies_without_one_the_group_goes_on_and_loses_nothing(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if not may_unshare("--net"):
        run_in_namespace(request.node.nodeid, "--net")
        return
    with running_hosts(tmp_path, 3, options=STORM_OPTIONS) as group:
        with running_crew(tmp_path, group.servers) as crew:
            goes_on(group, crew)
            old = next(node for node in group.nodes if leads(node))
            rest = [node for node in group.nodes if node is not old]

            old.pull_cable()  # the leader's
            group.leader(among=rest)
            goes_on(group, crew)
            old.plug_cable()
            goes_on(group, crew)

            leader = group.leader()
            followers = [node for node in group.nodes if node is not leader]
            followers[0].pull_cable()  # a follower's
            goes_on(group, crew)
            followers[1].pull_cable()  # and the other's: nobody has a majority
            wait_for(lambda: not leads(leader), "a leader that reaches nobody steps down")
            for node in followers:
                node.plug_cable()
            goes_on(group, crew)

            leader = group.leader()
            victim = next(node for node in group.nodes if node is leader)
            victim.pull_cable()
            victim.kill()  # whom it talked to cannot know
            rest = [node for node in group.nodes if node is not victim]
            group.leader(among=rest)
            goes_on(group, crew, among=rest)
            victim.plug_cable()
            victim.start()
            goes_on(group, crew)
            settle(group, crew)
        counts = prove([node.state for node in group.nodes], Books.in_folder(tmp_path))
        assert counts["jobs done"] >= 100
