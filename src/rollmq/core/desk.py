"""The leader's desk: where a decision becomes an event, a line of the log and the effects that follow.

Everything that decides (`intake`, `attempts`, `liveness`, `operate`, `leader`) decides through here, so
that each decision sees all earlier ones. It chooses nothing itself.
"""

from collections.abc import Callable
from typing import Final

from rollmq.core.effects import READS, AnyEffect
from rollmq.core.events import AnyEvent, Pipeline, SnapshotMarker
from rollmq.core.job import Job
from rollmq.core.line import encode_line
from rollmq.core.machine import Machine
from rollmq.core.queues import Queues
from rollmq.core.scheduler import Scheduler

NO_NEWS: Final = (Pipeline, SnapshotMarker)
"""A segment of nothing but these is not sealed every minute: a quiet group writes nothing."""


class Desk:
    """One term of one leader. Invariant: the next line's index is machine.last_index + 1."""

    def __init__(self, machine: Machine, *, term: int, jitter: Callable[[], float]) -> None:
        assert machine.queues is not None
        assert term >= machine.last_term
        self.machine = machine
        self.queues: Queues = machine.queues
        self.scheduler = Scheduler(machine.queues)
        self.term = term
        self.jitter = jitter
        """Chance, handed in: 0 <= jitter() < 1."""
        self.now_us = machine.last_at_us
        """Log time. Invariant: never behind the last entry's."""
        self.lines: list[bytes] = []
        """Decided and applied, not yet taken by the host."""
        self.effects: list[AnyEffect] = []
        self.has_reads = False
        """One of `effects` waits for a read index."""
        self.news_index = machine.last_index
        """The last entry that is worth a marker."""

    @property
    def next_index(self) -> int:
        """The index of the next event that is decided."""
        return self.machine.last_index + 1

    @property
    def last_index(self) -> int:
        """What an answer that depends on the state waits for."""
        return self.machine.last_index

    def set_time(self, now_us: int) -> None:
        """Log time goes on; a reading that is behind is ignored."""
        self.now_us = max(self.now_us, now_us)

    def decide(self, event: AnyEvent) -> Job | None:
        """Apply the event, then hand its line to the host. Applying first means that an assertion stops
        this node before the line can reach, and stop, any other."""
        job = self.machine.apply(event)
        self.lines.append(encode_line(event))
        if type(event) not in NO_NEWS:
            self.news_index = event.index
        return job

    def say(self, effect: AnyEffect) -> None:
        """Remember an effect until its entry is committed."""
        self.effects.append(effect)
        if type(effect) in READS:
            self.has_reads = True

    def take_lines(self) -> list[bytes]:
        """The lines decided since the last call, for the log."""
        lines, self.lines = self.lines, []
        return lines

    def take_effects(self) -> list[AnyEffect]:
        """The effects since the last call; their indexes never fall."""
        effects, self.effects, self.has_reads = self.effects, [], False
        return effects
