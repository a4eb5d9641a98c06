"""What a replica has for its host to do. It stands apart from the replica, which is compiled in an optional
build (docs/decisions/0011-compiled-core.md)."""

from dataclasses import dataclass

from rollmq.core.effects import AnyEffect
from rollmq.core.raft_ready import Ready


@dataclass(frozen=True, slots=True)
class Work:
    """What the host does now: what the Raft core says (see `Ready`), then tell these effects."""

    raft: Ready | None
    effects: list[AnyEffect]
    needs_rebuild: bool
    """The machine had applied entries that were cut: load it again from snapshot and log, off the loop,
    and call `rebuilt`. Until then this node neither leads nor campaigns."""
    is_unfinished: bool = False
    """More can be applied than one turn may: take what else has come, then call `ready` again."""
