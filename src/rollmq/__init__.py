"""rollmq: a replicated job queue that you pip install. The public names; each is imported when it is used."""

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rollmq.client import Client, ClientMulti
    from rollmq.errors import (
        JobUnknown,
        KeyConflict,
        ResultExpired,
        ResultTimeout,
        RollmqError,
        SubmitRefused,
        SubmitUnknown,
    )
    from rollmq.library.call import Outcome
    from rollmq.library.client_job import Job
    from rollmq.library.submit_options import Backoff
    from rollmq.library.verdicts import Reject, Retry, Snooze
    from rollmq.worker import Worker

__version__ = "0.1.0"

__all__ = [
    "Backoff",
    "Client",
    "ClientMulti",
    "Job",
    "JobUnknown",
    "KeyConflict",
    "Outcome",
    "Reject",
    "ResultExpired",
    "ResultTimeout",
    "Retry",
    "RollmqError",
    "Snooze",
    "SubmitRefused",
    "SubmitUnknown",
    "Worker",
]

_HOMES: Final[Mapping[str, str]] = {
    "Backoff": "rollmq.library.submit_options",
    "Client": "rollmq.client",
    "ClientMulti": "rollmq.client",
    "Job": "rollmq.library.client_job",
    "Outcome": "rollmq.library.call",
    "Reject": "rollmq.library.verdicts",
    "Retry": "rollmq.library.verdicts",
    "Snooze": "rollmq.library.verdicts",
    "Worker": "rollmq.worker",
}
"""What is not in rollmq.errors. A node or a fold helper imports this package and needs none of it."""


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'rollmq' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES.get(name, "rollmq.errors")), name)
