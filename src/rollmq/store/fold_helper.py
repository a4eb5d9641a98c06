"""The node's side of the fold helper: start it, look whether it is done, try again later if it failed.

Never waits and reads no clock: the node asks `poll` now and then, with its time. A failed helper stops
nobody; failures are counted so that they can be shown.
"""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec

from rollmq.limits import FOLD_RETRY_FIRST_US, FOLD_RETRY_MAX_US
from rollmq.store.compact import DAMAGED
from rollmq.store.fold import FoldResult

ERROR_CHARS_MAX = 2000
"""Of what a failed helper said, for a log line."""

_decoder = msgspec.json.Decoder(FoldResult | None)


@dataclass(frozen=True, slots=True)
class FoldDone:
    """The helper has answered. `result` is None when there was nothing to fold."""

    base_index: int | None
    """What `start` was asked for: None is a snapshot."""
    result: FoldResult | None


class FoldHelper:
    """At most one helper process at a time."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self._base_index: int | None = None
        self._not_before_us = 0
        self.failures_in_row = 0
        self.failures_count = 0
        self.last_error = ""
        self.found_damage = False
        """It failed because what it was to read is damaged."""

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def can_start(self, now_us: int) -> bool:
        """Whether none is running and the pause after the last failure is over."""
        return self._process is None and now_us >= self._not_before_us

    def start(self, *, now_us: int, base_index: int | None = None) -> None:
        """Fold a snapshot, or the history's base up to an entry. One that cannot be started has failed."""
        assert self._process is None
        command = [sys.executable, "-m", "rollmq.store.compact", "--parent", str(os.getpid())]
        if base_index is not None:
            command += ["--base", str(base_index)]
        self._base_index = base_index
        try:
            # Its answer is a line and its complaint another: both fit a pipe, nobody has to read meanwhile.
            self._process = subprocess.Popen(
                [*command, str(self._directory)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        except OSError as error:  # no memory, no process, no file left: that stops a fold, never the node
            self._failed(now_us, f"it cannot be started: {error}")

    def poll(self, now_us: int) -> FoldDone | None:
        """The answer, once, as soon as there is one. None while it runs, and when it failed."""
        process = self._process
        if process is None or process.poll() is None:
            return None
        self._process = None
        output, complaint = process.communicate()
        if process.returncode != 0:
            self.found_damage = process.returncode == DAMAGED
            reason = complaint.decode("utf-8", "replace").strip() or f"exit code {process.returncode}"
            self._failed(now_us, reason)
            return None
        try:
            result = _decoder.decode(output)
        except msgspec.DecodeError as error:
            self._failed(now_us, f"it answered what is no result: {error}")
            return None
        self.failures_in_row = 0
        return FoldDone(self._base_index, result)

    def stop(self) -> None:
        """End it: what it has written so far is a temporary file, removed at the next start."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _failed(self, now_us: int, reason: str) -> None:
        pause_us = min(FOLD_RETRY_FIRST_US << min(self.failures_in_row, 16), FOLD_RETRY_MAX_US)
        self.failures_in_row += 1
        self.failures_count += 1
        self.last_error = reason[-ERROR_CHARS_MAX:]
        self._not_before_us = now_us + pause_us
