"""The quick storms: real nodes, clients and workers under weather, for seconds. `make storm-real` goes on.

And what the proof is worth: each lie that is planted into the books of a true storm is found.
"""

import copy
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.system.proof import Books, compared, prove
from tests.system.storm import run_storm

pytestmark = pytest.mark.slow


def test_one_node_in_a_storm_loses_nothing_and_every_planted_lie_is_found(tmp_path: Path) -> None:
    report = run_storm(tmp_path, seed=7, size=1, seconds=12)
    assert report.counts["kills of nodes"] >= 1
    assert report.counts["jobs done"] >= 100
    (state,) = tmp_path.glob("state-*")
    true = Books.in_folder(tmp_path)
    prove([state], true)
    for lie, words in LIES.items():
        books = copy.deepcopy(true)
        lie(books)
        with pytest.raises(AssertionError, match=words):
            prove([state], books)


def test_a_group_of_three_in_a_storm_loses_nothing_and_tells_nothing_untrue(tmp_path: Path) -> None:
    report = run_storm(tmp_path, seed=7, size=3, seconds=0)
    assert report.counts["kills of nodes"] >= 1
    assert report.counts["jobs done"] >= 100
    states = sorted(tmp_path.glob("state-*"))
    differs(states[0])
    with pytest.raises(AssertionError, match="differs at entry"):
        compared(states)


def differs(state: Path) -> None:
    """One line of one replica is another one."""
    path = min([*(state / "history").glob("events-*"), *(state / "wal").glob("events-*")])
    path.write_bytes(path.read_bytes().replace(b'"client_id":"ada"', b'"client_id":"eve"', 1))


def lost(books: Books) -> None:
    """Accepted, and not in the log."""
    books.accepted.add("0" * 32)


def untold(books: Books) -> None:
    """Accepted, and nobody heard how it ended."""
    del books.ends[min(books.accepted)]


def wrongly_told(books: Books) -> None:
    """A client heard of another end than the log's."""
    next(iter(books.ends.values()))[0]["told"] = "dropped"


def told_two_ends(books: Books) -> None:
    """A client heard of two."""
    notes = next(iter(books.ends.values()))
    notes.append({**notes[0], "told": "cancelled" if notes[0]["told"] == "done" else "done"})


def ran_twice(books: Books) -> None:
    """One attempt ran twice."""
    books.runs[next(iter(books.runs))] += 1


def ran_elsewhere(books: Books) -> None:
    """An attempt ran at a worker that did not have it."""
    job_id, attempt, _ = next(iter(books.runs))
    books.runs[job_id, attempt, "w99"] = 1


def never_ran(books: Books) -> None:
    """Done, and no handler began."""
    books.runs.clear()


def caught(books: Books) -> None:
    """A client itself saw that something was wrong."""
    books.lies.append({"text": "it ended as another job"})


LIES: Mapping[Callable[[Books], None], str] = {
    lost: "not in the log",
    untold: "nobody was told",
    wrongly_told: "told",
    told_two_ends: "told",
    ran_twice: "ran 2 times",
    ran_elsewhere: "w99",
    never_ran: "not run",
    caught: "another job",
}
