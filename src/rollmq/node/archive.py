"""Shipping sealed segments to an archive, beside everything else: what is due here, and what became of it.

Whose turn it is follows from names alone: the followers share the segments among them, the leader comes last,
and whoever finds that another one was there first has nothing to do. A helper process does the work (`ship`),
so no library's thread, garbage or hanging call is ever in the way of the queue. Failures are counted and
shown, and tried again.
"""

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from rollmq.limits import ARCHIVE_RETRY_FIRST_US, ARCHIVE_RETRY_MAX_US, ARCHIVE_SILENT_US, ARCHIVE_TURN_US
from rollmq.node.archive_place import without_secrets
from rollmq.node.logs import EventLog
from rollmq.node.ship import Request, Told
from rollmq.store.layout import HISTORY, SegmentName

ERROR_CHARS_MAX: Final = 500
_told_decoder = msgspec.json.Decoder(Told)

RunHelper = Callable[[Request, Callable[["subprocess.Popen[bytes]"], None], Callable[[Told], None]], str]
"""Runs a helper to its end, in a thread of its own: request, what is told its process, what is told each line
of its answer; returns why it failed, or nothing."""


@dataclass(slots=True)
class Waiting:
    """A sealed segment that is not known to be in the archive."""

    first_index: int
    since_us: int
    not_before_us: int = 0
    conflict: str = ""
    """What is in its place; nothing behind it is shipped meanwhile."""


@dataclass(frozen=True, slots=True)
class ArchiveFacts:
    """What `status` says of it."""

    place: str
    shipped_count: int
    waiting_count: int
    missed_count: int
    failures_count: int
    """In a row."""
    problem: str
    """Why it failed last, or what is in the way."""


def turn_of(name: str, node_id: str, members: Collection[str], leader_id: str | None) -> int:
    """How many others are asked before this node to ship a segment."""
    followers = sorted(
        (each for each in members if each != leader_id),
        key=lambda each: (zlib.crc32(f"{name}/{each}".encode()), each),
    )
    order = [*followers, leader_id]
    return order.index(node_id) if node_id in order else len(order)


class Shipper:
    """One node's part in it. Its methods are called on the loop and never wait."""

    def __init__(
        self,
        archive: str,
        directory: Path,
        *,
        group: str,
        node_id: str,
        sealed: Iterable[SegmentName],
        log: EventLog,
        run_helper: RunHelper | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._archive = archive
        self._folder = directory.absolute() / HISTORY
        self._group = group
        self._node_id = node_id
        self._log = log
        self._run_helper = run_helper or helper
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="rollmq-archive")
        self._process: subprocess.Popen[bytes] | None = None
        self._waiting: dict[str, Waiting] = {}
        self._ahead: dict[str, None] = {}
        """Segments of the archive that are not known to be here, in order."""
        self.is_running = self._has_looked_around = self._is_closed = False
        self._now_us = self._heard_us = self._not_before_us = 0
        self._next_index = 1
        self.failures_in_row = self.shipped_count = self.missed_count = 0
        self._failure = ""
        self.add(sealed)

    # -- what the node asks and says

    @property
    def confirmed_index(self) -> int | None:
        """History up to here need not be kept for the archive's sake; None: nothing waits."""
        return min((each.first_index - 1 for each in self._waiting.values()), default=None)

    @property
    def facts(self) -> ArchiveFacts:
        """For `status`."""
        conflict = self._conflict()
        return ArchiveFacts(
            place=without_secrets(self._archive),
            shipped_count=self.shipped_count,
            waiting_count=len(self._waiting),
            missed_count=self.missed_count,
            failures_count=self.failures_in_row,
            problem=f"{conflict}: {self._waiting[conflict].conflict}" if conflict else self._failure,
        )

    def add(self, sealed: Iterable[SegmentName]) -> None:
        """These segments were sealed here."""
        for segment in sealed:
            assert segment.last_index is not None
            self._waiting[Path(segment.name).name] = Waiting(segment.first_index, self._now_us)
            self._next_index = segment.last_index + 1

    def look(self, *, members: Collection[str], leader_id: str | None, now_us: int) -> None:
        """Now and then: ship what is due."""
        if not self._now_us:
            for each in self._waiting.values():
                each.since_us = now_us
        self._now_us = now_us
        if self.is_running:
            if now_us - self._heard_us > ARCHIVE_SILENT_US and self._process is not None:
                self._process.kill()
            return
        if now_us < self._not_before_us or self._is_closed:
            return
        names = self._due(members, leader_id)
        if names or not self._has_looked_around:
            self._start(names)

    def close(self) -> None:
        """End the helper: what it has left half-done is cleared away after the next start."""
        self._is_closed = True
        if self._process is not None:
            self._process.kill()
        self._pool.shutdown(wait=False, cancel_futures=True)

    # -- what is due

    def _conflict(self) -> str:
        """The first segment in whose place something else is."""
        return next((name for name, each in self._waiting.items() if each.conflict), "")

    def _due(self, members: Collection[str], leader_id: str | None) -> list[str]:
        due = []
        for name, each in self._waiting.items():
            turn_us = ARCHIVE_TURN_US * turn_of(name, self._node_id, members, leader_id)
            if self._now_us >= max(each.not_before_us, each.since_us + turn_us):
                due.append(name)
            elif each.conflict:
                break
        return due

    def _start(self, names: list[str]) -> None:
        first = next(iter(self._waiting.values()), None)
        request = Request(
            folder=str(self._folder),
            archive=self._archive,
            group=self._group,
            node=self._node_id,
            names=tuple(names),
            lists=not self._has_looked_around,
            from_index=first.first_index if first is not None else self._next_index,
            ahead=tuple(self._ahead),
            parent=os.getpid(),
        )
        if request.lists:
            self._ahead = {}
        self.is_running, self._heard_us = True, self._now_us
        asked = self._loop.run_in_executor(self._pool, self._run_helper, request, self._began, self._said)
        asked.add_done_callback(partial(self._ended, request))

    # -- what the helper says

    def _began(self, process: "subprocess.Popen[bytes]") -> None:
        """In the helper's thread."""
        self._process = process
        if self._is_closed:
            process.kill()

    def _said(self, told: Told) -> None:
        """In the helper's thread."""
        self._loop.call_soon_threadsafe(self._heard, told)

    def _heard(self, told: Told) -> None:
        self._heard_us = self._now_us
        if told.outcome == "ahead":
            self._ahead[told.name] = None
        waiting = self._waiting.get(told.name)
        if waiting is None or told.outcome in ("moving", "ahead"):
            return
        if told.outcome in ("conflict", "damaged"):
            waiting.not_before_us = self._now_us + ARCHIVE_RETRY_MAX_US
            is_news = waiting.conflict != told.reason
            waiting.conflict = told.reason if told.outcome == "conflict" else ""
            if is_news:
                self._log(f"archive_{told.outcome}", segment=told.name, reason=told.reason)
            return
        del self._waiting[told.name]
        self._ahead.pop(told.name, None)
        if told.outcome == "shipped":
            self.shipped_count += 1
            self._log("segment_archived", segment=told.name, bytes=told.size_bytes)
        elif told.outcome == "gone":
            self.missed_count += 1
            self._log("archive_missed", segment=told.name, reason="it was dropped before it was shipped")

    def _ended(self, request: Request, asked: "asyncio.Future[str]") -> None:
        self.is_running, self._process = False, None
        if self._is_closed or asked.cancelled():
            return
        problem = asked.result()
        if not problem:
            self._has_looked_around |= request.lists
            self.failures_in_row, self._failure = 0, ""
            return
        pause_us = min(ARCHIVE_RETRY_FIRST_US << min(self.failures_in_row, 16), ARCHIVE_RETRY_MAX_US)
        self._not_before_us = self._now_us + pause_us
        self.failures_in_row += 1
        self._failure = problem
        self._log("archive_failed", count=self.failures_in_row, reason=problem)


def helper(
    request: Request, began: Callable[["subprocess.Popen[bytes]"], None], say: Callable[[Told], None]
) -> str:
    """Run a helper to its end; why it failed, or nothing. In a thread."""
    try:
        with tempfile.TemporaryFile() as complaint:
            process = subprocess.Popen(
                [sys.executable, "-m", "rollmq.node.ship"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaint,
            )
            began(process)
            _converse(process, request, say)
            if process.wait() == 0:
                return ""
            complaint.seek(0)
            said = complaint.read().decode("utf-8", "replace").strip().splitlines()
    except (OSError, msgspec.DecodeError) as error:  # no process, no room: never the node's trouble
        return f"its helper cannot be run: {error}"
    last = said[-1][-ERROR_CHARS_MAX:] if said else ""
    return last or f"its helper ended with code {process.returncode}"


def _converse(process: "subprocess.Popen[bytes]", request: Request, say: Callable[[Told], None]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdout:
        with contextlib.suppress(BrokenPipeError), process.stdin:  # ended already: its stderr says why
            process.stdin.write(msgspec.json.encode(request))
        for line in process.stdout:
            say(_told_decoder.decode(line))
