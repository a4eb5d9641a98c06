"""What is a line of the canonical state: the base of all; clients, workers, keys. It holds no behaviour.

Jobs have theirs in `job`; lines of which there is one are in `state`.
"""

from typing import Final, NamedTuple

import msgspec

NO_BYTES: Final = b""
"""The one empty bytes object of the state. A default is left out by identity, and Python can make other
empty bytes; with one of those, replicas would encode the same state differently."""


class Record(msgspec.Struct, gc=False, omit_defaults=True, forbid_unknown_fields=True, tag_field="kind"):
    """One line of the canonical state: `kind` says which, defaults are left out, unknown fields refused."""


class KeyScope(NamedTuple):
    """A caller's key means something only together with its client and exec."""

    client_id: str
    exec: str
    key: str


class KeyRecord(Record, tag="key"):
    """The first job accepted under a key."""

    client_id: str
    exec: str
    key: str
    job_id: str
    digest: str
    at_us: int

    @property
    def scope(self) -> KeyScope:
        """By which it is found."""
        return KeyScope(self.client_id, self.exec, self.key)


class ClientRecord(Record, tag="client"):
    """A client's line in the canonical state."""

    client_id: str
    cap: int = 0
    """Most of its jobs in flight at once; 0 means the group's default."""
    weight: int = 1
    by: str = ""
    """The operator who set cap and weight; empty: the client's own wish."""
    idle_index: int = 0
    """Since which entry it has no open job; 0 while it has."""


class WorkerRecord(Record, tag="worker"):
    """A worker as the log knows it: its newest `worker` event."""

    worker_id: str
    instance: str
    host: str = ""
    release: str = ""
    patterns: list[str] = msgspec.field(default_factory=list)
    hands: int = 1
    changed_index: int = 0
