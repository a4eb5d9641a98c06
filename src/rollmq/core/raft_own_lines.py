"""Lines of a node's own log that its machine still lacks and memory no longer holds: after a start, mostly.

The host reads them, a piece at a time; what one turn does not take waits here for the next. It applies
nothing, and gives nothing that was asked for before the log was cut: new leaders read uncommitted lines too.
"""

from rollmq.core.raft_ready import ReadLines


class OwnLines:
    """At most one piece, read or being read."""

    __slots__ = ("_asked", "_first_index", "_lines", "reads")

    def __init__(self) -> None:
        self.reads: list[ReadLines] = []
        """For the host, collected by the next Ready."""
        self._asked: ReadLines | None = None
        """What the host reads now."""
        self._first_index = 0
        self._lines: list[bytes] = []

    def take(self, request: ReadLines, lines_max: int) -> list[bytes] | None:
        """The first lines of what is requested; None: they are being read, and the host is asked to."""
        if self._lines and self._first_index == request.first_index:
            count = min(lines_max, request.last_index + 1 - request.first_index)
            taken = self._lines[:count]
            self._first_index += len(taken)
            del self._lines[:count]
            return taken
        if self._asked is None:
            self._asked = request
            self.reads.append(request)
        return None

    def read(self, request: ReadLines, lines: list[bytes]) -> None:
        """The host's answer."""
        if request is self._asked:
            self._asked = None
            self._first_index, self._lines = request.first_index, lines

    def cut(self) -> None:
        """The log was cut: what was read, or is being read, may no longer be what it says."""
        self._asked = None
        self._lines = []
