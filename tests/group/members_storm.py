"""Members change under load, again and again, while processes are killed: python -m tests.group.members_storm

Each round one wish (add, remove, replace a node whose directory was emptied), and a kill of anybody at any
moment of it. Commands are repeated, as a person would, until the group says that the wish came true. In the
end jobs are counted in and out, and the logs of all members compared.
"""

import contextlib
import random
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from rollmq.errors import AnswerUnknown, NoLeader, QueryRefused, ServerUnreachable
from rollmq.library.operator import OperatorConnection
from tests.group.load import Runner, Submitter, running
from tests.group.real_group import RealGroup, RealNode, free_ports, wait_for
from tests.group.test_failover import audit, grows, settle

PLACES = 5
"""Addresses that nodes may have; a new node may come to where an old one was."""
NOT_NOW = (AnswerUnknown, NoLeader, QueryRefused, ServerUnreachable)


class Changing:
    """A group whose members change, and who is where."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.folder = folder
        self.chance = chance
        self.counts: Counter[str] = Counter()
        self.group = RealGroup(folder, 3)
        self._ports = [node.port for node in self.group.nodes] + free_ports(PLACES - 3)
        self.servers = ",".join(f"127.0.0.1:{port}" for port in self._ports)
        self._made = 0

    # -- asking

    def ask(self, name: str, **arguments: str) -> Any:
        """The answer of whoever leads; null: not now."""
        with contextlib.suppress(*NOT_NOW), OperatorConnection(self.servers, by="test") as connection:
            return connection.ask(name, arguments, is_command=name != "members")
        return None

    def voters(self) -> dict[str, str]:
        """Ids of those that vote, with their addresses; empty while nobody can say."""
        found = self.ask("members")
        members = found["members"] if found else []
        return {each["node_id"]: each["address"] for each in members if each["voter"]}

    def until(self, is_so: str, command: str, **arguments: str) -> None:
        """Repeat the command until its wish is so: `id in` or `id out` of the members, nothing half done."""
        node_id, _, what = is_so.partition(" ")

        def look() -> bool:
            found = self.ask("members")
            if not found:
                return False
            members = {each["node_id"]: each for each in found["members"]}
            is_half = any(not each["voter"] or each["replaces"] for each in members.values())
            if (node_id in members) == (what == "in") and not is_half:
                return True
            if not is_half:
                self.ask(command, **arguments)
            return False

        wait_for(look, f"{command} {arguments}", limit_s=120)

    # -- rounds

    def round(self) -> None:
        """One wish, and a kill beside it."""
        size = len(self.group.nodes)
        kinds = ["replace"] + ["add"] * (size < PLACES) + ["remove"] * (size > 3)
        kind = self.chance.choice(kinds)
        with self._somebody_is_killed():
            getattr(self, kind)()
        self.counts[kind] += 1

    @contextlib.contextmanager
    def _somebody_is_killed(self) -> Iterator[None]:
        """At some moment of the change, and started again at once."""
        victim, pause = self.chance.choice(self.group.nodes), threading.Event()

        def strike() -> None:
            pause.wait(self.chance.random())
            if victim in self.group.nodes and victim.process is not None and victim.process.poll() is None:
                victim.kill()
                self.counts["kills"] += 1
                victim.start()

        thread = threading.Thread(target=strike)
        if self.chance.random() < 0.7:
            thread.start()
        yield
        if thread.ident is not None:
            thread.join()

    def _new_node(self, port: int) -> tuple[RealNode, str]:
        """With an empty directory; it asks to be let in, and says under which id."""
        self._made += 1
        node = RealNode(self.folder / f"node-{self._made}", port, ["--peers", self.servers])
        node.state.parent.mkdir()
        node.start()

        def asks() -> str:
            found = self.ask("members")
            asking = found["asking"] if found else []
            return next((each["node_id"] for each in asking if each["address"] == node.address), "")

        return node, wait_for(asks, f"the new node at {node.address} asks to be let in")

    def add(self) -> None:
        port = self.chance.choice([port for port in self._ports if port not in self._used()])
        node, node_id = self._new_node(port)
        self.until(f"{node_id} in", "members_add", node=node_id)
        self.group.nodes.append(node)

    def remove(self) -> None:
        node_id, address = self.chance.choice(sorted(self._all_voters().items()))
        self.until(f"{node_id} out", "members_remove", node=node_id)
        self._drop(address)

    def replace(self) -> None:
        """A directory is gone; the machine comes back with an empty one, at the same address."""
        old_id, address = self.chance.choice(sorted(self._all_voters().items()))
        port = self._drop(address).port
        node, node_id = self._new_node(port)
        self.until(f"{old_id} out", "members_replace", node=node_id, replaces=old_id)
        self.until(f"{node_id} in", "members_add", node=node_id)
        self.group.nodes.append(node)

    def _all_voters(self) -> dict[str, str]:
        return wait_for(lambda: self._known_voters(), "the leader knows where every member is")  # type: ignore[no-any-return]

    def _known_voters(self) -> dict[str, str]:
        voters = self.voters()
        return voters if set(voters.values()) == {node.address for node in self.group.nodes} else {}

    def _used(self) -> set[int]:
        return {node.port for node in self.group.nodes}

    def _drop(self, address: str) -> RealNode:
        node = next(node for node in self.group.nodes if node.address == address)
        self.group.nodes.remove(node)
        node.kill()
        shutil.rmtree(node.state)
        return node


def storm(folder: Path, *, rounds: int, seed: int) -> Counter[str]:
    """So many changes; raises AssertionError when something was lost or is not the same everywhere."""
    changing = Changing(folder, random.Random(seed))
    group = changing.group
    try:
        group.start()
        group.leader()
        client, worker = Submitter(changing.servers), Runner(changing.servers)
        with running(client, worker):
            for _ in range(rounds):
                grows(client, by=50)
                changing.round()
            grows(client, by=50)
            settle(group, client)
        audit(group, client)
        changing.counts["jobs"] = len(client.accepted)
        return changing.counts
    finally:
        group.kill()


@click.command(help=__doc__)
@click.option("--rounds", default=20, show_default=True, help="Changes of members.")
@click.option("--seed", default=1, show_default=True)
def main(rounds: int, seed: int) -> None:
    """From the command line, for as long as wanted."""
    with tempfile.TemporaryDirectory(prefix="rollmq-members-") as folder:
        counts = storm(Path(folder), rounds=rounds, seed=seed)
    click.echo(", ".join(f"{count:,} {name}" for name, count in sorted(counts.items())) + ", lost 0")


if __name__ == "__main__":
    main()
