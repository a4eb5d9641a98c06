"""An app of typed tasks, as a user writes one; tests submit to it and run it, also in child processes."""

import asyncio
import enum
import os
from dataclasses import dataclass

from rollmq.library.verdicts import Reject
from rollmq.tasks import App, current_job

app = App("shop")


class Size(enum.Enum):
    """Of a picture."""

    SMALL = "small"
    LARGE = "large"


@dataclass
class Picture:
    """What is bought."""

    url: str
    width: int


@app.task(tries_max=3, timeout=60)
def resize(url: str, width: int, size: Size = Size.SMALL) -> Picture:
    """A plain function."""
    return Picture(f"{url}#{size.value}", width)


@app.task
async def total(*prices: float, discount: float = 0.0) -> float:
    """An async one."""
    await asyncio.sleep(0)
    return sum(prices) * (1 - discount)


@app.task(processes=True, max_jobs=5)
def in_a_child(number: int) -> list[int]:
    """One for a process of its own."""
    return [number, os.getpid()]


@app.task(name="who")
async def who_am_i() -> str:
    """One that asks for its job."""
    job = current_job()
    await job.progress(b"half")
    return f"{job.id} {job.attempt}"


@app.task(tries_max=2, backoff=0)
def fail(how: str) -> None:
    """One that fails."""
    if how == "reject":
        raise Reject("not for sale")
    raise ValueError("broken")


@app.task
def lie() -> int:
    """One that returns what it does not say."""
    return "three"  # type: ignore[return-value]
