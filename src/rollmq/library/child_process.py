"""One child process as its worker sees it: start it, give it a job, wait for its outcome, kill it.

Blocking: each is driven by one thread. Only `kill` may come from another.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
from multiprocessing.connection import Connection
from typing import Final

from rollmq.errors import CodecFailed, HandlerProblem
from rollmq.library.child import MARK
from rollmq.library.child_messages import (
    Done,
    Extend,
    Leave,
    Problem,
    Progress,
    Ready,
    Run,
    Setup,
    encode,
    read_from_child,
)
from rollmq.library.handlers import Handler
from rollmq.library.handling import failed
from rollmq.library.held_job import HeldJob, Outcome
from rollmq.library.job import Port
from rollmq.library.process_group import ProcessGroup, how_it_ended

STARTER: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop()); "
    "from rollmq.library.child import main; main()"
)
"""What a child runs: it looks for modules where its parent does."""
END_S: Final = 1.0
"""How long a child whose pipe is closed may take to end by itself: how it ends says what happened."""
LEAVE_S: Final = 5.0
"""How long an idle child may take to end when it is told to: what it has registered for its exit runs."""


class ChildProcess:
    """A fresh interpreter in a process group of its own. It is ready once it has found its function."""

    def __init__(self, handler: Handler) -> None:
        self.is_over = False
        """It takes no more jobs: it ended, or is to be replaced."""
        self._handler = handler
        self._jobs_count = 0
        ours, theirs = socket.socketpair()
        with theirs:
            self._pipe = Connection(ours.detach())
            self._group = _start(theirs.fileno())
        self._is_ready = False

    def wait_ready(self) -> None:
        """Raises HandlerProblem if it cannot run the function."""
        if self._is_ready:
            return
        problem = self._set_up()
        if problem:
            self._end()
            raise HandlerProblem(
                f"the handler for {self._handler.exec!r} cannot run in a child process: {problem}"
            )
        self._is_ready = True

    def _set_up(self) -> str:
        try:
            self._pipe.send_bytes(encode(_setup_of(self._handler)))
            answer = read_from_child(self._pipe.recv_bytes())
        except (EOFError, OSError):
            return f"it {self._end()} before it was ready; what it printed says why"
        if isinstance(answer, Problem):
            return answer.text
        assert isinstance(answer, Ready)
        return ""

    def run(self, held: HeldJob, payload: bytes, port: Port) -> Outcome | None:
        """Run one job. A child that ends meanwhile is a failed try; None: it had ended before it began."""
        self._jobs_count += 1
        try:
            self.wait_ready()
        except HandlerProblem as problem:
            return failed("HandlerProblem", str(problem))
        has_begun = False
        try:
            self._pipe.send_bytes(encode(Run(held.job_id, held.exec, held.header, payload)))
            read_from_child(self._pipe.recv_bytes())
            has_begun = True
            outcome = self._listen(held, port)
        except (EOFError, OSError):
            how = self._end()
            if not has_begun:
                return None
            return failed("ProcessEnded", f"the child process that ran the handler {how}")
        if self._handler.max_jobs is not None and self._jobs_count >= self._handler.max_jobs:
            self.is_over = True
        return outcome

    def _listen(self, held: HeldJob, port: Port) -> Outcome:
        while True:
            message = read_from_child(self._pipe.recv_bytes())
            if isinstance(message, Done):
                return message.outcome
            if isinstance(message, Progress):
                with contextlib.suppress(CodecFailed):  # progress may be lost
                    port.progress(held, message.data)
            elif isinstance(message, Extend):
                port.extend(held, message.extend_us)

    def kill(self) -> None:
        """End it and whatever it has started, at once. From any thread; whoever runs a job hears of it."""
        self._group.kill()

    def leave(self) -> None:
        """Let an idle child end by itself."""
        self.is_over = True
        with contextlib.suppress(OSError):  # it has ended already, or was
            self._pipe.send_bytes(encode(Leave()))
            self._group.await_end(LEAVE_S)
        self._end()

    def _end(self) -> str:
        """Make sure that it has ended, and say how."""
        self.is_over = True
        self._group.await_end(END_S)
        returncode = self._group.end()
        self._pipe.close()
        return how_it_ended(returncode)


def _start(fd: int) -> ProcessGroup:
    command = [sys.executable, "-c", STARTER, str(fd), json.dumps(sys.path)]
    env = {**os.environ, MARK: str(os.getpid())}
    return ProcessGroup(command, env=env, stdin=subprocess.DEVNULL, pass_fds=(fd,))


def _setup_of(handler: Handler) -> Setup:
    module, name = handler.place
    if module != "__main__":
        return Setup(module, name)
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return Setup(module, name, main_name=spec.name)
    path = getattr(main, "__file__", None)
    if path is None:
        raise HandlerProblem(
            f"{name} was written at a prompt, where no child process finds it. Write it into a file."
        )
    return Setup(module, name, main_path=path)
