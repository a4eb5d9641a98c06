"""What a handler may raise to say what is to become of its job.

Any other exception is a failed try: the job runs again after its backoff, until its tries are used up.
"""

from datetime import timedelta

from rollmq.errors import RollmqError

Pause = float | int | timedelta


class Verdict(RollmqError):
    """The base of what a handler raises about its own job. The job's state changes when the node has it."""


class Retry(Verdict):
    """This try failed. The job runs again after its backoff, or `after` so many seconds; the try counts."""

    def __init__(self, message: str = "", *, after: Pause | None = None) -> None:
        super().__init__(message)
        self.after_us = None if after is None else pause_us(after)


class Snooze(Verdict):
    """Not now. The job runs again `after` so many seconds, and no try is counted.

    How often a job may start at all is bounded, so snoozing for ever ends in the dead letters.
    """

    def __init__(self, message: str = "", *, after: Pause) -> None:
        super().__init__(message)
        self.after_us = pause_us(after)


class Reject(Verdict):
    """Running it again would not help. The job goes to the dead letters at once, with this reason."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)


def pause_us(after: Pause) -> int:
    """Seconds, or a timedelta, as microseconds. Raises ValueError for what is no pause."""
    seconds = after.total_seconds() if isinstance(after, timedelta) else float(after)
    if not 0 <= seconds <= 366 * 86_400:
        raise ValueError(f"a pause has 0 seconds to a year, not {after!r}")
    return int(seconds * 1_000_000)
