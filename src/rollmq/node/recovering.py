"""The last resort after a majority of a group is lost for good: a new group of one, from what one node has.

The old directory is only read. The new one gets the state as of the old log's end, a new identity and a new
group, so that no node of the old one can ever take it for its own, or disturb it. What the lost nodes had
committed and this one had not is lost, and nobody can say what that was: the report says what is certain.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rollmq.core.events import Counts, Member, Members
from rollmq.core.line import decode_line
from rollmq.core.machine import Machine
from rollmq.core.raft_ready import HardState, SnapshotFacts, WriteChunk
from rollmq.core.state import dump_state, load_state
from rollmq.errors import DirectoryInUse, NotAStateDirectory, RecoverRefused, StateDamaged
from rollmq.limits import DAMAGES_LISTED_MAX, SNAPSHOT_CHUNK_BYTES_MAX
from rollmq.node.assembling import group_uuid
from rollmq.store import layout
from rollmq.store.disk import Disk, OsDisk
from rollmq.store.mark import read_mark
from rollmq.store.node_file import Identity, read_identity
from rollmq.store.opening import Recovered
from rollmq.store.recovery import inspect, raise_damage
from rollmq.store.snapshot import read_state_lines
from rollmq.store.store import Store
from rollmq.store.survey import Surveyor
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
    damages: tuple[str, ...] = ()
    """What of the old directory is damaged, place by place."""
    left_out: int = 0
    """Whole entries behind a damaged or missing one: they cannot be applied."""


@dataclass(frozen=True, slots=True)
class _Found:
    """What the old directory is good for."""

    machine: Machine
    group: str
    term: int
    """Its node was in, as far as that is known."""
    sealed_index: int
    damages: tuple[str, ...] = ()
    left_out: int = 0


def force_new_group(
    old: Path, new: Path, *, node_id: str, holder: str, agree: Callable[[Recovery], None]
) -> Recovery:
    """Make the directory `new`, under this fresh id. Raises StateError, RecoverRefused.

    `agree` is shown what comes of it before anything is written, and raises if that is not wanted.
    """
    disk = OsDisk(old)
    if not disk.exists(layout.ROOT):
        raise NotAStateDirectory(path=old, reason="there is no such directory")
    if new.exists() and any(new.iterdir()):
        raise RecoverRefused(path=new, reason="it is not empty; name a directory that is not there yet")
    user = disk.lock(layout.LOCK_FILE, holder)
    if user is not None:
        raise DirectoryInUse(path=old, holder=user)
    try:
        found = _find(disk, old)
    finally:
        disk.unlock()
    machine = found.machine
    if machine.members is None:
        raise RecoverRefused(path=old, reason="its log does not name a single member, so it holds no jobs")
    members = tuple(member.node_id for member in machine.members.members)
    group = group_uuid([node_id])
    report = Recovery(
        old_group=found.group,
        members=members,
        group=group,
        node_id=node_id,
        last_index=machine.last_index,
        last_term=machine.last_term,
        last_at_us=machine.last_at_us,
        sealed_index=min(found.sealed_index, machine.last_index),
        counts=machine.counts(),
        damages=found.damages,
        left_out=found.left_out,
    )
    agree(report)
    term = max(machine.last_term, found.term) + 1
    machine.apply(Members(machine.last_index + 1, term, machine.last_at_us, group, [Member(node_id)]))
    _write(new, machine, node_id=node_id, group=group, holder=holder)
    return report


def _find(disk: Disk, path: Path) -> _Found:
    """All of the old log; if it is damaged, all before the first entry that is. Reads only."""
    identity = read_identity(disk)
    if identity is None or not identity.group:
        raise NotAStateDirectory(path=path, reason="no node of a group has kept its state in it")
    try:
        recovered = _look(disk, path, identity)
    except StateDamaged as error:
        return _salvage(disk, identity, error)
    machine = load_state(recovered.state_lines()) if recovered.state is not None else Machine()
    for entry in recovered.entries():
        machine.apply(entry.event)
    return _Found(machine, identity.group, recovered.hard_state.term, recovered.sealed_index)


def _salvage(disk: Disk, identity: Identity, error: StateDamaged) -> _Found:
    """What is sound before the first damage. Raises `error` if there is not even a state to begin with."""
    surveyor = Surveyor(disk, identity)
    surveyed = surveyor.look()
    survey, state = surveyed.survey, surveyed.state
    if survey.needs_state:
        raise error
    missing = (hole.first_index for hole in survey.holes() if hole.last_index > survey.state_index)
    last_index = max(next(missing, survey.last_index + 1) - 1, survey.state_index)
    machine = load_state(read_state_lines(disk, state.name)) if state is not None else Machine()
    for index, line in surveyor.lines(surveyed, machine.last_index + 1, last_index):
        if index != machine.last_index + 1:
            raise error
        machine.apply(decode_line(line))
    behind = [each for each in survey.covered() if each[1] > machine.last_index]
    left_out = sum(last - max(first, machine.last_index + 1) + 1 for first, last in behind)
    places = tuple(surveyed.places[:DAMAGES_LISTED_MAX])
    term = survey.hard_state.term if survey.hard_state is not None else 0
    return _Found(machine, identity.group, term, survey.sealed_index, places, left_out)


def _look(disk: Disk, path: Path, identity: Identity) -> Recovered:
    """What a sound directory holds."""
    if disk.exists(layout.INSTALLING_FILE):
        raise RecoverRefused(
            path=path, reason="a snapshot was being installed: start its node once, alone, first"
        )
    hard_state, mark = read_vote(disk), read_mark(disk)
    if hard_state is None or mark is None:
        missing = layout.VOTE_FILE if hard_state is None else layout.SYNCED_FILE
        raise StateDamaged(path=disk.path_of(missing), reason="the file is missing")
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
