"""Every bound of rollmq, its unit in its name, its reason beside it. Nothing else may hold a bound."""

from typing import Final

# Execs, subjects
SUBJECT_BYTES_MAX: Final = 255
"""Of a subject or pattern: long enough for any naming scheme, short enough to be a key."""

# Scheduling
AGEING_BUDGET_PER_EVENT: Final = 8
"""Delays and ageings that one applied event carries out: more than one job can bring, and bounded."""
AGEING_BUDGET_PER_TICK: Final = 2_000
"""The same for a tick of the leader: some milliseconds of work."""
EXPLAIN_WALK_MAX: Final = 10_000
"""Jobs of a lane that `explain` counts; behind that it says "at least"."""
