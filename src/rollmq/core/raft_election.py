"""Counts votes, per round and per voter. Pure; raft.py decides when a round begins and what its end means."""

from collections.abc import Set


def quorum_of(voters_count: int) -> int:
    """How many of so many voters are a majority."""
    return voters_count // 2 + 1


class Ballot:
    """The votes of one round. Every voter counts once, nobody else at all (pitfall 10)."""

    __slots__ = ("_granted", "_refused", "_voters", "asked_term", "is_pre")

    def __init__(self, *, asked_term: int, is_pre: bool, voters: Set[str]) -> None:
        self.asked_term = asked_term
        """Answers to another term's request do not count."""
        self.is_pre = is_pre
        self._voters = voters
        self._granted: set[str] = set()
        self._refused: set[str] = set()

    def record(self, voter: str, *, granted: bool) -> None:
        """Take one answer. The first of each voter holds; strangers are ignored."""
        if voter in self._voters and voter not in self._granted and voter not in self._refused:
            (self._granted if granted else self._refused).add(voter)

    @property
    def is_won(self) -> bool:
        """A majority of all voters said yes (5.2)."""
        return len(self._granted) >= quorum_of(len(self._voters))

    @property
    def is_lost(self) -> bool:
        """So many said no that a majority cannot come any more."""
        return len(self._refused) > len(self._voters) - quorum_of(len(self._voters))
