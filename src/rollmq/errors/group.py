"""Errors of the members of a group."""

from collections.abc import Sequence
from pathlib import Path

from rollmq.errors.base import RollmqError


class GroupOfSeveral(RollmqError):
    """`--role leader` on the directory of a member of a group of several. Nothing was changed."""

    def __init__(self, *, path: Path, voters: Sequence[str]) -> None:
        self.path = path
        super().__init__(
            f"{path} belongs to a member of a group of {len(voters)} ({', '.join(voters)}): leading by "
            f"itself it would be a second leader. Nothing was changed. Start it with --peers and without "
            f"--role leader, and the group elects; the others can be removed first: `rollmq members remove`."
        )


class RecoverRefused(RollmqError):
    """A new group cannot be made of this directory, or not there. Nothing was changed."""

    def __init__(self, *, path: Path, reason: str) -> None:
        self.path = path
        super().__init__(f"{path}: {reason}. Nothing was changed.")
