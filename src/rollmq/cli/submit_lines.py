"""`rollmq submit --lines`: a job per line, as fast as they come, with a bar; and how they end.

Lines are read as they arrive, so a pipe that never ends is served too. What was refused for good, or is
unknown, ends the reading, and the message says at which line: with a key it can be run again from the start.
"""

import asyncio
import select
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import closing
from io import BufferedReader
from pathlib import Path
from typing import Any, Final, Protocol

import click

from rollmq import limits
from rollmq.cli import looks
from rollmq.cli.describe import one_line
from rollmq.cli.errand import Errand, outcome_json, too_large
from rollmq.cli.exit_codes import ExitCode, code_of
from rollmq.client import Client
from rollmq.errors import ResultTimeout, RollmqError
from rollmq.library.client_job import Job

READ_BYTES: Final = 65_536
LOOK_S: Final = 0.1
WAITING_MAX: Final = 10_000
"""Jobs whose end is waited for: what is read beyond waits until one has ended."""
TROUBLES_TOLD: Final = 5

Lines = list[tuple[int, bytes]]


class Readable(Protocol):
    """A file or pipe."""

    def read1(self, size: int, /) -> bytes:
        """What is there, up to so much; it waits only when there is nothing."""


async def submit_lines(errand: Errand, path: Path | None) -> int:
    """Submit all of it; returns the exit code."""
    source: Any = path.open("rb") if path is not None else sys.stdin.buffer
    with closing(source) as file:
        total = _count(path) if path is not None else None
        with looks.progress(f"submitting {errand.exec}", total=total, is_shown=not errand.as_json) as advance:
            run = _Run(errand, advance)
            async with errand.client() as client:
                try:
                    async for lines in read_lines(file):
                        await run.submit(client, lines)
                except RollmqError as error:
                    run.stopped_by = error
                await run.wait()
    return run.tell()


def _count(path: Path) -> int:
    """Lines that are not empty."""
    with path.open("rb") as file:
        return sum(bool(line.strip(b"\r\n")) for line in file)


async def read_lines(file: Readable) -> AsyncIterator[Lines]:
    """(number from 1, line) of what came at once, without empty ones. A line is bounded like a payload."""
    rest, number, is_over = b"", 0, threading.Event()
    try:
        while data := await asyncio.to_thread(_read, file, is_over):
            *whole, rest = (rest + data).split(b"\n")
            found = [(number + at, line.removesuffix(b"\r")) for at, line in enumerate(whole, 1)]
            number += len(whole)
            if lines := [(at, line) for at, line in found if line]:
                yield lines
            if len(rest) > limits.PAYLOAD_BYTES_MAX:
                break  # it is refused, and need not be read to its end
    finally:
        is_over.set()
    if rest:
        yield [(number + 1, rest.removesuffix(b"\r"))]


def _read(file: Readable, is_over: threading.Event) -> bytes:
    """What is there; nothing at its end, and once nobody wants it: a terminal may say nothing for ever."""
    while not is_over.is_set():
        if not isinstance(file, BufferedReader) or select.select([file], [], [], LOOK_S)[0]:
            return file.read1(READ_BYTES)
    return b""


class _Run:
    """Counts what became of the lines."""

    def __init__(self, errand: Errand, advance: Any) -> None:
        self.stopped_by: RollmqError | None = None
        self._errand = errand
        self._advance = advance
        self._accepted = self._repeats = 0
        self._ends: Counter[str] = Counter()
        self._troubles: list[str] = []
        self._codes: set[ExitCode] = set()
        self._waiting: set[asyncio.Task[None]] = set()
        self._has_terminal = sys.stdout.isatty()

    async def submit(self, client: Client, lines: Lines) -> None:
        """Raises the error of the first line that is refused for good, or unknown."""
        errand = self._errand
        items = [(errand.exec, line, self._options(number)) for number, line in lines]
        try:
            async for job in client.submit_many(items):
                await self._accept(lines[job.position][0], job)
        except RollmqError as error:
            number, line = lines[getattr(error, "position", 0)]
            self._codes.add(code_of(error))
            told = too_large() if len(line) > limits.PAYLOAD_BYTES_MAX else error
            self._troubles.append(f"line {number}: {told}")
            raise

    def _options(self, number: int) -> dict[str, Any]:
        errand = self._errand
        return errand.options | ({"key": f"{errand.key}:{number}"} if errand.key else {})

    async def _accept(self, number: int, job: Job) -> None:
        self._accepted += 1
        self._repeats += job.is_repeat
        if self._errand.is_waiting:
            while len(self._waiting) >= WAITING_MAX:
                await asyncio.wait(self._waiting, return_when=asyncio.FIRST_COMPLETED)
            task = asyncio.get_running_loop().create_task(self._see_end(number, job))
            self._waiting.add(task)
            task.add_done_callback(self._waiting.discard)
            return
        self._advance()
        if self._errand.as_json:
            looks.say_json_line({"line": number, "job_id": job.id, "is_repeat": job.is_repeat})
        elif not self._has_terminal:
            click.echo(job.id)

    async def _see_end(self, number: int, job: Job) -> None:
        try:
            outcome = await job.result(self._errand.wait_max_s)
        except RollmqError as error:
            state = "not ended" if isinstance(error, ResultTimeout) else "end not known"
            self._end(number, state, ExitCode.NOT_ENDED, str(error))
            if self._errand.as_json:
                said = {"job_id": job.id, "ok": False, "state": state, "error": str(error)}
                looks.say_json_line({"line": number} | said)
            return
        self._end(number, outcome.state, ExitCode.DONE if outcome.ok else ExitCode.ENDED_BADLY, outcome.error)
        if self._errand.as_json:
            looks.say_json_line({"line": number} | outcome_json(outcome))
        elif outcome.ok:
            click.echo(outcome.result, nl=not outcome.result.endswith(b"\n"))

    def _end(self, number: int, state: str, code: ExitCode, why: str) -> None:
        self._advance()
        self._ends[state] += 1
        self._codes.add(code)
        if code is not ExitCode.DONE and len(self._troubles) < TROUBLES_TOLD:
            self._troubles.append(f"line {number}: {state}: {one_line(why)}")

    async def wait(self) -> None:
        """Until all that were accepted have ended."""
        while self._waiting:
            await asyncio.wait(self._waiting)

    def tell(self) -> int:
        """The sum of it, on stderr; the exit code."""
        parts = [f"{self._accepted:,} accepted"]
        if self._repeats:
            parts.append(f"{self._repeats:,} of them were submitted before, under their keys")
        parts += [f"{count:,} {state}" for state, count in self._ends.most_common()]
        for trouble in self._troubles:
            looks.note(trouble)
        if self.stopped_by is not None:
            parts.append("then it was stopped: behind that line only what was under way already was sent")
        looks.note(", ".join(parts))
        return next((code for code in WORST_FIRST if code in self._codes), ExitCode.DONE)


WORST_FIRST: Final = (
    ExitCode.UNKNOWN,
    ExitCode.NO_LEADER,
    ExitCode.FAILED,
    ExitCode.NOT_ENDED,
    ExitCode.ENDED_BADLY,
)
