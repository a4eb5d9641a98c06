"""What is told to somebody once the entry it follows from is committed: "decide early, speak late".

The leader computes an effect when it decides; the host releases it when `committed >= index`. Every
effect may be lost in a crash, so docs/architecture.md has a row for each that says what covers its loss.
`to` is the host's own handle of whoever asked; nothing here looks into it.
"""

from typing import Final, TypeAlias

import msgspec

from rollmq.core.events import Ack, Assign, Cancel, Dlq, Fence
from rollmq.core.job import Job


class Effect(msgspec.Struct, frozen=True, gc=False):
    """Something to say when the log is committed up to `index`."""

    index: int


class Accepted(Effect, frozen=True):
    """To the submitter. `first_id` differs from `job_id` when a key was repeated."""

    to: object
    job_id: str
    first_id: str
    is_repeat: bool = False
    """The id or the key was known: nothing new was queued."""


class Refused(Effect, frozen=True):
    """To the submitter. Nothing was changed, unless `is_unknown`: then nothing can be told. It waits for a
    read index: only who still leads knows that no copy of the submit was accepted elsewhere (rule 3)."""

    to: object
    job_id: str
    code: str
    text: str
    is_retryable: bool = False
    is_unknown: bool = False


class Assigned(Effect, frozen=True):
    """To the worker: run this job. Covered by what the worker lists when it comes back, and by its loss."""

    event: Assign
    job: Job
    tries: int
    timeout_us: int


class Ended(Effect, frozen=True):
    """To the sessions that submitted or asked: the final state of a job's life."""

    event: Ack | Dlq | Cancel
    job: Job


class AttemptVoid(Effect, frozen=True):
    """To the worker: stop running this attempt, its answer no longer counts."""

    worker_id: str
    job_id: str
    fence: Fence
    why: str


class AskedBack(Effect, frozen=True):
    """To the worker: give this job back unless its handler runs. The worker's answer decides."""

    worker_id: str
    job_id: str
    fence: Fence


class AckDone(Effect, frozen=True):
    """To the worker: its outcome is safe (or came too late) and need not be repeated."""

    worker_id: str
    job_id: str
    fence: Fence
    is_late: bool


class Answer(Effect, frozen=True):
    """To an operator or client: the answer to a query or command, true as of `index`. It says what the state
    is, so it waits for a read index: until a majority confirmed that this node still leads (rule 3)."""

    to: object
    value: object


READS: Final = frozenset({Refused, Answer})
"""Effects that say what the state is, and not only what is committed in it."""

AnyEffect: TypeAlias = Accepted | Refused | Assigned | Ended | AttemptVoid | AskedBack | AckDone | Answer


def split_early(effects: list[AnyEffect], commit_index: int) -> tuple[list[AnyEffect], list[AnyEffect]]:
    """With `--assign eager`: the assigns that need not wait, for their job is committed; and the rest."""
    early: list[AnyEffect] = []
    late: list[AnyEffect] = []
    for effect in effects:
        is_early = type(effect) is Assigned and effect.job.enqueued_index <= commit_index
        (early if is_early else late).append(effect)
    return early, late
