"""What a process was told, in a file that outlives it: each line is there before the next thing is done.

A line is one write to a file opened for appending, so SIGKILL tears none and loses none.
"""

import json
import os
import time
from pathlib import Path
from typing import Any


class Receipts:
    """Appends lines to a file."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def note(self, **fields: object) -> None:
        """One line."""
        os.write(self._descriptor, json.dumps(fields).encode() + b"\n")

    def told(self, job_id: str, what: str, **more: object) -> None:
        """One line as `rollmq history audit --receipts` reads it: accepted, refused, or a final state."""
        self.note(job_id=job_id, told=what, at_us=time.time_ns() // 1000, **more)


def notes_of(path: Path) -> list[dict[str, Any]]:
    """All lines of a file; none if it was never written."""
    return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []
