"""What is remembered so that nothing is accepted twice: finished jobs' ids, results, and callers' keys.

Everything is bounded, and what is evicted depends on the log alone: never on a clock.
"""

from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Final

from rollmq.core.events import Settings
from rollmq.core.job import Finished
from rollmq.core.record import NO_BYTES, KeyRecord, KeyScope

EVICT_BY_AGE_MAX: Final = 8
"""How many are evicted for their age at one entry, so that a quiet day's end is no long pause."""

AGED_LOOKS_MAX: Final = 1_000
"""How many aged keys one refusal looks through; each enqueue takes some away, so the next looks further."""

ID_TIME_DIGITS: Final = 12
"""A job id is a UUIDv7: its first 12 hex digits are milliseconds, so prefixes compare like times."""


class FinishedJobs:
    """Finished jobs in the order of finishing. Invariants: results_bytes is the sum over those that still
    have a result; both bounds of the settings hold after every `add`."""

    def __init__(self) -> None:
        self.by_id: dict[str, Finished] = {}
        self.results_bytes = 0
        self.forgotten_id = ""
        """The newest time prefix of an id that was forgotten: nothing at or before it can be told."""
        self._order: deque[Finished] = deque()
        self._results: deque[Finished] = deque()

    def __len__(self) -> int:
        return len(self.by_id)

    @property
    def results_count(self) -> int:
        """How many still have their result."""
        return len(self._results)

    def in_order(self) -> deque[Finished]:
        """All, the first finished first; for the canonical state."""
        return self._order

    def add(self, finished: Finished, settings: Settings) -> None:
        """Remember a job that has just finished, and evict what that leaves over the bounds."""
        self.restore(finished)
        self._evict_results(finished.ended_us, settings)
        while len(self._order) > settings.finished_max:
            self._forget(self._order.popleft())

    def restore(self, finished: Finished) -> None:
        """Take over one from the canonical state, in order."""
        self.by_id[finished.id] = finished
        self._order.append(finished)
        if not finished.is_result_dropped:
            self._results.append(finished)
            self.results_bytes += len(finished.result)

    def is_too_old_to_tell(self, job_id: str) -> bool:
        """Whether a job of this id may have been finished and forgotten."""
        return job_id[:ID_TIME_DIGITS] <= self.forgotten_id

    def _evict_results(self, at_us: int, settings: Settings) -> None:
        results, aged = self._results, 0
        while results:
            is_over = len(results) > settings.results_max or self.results_bytes > settings.results_bytes_max
            if not is_over:
                if aged >= EVICT_BY_AGE_MAX or results[0].ended_us + settings.results_keep_us > at_us:
                    return
                aged += 1
            self._drop_result(results.popleft())

    def _drop_result(self, finished: Finished) -> None:
        self.results_bytes -= len(finished.result)
        assert self.results_bytes >= 0
        finished.result = NO_BYTES
        finished.is_result_dropped = True

    def _forget(self, finished: Finished) -> None:
        if not finished.is_result_dropped:
            assert self._results[0] is finished
            self._drop_result(self._results.popleft())
        del self.by_id[finished.id]
        self.forgotten_id = max(self.forgotten_id, finished.id[:ID_TIME_DIGITS])


class Keys:
    """Callers' keys, forgotten by age alone."""

    def __init__(self) -> None:
        self.by_scope: dict[KeyScope, KeyRecord] = {}
        self._order: deque[KeyRecord] = deque()

    def __len__(self) -> int:
        return len(self.by_scope)

    @property
    def is_any(self) -> bool:
        """Whether any is kept, replaced ones included."""
        return bool(self._order)

    def in_order(self) -> deque[KeyRecord]:
        """All, the oldest first; for the canonical state."""
        return self._order

    def find(self, scope: KeyScope, at_us: int, settings: Settings) -> KeyRecord | None:
        """The key's record while it is young enough, evicted yet or not."""
        record = self.by_scope.get(scope)
        if record is None or record.at_us + settings.keys_keep_us <= at_us:
            return None
        return record

    def has_aged(self, client_id: str, count: int, at_us: int, settings: Settings) -> bool:
        """Whether so many of a client's keys have passed their age and are still here."""
        for record in islice(self._order, AGED_LOOKS_MAX):
            if record.at_us + settings.keys_keep_us > at_us:
                return False
            if record.client_id == client_id and self.by_scope.get(record.scope) is record:
                count -= 1
                if count <= 0:
                    return True
        return False

    def add(self, record: KeyRecord, on_forget: Callable[[KeyRecord], None]) -> None:
        """Remember a key's first job; an old record of the same key makes room for it."""
        old = self.by_scope.get(record.scope)
        if old is not None:
            on_forget(old)
        self.restore(record)

    def restore(self, record: KeyRecord) -> None:
        """Take over one from the canonical state, in order."""
        self.by_scope[record.scope] = record
        self._order.append(record)

    def evict(self, at_us: int, settings: Settings, on_forget: Callable[[KeyRecord], None]) -> None:
        """Forget what has passed its age, a bounded number at a time."""
        for _ in range(EVICT_BY_AGE_MAX):
            if not self._order or self._order[0].at_us + settings.keys_keep_us > at_us:
                return
            record = self._order.popleft()
            if self.by_scope.get(record.scope) is record:
                del self.by_scope[record.scope]
                on_forget(record)
