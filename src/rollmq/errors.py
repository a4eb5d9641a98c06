"""Every error a user can meet. The message says what happened, where, what changed, what to do."""

from collections.abc import Sequence
from pathlib import Path


class RollmqError(Exception):
    """The base of all errors of rollmq."""


# --- wire -----------------------------------------------------------------------------------------


class ProtocolError(RollmqError):
    """The other side sent what the protocol does not allow. The message was dropped; nothing was changed.

    `code` is that of the Error frame which answers it; when `closes`, the bytes behind it cannot be
    trusted and the connection ends, otherwise it goes on with the next frame.
    """

    def __init__(
        self, *, code: str, text: str, closes: bool, request_id: bytes = bytes(16), request_type: int = 0
    ) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.closes = closes
        self.request_id = request_id
        self.request_type = request_type


class MessageTooLarge(RollmqError):
    """A message of ours is over a limit of the protocol. It was not sent; nothing was changed."""

    def __init__(self, *, part: str, size: int, size_max: int) -> None:
        super().__init__(
            f"the message's {part} has {size:,} bytes, at most {size_max:,} are allowed. Nothing was sent. "
            f"Make it smaller, or store the data elsewhere and send a reference to it."
        )


# --- store: the state directory -------------------------------------------------------------------


class StateError(RollmqError):
    """The base of all errors about a state directory."""


class StoreFailed(StateError):
    """A write, sync or rename failed. What was being written is unknown, and the store takes nothing more."""

    def __init__(self, *, path: Path, operation: str, reason: str, is_full: bool = False) -> None:
        self.path = path
        self.is_full = is_full
        cure = (
            "Free some disk space and start the node again."
            if is_full
            else "Check the disk (kernel log, SMART), then start the node again: it reads what is there."
        )
        super().__init__(
            f"{path}: {operation} failed: {reason}. The node stops: after a failed write nobody "
            f"knows what is on disk, so it is not repeated. Nothing unconfirmed was reported as done. {cure}"
        )


class StateDamaged(StateError):
    """A file of the state directory is not what was written, or missing. Nothing was changed."""

    def __init__(self, *, path: Path, reason: str, places: Sequence[str] = ()) -> None:
        self.path = path
        self.reason = reason
        self.places = tuple(places) or (f"{path}: {reason}",)
        more = f" All damaged places: {'; '.join(self.places)}." if len(self.places) > 1 else ""
        super().__init__(
            f"{path}: {reason}.{more} Nothing was changed. A node that is alone: restore the directory from "
            f"a backup; what came after it is lost. A member of a group: never an old copy, which could vote "
            f"twice; bring it in again as a new member, with an empty directory."
        )


class WalCorrupt(StateDamaged):
    """The log before its unfinished tail is damaged. The node did not start; nothing was changed."""

    def __init__(self, *, path: Path, line: int, reason: str, places: Sequence[str] = ()) -> None:
        self.line = line
        where = f"line {line}: {reason}" if line else reason
        super().__init__(
            path=path,
            reason=f"{where} (this had been synced, so it is damage and not a torn write)",
            places=places,
        )


class DirectoryInUse(StateError):
    """Another process holds the state directory. Nothing was changed."""

    def __init__(self, *, path: Path, holder: str) -> None:
        self.path = path
        self.holder = holder
        super().__init__(
            f"{path} is in use by another node (process {holder or 'unknown'}). Nothing was changed. "
            f"Stop that process first, or give this node a directory of its own with --state."
        )


class NotAStateDirectory(StateError):
    """The folder holds something else, or nothing that rollmq wrote. Nothing was changed."""

    def __init__(self, *, path: Path, reason: str) -> None:
        self.path = path
        super().__init__(
            f"{path} is not a state directory of rollmq: {reason}. Nothing was changed. "
            f"Name the directory in which a node keeps its state; a new node begins in an empty one."
        )


class WrongFormatVersion(StateError):
    """The files were written in a format that this release does not read. Nothing was changed."""

    def __init__(self, *, path: Path, found: int, expected: int) -> None:
        self.path = path
        self.found = found
        super().__init__(
            f"{path} has format version {found}, this release reads version {expected}. Nothing was changed. "
            f"Start it with the release that wrote it, or a newer one."
        )


class StateNotAccessible(StateError):
    """The system refused access to a file or folder of the state directory. Nothing was changed."""

    def __init__(self, *, path: Path, reason: str) -> None:
        self.path = path
        super().__init__(
            f"{path}: {reason}. Nothing was changed. "
            f"Give this user the right to read (and, to serve, to write) the directory and what is in it."
        )


class EntriesGone(StateError):
    """The entries asked for are no longer, or not yet, in this log. Nothing was changed."""

    def __init__(self, *, index: int, first_index: int, next_index: int) -> None:
        self.index = index
        self.first_index = first_index
        self.next_index = next_index
        super().__init__(
            f"entry {index} is not in this log, which holds {first_index} to {next_index - 1}. "
            f"Begin at a later index, or from the snapshot or base before it."
        )
