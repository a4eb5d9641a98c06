"""Log time: the one clock of a group, read only by its leader and written into every entry.

It never runs backwards and never freezes: from the last entry's time on it follows the leader's
monotonic clock, slewed toward its wall clock. A wall clock that is far ahead is not believed by itself,
because log time that has gone ahead can never come back. Readings are handed in.
"""

from typing import Final

from rollmq.limits import CLOCK_GAP_SLEWED_MAX_US

SLEW_PER_MILLE: Final = 50
"""How much faster or slower log time runs while it approaches the wall clock: 5 %."""


class LogTime:
    """Log time in microseconds. Invariant: two readings in order never differ downwards."""

    def __init__(self, *, last_at_us: int, mono_us: int, wall_us: int) -> None:
        self._log_us = last_at_us
        self._mono_us = mono_us
        self.step_wanted_us = 0
        """How far the wall clock is ahead, when that is too far to believe without `step`; else 0."""
        self._note_gap(wall_us)

    def read(self, *, mono_us: int, wall_us: int) -> int:
        """The log time now."""
        elapsed_us = max(mono_us - self._mono_us, 0)
        self._mono_us = max(mono_us, self._mono_us)
        gap_us = wall_us - (self._log_us + elapsed_us)
        slew_us = min(elapsed_us * SLEW_PER_MILLE // 1000, abs(gap_us))
        if gap_us < 0:
            self._log_us += elapsed_us - slew_us
        elif gap_us <= CLOCK_GAP_SLEWED_MAX_US:
            self._log_us += elapsed_us + slew_us
        else:
            self._log_us += elapsed_us
        self._note_gap(wall_us)
        return self._log_us

    def is_far_behind(self, wall_us: int) -> bool:
        """Whether log time would have to step to get there."""
        return wall_us - self._log_us > CLOCK_GAP_SLEWED_MAX_US

    def step(self, wall_us: int) -> None:
        """A majority's clocks, or an operator, say that the wall clock is right."""
        self._log_us = max(self._log_us, wall_us)
        self.step_wanted_us = 0

    def _note_gap(self, wall_us: int) -> None:
        gap_us = wall_us - self._log_us
        self.step_wanted_us = gap_us if gap_us > CLOCK_GAP_SLEWED_MAX_US else 0
