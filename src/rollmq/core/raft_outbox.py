"""What leaves the core, and what must be on disk before it may.

Every message reveals a term, and some a vote: while the two are not on disk it waits for the Write that
carries them (pitfalls 1 and 3). It decides nothing; raft.py says what to send.
"""

from rollmq.core.raft_follower import Following
from rollmq.core.raft_log import RaftLog
from rollmq.core.raft_messages import PeerMessage
from rollmq.core.raft_ready import HardState, Write


class Outbox:
    """Messages that may leave, messages that wait, and the one Write that is out."""

    __slots__ = ("_after", "_free", "_outstanding", "_write_bytes_max", "durable", "hard_state")

    def __init__(self, *, hard_state: HardState, write_bytes_max: int) -> None:
        self.hard_state = hard_state
        """Term and vote as they are."""
        self.durable = hard_state
        """Term and vote as they are on disk."""
        self._write_bytes_max = write_bytes_max
        self._free: list[PeerMessage] = []
        self._after: list[PeerMessage] = []
        self._outstanding: Write | None = None

    @property
    def is_durable(self) -> bool:
        """Term and vote are on disk."""
        return self.hard_state == self.durable

    @property
    def is_writing(self) -> bool:
        """A Write is out."""
        return self._outstanding is not None

    @property
    def is_empty(self) -> bool:
        """No message may leave now."""
        return not self._free

    def send(self, message: PeerMessage) -> None:
        """Let it leave as soon as term and vote are on disk."""
        (self._free if self.hard_state is self.durable or self.is_durable else self._after).append(message)

    def new_term(self, hard_state: HardState) -> None:
        """Term and vote change. Messages of the old term have lost their meaning and stay unsent."""
        self.hard_state = hard_state
        self._free.clear()
        self._after.clear()

    def take_free(self) -> tuple[PeerMessage, ...]:
        """The messages that may leave now."""
        messages = tuple(self._free)
        self._free.clear()
        return messages

    def release(self, following: Following) -> None:
        """Free what waited for a Write that is done now."""
        if self._after and self.is_durable:
            self._free += self._after
            self._after.clear()
        confirmation = following.confirm_durable()
        if confirmation is not None:
            self.send(confirmation)

    def next_write(self, log: RaftLog, following: Following) -> Write | None:
        """What to make durable next; None when nothing, or when a Write is out already."""
        if self._outstanding is not None:
            return None
        hard_state = None if self.is_durable else self.hard_state
        if hard_state is None and not log.is_unwritten:
            assert not self._after, "nothing waits for a Write that will not come"
            return None
        first_index, truncate_from = log.handed_index + 1, log.truncate_from
        lines = log.hand_out(self._write_bytes_max)
        confirmation = following.confirm(log.handed_index)
        if confirmation is not None:
            self._after.append(confirmation)
        self._outstanding = Write(hard_state, truncate_from, first_index, lines, tuple(self._after))
        self._after.clear()
        return self._outstanding

    def persisted(self, write: Write) -> None:
        """This Write is durable."""
        assert write is self._outstanding, "the one Write that is out"
        self._outstanding = None
        if write.hard_state is not None:
            self.durable = write.hard_state
