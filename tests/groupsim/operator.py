"""An operator who changes the members while everything goes wrong: adds, removes, replaces, empties disks.

As a person would: one wish at a time, repeated until the log says that it came true or cannot. A disk is
emptied only while all others are whole, and its node comes back as a new one: it must never vote as the old
one (rule 8).
"""

from typing import TYPE_CHECKING, Final

from rollmq.core import regroup
from rollmq.core.events import Member
from rollmq.core.members import configuration_of
from rollmq.core.operate import Refusal
from tests.groupsim.node import GroupNode
from tests.sim.world import SECOND_US

if TYPE_CHECKING:
    from tests.groupsim.group import Group

MEMBERS_MOST: Final = 5
VOTERS_FEWEST: Final = 2
PATIENCE_US: Final = 20 * SECOND_US
"""After which a wish that is only a whim is given up; an emptied disk is replaced whatever it takes."""


class GroupOperator:
    """One person. `wish` is what the next command says; null: nothing."""

    def __init__(self, group: "Group") -> None:
        self.group = group
        self.world = group.world
        self.wish: tuple[str, str, str] | None = None
        """What, the node that comes or goes, whom it replaces."""
        self._is_needed = False
        self._until_us = 0

    # -- wishes

    def act(self) -> None:
        """Repeat the wish, or have another."""
        leader = self._leader()
        if leader is None:
            return
        if self.wish is not None and self._is_settled(self.wish):
            self.wish = None
        if self.wish is not None and not self._is_needed and self.world.now_us > self._until_us:
            self.wish = None
        if self.wish is None and not self.world.is_calm:
            self._wish_something()
        if self.wish is not None:
            self._command(leader, *self.wish)

    @property
    def is_content(self) -> bool:
        """Nothing is half done: no wish is open, nobody learns, nobody who is gone still counts."""
        members = self.group.oracle.members
        is_half = any(not member.voter or member.replaces for member in members)
        return self.wish is None and not is_half

    def _wish_something(self) -> None:
        world, members = self.world, self.group.oracle.members
        voters = [member.node_id for member in members if member.voter]
        if len(members) != len(voters) or not voters:
            return  # Somebody learns still.
        kinds = ["add"] * (len(members) < MEMBERS_MOST) + ["remove"] * (len(voters) > VOTERS_FEWEST)
        if len(voters) > 2 and len(members) < MEMBERS_MOST:
            kinds += ["replace"] + ["empty"] * self._is_whole(set(voters))
        if not kinds or not self.group.has_room:
            return
        kind, old = world.random.choice(kinds), world.random.choice(voters)
        self._until_us, self._is_needed = world.now_us + PATIENCE_US, kind == "empty"
        if kind == "remove":
            self.wish = ("remove", old, "")
            return
        if kind == "empty":
            self.group.by_id[old].lose_everything()
        new = self.group.new_node()
        self.wish = ("add", new.node_id, "" if kind == "add" else old)

    def _is_whole(self, voters: set[str]) -> bool:
        """One disk may go: no log holds a change that is not committed, by which fewer might be left."""
        return all(
            node.is_up and node.replica.raft.log.membership.current.voters == voters
            for node in members_of(self.group)
        )

    def _is_settled(self, wish: tuple[str, str, str]) -> bool:
        what, node_id, replaces = wish
        ids = {member.node_id for member in self.group.oracle.members}
        return (node_id in ids) == (what == "add") and replaces not in ids

    # -- commands

    def _leader(self) -> GroupNode | None:
        node = self.group.leader_node
        if node is not None:
            node.set_time()  # which may depose it
        return node if node is not None and node.leader is not None else None

    def _command(self, leader: GroupNode, what: str, node_id: str, replaces: str) -> None:
        raft, members = leader.replica.raft, leader.replica.members
        changed: list[Member] | Refusal
        if node_id in {member.node_id for member in members}:
            if what == "add":
                return
            changed = regroup.remove(raft, members, node_id)
        elif what == "remove":
            return
        elif replaces and replaces not in {member.node_id for member in members}:
            self.wish = None  # It was taken out meanwhile, so there is nobody to replace.
            return
        else:
            changed = regroup.add(raft, members, node_id, replaces=replaces)
        name = self.group.by_id[node_id].name
        if isinstance(changed, Refusal):
            self.world.say("operator", f"may not {what} {name}: {changed.text}")
            return
        self.world.say("operator", f"{what}s {name}{' for ' + replaces[:6] if replaces else ''}")
        self.group.oracle.counts[f"members {what}{' for another' if replaces else ''}"] += 1
        leader.replica.set_members(changed)
        leader.wake()


def voters_of(group: "Group") -> list[GroupNode]:
    """The nodes that vote by what is committed."""
    members = group.oracle.members_event
    voters = configuration_of(members).voters if members is not None else group.founders
    return [node for node in group.nodes if node.node_id in voters]


def members_of(group: "Group") -> list[GroupNode]:
    """The nodes that are members by what is committed."""
    members = group.oracle.members_event
    ids = configuration_of(members).all if members is not None else group.founders
    return [node for node in group.nodes if node.node_id in ids]
