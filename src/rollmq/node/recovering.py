"""The last resort after a majority of a group is lost for good: a new group of one, from what one node has.

The old directory is only read. The new one gets the state as of the old log's end, a new identity and a new
group, so that no node of the old one can ever take it for its own, or disturb it. What the lost nodes had
committed and this one had not is lost, and nobody can say what that was: the report says what is certain.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rollmq.core.events import Counts, Member, Members
from rollmq.core.machine import Machine
from rollmq.core.raft_ready import HardState, SnapshotFacts, WriteChunk
from rollmq.core.state import dump_state, load_state
from rollmq.errors import DirectoryInUse, NotAStateDirectory, RecoverRefused
from rollmq.limits import SNAPSHOT_CHUNK_BYTES_MAX
from rollmq.node.assembling import group_uuid
from rollmq.store import layout
from rollmq.store.disk import Disk, OsDisk
from rollmq.store.mark import read_mark
from rollmq.store.node_file import read_identity
from rollmq.store.opening import Recovered
from rollmq.store.recovery import inspect, raise_damage
from rollmq.store.store import Store
from rollmq.store.vote import read_vote


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What was done, and what of it is certain."""

    old_group: str
    members: tuple[str, ...]
    """Of the old group, as this node's log says."""
    group: str
    node_id: str
    last_index: int
    """The old log's end: everything up to here is in the new state."""
    last_term: int
    last_at_us: int
    sealed_index: int
    """Up to here the old group is known to have committed; what follows perhaps never was."""
    counts: Counts


def force_new_group(old: Path, new: Path, *, node_id: str, holder: str) -> Recovery:
    """Make the directory `new`, under this fresh id. Raises StateError, RecoverRefused."""
    disk = OsDisk(old)
    if not disk.exists(layout.ROOT):
        raise NotAStateDirectory(path=old, reason="there is no such directory")
    if new.exists() and any(new.iterdir()):
        raise RecoverRefused(path=new, reason="it is not empty; name a directory that is not there yet")
    found = disk.lock(layout.LOCK_FILE, holder)
    if found is not None:
        raise DirectoryInUse(path=old, holder=found)
    try:
        recovered = _look(disk, old)
        machine = load_state(recovered.state_lines()) if recovered.state is not None else Machine()
        for entry in recovered.entries():
            machine.apply(entry.event)
    finally:
        disk.unlock()
    if machine.members is None:
        raise RecoverRefused(path=old, reason="its log does not name a single member, so it holds no jobs")
    members = tuple(member.node_id for member in machine.members.members)
    group = group_uuid([node_id])
    report = Recovery(
        old_group=recovered.identity.group,
        members=members,
        group=group,
        node_id=node_id,
        last_index=machine.last_index,
        last_term=machine.last_term,
        last_at_us=machine.last_at_us,
        sealed_index=recovered.sealed_index,
        counts=machine.counts(),
    )
    term = max(machine.last_term, recovered.hard_state.term) + 1
    machine.apply(Members(machine.last_index + 1, term, machine.last_at_us, group, [Member(node_id)]))
    _write(new, machine, node_id=node_id, group=group, holder=holder)
    return report


def _look(disk: Disk, path: Path) -> Recovered:
    """What the old directory holds. Reads only."""
    identity = read_identity(disk)
    if identity is None or not identity.group:
        raise NotAStateDirectory(path=path, reason="no node of a group has kept its state in it")
    if disk.exists(layout.INSTALLING_FILE):
        raise RecoverRefused(
            path=path, reason="a snapshot was being installed: start its node once, alone, first"
        )
    hard_state, mark = read_vote(disk), read_mark(disk)
    if hard_state is None or mark is None:
        raise RecoverRefused(path=path, reason="its vote or its mark is missing: see `rollmq log verify`")
    findings = inspect(disk, group=identity.group, mark=mark)
    raise_damage(disk, findings.damages)
    scans = tuple(findings.kept_scans())
    return Recovered(
        disk=disk,
        identity=identity,
        hard_state=hard_state,
        state=findings.state,
        last_index=findings.last_index,
        last_term=scans[-1].last_term if scans else 0,
        last_at_us=scans[-1].last_at_us if scans else 0,
        scans=scans,
        torn=findings.torn,
        notes=tuple(findings.notes),
        is_ballast_spent=False,
    )


def _write(path: Path, machine: Machine, *, node_id: str, group: str, holder: str) -> None:
    """A directory as an installed snapshot leaves it, of a group of one."""
    sha, size = hashlib.sha256(), 0
    for block in _blocks(machine):
        sha.update(block)
        size += len(block)
    facts = SnapshotFacts(machine.last_index, machine.last_term, sha.hexdigest(), size)
    store, _ = Store.open(OsDisk(path), fresh_node_id=node_id, holder=holder)
    try:
        store.set_group(group, [node_id])
        store.save_vote(HardState(machine.last_term))
        offset = 0
        for block in _blocks(machine):
            store.write_chunk(WriteChunk(facts, offset, block))
            offset += len(block)
        store.install(facts)
    finally:
        store.close()


def _blocks(machine: Machine) -> Iterator[bytes]:
    """The state's lines in pieces."""
    gathered: list[bytes] = []
    size = 0
    for line in dump_state(machine):
        gathered.append(line)
        size += len(line)
        if size >= SNAPSHOT_CHUNK_BYTES_MAX:
            yield b"".join(gathered)
            gathered, size = [], 0
    yield b"".join(gathered)
