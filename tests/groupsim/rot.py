"""Damage to the files of a node that is down: bits flip, ends and whole files go, on one node or on all.

What a start need not read (old history, older states) is found while a node runs; then it stops and asks for
a checkup, and so that is asked for here. On all nodes at once no two are damaged in one place: what nobody
has any more nobody can give.
"""

from random import Random

from rollmq.store import layout
from tests.groupsim.node import GroupNode
from tests.sim.sim_disk import SimDisk


def rot_one(random: Random, node: GroupNode) -> str | None:
    """Damage some file of this node, in any way. Says what was done."""
    disk = node.disk
    old = _old(disk)
    name = random.choice(old if old and random.random() < 0.3 else _needed(disk))
    if name in old:
        disk.open(layout.CHECKUP_FILE, "create")
        disk.settle()
    size = len(disk.content(name))
    kind = random.choice(("flip", "flip", "flip many", "zero", "shorten", "remove"))
    if kind == "remove" or size == 0:
        disk.remove(name)
    elif kind == "flip":
        disk.rot(name, random.randrange(size), 1 << random.randrange(8))
    elif kind == "flip many":
        for _ in range(random.randint(2, 20)):
            disk.rot(name, random.randrange(size), 1 << random.randrange(8))
    elif kind == "zero":
        at = random.randrange(size)
        content = bytearray(disk.content(name))
        end = min(size, at + random.choice((64, 512, 4096)))
        content[at:end] = bytes(end - at)
        disk.replace(name, bytes(content))
    else:
        disk.replace(name, disk.content(name)[: random.randrange(size)])
    return f"{kind} {name}"


def _old(disk: SimDisk) -> list[str]:
    """What a start does not read."""
    names = [each.name for each in layout.sealed_segments(disk)]
    names += [each.name for each in [*layout.snapshots(disk), *layout.bases(disk)]]
    return [name for name in names if name not in _needed(disk)]


def _needed(disk: SimDisk) -> list[str]:
    """What a start reads: the log behind the older snapshot, the small files; not the identity."""
    snapshots = layout.snapshots(disk)
    newest = snapshots[0].last_index if snapshots else 0
    names = [each.name for each in layout.open_segments(disk)] * 3
    names += [each.name for each in layout.sealed_segments(disk) if (each.last_index or 0) > newest]
    names += [layout.VOTE_FILE, layout.SYNCED_FILE]
    return names


def rot_all(random: Random, nodes: list[GroupNode], committed: int) -> list[str]:
    """Damage every node in lines of its own, all of them committed and on every disk."""
    told: list[str] = []
    shared = min([committed, *(len(node.oracle.on_disk) for node in nodes)])
    indexes = list(range(1, shared))
    random.shuffle(indexes)
    for number, node in enumerate(nodes):
        mine = set(indexes[number :: len(nodes)][: random.randint(1, 20)])
        told += [f"{node.name} {what}" for what in _rot_lines(random, node.disk, mine)]
    some = random.choice(nodes)
    name = random.choice((layout.VOTE_FILE, layout.SYNCED_FILE, ""))
    if name:
        some.disk.rot(name, random.randrange(len(some.disk.content(name))), 1)
        told.append(f"{some.name} {name}")
    return told


def _rot_lines(random: Random, disk: SimDisk, indexes: set[int]) -> list[str]:
    """Flip a bit in each of these entries, where this node has it as a line that a start reads."""
    told: list[str] = []
    wanted = {name for name in _needed(disk) if name.startswith(("wal/", "history/"))}
    segments = [*layout.open_segments(disk), *layout.sealed_segments(disk)]
    for first_index, _, name in (each for each in segments if each.name in wanted):
        offset = 0
        for number, line in enumerate(disk.content(name).splitlines(keepends=True)):
            if number and first_index + number - 1 in indexes:
                disk.rot(name, offset + random.randrange(len(line) - 1), 1 << random.randrange(8))
                told.append(f"entry {first_index + number - 1}")
            offset += len(line)
    return told
