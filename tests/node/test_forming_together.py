"""Several new nodes at once, hellos in any order, and crashes: they form one group, or none (rule 8)."""

import random

import pytest

from rollmq.node.assembling import group_uuid
from rollmq.node.forming import Formed, Forming
from rollmq.wire.peer_headers import LeaderHelloHeader


class NewNode:
    """What survives a crash is its id, and the group once it is written down."""

    def __init__(self, number: int, peers: list[str]) -> None:
        self.node_id = f"{number:032x}"
        self.address = f"h:{number}"
        self.peers = peers
        self.formed: Formed | None = None
        self.forming = self._begin()

    def _begin(self) -> Forming:
        return Forming(node_id=self.node_id, address=self.address, peers=self.peers)

    def crash(self) -> None:
        """All that it heard is forgotten."""
        self.forming = self._begin()

    def hello(self) -> LeaderHelloHeader:
        formed = self.formed
        return LeaderHelloHeader(
            version=1,
            node_id=self.node_id,
            address=self.address,
            group=formed.group if formed is not None else "",
            is_empty=formed is None,
            founders=formed.founders if formed is not None else self.forming.founders,
        )

    def hears(self, other: "NewNode", said: LeaderHelloHeader) -> None:
        if self.formed is None:
            self.forming.heard(other.address, said)
            self.formed = self.forming.formed


def play(nodes: list[NewNode], chance: random.Random, steps: int) -> None:
    """Hellos in any order, late ones too; now and then a crash."""
    late: list[tuple[NewNode, NewNode, LeaderHelloHeader]] = []
    for _ in range(steps):
        asks, answers = chance.sample(nodes, 2)
        late.append((asks, answers, answers.hello()))
        if chance.random() < 0.7:
            asks, answers, said = late.pop(chance.randrange(len(late)))
            if answers.address in asks.peers:
                asks.hears(answers, said)
        if chance.random() < 0.1:
            chance.choice(nodes).crash()


@pytest.mark.parametrize("size", [2, 3, 5])
def test_nodes_with_one_list_form_one_group_in_every_order(size: int) -> None:
    for seed in range(100):
        chance = random.Random(f"{size}/{seed}")
        peers = [f"h:{number}" for number in range(size)]
        nodes = [NewNode(number, peers) for number in range(size)]
        play(nodes, chance, 30 * size)
        for _ in range(3):
            for one in nodes:
                for other in nodes:
                    if one is not other:
                        one.hears(other, other.hello())
        ids = tuple(sorted(node.node_id for node in nodes))
        assert {node.formed for node in nodes} == {Formed(group_uuid(ids), ids)}, f"seed {seed}"


def test_nodes_whose_lists_differ_never_form_two_groups_that_share_a_node() -> None:
    """Each list has all of the first three; some have more."""
    formed_count = 0
    for seed in range(200):
        chance = random.Random(seed)
        count = chance.choice([3, 4, 5])
        nodes = []
        for number in range(count):
            others = [each for each in range(3, count) if chance.random() < 0.5]
            nodes.append(NewNode(number, [f"h:{each}" for each in sorted({0, 1, 2, number, *others})]))
        play(nodes, chance, 40 * count)
        formed = {node.node_id: node.formed for node in nodes if node.formed is not None}
        formed_count += bool(formed)
        for node_id, found in formed.items():
            assert node_id in found.founders
            for other_id in found.founders:
                other = formed.get(other_id)
                assert other is None or other == found, f"seed {seed}: {node_id} and {other_id}"
    assert 20 < formed_count < 180, "some came to be, some did not"
