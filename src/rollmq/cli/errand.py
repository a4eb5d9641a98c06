"""What `rollmq submit` was asked for, and how it says what became of a job. It submits nothing."""

import base64
from dataclasses import dataclass, field
from typing import Any

from rollmq.client import Client
from rollmq.errors import SubmitRefused
from rollmq.library.call import Outcome
from rollmq.limits import PAYLOAD_BYTES_MAX
from rollmq.wire.error_codes import ErrorCode


@dataclass(slots=True)
class Errand:
    """What is asked for."""

    servers: str
    exec: str
    client_id: str
    timeout_s: float
    key: str
    is_waiting: bool
    wait_max_s: float | None
    as_json: bool
    options: dict[str, Any] = field(default_factory=dict)
    """As Client.submit takes them; the key is not among them."""
    job_id: str = ""
    """Of the one job, once it was accepted."""

    def client(self) -> Client:
        """One session for it."""
        return Client(self.servers, client_id=self.client_id, patience=self.timeout_s)


def too_large() -> SubmitRefused:
    """Of a payload that was not read to its end, so nobody knows its size."""
    text = f"the payload has more than {PAYLOAD_BYTES_MAX:,} bytes, which is the most that is allowed"
    return SubmitRefused(code=ErrorCode.PAYLOAD_TOO_LARGE, text=text, retryable=False)


def outcome_json(outcome: Outcome) -> dict[str, Any]:
    """For programs. A result that is no text is given as base64, under a name of its own."""
    said: dict[str, Any] = {
        "job_id": outcome.job_id,
        "ok": outcome.ok,
        "state": outcome.state,
        "tries": outcome.tries,
    }
    if not outcome.ok:
        return said | {"error": outcome.error, "reason": outcome.reason}
    try:
        return said | {"result": outcome.result.decode()}
    except UnicodeDecodeError:
        return said | {"result_base64": base64.b64encode(outcome.result).decode()}
