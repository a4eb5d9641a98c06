"""The jobs that clients of a storm submit: from a number to what is submitted, and to what must come of it.

Shared by the clients that submit, the workers that run, and the audit: so each knows what is right, and
nobody has to tell him.
"""

import hashlib
from dataclasses import dataclass, field
from typing import Any

KINDS = (
    *("echo",) * 7,
    *("keyless",) * 5,
    *("plain",) * 2,
    "flaky",
    "reject",
    "slow",
    "cancel",
    "large",
    "late",
)
"""By a number's remainder."""
LARGE_BYTES = 60_000


@dataclass(frozen=True, slots=True)
class Order:
    """What one number stands for."""

    client: str
    number: int

    @property
    def kind(self) -> str:
        """What is special about it."""
        return KINDS[self.number % len(KINDS)]

    @property
    def exec(self) -> str:
        """Who runs it; nobody runs `shop.cancel`."""
        same = {"keyless": "echo", "large": "echo", "late": "echo"}
        return f"shop.{same.get(self.kind, self.kind)}"

    @property
    def key(self) -> str | None:
        """Of a keyed submit: repeating it is always safe."""
        return None if self.kind == "keyless" else f"order-{self.number}"

    @property
    def payload(self) -> bytes:
        """Different for each."""
        filler = b"." * (LARGE_BYTES if self.kind == "large" else self.number % 200)
        return f"{self.client} {self.number} ".encode() + filler

    @property
    def options(self) -> dict[str, Any]:
        """As `submit` takes them. A try that ends with its worker is no reason to bury one of these."""
        options: dict[str, Any] = {"key": self.key, "priority": self.number % 3, "tries_max": 100}
        if self.kind == "late":
            options["delay"] = 0.05
        return options

    @property
    def states(self) -> tuple[str, ...]:
        """How it may end. A worker's death too many makes any job that starts a poisonous one."""
        return {"reject": ("dead",), "cancel": ("cancelled",)}.get(self.kind, ("done", "dead"))


@dataclass(slots=True)
class Unfinished:
    """What a client that was killed has to go on with."""

    next_number: int = 1
    orders: dict[int, str] = field(default_factory=dict)
    """Numbers whose end was not told, each with its job's id; empty if even that was not told."""


def result_of(payload: bytes) -> bytes:
    """What every handler returns."""
    return hashlib.sha256(payload).hexdigest().encode()
