"""Who is a member and who votes, read from the log: `members` events, the newest one that is in it.

A configuration counts from the moment its entry is appended, committed or not, and is taken back with an
entry that is cut (section 6; thesis 4.1; pitfall 33). It decides nothing about who should be a member.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from rollmq.core.events import AnyEvent, Member, Members
from rollmq.core.line import BODY_AT, decode_line

MEMBERS_START: Final = b'"type":"members",'
"""What follows the crc in such a line: cheaper to look at than decoding every line."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """The members as of one entry."""

    voters: frozenset[str]
    learners: frozenset[str] = frozenset()
    """They get the log and count for nothing (thesis 4.2.1)."""

    @property
    def all(self) -> frozenset[str]:
        """Everybody who is sent the log."""
        return self.voters | self.learners


def configuration_of(members: Members) -> Configuration:
    """What a `members` event says."""
    return Configuration(
        voters=frozenset(member.node_id for member in members.members if member.voter),
        learners=frozenset(member.node_id for member in members.members if not member.voter),
    )


def is_members_line(line: bytes) -> bool:
    """Whether a line holds a `members` event."""
    return line.startswith(MEMBERS_START, BODY_AT)


def members_in(line: bytes) -> Configuration:
    """The configuration in a line that `is_members_line`."""
    event = decode_line(line)
    assert isinstance(event, Members)
    return configuration_of(event)


class Membership:
    """The configurations that the log names, by the index of their entries.

    Invariant: indexes ascend; the first is committed or stood before the log began, so there is always one.
    """

    def __init__(self, first: Configuration, *, index: int = 0) -> None:
        self._at: list[tuple[int, Configuration]] = [(index, first)]
        self.current = first
        """The one in force: the last in the log, committed or not."""

    @property
    def index(self) -> int:
        """The entry that made the current one; 0: it stood before the log began."""
        return self._at[-1][0]

    @property
    def committed(self) -> Configuration:
        """The newest that will not be taken back."""
        return self._at[0][1]

    def set_founders(self, founders: Configuration) -> None:
        """Who votes before the log says anything."""
        assert self.index == 0, "the log says who is a member"
        self._at[0] = (0, founders)
        self.current = founders

    def append(self, index: int, configuration: Configuration) -> None:
        """The entry `index` was added to the log: in force at once."""
        assert index > self.index, "entries are added in order"
        self._at.append((index, configuration))
        self.current = configuration

    def cut(self, index: int) -> None:
        """Entries from here on are gone, and with them what they said."""
        while len(self._at) > 1 and self._at[-1][0] >= index:
            self._at.pop()
        self.current = self._at[-1][1]

    def committed_to(self, index: int) -> None:
        """What is older than the newest committed one is never needed again."""
        while len(self._at) > 1 and self._at[1][0] <= index:
            del self._at[0]


def membership_found(
    founders: frozenset[str], *, snapshot: Members | None, events: Iterable[AnyEvent]
) -> Membership:
    """What a node that starts finds: in its snapshot's state, then in the log after it.

    `founders` count as long as neither says anything; a node that joins knows none.
    """
    found = Membership(Configuration(founders))
    if snapshot is not None:
        found = Membership(configuration_of(snapshot), index=snapshot.index)
    for event in events:
        if type(event) is Members:
            found.append(event.index, configuration_of(event))
    return found


# -- changes, one server at a time (thesis 4.1): any two majorities of neighbours have a node in common


def added(members: Sequence[Member], node_id: str, *, replaces: str = "") -> list[Member]:
    """With a new learner."""
    return [*members, Member(node_id, voter=False, replaces=replaces)]


def promoted(members: Sequence[Member], node_id: str) -> list[Member]:
    """With this learner as a voter. Whom it replaces is remembered until that one is removed."""
    return [
        Member(node_id, voter=True, replaces=each.replaces) if each.node_id == node_id else each
        for each in members
    ]


def removed(members: Sequence[Member], node_id: str) -> list[Member]:
    """Without this one."""
    return [
        Member(each.node_id, each.voter, "") if each.replaces == node_id else each
        for each in members
        if each.node_id != node_id
    ]
