"""Who a node says it is to another, and whether two nodes may talk. Sans-IO; it decides about nobody's vote.

A handshake changes no term and makes nobody a member: the log says who is one (rule 8). It only keeps nodes
apart that do not belong together, and tells where each is reached.
"""

import hmac
from dataclasses import dataclass

from rollmq.wire.codec import encode_header
from rollmq.wire.error_codes import ErrorCode, violation
from rollmq.wire.message import PROTOCOL_VERSION, PROTOCOL_VERSION_MIN, Frame
from rollmq.wire.peer_headers import LeaderHelloHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerIdentity:
    """This node, as others are told."""

    node_id: str
    group: str
    """The group's uuid; empty while it has not formed."""
    group_name: str
    address: str
    """host:port at which others reach it."""
    token: str = ""
    founders: tuple[str, ...] = ()
    life: str = ""
    """Another one for each process of this node: what an earlier one said counts no more."""


@dataclass(frozen=True, slots=True)
class PeerFacts:
    """What changes while a node runs, and is told in its hellos."""

    term: int = 0
    last_index: int = 0
    members: tuple[str, ...] = ()
    wall_us: int = 0


def hello_of(me: PeerIdentity, facts: PeerFacts) -> bytes:
    """The header of a LeaderHello."""
    return encode_header(
        LeaderHelloHeader(
            version=PROTOCOL_VERSION,
            version_min=PROTOCOL_VERSION_MIN,
            node_id=me.node_id,
            group=me.group,
            group_name=me.group_name,
            address=me.address,
            term=facts.term,
            last_index=facts.last_index,
            is_empty=not me.group,
            wall_us=facts.wall_us,
            token=me.token,
            founders=me.founders,
            life=me.life,
            members=facts.members,
        )
    )


def problem_with(me: PeerIdentity, other: LeaderHelloHeader) -> tuple[ErrorCode, str] | None:
    """Why this node and the other may not talk; None when they may."""
    if me.token and not hmac.compare_digest(other.token.encode(), me.token.encode()):
        return (
            ErrorCode.NOT_AUTHORIZED,
            "the nodes of a group share one token: see `rollmq serve --token-file`",
        )
    if other.group_name != me.group_name:
        text = f"this node is of the group {me.group_name!r}, the other of {other.group_name!r}: see --group"
        return ErrorCode.WRONG_GROUP, text
    if me.group and other.group and me.group != other.group:
        text = (
            f"this node at {me.address} is of the group {me.group}, the other at {other.address} of "
            f"{other.group}: its --peers or its state directory are those of another group"
        )
        return ErrorCode.WRONG_GROUP, text
    if other.node_id == me.node_id and other.address != me.address:
        text = (
            f"the nodes at {me.address} and {other.address} both have the id {me.node_id}: one directory is "
            f"a copy of the other. Stop the copy and empty its directory; both must never run at once"
        )
        return ErrorCode.NODE_EXISTS, text
    return None


def check_hello(me: PeerIdentity, other: LeaderHelloHeader, frame: Frame) -> None:
    """Raise the ProtocolError that answers a hello which may not be."""
    problem = problem_with(me, other)
    if problem is not None:
        raise violation(*problem, frame)
