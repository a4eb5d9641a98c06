"""A group: its nodes, the network between them, and the way in for clients and workers."""

from collections.abc import Callable
from functools import partial

from rollmq.core.members import Configuration
from rollmq.library.operator import Address
from rollmq.library.route import name_of
from rollmq.node.assembling import group_uuid
from rollmq.wire.peer import NodeMessage
from tests.groupsim.node import GroupNode, address_of
from tests.groupsim.operator import GroupOperator
from tests.groupsim.oracle import GroupOracle
from tests.groupsim.peer_net import PeerNet
from tests.groupsim.swarm import GroupSwarm
from tests.sim.net import Link
from tests.sim.world import World

NODES_MOST = 12
"""Machines of one run, those that come later included: clients know all their addresses."""


class Group:
    """All nodes. Clients and workers are given the addresses of all of them."""

    def __init__(self, world: World, swarm: GroupSwarm) -> None:
        self.world = world
        self.swarm = swarm
        ids = [f"{world.random.getrandbits(128):032x}" for _ in range(swarm.size)]
        self.founders = frozenset(ids)
        self.uuid = group_uuid(ids)
        self.oracle = GroupOracle(world, Configuration(self.founders))
        self.peers = PeerNet(world, swarm.peers, self._deliver)
        self.nodes = [GroupNode(self, f"n{number}", node_id) for number, node_id in enumerate(ids, start=1)]
        self.by_id = {node.node_id: node for node in self.nodes}
        self.by_address = {node.address: node for node in self.nodes}
        self.peers.life_of = lambda source: self.by_id[source].boot_number
        self.peers.is_by_connection = bool(swarm.group.rot_every_us)
        self.client_cut: set[str] = set()
        """Nodes that clients and workers do not reach."""
        self.is_settled = False
        self.operator = GroupOperator(self)
        self.on_new_node: Callable[[GroupNode], None] = lambda _node: None
        """What is to befall a node that comes later."""

    @property
    def has_room(self) -> bool:
        """Another machine may come."""
        return len(self.nodes) < NODES_MOST

    def new_node(self) -> GroupNode:
        """A machine with an empty disk, which waits to be let in."""
        node_id = f"{self.world.random.getrandbits(128):032x}"
        node = GroupNode(self, f"n{len(self.nodes) + 1}", node_id)
        self.nodes.append(node)
        self.by_id[node_id] = self.by_address[node.address] = node
        self.on_new_node(node)
        node.boot()
        return node

    @property
    def leader_node(self) -> GroupNode | None:
        """Whoever leads in the newest term, as far as it knows itself."""
        leading = [node for node in self.nodes if node.leader is not None and not node.is_paused]
        return max(leading, key=lambda node: node.replica.raft.term, default=None)

    def _deliver(self, message: NodeMessage) -> None:
        self.by_id[message.target].receive(message)

    def was_reset(self, node: GroupNode) -> None:
        """A process ended. Its peers' connections to it break; of a machine without power most hear late."""
        for other in self.nodes:
            if other is not node and (node.node_id, other.node_id) not in self.peers.cut:
                delay_us = self.world.between(self.swarm.peers.latency_us)
                if self.world.happens(self.swarm.reset_told):
                    self.world.after(delay_us, partial(other.peer_was_reset, node.node_id))

    # -- the way in

    @property
    def servers(self) -> str:
        """What clients and workers are given."""
        count = NODES_MOST if self.swarm.group.members_every_us else len(self.nodes)
        return ",".join(address_of(number) for number in range(1, count + 1))

    def dial(self, address: Address, link: Link) -> bool:
        """Somebody connects to one of the nodes; False: nobody listens there."""
        node = self.by_address.get(name_of(address))
        return node is not None and node.name not in self.client_cut and node.dial(link)

    def cut_clients(self, node: GroupNode) -> None:
        """Clients and workers no longer reach this node, and nobody tells either side."""
        self.client_cut.add(node.name)
        if node.is_up:
            for end in node.door.ends():
                end._link.is_broken = True
