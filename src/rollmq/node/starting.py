"""From a state directory to a replica that is ready to run: recover, load, hand over.

It blocks: nothing is served yet. It decides nothing.
"""

import os
import random
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rollmq.core.raft_ready import RaftSettings
from rollmq.core.replica import Replica
from rollmq.errors import StateDamaged
from rollmq.node.assembling import assemble, founders_of, group_uuid
from rollmq.node.upkeep import name_snapshot
from rollmq.store import layout
from rollmq.store.disk import GuardedDisk, OsDisk
from rollmq.store.node_file import Identity, read_identity
from rollmq.store.opening import Recovered, StoreOptions
from rollmq.store.store import Store
from rollmq.store.survey import Surveyor

IDS_BYTES = 16


@dataclass(frozen=True, slots=True)
class OpenedState:
    """A directory in use by this process."""

    store: Store
    disk: OsDisk
    recovered: Recovered


@dataclass(frozen=True, slots=True)
class Started:
    """What a node runs on."""

    store: Store
    replica: Replica
    disk: OsDisk
    recovered: Recovered
    load_us: int


def mono_us() -> int:
    """The monotonic clock."""
    return time.monotonic_ns() // 1000


def wall_us() -> int:
    """What this machine takes for the time."""
    return time.time_ns() // 1000


def open_state(directory: Path, *, options: StoreOptions) -> OpenedState:
    """Open the directory, or begin one. Raises StateError, which says what to do."""
    disk = OsDisk(directory)
    store, recovered = Store.open(
        disk, fresh_node_id=secrets.token_hex(IDS_BYTES), holder=str(os.getpid()), options=options
    )
    return OpenedState(store, disk, recovered)


@dataclass(frozen=True, slots=True)
class DamagedState:
    """A directory that its node cannot start from, and peers may be able to repair. It is locked."""

    disk: GuardedDisk
    identity: Identity
    error: StateDamaged

    def close(self) -> None:
        """Give it back."""
        self.disk.unlock()


def open_damaged(directory: Path, error: StateDamaged, *, has_peers: bool) -> DamagedState:
    """The same directory after it was refused with `error`, which is raised again if nobody can help: for a
    node that is alone, and for one that does not know who it is."""
    disk = GuardedDisk(OsDisk(directory))
    try:
        identity = read_identity(disk)
    except StateDamaged:
        raise error from None
    if identity is None or not identity.group:
        raise error
    if disk.lock(layout.LOCK_FILE, str(os.getpid())) is not None:
        raise error
    damaged = DamagedState(disk, identity, error)
    others = founders_of(identity) - {identity.node_id}
    try:
        if not others and not has_peers:
            others = Surveyor(disk, identity).look().survey.voters - {identity.node_id}
    except BaseException:
        damaged.close()
        raise
    if not others and not has_peers:
        damaged.close()
        raise error
    return damaged


def be_alone(store: Store) -> None:
    """A new node without peers founds a group of its own."""
    if not store.identity.group:
        node_id = store.identity.node_id
        store.set_group(group_uuid([node_id]), [node_id])


def start(
    opened: OpenedState,
    *,
    raft_settings: RaftSettings,
    is_eager: bool = False,
    on_progress: Callable[[int], None] | None = None,
) -> Started:
    """Load the state of a directory whose group has formed. Raises StateError; then it is given back."""
    store = opened.store
    try:
        began_us = mono_us()
        replica = assemble(
            store,
            opened.recovered,
            settings=raft_settings,
            chance=random.SystemRandom().random,
            jitter=random.Random(secrets.randbits(64)).random,
            now_us=mono_us(),
            is_eager=is_eager,
            on_progress=on_progress,
        )
    except BaseException:
        store.close()
        raise
    name_snapshot(store, replica)
    # Before anything is served: a node on a full disk takes no submit, not even its first.
    replica.tell_disk(is_low=store.is_disk_low())
    return Started(store, replica, opened.disk, opened.recovered, mono_us() - began_us)
