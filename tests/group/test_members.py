"""Nodes come and go: a new one learns first, a replaced one goes by itself, an emptied one is a stranger."""

import contextlib
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rollmq.errors import AnswerUnknown, NoLeader, QueryRefused
from rollmq.library.operator import OperatorConnection
from tests.group.load import Runner, Submitter, running
from tests.group.members_storm import storm
from tests.group.real_group import RealGroup, RealNode, free_ports, running_group, wait_for
from tests.group.test_failover import audit, grows, settle

pytestmark = pytest.mark.slow


@pytest.fixture
def group(tmp_path: Path) -> Iterator[RealGroup]:
    with running_group(tmp_path) as group:
        yield group


def command(group: RealGroup, name: str, **arguments: str) -> None:
    with OperatorConnection(group.servers, by="test") as connection:
        connection.ask(name, arguments, is_command=True)


def members(group: RealGroup) -> dict[str, Any]:
    """As the leader says, once there is one."""

    def ask() -> Any:
        with (
            contextlib.suppress(NoLeader, AnswerUnknown),
            OperatorConnection(group.servers, by="test") as connection,
        ):
            return connection.ask("members")
        return None

    found: dict[str, Any] = wait_for(ask, "a leader says who is a member")
    return found


def is_asking(group: RealGroup, node: RealNode) -> bool:
    return node.address in [each["address"] for each in members(group)["asking"]]


def voters(group: RealGroup) -> set[str]:
    return {each["address"] for each in members(group)["members"] if each["voter"]}


def silent(group: RealGroup) -> set[str]:
    return {each["address"] for each in members(group)["members"] if each["behind"] is None}


def new_node(group: RealGroup) -> RealNode:
    (port,) = free_ports(1)
    node = RealNode(group.folder, port, ["--peers", f"{group.peers},127.0.0.1:{port}"])
    node.start()
    group.nodes.append(node)
    return node


def test_a_new_node_waits_until_it_is_added_then_learns_and_votes(group: RealGroup) -> None:
    client, worker = Submitter(group.servers), Runner(group.servers)
    with running(client, worker):
        grows(client)
        node = new_node(group)
        wait_for(lambda: is_asking(group, node), "the new node asks")
        wait_for(lambda: "members add" in node.log_text(), "it says what is to be done")
        command(group, "members_add", node=node.address)
        wait_for(lambda: node.address in voters(group), "it votes")
        grows(client)
        group.nodes[0].kill()
        group.nodes[1].signal(signal.SIGTERM)
        group.nodes[1].process.wait()  # type: ignore[union-attr]
        with pytest.raises(AssertionError):
            grows_soon(client)
        group.nodes[0].start()
        group.nodes[1].start()
        settle(group, client)
    audit(group, client)


def grows_soon(client: Submitter) -> None:
    """Two of four are no majority."""
    goal = len(client.accepted) + client.outstanding + 200
    wait_for(lambda: len(client.accepted) >= goal, "nothing", limit_s=2)


def test_an_emptied_directory_is_a_new_node_that_replaces_the_old_one(group: RealGroup) -> None:
    client, worker = Submitter(group.servers), Runner(group.servers)
    with running(client, worker):
        grows(client)
        node = group.others(group.leader())[0]
        old_id = node.status()["node"]  # type: ignore[index]
        node.kill()
        shutil.rmtree(node.state)
        node.start()
        wait_for(lambda: is_asking(group, node), "the emptied node asks")
        command(group, "members_replace", node=node.address, replaces=old_id)
        wait_for(
            lambda: old_id not in [each["node_id"] for each in members(group)["members"]],
            "the old one is gone",
        )
        assert len(voters(group)) == 3
        settle(group, client)
    audit(group, client)


def test_a_removed_leader_leads_until_that_is_committed_and_another_takes_over(group: RealGroup) -> None:
    client, worker = Submitter(group.servers), Runner(group.servers)
    with running(client, worker):
        grows(client)
        old = group.leader()
        with contextlib.suppress(AnswerUnknown, NoLeader):
            command(group, "members_remove", node=old.address)
        new = group.leader(among=group.others(old))
        assert new is not old
        wait_for(lambda: old.address not in voters(group), "it is no member any more")
        with pytest.raises(QueryRefused, match="was a member once: it comes back as a new node"):
            command(group, "members_add", node=old.address)
        grows(client)
        old.kill()
        group.nodes.remove(old)
        settle(group, client)
    audit(group, client)


def test_a_change_that_would_leave_no_live_majority_is_refused(group: RealGroup) -> None:
    """Pitfall 36."""
    client, worker = Submitter(group.servers), Runner(group.servers)
    with running(client, worker):
        grows(client)
        dead, live = group.others(group.leader())
        dead.kill()
        wait_for(lambda: dead.address in silent(group), "the leader knows that it does not answer")
        with pytest.raises(QueryRefused, match="would stand still"):
            command(group, "members_remove", node=live.address)
        dead.start()
        settle(group, client)
    audit(group, client)


def test_members_change_again_and_again_while_nodes_are_killed(tmp_path: Path) -> None:
    """The short form of `python -m tests.group.members_storm`."""
    counts = storm(tmp_path, rounds=3, seed=1)
    assert counts["add"] + counts["remove"] + counts["replace"] == 3
    assert counts["jobs"] > 100
