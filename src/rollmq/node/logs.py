"""The node's log: `event=job_assigned worker=w1 index=4812`, one line per event, to stderr.

A thread writes it, so that a full pipe never stops the loop; then lines are dropped, and it is said how many.
"""

import sys
import threading
import time
from collections import deque
from typing import Final, TextIO

LINES_WAITING_MAX: Final = 10_000
"""Lines that wait for a slow reader of stderr; more are dropped and counted."""


class EventLog:
    """Writes events, in order, from any thread."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._lines: deque[str] = deque()
        self._dropped_count = 0
        self._is_stopping = False
        self._wake = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="rollmq-log", daemon=True)
        self._thread.start()

    def __call__(self, event: str, **fields: object) -> None:
        """Say that something happened: a past-tense verb, then fields."""
        line = " ".join(
            [
                f"{_at(time.time_ns() // 1_000_000)} event={event}",
                *(f"{name}={_quoted(value)}" for name, value in fields.items()),
            ]
        )
        with self._wake:
            if len(self._lines) >= LINES_WAITING_MAX:
                self._dropped_count += 1
            else:
                self._lines.append(line)
            self._wake.notify()

    def close(self) -> None:
        """Write what is left."""
        with self._wake:
            self._is_stopping = True
            self._wake.notify()
        self._thread.join(timeout=2.0)

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._lines and not self._is_stopping:
                    self._wake.wait()
                lines, self._lines = self._lines, deque()
                dropped, self._dropped_count = self._dropped_count, 0
                is_last = self._is_stopping
            if dropped:
                lines.append(f"event=log_lines_dropped count={dropped}")
            try:
                self._stream.write("".join(f"{line}\n" for line in lines))
                self._stream.flush()
            except (OSError, ValueError):
                return  # nobody reads stderr any more; there is nowhere to say so
            if is_last:
                return


def _at(wall_ms: int) -> str:
    """With milliseconds: an election is a matter of some tens of them, told by several nodes' logs."""
    seconds, millis = divmod(wall_ms, 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{millis:03d}Z"


def _quoted(value: object) -> str:
    text = str(value)
    if text and not any(char.isspace() or char in '"=' for char in text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', "'").replace("\n", " ") + '"'
