"""The header of every message that carries many jobs: what they share once, and a row for each.

The payload of such a message holds the ids of all its jobs, 16 bytes each, and behind the last one what
belongs to each, in the same order (`many`). A row ends with how many bytes that is.
"""

from typing import Annotated, TypeAlias

from msgspec import Meta

from rollmq import limits
from rollmq.wire.headers import Header, NameOrNone, Number
from rollmq.wire.job_headers import CreditPair, SubmitJobHeader

Count: TypeAlias = Annotated[int, Meta(ge=0, le=limits.MANY_BYTES_MAX)]
_ROWS = Meta(min_length=1, max_length=limits.JOBS_PER_MESSAGE_MAX)
Sizes: TypeAlias = Annotated[tuple[Count, ...], _ROWS]
AssignRow: TypeAlias = tuple[Number, Number, Number, Number, Count]
AckRow: TypeAlias = tuple[Number, Number, Number | None, Count]
ResultRow: TypeAlias = tuple[Number, Number, Number | None, Count]


class SubmitJobsHeader(Header, frozen=True):
    """Jobs of one exec with the same options."""

    jobs: Sizes
    """Of each: the bytes of its payload."""
    options: SubmitJobHeader | None = None
    """What SubmitJob's header would say of each of them; null: nothing. Without `key` and `resend`."""


class AcceptedJobsHeader(Header, frozen=True):
    """These submits are committed, each as a new job of its own id. It has no field."""


class AssignJobsHeader(Header, frozen=True):
    """Jobs of one exec for the worker, assigned one after the other."""

    jobs: Annotated[tuple[AssignRow, ...], _ROWS]
    """Of each: [index, attempt, tries, accepted_at_us, bytes of its payload]; (term, index) is its fence, the
    others are as in AssignJob."""
    term: Number
    """Of all their fences."""
    seq: Number
    """Of the first of them; each that follows has the next."""
    tries_max: Number = 5
    """As in AssignJob, for all of them; likewise what follows."""
    timeout_us: Number = 600_000_000
    """From each handler's start, timeout_factor already applied."""
    client_id: NameOrNone = ""
    """Who submitted them."""
    content_type: NameOrNone = ""
    """Media type of the payloads."""
    key_id: NameOrNone = ""
    """Which key of the codec encrypted the payloads. (A job with headers goes alone.)"""


class AckJobsHeader(Header, frozen=True):
    """Attempts whose handlers returned."""

    jobs: Annotated[tuple[AckRow, ...], _ROWS]
    """Of each: [term, index, run_us or null, bytes of its result]; (term, index) is its assign's fence."""
    seq: Number
    """Number on this connection of the first of these acks; each that follows has the next."""
    content_type: NameOrNone = ""
    """Media type of the results."""
    key_id: NameOrNone = ""
    """Which key of the codec encrypted the results."""
    credit: CreditPair | None = None
    """(seen, more), as in Credit; null = unchanged."""


class ResultsHeader(Header, frozen=True):
    """Jobs that are done."""

    jobs: Annotated[tuple[ResultRow, ...], _ROWS]
    """Of each: [tries, ended_at_us, run_us or null, bytes of its result], as in Result."""
    content_type: NameOrNone = ""
    """Media type of the results."""
    key_id: NameOrNone = ""
    """Which key of the codec encrypted the results."""
