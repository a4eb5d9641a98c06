"""Reading the log from nodes that run: committed lines by ReadLog, from followers first.

A node gives only what is committed, so nothing that is read can be taken back. It changes nothing there.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from rollmq.errors import OperatorError, QueryRefused
from rollmq.library.operator import OperatorConnection
from rollmq.limits import READ_LOG_BYTES_MAX
from rollmq.pipeline.errors import BadOption, NodesUnreadable, SourceUnreadable
from rollmq.pipeline.lines import LineParser

TASK_ENTRIES: Final = 100_000
"""Entries of one task: some 25 MB through one connection."""
HISTORY_GONE: Final = "history_gone"


@dataclass(frozen=True, slots=True)
class LiveEnd:
    """How far a group's committed log goes, and who can be asked for it, followers first."""

    group: str
    last: int
    servers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LivePiece:
    """Entries `first` to `last`, to be asked of any of these nodes."""

    group: str
    first: int
    last: int
    servers: tuple[str, ...]


def find_end(servers: str, *, token: str = "", group: str = "") -> LiveEnd:
    """Where the committed log of these nodes' group ends. Raises SourceUnreadable when none answers, and
    BadOption when it is another group's than `group`."""
    found: list[tuple[bool, str, str, int]] = []
    reasons: list[str] = []
    for server in (each.strip() for each in servers.split(",") if each.strip()):
        try:
            with OperatorConnection(server, by="history", token=token) as node:
                status = node.ask("status")
                found.append((status["role"] == "leader", server, status["group"], status["commit_index"]))
        except (OperatorError, ValueError) as error:
            reasons.append(str(error))
    groups = {group for _leads, _server, group, _commit in found}
    if reasons and not found:
        raise NodesUnreadable(reasons=reasons)
    if not found:
        raise SourceUnreadable(place=servers, reason="no server is named")
    if len(groups) > 1:
        raise SourceUnreadable(place=servers, reason=f"these nodes are of {len(groups)} groups; name one's")
    if group and group not in groups:
        raise BadOption(name="group", value=group, expected=f"that of {servers}: {groups.pop()}")
    ordered = tuple(server for _leads, server, _group, _commit in sorted(found, key=lambda each: each[0]))
    return LiveEnd(groups.pop(), max(commit for *_rest, commit in found), ordered)


def live_pieces(end: LiveEnd, first: int, last: int) -> list[LivePiece]:
    """What to ask for the entries from `first` to `last`, as far as the log goes."""
    last = min(last, end.last)
    return [
        LivePiece(end.group, start, min(start + TASK_ENTRIES - 1, last), end.servers)
        for start in range(first, last + 1, TASK_ENTRIES)
    ]


def read_live(piece: LivePiece, parser: LineParser, *, token: str = "") -> Iterator[Any]:
    """Batches of the rows of a piece. A node that fails in the middle is followed by the next one."""
    at = piece.first
    reasons: list[str] = []
    for server in piece.servers:
        try:
            with OperatorConnection(server, by="history", token=token) as node:
                while at <= piece.last:
                    chunk = node.read_log(at, bytes_max=READ_LOG_BYTES_MAX)
                    if not chunk.first_index:
                        break  # a follower that is behind: the next one may have it
                    if chunk.group != piece.group:
                        raise SourceUnreadable(place=server, reason=f"it is of group {chunk.group} now")
                    lines, count = _until(chunk.lines, chunk.last_index - at + 1, piece.last - at + 1)
                    yield from parser.parse(
                        lines, first_index=at, place=server, first_line=0, checks_crc=True
                    )
                    at += count
        except QueryRefused as error:
            reasons.append(_plain(server, error))
        except OperatorError as error:
            reasons.append(str(error))
        if at > piece.last:
            return
    reason = "; ".join(reasons) or f"no node has entry {at} although it was committed"
    raise SourceUnreadable(place=",".join(piece.servers), reason=reason)


def _until(lines: bytes, count: int, count_max: int) -> tuple[bytes, int]:
    if count <= count_max:
        return lines, count
    return b"".join(lines.splitlines(keepends=True)[:count_max]), count_max


def _plain(server: str, error: QueryRefused) -> str:
    if error.code == HISTORY_GONE:
        return f"{server} has dropped what is asked for: add the archive with --source ({error})"
    return str(error)
