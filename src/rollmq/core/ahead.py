"""A leader's lines as a follower keeps them until they are committed: checked and decoded once, on arrival.

It decides nothing and never looks at what an event says but for its index and term. The log holds the bytes;
this holds what they mean, so that a committed entry is applied without being read a second time.
"""

from collections.abc import Iterable
from typing import Final

from rollmq.core.events import AnyEvent
from rollmq.core.line import LineDamaged, decode_line
from rollmq.core.raft_messages import AppendEntries

AHEAD_MAX: Final = 65_536
"""Decoded entries that wait for their commit; a node that is further behind decodes them again later."""


def events_of(message: AppendEntries) -> list[AnyEvent]:
    """What the lines say. Raises LineDamaged unless each is whole and is the entry that the message names."""
    index = message.prev_index
    events: list[AnyEvent] = []
    runs = iter((*message.term_runs, (0, 0)))
    term, (next_run, next_term) = -1, next(runs)
    for line in message.lines:
        index += 1
        if index == next_run:
            term, (next_run, next_term) = next_term, next(runs)
        event = decode_line(line)
        if event.index != index or event.term != term:
            raise LineDamaged(
                f"entry {event.index} of term {event.term} stands where {index} of {term} belongs"
            )
        events.append(event)
    return events


class Ahead:
    """Events of entries that are in the log and not applied.

    Invariant: `_events` are those of entries `_first_index`, `_first_index` + 1, …, without a gap.
    """

    def __init__(self) -> None:
        self._first_index = 1
        self._events: list[AnyEvent] = []

    def add(self, first_index: int, events: list[AnyEvent]) -> None:
        """These entries are in the log now. What was known of them, or after them, is replaced."""
        at = first_index - self._first_index
        if not 0 <= at <= len(self._events) or at + len(events) > AHEAD_MAX:
            self._first_index, self._events = first_index, events
            return
        del self._events[at:]
        self._events += events

    def cut(self, index: int) -> None:
        """Entries from here on are gone."""
        del self._events[max(index - self._first_index, 0) :]

    def clear(self) -> None:
        """Nothing is known any more."""
        self._events = []

    def take(self, first_index: int, last_index: int) -> Iterable[AnyEvent] | None:
        """The events of these entries, which are being applied; None unless all are known."""
        at = first_index - self._first_index
        end = last_index + 1 - self._first_index
        if at < 0 or end > len(self._events):
            return None
        taken = self._events[at:end]
        del self._events[:end]
        self._first_index = last_index + 1
        return taken
