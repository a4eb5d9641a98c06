"""After a storm: jobs counted in and out, what was told against what is in the log, replicas compared.

It reads files only: the state directories of nodes that have stopped, the receipts of clients, the notes of
handlers. The judge of the log is the plain fold of the pipeline's tests, which shares no
code with the machine.
"""

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rollmq.core.events import Enqueue
from rollmq.core.line import decode_line
from rollmq.core.machine import Machine
from rollmq.store.disk import OsDisk
from rollmq.store.verify import verify_directory
from tests.core.audit import audit as audit_machine
from tests.group.real_group import lines_of, sealed_of
from tests.pipeline.plain_fold import ENDED, PlainFold
from tests.system.receipts import notes_of
from tests.system.shopper import CAP

INDEX = re.compile(rb'"index":(\d+)')
Logs = dict[int, bytes]


@dataclass(slots=True)
class Books:
    """What the processes around the nodes have written down."""

    accepted: set[str] = field(default_factory=set)
    ends: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """Job id -> every final state that was told of it."""
    unknown: set[str] = field(default_factory=set)
    lies: list[dict[str, Any]] = field(default_factory=list)
    runs: Counter[tuple[str, int, str]] = field(default_factory=Counter)
    """(job id, attempt, worker) -> how often a handler began."""
    begun_count: int = 0

    @classmethod
    def in_folder(cls, folder: Path) -> "Books":
        """All of a storm, whoever wrote them."""
        books = cls()
        for path in folder.glob("begun-*.jsonl"):
            books.begun_count += len(notes_of(path))
        for path in folder.glob("receipts-*.jsonl"):
            for note in notes_of(path):
                books._take(note)
        for path in folder.glob("runs-*.jsonl"):
            for note in notes_of(path):
                books.runs[note["job_id"], note["attempt"], note["worker"]] += 1
        return books

    def _take(self, note: dict[str, Any]) -> None:
        if note["told"] == "accepted":
            self.accepted.add(note["job_id"])
        elif note["told"] == "unknown":
            self.unknown.add(note["job_id"])
        elif note["told"] == "lie":
            self.lies.append(note)
        else:
            self.ends.setdefault(note["job_id"], []).append(note)


def prove(
    states: Sequence[Path], books: Books, *, kept: Sequence[Path] = (), is_eager: bool = False
) -> Counter[str]:
    """Raise AssertionError for the first thing that is not as promised; else say how much was looked at.

    `kept`: copies of segments that nodes had sealed, and dropped when they got a snapshot. `is_eager`: jobs
    were sent before their assigns were on disk, so an attempt may have run that is in no log.
    """
    assert not books.lies, books.lies[:3]
    for state in states:
        verdict = verify_directory(OsDisk(state))
        assert verdict.is_clean, (state, verdict.damages[:3])
    log = compared([*states, *kept])
    lines = [log[index] for index in range(1, len(log) + 1)]
    counts = replayed(lines)
    fold = PlainFold("storm").read(lines)
    every_accepted_job_ended_once(fold, books)
    what_was_told_is_in_the_log(fold, books)
    if not is_eager:
        what_ran_was_assigned(fold, books)
    what_is_done_was_run(fold, books)
    caps_were_kept(lines)
    lives = [lives[-1] for lives in fold.jobs.values()]
    counts.update(f"jobs {life['state']}" for life in lives)
    counts["jobs"] = len(lives)
    counts["retried"] = sum(life["attempts"] > 1 for life in lives)
    counts["accepted"] = len(books.accepted)
    counts["begun"] = books.begun_count
    counts["unknown"] = len(books.unknown)
    return counts


def compared(states: Sequence[Path]) -> Logs:
    """All replicas' lines, equal wherever two have the same index; from 1 to the end together.

    A node may lack a stretch that a snapshot stood for. Uncommitted ends are gone: the nodes were even.
    """
    found: Logs = {}
    for state in states:
        for line in lines_of(state):
            match = INDEX.search(line)
            assert match is not None
            index = int(match[1])
            assert found.setdefault(index, line) == line, f"{state} differs at entry {index}"
    assert sorted(found) == list(range(1, len(found) + 1)), "the log has a hole on every node"
    sealed = [sealed_of(state) for state in states]
    for name in set().union(*sealed):
        copies = {segments.get(name) for segments in sealed} - {None}
        assert len(copies) == 1, f"the sealed segment {name} differs"
    return found


def replayed(lines: Sequence[bytes]) -> Counter[str]:
    """The machine takes the whole log, does nothing with no event, and agrees with itself at the end."""
    machine, terms, entered = Machine(), set[int](), set[str]()
    for line in lines:
        event = decode_line(line)
        terms.add(event.term)
        if isinstance(event, Enqueue):
            assert event.job_id not in entered, f"{event.job_id} came in twice"
            entered.add(event.job_id)
        machine.apply(event)
    audit_machine(machine)
    counts = machine.counts()
    assert counts.no_ops == 0, "a leader proposed a stale event"
    assert counts.queued == counts.inflight == 0, counts
    return Counter({"entries": len(lines), "terms": len(terms)})


def every_accepted_job_ended_once(fold: PlainFold, books: Books) -> None:
    """Counted in and out."""
    lost = books.accepted - set(fold.jobs)
    assert not lost, f"accepted and not in the log: {sorted(lost)[:3]}"
    for job_id, lives in fold.jobs.items():
        assert len(lives) == 1, f"{job_id} was queued again without a redrive"
        assert lives[0]["state"] in ENDED | {"dead"}, f"{job_id} has not ended: {lives[0]}"
        assert lives[0]["tries"] <= lives[0]["tries_max"], lives[0]
    untold = books.accepted - set(books.ends)
    assert not untold, f"accepted, and nobody was told how they ended: {sorted(untold)[:3]}"


def what_was_told_is_in_the_log(fold: PlainFold, books: Books) -> None:
    """A client hears one final state of a job, the one in the log."""
    for job_id, notes in books.ends.items():
        states = {note["told"] for note in notes}
        assert states == {fold.jobs[job_id][0]["state"]}, f"{job_id}: told {states}, log {fold.jobs[job_id]}"
    per_order = Counter(
        (lives[0]["client_id"], lives[0]["key"]) for lives in fold.jobs.values() if lives[0]["key"]
    )
    twice = [order for order, count in per_order.items() if count > 1]
    assert not twice, f"a key was accepted twice: {twice[:3]}"


def what_ran_was_assigned(fold: PlainFold, books: Books) -> None:
    """No attempt ran twice, or at another worker than the log says."""
    for (job_id, attempt, worker), count in books.runs.items():
        assert count == 1, f"attempt {attempt} of {job_id} ran {count} times"
        rows = fold.attempts.get(job_id, [])
        assert len(rows) >= attempt, f"{job_id} ran as attempt {attempt}, which was never assigned"
        assert rows[attempt - 1]["worker_id"] == worker, (job_id, attempt, worker)


def what_is_done_was_run(fold: PlainFold, books: Books) -> None:
    """By the one attempt that counts, at the worker that had it."""
    for job_id, lives in fold.jobs.items():
        if lives[0]["state"] == "done":
            ended = [
                row for row in fold.attempts[job_id] if row["outcome"] == "done" or row["late_ack_index"]
            ]
            assert len(ended) == 1, f"{job_id} is done by {len(ended)} attempts"
            assert books.runs[job_id, ended[0]["attempt"], ended[0]["worker_id"]], (
                f"{job_id} is done, not run"
            )


def caps_were_kept(lines: Sequence[bytes]) -> None:
    """No assign while its client was at the cap that it wished for."""
    client_of: dict[str, str] = {}
    flying: dict[str, set[str]] = {}
    caps = {name: cap for name, cap in (("ada", CAP["async"]), ("bob", CAP["sync"])) if cap}
    for line in lines:
        event = json.loads(line)
        job_id = event.get("job_id", "")
        if event["type"] == "enqueue":
            client_of[job_id] = event["client_id"]
        elif event["type"] == "assign":
            mine = flying.setdefault(client_of[job_id], set())
            mine.add(job_id)
            cap = caps.get(client_of[job_id])
            assert cap is None or len(mine) <= cap, (
                f"entry {event['index']}: {client_of[job_id]} over its cap"
            )
        elif job_id:
            flying.setdefault(client_of[job_id], set()).discard(job_id)
