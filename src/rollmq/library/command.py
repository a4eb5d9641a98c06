"""Any program as a handler: payload on stdin, result from stdout, exit code, the end of stderr as the error.

One run per job, in a process group of its own that ends with the job, whatever it has started. It runs in
the thread that calls it; `stop` may come from another.
"""

import os
import selectors
import shlex
import shutil
import subprocess
import threading
from typing import Final

import msgspec

from rollmq import limits
from rollmq.errors import HandlerProblem
from rollmq.library.handling import TRACEBACK_BYTES_MAX, failed, rejected
from rollmq.library.held_job import Key, Outcome
from rollmq.library.job import Job
from rollmq.library.process_group import ProcessGroup, signal_name

SHELL_WORDS: Final = frozenset({"|", "||", "&&", ";", ">", ">>", "<", "2>", "2>&1", "&"})
LOOK_S: Final = 0.1
"""How often it is looked whether the program has ended, while something that it started holds its output."""
FOREVER_S: Final = float("inf")
"""The node ends what takes too long."""
READ_BYTES: Final = 65_536
WRITE_BYTES: Final = 65_536
LINE_CHARS_MAX: Final = 500


def parse_command(text: str) -> tuple[str, ...]:
    """A command line as its words, as a shell would split them. Raises HandlerProblem for what cannot run."""
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise HandlerProblem(f"{text!r} is no command: {error}.") from error
    if not words:
        raise HandlerProblem("the command is empty.")
    if SHELL_WORDS & set(words):
        raise HandlerProblem(
            f"{text!r} looks like a line for a shell, and it is run without one. Write sh -c '…' around it."
        )
    if shutil.which(words[0]) is None:
        raise HandlerProblem(
            f"there is no program {words[0]!r} that could be run. Give its path, or correct PATH."
        )
    return words


class Command:
    """A program that runs jobs. May run any number of them at once, each in its own thread."""

    def __init__(self, words: tuple[str, ...]) -> None:
        self.words = words
        self._lock = threading.Lock()
        self._running: dict[Key, ProcessGroup] = {}

    def __call__(self, job: Job) -> Outcome:
        """Run it for one job."""
        group = ProcessGroup(
            self.words,
            env={**os.environ, **facts_of(job)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            with self._lock:
                self._running[job.fence] = group
            if job.is_stopped:
                group.kill()  # it was stopped while it began, and `stop` did not find it
            talk = Talk(group, job.payload)
            talk.run()
        finally:
            with self._lock:
                del self._running[job.fence]
            returncode = group.end()
        return _outcome_of(returncode, talk)

    def stop(self, fence: Key) -> None:
        """Kill the one that runs this attempt. From any thread."""
        with self._lock:
            group = self._running.get(fence)
        if group is not None:
            group.kill()


class Talk:
    """What goes through the pipes of one run, until the program has ended."""

    def __init__(self, group: ProcessGroup, payload: bytes) -> None:
        self._group = group
        self.out = bytearray()
        """Standard output, a little more than is allowed at most."""
        self.err = bytearray()
        """The end of standard error."""
        self._left = memoryview(payload)
        stdin, stdout, stderr = group.pipes
        assert stdin is not None
        assert stdout is not None
        assert stderr is not None
        self._stdin, self._stdout, self._stderr = stdin, stdout, stderr

    @property
    def is_too_much(self) -> bool:
        """The result is over its limit."""
        return len(self.out) > limits.PAYLOAD_BYTES_MAX

    def run(self) -> None:
        """Until the program has ended and what it wrote is read."""
        with selectors.DefaultSelector() as ready:
            for pipe, events in (
                (self._stdin, selectors.EVENT_WRITE),
                (self._stdout, selectors.EVENT_READ),
                (self._stderr, selectors.EVENT_READ),
            ):
                os.set_blocking(pipe.fileno(), False)
                ready.register(pipe, events)
            while ready.get_map() and not self.is_too_much:
                found = ready.select(LOOK_S)
                for key, _ in found:
                    if not self._move(key.fileobj):
                        ready.unregister(key.fileobj)
                        key.fileobj.close()  # type: ignore[union-attr]
                if not found and self._group.has_ended():
                    return  # Something that it started holds the pipes; what it wrote itself has been read.
        if not self.is_too_much:
            self._group.await_end(FOREVER_S)  # its output is closed; it may still have something to do

    def _move(self, pipe: object) -> bool:
        """Take or give what is possible now. False: this pipe is done."""
        if pipe is self._stdin:
            return self._feed()
        data = os.read(pipe.fileno(), READ_BYTES)  # type: ignore[attr-defined]
        if pipe is self._stdout:
            self.out += data
        else:
            self.err += data
            del self.err[:-TRACEBACK_BYTES_MAX]
        return bool(data)

    def _feed(self) -> bool:
        try:
            written = os.write(self._stdin.fileno(), self._left[:WRITE_BYTES]) if self._left else 0
        except BrokenPipeError:
            return False  # it does not want to know
        self._left = self._left[written:]
        return bool(self._left)


def facts_of(job: Job) -> dict[str, str]:
    """What a program finds in its environment."""
    return {
        "ROLLMQ_JOB_ID": job.id,
        "ROLLMQ_EXEC": job.exec,
        "ROLLMQ_CLIENT_ID": job.client_id,
        "ROLLMQ_ATTEMPT": str(job.attempt),
        "ROLLMQ_TRIES": str(job.tries),
        "ROLLMQ_TRIES_MAX": str(job.tries_max),
        "ROLLMQ_TIMEOUT_S": f"{job.timeout_us / 1e6:g}",
        "ROLLMQ_CONTENT_TYPE": job.content_type,
        "ROLLMQ_HEADERS": msgspec.json.encode(dict(job.headers)).decode(),
    }


def _outcome_of(returncode: int, talk: Talk) -> Outcome:
    if talk.is_too_much:
        size_max = f"{limits.PAYLOAD_BYTES_MAX:,}"
        return rejected("ResultTooLarge", f"the program wrote more than the {size_max} bytes of a result")
    if returncode == 0:
        return Outcome(bytes(talk.out))
    kind = f"exit code {returncode}" if returncode > 0 else signal_name(-returncode)
    lines = talk.err.decode("utf-8", "replace").strip().splitlines()
    last = lines[-1][:LINE_CHARS_MAX] if lines else "the program wrote nothing to stderr"
    return failed(kind, last, bytes(talk.err))
