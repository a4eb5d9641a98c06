"""What an event says, in words for a terminal. It reads events and prints nothing."""

import datetime

from rollmq.core.events import (
    Ack,
    AnyEvent,
    Assign,
    Cancel,
    Client,
    Dlq,
    Drop,
    Ending,
    Enqueue,
    FailRequeue,
    MaybeEnding,
    Members,
    Noop,
    Pause,
    Pipeline,
    Redrive,
    Resume,
    Settings,
    SnapshotMarker,
    TimeoutRequeue,
    Worker,
    WorkerDownRequeue,
)

TEXT_CHARS_MAX = 120
"""Of a user's text in one row: a terminal is about this wide."""


def one_line(text: str, *, chars_max: int = TEXT_CHARS_MAX) -> str:
    """A user's text without what could move the cursor or fake another row."""
    shown = text if len(text) <= chars_max else f"{text[:chars_max]}…"
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in shown)


def time_of(at_us: int) -> str:
    """A point in log time, in UTC."""
    seconds, us = divmod(at_us, 1_000_000)
    try:
        moment = datetime.datetime.fromtimestamp(seconds, tz=datetime.UTC)
    except (OverflowError, ValueError, OSError):
        return f"{at_us} us"
    return f"{moment:%Y-%m-%d %H:%M:%S}.{us:06}Z"


def duration(us: int | None) -> str:
    """A span of time, as people write it."""
    if us is None:
        return "an unknown time"
    return f"{us / 1_000_000:.3f} s" if us >= 1_000_000 else f"{us / 1000:.1f} ms"


def describe(event: AnyEvent) -> str:
    """One line about the event, without its index, time, type and job."""
    match event:
        case Enqueue() | Assign():
            return _beginning(event)
        case Ending() | MaybeEnding():
            return one_line_of(_ending(event), event)
        case Redrive() | Drop():
            ids = ", ".join(event.job_ids[:3]) + (
                f" and {len(event.job_ids) - 3} more" * (len(event.job_ids) > 3)
            )
            return one_line(f"{ids}{_by(event.by, event.why)}")
        case Client():
            return one_line(f"{event.client_id} cap {event.cap} weight {event.weight}{_by(event.by)}")
        case Worker():
            return one_line(
                f"{event.worker_id} hands {event.hands} on {event.host}: {' '.join(event.patterns)}"
            )
        case Pause():
            submits = ", submits too" if event.submits else ""
            return one_line(f"{event.exec}{submits}{_by(event.by, event.why)}")
        case Resume():
            return one_line(f"{event.exec}{_by(event.by, event.why)}")
        case Settings():
            return one_line(f"machine version {event.machine_version}{_by(event.by)}")
        case Pipeline():
            return one_line(f"{event.name} has taken everything up to {event.confirmed_index}")
        case SnapshotMarker():
            counts = event.counts
            return f"queued {counts.queued}, in flight {counts.inflight}, dlq {counts.dlq}: the segment ends"
        case Noop():
            return f"a new leader in term {event.term}"
        case Members():
            return one_line(f"group {event.group}: {', '.join(member.node_id for member in event.members)}")


def one_line_of(text: str, event: Ending | MaybeEnding) -> str:
    """The text, behind which attempt ended where and how long it ran."""
    if event.fence is None:
        return one_line(f"while queued: {text}")
    started = f"ran {duration(event.run_us)}" if event.started else "not started"
    return one_line(f"attempt {event.attempt} on {event.worker_id} ({started}, tries {event.tries}): {text}")


def _beginning(event: Enqueue | Assign) -> str:
    if isinstance(event, Assign):
        waited = duration(max(0, event.at_us - event.ready_us))
        return one_line(f"attempt {event.attempt} to {event.worker_id}, waited {waited}")
    extras = [f"priority {event.priority}"] if event.priority else []
    if event.key:
        extras.append(f"key {event.key}")
    if event.not_before_us:
        extras.append(f"not before {time_of(event.not_before_us)}")
    return one_line(
        f"{event.exec} from {event.client_id}, {event.payload_bytes} bytes"
        f"{', ' if extras else ''}{', '.join(extras)}"
    )


def _ending(event: Ending | MaybeEnding) -> str:
    match event:
        case Ack():
            return f"finished, {event.result_bytes} bytes"
        case FailRequeue():
            again = f", again not before {time_of(event.not_before_us)}" if event.not_before_us else ""
            kind = "failed" if event.counted else "snoozed"
            return f"{kind}: {event.error_type} {event.error_message}{again}"
        case TimeoutRequeue():
            return f"over its time after {duration(event.held_us)}, back to the queue"
        case WorkerDownRequeue():
            return f"worker {event.reason}, back to the queue"
        case Dlq():
            error = f"{event.error_type} {event.error_message}".strip()
            return f"dead letter ({event.reason}){f': {error}' if error else ''}"
        case Cancel():
            return f"cancelled{_by(event.by, event.why)}"
        case _:
            raise AssertionError(f"{type(event).__name__} ends nothing")


def _by(by: str, why: str = "") -> str:
    return f"{f' by {by}' if by else ''}{f' ({why})' if why else ''}"
