"""From a state directory to a replica that is ready to run: recover, load, hand over.

It blocks: nothing is served yet. It decides nothing.
"""

import hashlib
import os
import random
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rollmq.core.machine import Machine
from rollmq.core.raft import RaftCore
from rollmq.core.raft_log import RaftLog
from rollmq.core.raft_messages import TermRun
from rollmq.core.raft_ready import RaftSettings
from rollmq.core.replica import Replica
from rollmq.core.state import load_state
from rollmq.limits import TAIL_BYTES_MAX
from rollmq.node.upkeep import name_snapshot
from rollmq.store.disk import OsDisk
from rollmq.store.opening import Recovered, StoreOptions
from rollmq.store.store import Store

IDS_BYTES = 16


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


def start(
    directory: Path,
    *,
    options: StoreOptions,
    raft_settings: RaftSettings,
    is_eager: bool = False,
    on_progress: Callable[[int], None] | None = None,
) -> Started:
    """Open the directory and load its state. Raises StateError, which says what to do."""
    disk = OsDisk(directory)
    store, recovered = Store.open(
        disk, fresh_node_id=secrets.token_hex(IDS_BYTES), holder=str(os.getpid()), options=options
    )
    try:
        began_us = mono_us()
        replica = _replica(store, recovered, raft_settings, is_eager, on_progress)
    except BaseException:
        store.close()
        raise
    name_snapshot(store, replica)
    return Started(store, replica, disk, recovered, mono_us() - began_us)


def _replica(
    store: Store,
    recovered: Recovered,
    raft_settings: RaftSettings,
    is_eager: bool,
    on_progress: Callable[[int], None] | None,
) -> Replica:
    node_id = store.identity.node_id
    if not store.identity.group:
        store.set_group(group_uuid([node_id]))
    machine, runs = load(recovered, on_progress)
    chance = random.SystemRandom().random
    state = recovered.state
    raft = RaftCore(
        node_id=node_id,
        voters=frozenset([node_id]),
        hard_state=store.hard_state,
        log=RaftLog(
            snapshot_index=recovered.state_index,
            snapshot_term=state.last_term if state is not None else 0,
            term_runs=runs,
            last_index=recovered.last_index,
            tail_bytes_max=TAIL_BYTES_MAX,
        ),
        settings=raft_settings,
        chance=chance,
        now_us=mono_us(),
    )
    return Replica(
        raft,
        machine,
        store.segment_digest(),
        group=store.identity.group,
        founders=[node_id],
        jitter=random.Random(secrets.randbits(64)).random,
        is_eager=is_eager,
    )


def group_uuid(node_ids: list[str]) -> str:
    """A group is named by its first members (rule 8)."""
    return hashlib.sha256("".join(sorted(node_ids)).encode()).hexdigest()[:32]


def load(
    recovered: Recovered, on_progress: Callable[[int], None] | None = None
) -> tuple[Machine, list[TermRun]]:
    """The machine as of the end of the log, and where the terms begin in it."""
    machine = load_state(recovered.state_lines()) if recovered.state is not None else Machine()
    runs: list[TermRun] = []
    apply = machine.apply
    for entry in recovered.entries():
        event = entry.event
        if event.term != machine.last_term:
            runs.append((event.index, event.term))
        apply(event)
        if on_progress is not None and event.index % 65_536 == 0:
            on_progress(event.index)
    return machine, runs
