"""What is true at the end of the demo: the clients' receipts against the log, and the nodes' files
against each other.

It reads the directories of nodes that have stopped, and believes neither the story nor the clients.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from rollmq.cli.demo.load import Receipt
from rollmq.core.events import Ack, AnyEvent, Cancel, Dlq, Drop, Enqueue, Redrive, WorkerDownRequeue
from rollmq.core.machine import Machine
from rollmq.store.disk import OsDisk
from rollmq.store.listing import LogListing
from rollmq.store.verify import verify_directory

FINAL: Final = {Ack: "done", Dlq: "dead", Cancel: "cancelled"}


@dataclass(slots=True)
class Told:
    """What a log says of its jobs."""

    enqueued: set[str] = field(default_factory=set)
    ends: dict[str, list[str]] = field(default_factory=dict)
    """Job -> its final states; more than one would be a broken promise."""
    retried: set[str] = field(default_factory=set)
    """Jobs that were done, after more than one try."""
    rerun: set[str] = field(default_factory=set)
    """Jobs whose handler was running in a worker that was lost."""
    dead: dict[str, int] = field(default_factory=dict)
    """Reason -> how many dead letters."""
    keys: dict[str, int] = field(default_factory=dict)
    """A caller's key -> how many jobs were accepted for it."""
    entries_count: int = 0
    no_ops: int = 0
    """Events that changed nothing: a correct leader writes none."""

    def take(self, event: AnyEvent) -> None:
        """One more event."""
        self.entries_count += 1
        if isinstance(event, Enqueue):
            self.enqueued.add(event.job_id)
            self.keys[event.key] = self.keys.get(event.key, 0) + 1
        elif isinstance(event, WorkerDownRequeue):
            if event.started:
                self.rerun.add(event.job_id)
        elif isinstance(event, Ack | Dlq | Cancel):
            self.ends.setdefault(event.job_id, []).append(FINAL[type(event)])
            if isinstance(event, Dlq):
                self.dead[event.reason] = self.dead.get(event.reason, 0) + 1
            elif isinstance(event, Ack) and event.tries > 1:
                self.retried.add(event.job_id)
        elif isinstance(event, Redrive | Drop):
            for job_id in event.job_ids:  # a new life begins, or the end of this one is another
                self.ends[job_id] = ["dropped"] if isinstance(event, Drop) else []


def read_log(directory: Path) -> Told:
    """All of it, applied by the very code that a node runs."""
    told, machine = Told(), Machine()
    for event, _line in LogListing(OsDisk(directory)).events():
        machine.apply(event)
        told.take(event)
    told.no_ops = machine.no_ops
    return told


@dataclass(frozen=True, slots=True)
class Figures:
    """The table at the end."""

    accepted: int
    """Receipts that clients hold."""
    finished: int
    """Of these, how many are done in the log."""
    retried: int
    rerun: int
    dead: dict[str, int]
    lost: int
    """Accepted, and not in the log or without an end there."""
    accepted_twice: int
    """Keys for which the log holds more than one job."""
    told_twice: int
    """Jobs whose client was told two different ends, or another than the log's; or that ended twice."""
    no_ops: int
    takeover_ms: int
    entries: int

    @property
    def is_sound(self) -> bool:
        """Every promise was kept."""
        return not (self.lost or self.accepted_twice or self.told_twice or self.no_ops)


def compare(receipts: Iterable[Receipt], log: Told, *, takeover_ms: int) -> Figures:
    """Receipts against the log."""
    held = [receipt for receipt in receipts if receipt.job_id]
    ids = {receipt.job_id for receipt in held}
    finished = [job_id for job_id in ids if log.ends.get(job_id) == ["done"]]
    return Figures(
        accepted=len(held),
        finished=len(finished),
        retried=len(log.retried),
        rerun=len(log.rerun),
        dead=dict(sorted(log.dead.items())),
        lost=sum(job_id not in log.enqueued or not log.ends.get(job_id) for job_id in ids),
        accepted_twice=sum(count > 1 for count in log.keys.values()) + len(log.enqueued - ids),
        told_twice=sum(not _is_told_truly(receipt, log) for receipt in held),
        no_ops=log.no_ops,
        takeover_ms=takeover_ms,
        entries=log.entries_count,
    )


def _is_told_truly(receipt: Receipt, log: Told) -> bool:
    """Whether all that its client heard is the one end in the log. What has no end is lost, and not this."""
    ends = log.ends.get(receipt.job_id, [])
    return not ends or (len(ends) == 1 and set(receipt.told) == set(ends))


class Replicas(NamedTuple):
    """The nodes' files beside each other."""

    segments_count: int
    are_equal: bool
    """Every node has the same sealed segments, byte for byte."""
    damages: tuple[str, ...]
    """What `rollmq log verify` would complain of."""


def compare_replicas(directories: list[Path]) -> Replicas:
    """Sealed segments by their sha256, and each directory by itself."""
    found = [_digests(directory) for directory in directories]
    damages = tuple(
        f"{directory.name}: {damage.name}: {damage.reason}"
        for directory in directories
        for damage in verify_directory(OsDisk(directory)).damages
    )
    is_equal = bool(found[0]) and all(each == found[0] for each in found)
    return Replicas(len(found[0]), is_equal, damages)


def _digests(directory: Path) -> dict[str, str]:
    files = sorted((directory / "history").glob("events-*.jsonl"))
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
