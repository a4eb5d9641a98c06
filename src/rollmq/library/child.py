"""The child's side of a handler with `processes=True`: find the function, run one job after the other.

It is a fresh interpreter that imports the function's module and nothing of the worker. It ends when it is
told to, or with its parent: a job whose worker is gone will run elsewhere, and must not run here as well.
"""

import asyncio
import functools
import importlib
import os
import runpy
import select
import signal
import sys
import threading
import types
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Final

from rollmq.library.child_messages import (
    Done,
    Extend,
    FromChild,
    Problem,
    Progress,
    Ready,
    Run,
    Setup,
    ToChild,
    encode,
    read_to_child,
)
from rollmq.library.handlers import is_async
from rollmq.library.handling import Plain, attempt, run_plain
from rollmq.library.held_job import HeldJob
from rollmq.library.job import Job

MAIN_NAME: Final = "__mp_main__"
"""What the user's script is called in a child, as with multiprocessing: its `if __name__ == "__main__"` part
does not run."""
MARK: Final = "ROLLMQ_CHILD_OF"
"""In the environment of a child: the process id of its parent."""


def is_child() -> bool:
    """Whether this process is such a child: a worker that is started while the script is imported is a
    mistake of the script."""
    return os.environ.get(MARK) == str(os.getppid())


def main() -> None:
    """Run until there are no more jobs."""
    pipe = Connection(int(sys.argv[1]))
    for number in (signal.SIGTERM, signal.SIGINT):
        # Meant for the worker, which decides what is to become of its jobs. Not SIG_IGN: programs that a
        # handler starts would inherit it.
        signal.signal(number, _let_pass)
    threading.Thread(target=_end_with_parent, args=(pipe.fileno(),), daemon=True).start()
    setup = _next_order(pipe)
    if not isinstance(setup, Setup):
        return  # there was nothing to do for it, after all
    port = PipePort(pipe)
    found, problem = attempt(functools.partial(find, setup))
    if found is None:
        port.send(Problem(problem))
        return
    with asyncio.Runner() as runner:
        function = _as_plain(found, runner)
        port.send(Ready())
        while isinstance(order := _next_order(pipe), Run):
            port.send(Ready())
            port.held = held = HeldJob(order.job_id, order.exec, order.header, b"")
            port.send(Done(run_plain(function, Job(held, port, order.payload))))


def _next_order(pipe: Connection) -> ToChild | None:
    try:
        order: ToChild = read_to_child(pipe.recv_bytes())
        return order
    except EOFError:
        return None  # The parent is gone, and with it whoever wanted more.


def find(setup: Setup) -> Callable[..., Any]:
    """The function that a parent means."""
    if setup.module == "__main__":
        _import_main(setup)
    found: Any = importlib.import_module(setup.module)
    for part in setup.name.split("."):
        found = getattr(found, part)
    # A typed task stands where its function stood.
    function: Callable[..., Any] = getattr(found, "run_job", found)
    return function


def _import_main(setup: Setup) -> None:
    """Import the user's script under another name, and let its own name lead there too."""
    if setup.main_name:
        names = runpy.run_module(setup.main_name, run_name=MAIN_NAME, alter_sys=True)
    else:
        names = runpy.run_path(setup.main_path, run_name=MAIN_NAME)
    module = types.ModuleType(MAIN_NAME)
    module.__dict__.update(names)
    sys.modules["__main__"] = sys.modules[MAIN_NAME] = module


def _as_plain(function: Callable[..., Any], runner: asyncio.Runner) -> Plain:
    if not is_async(function):
        return function
    return lambda job: runner.run(function(job))


class PipePort:
    """Says to the parent what a handler says, from whichever thread."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()
        self.held: HeldJob | None = None
        """The job that runs, or ran last."""

    def send(self, message: FromChild) -> None:
        """One message."""
        with self._lock:
            self._pipe.send_bytes(encode(message))

    def progress(self, held: HeldJob, data: bytes) -> None:
        """Something for the client."""
        self._send_of(held, Progress(data))

    def extend(self, held: HeldJob, extend_us: int) -> None:
        """More time."""
        self._send_of(held, Extend(extend_us))

    def _send_of(self, held: HeldJob, message: Progress | Extend) -> None:
        if held is self.held:  # A thread of an earlier job may still talk; its words are not this job's.
            self.send(message)


def _let_pass(_number: int, _frame: object) -> None:
    """A signal that is for somebody else."""


def _end_with_parent(fd: int) -> None:
    """The parent's end is closed, whatever ended it: end this group, also in the middle of a handler."""
    poll = select.poll()
    poll.register(fd, 0)
    poll.poll()
    os.killpg(0, signal.SIGKILL)
