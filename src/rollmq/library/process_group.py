"""One process and whatever it starts, which end together.

Blocking: driven by one thread; only `kill` may come from another.
"""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from typing import IO, Final

LOOK_S: Final = 0.005
_HAS_ENDED: Final = os.WEXITED | os.WNOWAIT | os.WNOHANG


class ProcessGroup:
    """A program in a session, and so a process group, of its own: no terminal's Ctrl-C reaches it."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        stdin: int,
        stdout: int | None = None,
        stderr: int | None = None,
        pass_fds: Sequence[int] = (),
    ) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            pass_fds=pass_fds,
            env=env,
            start_new_session=True,
        )
        self.pid = self._process.pid
        self._lock = threading.Lock()
        """Held for killing and for reaping: after it the process id may be somebody else's."""
        self._is_reaped = False

    @property
    def pipes(self) -> tuple[IO[bytes] | None, IO[bytes] | None, IO[bytes] | None]:
        """Standard input, output and error, as far as they are pipes."""
        return self._process.stdin, self._process.stdout, self._process.stderr

    def kill(self) -> None:
        """End all of it, at once. From any thread."""
        with self._lock:
            if not self._is_reaped:
                os.killpg(self.pid, signal.SIGKILL)

    def has_ended(self) -> bool:
        """Whether the program itself has ended; what it has started may still run."""
        return self._is_reaped or os.waitid(os.P_PID, self.pid, _HAS_ENDED) is not None

    def await_end(self, seconds: float) -> bool:
        """Wait for that, up to so long."""
        until = time.monotonic() + seconds
        while not self.has_ended():
            if time.monotonic() >= until:
                return False
            time.sleep(LOOK_S)
        return True

    def end(self) -> int:
        """Make sure that all of it has ended; the exit code, or minus the signal's number."""
        with self._lock:
            if not self._is_reaped:
                # Until it is reaped the program's own entry holds the group's number: this hits nobody else.
                os.killpg(self.pid, signal.SIGKILL)
                self._process.wait()
                self._is_reaped = True
        for pipe in self.pipes:
            if pipe is not None:
                pipe.close()
        return self._process.returncode


def how_it_ended(returncode: int) -> str:
    """An exit code in words."""
    if returncode >= 0:
        return f"ended with exit code {returncode}"
    return f"was ended by {signal_name(-returncode)}"


def signal_name(number: int) -> str:
    """SIGKILL for 9; a number that has no name as it is."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
