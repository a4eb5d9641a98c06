"""Who this node is: its id, its group, and the format of its files.

A node keeps its id for the life of its directory; an emptied directory is a new identity. It makes no
ids: a fresh one is handed in.
"""

import msgspec

from rollmq.core.events import FORMAT_VERSION
from rollmq.errors import StateDamaged, WrongFormatVersion
from rollmq.store.disk import Disk
from rollmq.store.layout import NODE_FILE
from rollmq.store.sealed_file import read_value, write_value


class Identity(msgspec.Struct, frozen=True, gc=False):
    """This node's identity. Unknown fields are let through, so that another version can be named."""

    node_id: str
    group: str = ""
    """The group's uuid; empty until the group has formed, and no segment is written before."""
    founders: tuple[str, ...] = ()
    """Who votes until the log says who is a member. Empty: this node joined a group that was there."""
    format_version: int = FORMAT_VERSION


_decoder = msgspec.json.Decoder(Identity)


def read_identity(disk: Disk) -> Identity | None:
    """The identity of this directory; None if it has none. Raises StateDamaged, WrongFormatVersion."""
    identity = read_value(disk, NODE_FILE, _decoder)
    if identity is None:
        return None
    if identity.format_version != FORMAT_VERSION:
        raise WrongFormatVersion(
            path=disk.path_of(NODE_FILE), found=identity.format_version, expected=FORMAT_VERSION
        )
    if not identity.node_id:
        raise StateDamaged(path=disk.path_of(NODE_FILE), reason="the node id is empty")
    return identity


def write_identity(disk: Disk, identity: Identity) -> None:
    """Save it; durable on return."""
    write_value(disk, NODE_FILE, identity)
