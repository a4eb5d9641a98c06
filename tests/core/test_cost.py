"""What an assignment costs, counted in lines and not in time: it may grow with nothing that grows.

Every executed line is counted, each turn of a loop anew, while jobs are handed out, ended and submitted. The
bound is generous; a walk over the backlog, the execs, the workers or a client's lanes is far beyond it.
"""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from tests.properties.hall import Hall

Trace = Callable[[FrameType, str, Any], Any]
GROWTH_MAX = 3.0
"""How much dearer the large case may be: heaps are logarithmic, and turns take a step or two."""
ROUNDS = 200


def lines_of(work: Callable[[], object]) -> int:
    """How many lines are executed: deterministic, and no loop escapes it."""
    count = 0

    def on_event(_frame: FrameType, event: str, _argument: object) -> Trace:
        nonlocal count
        count += event == "line"
        return on_event

    before = sys.gettrace()
    sys.settrace(on_event)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def cost_of(hall: Hall, workers: list[str], submit: Callable[[int], object]) -> float:
    """Lines per assignment while each worker in turn ends its job and takes another, and one is submitted."""
    running = {assigned.event.worker_id: assigned.event for assigned in hall.told()}

    def round_trips() -> None:
        for number in range(ROUNDS):
            worker_id = workers[number % len(workers)]
            submit(number)
            if worker_id in running:
                hall.end(running.pop(worker_id))
            for assigned in hall.take(worker_id, 1):
                running[assigned.event.worker_id] = assigned.event

    line_count = lines_of(round_trips)
    assert len(running) >= 1
    return line_count / ROUNDS


def _backlog(job_count: int) -> float:
    hall = Hall()
    for _ in range(job_count):
        hall.submit("c", "e")
    hall.worker("w", credit=1)
    return cost_of(hall, ["w"], lambda _: hall.submit("c", "e"))


def _execs(exec_count: int) -> float:
    hall = Hall()
    for number in range(exec_count):
        hall.submit("c", f"e{number}")
    hall.worker("w", credit=1)
    return cost_of(hall, ["w"], lambda number: hall.submit("c", f"e{number % exec_count}"))


def _workers(worker_count: int) -> float:
    hall = Hall()
    for _ in range(2 * worker_count + ROUNDS):
        hall.submit("c", "e")
    names = [f"w{number}" for number in range(worker_count)]
    for name in names:
        hall.worker(name, credit=1)
    return cost_of(hall, names, lambda _: hall.submit("c", "e"))


def _workers_of_their_own_execs(worker_count: int) -> float:
    hall = Hall()
    names = [f"w{number}" for number in range(worker_count)]
    for name in names:
        hall.worker(name, f"job.assign.{name}", credit=1)
        hall.submit("c", name)
    return cost_of(hall, names, lambda number: hall.submit("c", names[number % worker_count]))


def _clients(client_count: int) -> float:
    hall = Hall()
    for number in range(client_count):
        hall.submit(f"c{number}", "e")
        hall.submit(f"c{number}", "e")
    hall.worker("w", credit=1)
    return cost_of(hall, ["w"], lambda number: hall.submit(f"c{number % client_count}", "e"))


def _capped_client_everywhere(exec_count: int) -> float:
    """At its cap with jobs in every exec, beside another client that keeps the workers busy."""
    hall = Hall()
    hall.cap("capped", cap=1)
    for number in range(exec_count):
        hall.submit("capped", f"e{number}")
        hall.submit("capped", f"e{number}")
        hall.submit("other", f"e{number}")
    hall.worker("w", credit=1)
    hall.worker("v", credit=1)
    cost_of(hall, ["w"], lambda _: None)  # every exec has once had its turn
    return cost_of(hall, ["w", "v"], lambda number: hall.submit("other", f"e{number % exec_count}"))


def _delayed(job_count: int) -> float:
    hall = Hall()
    hall.worker("w", credit=1)
    for _ in range(job_count):
        hall.submit("c", "e")
    for job in list(hall.machine.jobs.values())[: job_count // 2]:
        hall.leader.operate.cancel(job.id, by="op", why="", to=None)
    return cost_of(hall, ["w"], lambda _: hall.submit("c", "e"))


@pytest.mark.parametrize(
    ("world", "small", "large"),
    [
        (_backlog, 300, 100_000),
        (_execs, 1, 5_000),
        (_workers, 10, 1_000),
        (_workers_of_their_own_execs, 10, 1_000),
        (_clients, 10, 5_000),
        (_capped_client_everywhere, 10, 2_000),
        (_delayed, 300, 20_000),
    ],
    ids=lambda value: value.__name__.strip("_") if callable(value) else str(value),
)
def test_an_assignment_costs_no_more_when_everything_is_more(
    world: Callable[[int], float], small: int, large: int
) -> None:
    cheap, dear = world(small), world(large)
    assert dear <= GROWTH_MAX * cheap, f"{cheap:.0f} lines per assignment grew to {dear:.0f}"


def test_taking_over_looks_at_no_backlog() -> None:
    def takeover_lines(job_count: int) -> int:
        hall = Hall()
        for _ in range(job_count):
            hall.submit("c", "e")
        return lines_of(hall.lead_again)

    assert takeover_lines(20_000) <= takeover_lines(10) + 5
