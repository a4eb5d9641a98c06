"""From a state directory to a replica, and to its machine alone when that must be loaded anew.

What is committed is applied; what may not be is only in the log (rule 3): sealed segments are committed, the
end of the open ones is whatever the group says. It opens no directory and reads no clock.
"""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rollmq.core.events import Members, SnapshotMarker
from rollmq.core.line import decode_line
from rollmq.core.machine import Machine
from rollmq.core.members import Membership, configuration_of, membership_found
from rollmq.core.raft import RaftCore
from rollmq.core.raft_log import RaftLog
from rollmq.core.raft_messages import TermRun
from rollmq.core.raft_ready import RaftSettings
from rollmq.core.replica import Replica
from rollmq.core.state import counts_doubt, load_state
from rollmq.limits import READ_LOG_BYTES_MAX
from rollmq.store.node_file import Identity
from rollmq.store.opening import Recovered
from rollmq.store.store import Store

PROGRESS_EVERY = 65_536


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a start found."""

    machine: Machine
    """As of the last entry that is known to be committed."""
    term_runs: list[TermRun]
    """Of all entries after the snapshot."""
    membership: Membership
    doubt: str
    """The last marker that counted otherwise than what was loaded; "" when there is none."""


def group_uuid(node_ids: Iterable[str]) -> str:
    """A group is named by its first members (rule 8)."""
    return hashlib.sha256("".join(sorted(node_ids)).encode()).hexdigest()[:32]


def founders_of(identity: Identity) -> frozenset[str]:
    """Who votes as long as the log says nothing. A node that joined knows nobody."""
    if not identity.founders and identity.group == group_uuid([identity.node_id]):
        return frozenset([identity.node_id])
    return frozenset(identity.founders)


def load(
    recovered: Recovered, founders: frozenset[str], on_progress: Callable[[int], None] | None = None
) -> Loaded:
    """The machine as of what is committed, and what Raft must know of the rest. Raises WalCorrupt."""
    machine = load_state(recovered.state_lines()) if recovered.state is not None else Machine()
    membership = membership_found(founders, snapshot=machine.members, events=())
    alone = {recovered.identity.node_id}
    runs: list[TermRun] = []
    doubt = ""
    term, apply = machine.last_term, machine.apply
    for entry in recovered.entries():
        event = entry.event
        if event.term != term:
            term = event.term
            runs.append((event.index, term))
        # Alone, what is on disk is committed: there is nobody who could say otherwise.
        is_committed = event.index <= recovered.sealed_index or membership.current.voters == alone
        if is_committed and event.index == machine.last_index + 1:
            apply(event)
            if type(event) is SnapshotMarker:
                doubt = counts_doubt(machine, event) or doubt
        if type(event) is Members:
            membership.append(event.index, configuration_of(event))
        if on_progress is not None and event.index % PROGRESS_EVERY == 0:
            on_progress(event.index)
    return Loaded(machine, runs, membership, doubt)


def assemble(
    store: Store,
    recovered: Recovered,
    *,
    settings: RaftSettings,
    chance: Callable[[], float],
    jitter: Callable[[], float],
    now_us: int,
    is_eager: bool = False,
    on_progress: Callable[[int], None] | None = None,
) -> Replica:
    """The replica of a directory whose group has formed. Raises WalCorrupt."""
    identity = store.identity
    assert identity.group, "the group has formed"
    founders = founders_of(identity)
    loaded = load(recovered, founders, on_progress)
    state, machine = recovered.state, loaded.machine
    raft = RaftCore(
        node_id=identity.node_id,
        voters=founders,
        hard_state=store.hard_state,
        log=RaftLog(
            snapshot_index=recovered.state_index,
            snapshot_term=state.last_term if state is not None else 0,
            term_runs=loaded.term_runs,
            last_index=recovered.last_index,
            applied_index=machine.last_index,
            membership=loaded.membership,
            tail_bytes_max=settings.tail_bytes_max,
        ),
        settings=settings,
        chance=chance,
        now_us=now_us,
    )
    replica = Replica(
        raft,
        machine,
        store.segment_digest(machine.last_index + 1),
        group=identity.group,
        founders=sorted(founders),
        jitter=jitter,
        is_eager=is_eager,
        log_end=store.segment_digest() if machine.last_index < recovered.last_index else None,
    )
    replica.doubt = loaded.doubt
    return replica


def rebuild(store: Store, until_index: int) -> Machine:
    """The machine as of this entry, which is committed and on disk: from the newest snapshot and the log.

    May run beside the thread that writes. Raises StateError.
    """
    lines = store.state_lines(until_index)
    machine = load_state(lines) if lines is not None else Machine()
    while machine.last_index < until_index:
        for line in store.read_lines(machine.last_index + 1, READ_LOG_BYTES_MAX):
            if machine.last_index == until_index:
                break
            machine.apply(decode_line(line))
    return machine
