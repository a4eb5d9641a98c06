"""The bugs: where, what to replace by what, and which test must fail then.

When a plant no longer fits, the source has moved on: find the line that now carries the rule.
"""

from typing import Final, NamedTuple


class Bug(NamedTuple):
    """One planted bug."""

    name: str
    path: str
    old: str
    new: str
    tests: tuple[str, ...]


BUGS: Final[tuple[Bug, ...]] = ()
