"""What surrounds a handler wherever it runs: how it gets its job, where it reports, who takes its outcome.

Shared by all runners of a worker and used from their threads; nothing here changes while they run.
"""

from collections.abc import Callable, Iterable
from typing import TypeAlias

from rollmq.library.handlers import Handlers
from rollmq.library.held_job import HeldJob, Outcome
from rollmq.library.job import Job, Port

Ended: TypeAlias = tuple[HeldJob, Outcome]


class Kit:
    """One worker's surroundings of handlers."""

    def __init__(self, handlers: Handlers, port: Port, tell: Callable[[Iterable[Ended]], None]) -> None:
        self.handlers = handlers
        self.port = port
        self.tell = tell
        """Takes what has ended, several at once where that is possible; from any thread."""

    def job_of(self, held: HeldJob) -> Job:
        """What the handler is given."""
        return Job(held, self.port, held.payload)
