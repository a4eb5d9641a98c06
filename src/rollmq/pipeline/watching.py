"""Watching live nodes: new entries become tables every few seconds, and how far behind they are is told.

Each round is a run like any other. Where it begins is in the pointer, which moves with the tables: there is
no checkpoint beside it that could be lost, or say something else.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from rollmq.errors import OperatorError
from rollmq.library.operator import OperatorConnection
from rollmq.pipeline.errors import SourceUnreadable
from rollmq.pipeline.live import find_end
from rollmq.pipeline.runs import History, Sources
from rollmq.pipeline.warehouse import Reached


@dataclass(frozen=True, slots=True)
class Lag:
    """How far the tables are behind a group's committed log."""

    group: str
    taken: int
    behind: int
    seconds: float
    """The last batch took."""
    age_s: float
    """How old the newest entry is that was taken: log time beside this machine's clock."""


def watch(
    history: History,
    sources: Sources,
    *,
    every_s: float,
    rounds: int | None,
    on_lag: Callable[[Lag], None],
    on_silence: Callable[[str], None] = lambda _why: None,
    confirm_as: str = "",
) -> None:
    """Take what is new again and again, until interrupted, or so many rounds. A node that does not answer is
    asked again in the next round: it may be in an election, or restarting. That is told, too."""
    done = 0
    while rounds is None or done < rounds:
        began = time.monotonic()
        try:
            report = history.update(sources)
            taken_s = time.monotonic() - began
            _tell(sources, report.reached, taken_s, on_lag)
            if confirm_as:
                confirm(sources, confirm_as, report.reached)
        except SourceUnreadable as error:
            if rounds is not None:
                raise
            on_silence(str(error))
        done += 1
        if rounds is None or done < rounds:
            time.sleep(max(0.0, every_s - (time.monotonic() - began)))


def _tell(
    sources: Sources, reached: dict[str, Reached], taken_s: float, on_lag: Callable[[Lag], None]
) -> None:
    end = find_end(sources.server, token=sources.token) if sources.server else None
    for group, each in sorted(reached.items()):
        newest = end.last if end is not None and end.group == group else each.bronze_index
        age_s = max(time.time() - each.at_us / 1_000_000, 0.0)
        on_lag(Lag(group, each.bronze_index, max(newest - each.bronze_index, 0), taken_s, age_s))


def confirm(sources: Sources, name: str, reached: dict[str, Reached]) -> int | None:
    """Tell the group that its history up to here has been taken, so that it may be dropped by age."""
    end = find_end(sources.server, token=sources.token)
    taken = reached.get(end.group)
    if taken is None:
        return None
    try:
        with OperatorConnection(sources.server, by=name, token=sources.token) as node:
            node.ask("pipeline_confirm", {"name": name, "index": taken.bronze_index}, is_command=True)
    except OperatorError as error:
        raise SourceUnreadable(place=sources.server, reason=f"the confirmation failed: {error}") from error
    return taken.bronze_index
