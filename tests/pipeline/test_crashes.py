"""A run that dies between any two changes of the disk, tidying up and taking back included, and then again:
the next one that lives gives the same rows. No Spark is needed to see it.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from deltalake import DeltaTable

from rollmq.pipeline import delta, warehouse
from rollmq.pipeline.runs import History
from rollmq.pipeline.tables import JOBS_OPEN, REJECTS
from rollmq.pipeline.warehouse import Reached, Warehouse
from tests.pipeline.test_warehouse import Died, seen, stage

NO_SPARK: Any = SimpleNamespace(conf=SimpleNamespace(set=lambda _name, _value: None))
"""Publishing and tidying up ask nothing of Spark."""
STEPS_MAX = 60
"""More than any run has: the loop below must end by itself."""


def run_once(house: Warehouse, number: int) -> None:
    """A run that appends to one table, replaces another, publishes and tidies up. Taken before: nothing."""
    with house.run() as run:
        if run.base.groups.get("g", Reached()).bronze_index >= number:
            return
        run.add(REJECTS, stage(run, REJECTS, "r", [{"group": "g", "index": number}]))
        run.add(JOBS_OPEN, stage(run, JOBS_OPEN, "o", [{"group": "g", "job_id": str(number)}]), replaces=True)
        run.publish({"g": Reached(number, number, number)})
        History(NO_SPARK, house)._tidy(run)


@contextmanager
def dying_at(monkeypatch: pytest.MonkeyPatch, step: int) -> Iterator[list[str]]:
    """Die before the change of the disk with this number; the names of all that were come out."""
    told: list[str] = []

    def watched(owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def wrapper(*args: Any, **options: Any) -> Any:
            told.append(name)
            if len(told) >= step:
                raise Died  # and who is dead does nothing more: no clearing away either
            return real(*args, **options)

        patched.setattr(owner, name, wrapper)

    with monkeypatch.context() as patched:
        for owner, names in (
            (delta.DeltaFolder, "adopt commit compact forget take_back"),
            (warehouse.Run, "point"),
            (warehouse.os, "fsync"),
            (warehouse.shutil, "rmtree"),
            (delta, "create_table_with_add_actions"),
            (DeltaTable, "create_write_transaction restore vacuum"),
            (Path, "replace rename"),
        ):
            for name in names.split():
                watched(owner, name)
        yield told


def rows_of_newest(house: Warehouse) -> list[int]:
    """What a reader finds who knows nothing of the pointer."""
    found = DeltaTable(str(house.path / REJECTS.name)).to_pyarrow_table()
    return sorted(found.column("index").to_pylist())


@pytest.mark.parametrize("runs_before", [0, 3])
def test_a_death_at_every_step_one_after_the_other_changes_nothing_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs_before: int
) -> None:
    """Each run goes one step further than the one before it, until one comes through."""
    monkeypatch.setattr(delta, "COMPACT_FILES", 3)
    house = Warehouse(tmp_path)
    for number in range(1, runs_before + 1):
        run_once(house, number)
    wanted = runs_before + 1
    before, after = (list(range(1, count + 1)) for count in (runs_before, wanted))
    died_at: set[str] = set()
    for step in range(1, STEPS_MAX):
        with dying_at(monkeypatch, step) as told:
            try:
                run_once(house, wanted)
            except Died:
                died_at.add(told[step - 1])
        assert seen(house) in (
            (before, [str(runs_before)] if runs_before else []),
            (after, [str(wanted)]),
        ), f"step {step}: {told}"
        if len(told) < step:
            break
    assert died_at >= {"rmtree", "adopt", "commit", "point", "fsync", "replace"}
    assert not runs_before or died_at >= {"take_back", "create_write_transaction"}
    run_once(house, wanted)
    assert seen(house) == (after, [str(wanted)])
    assert rows_of_newest(house) == after


@pytest.mark.slow
def test_a_death_while_a_death_is_taken_back_changes_nothing_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every first death, tidying up included; after each, deaths while it is taken back."""
    monkeypatch.setattr(delta, "COMPACT_FILES", 3)
    template = Warehouse(tmp_path / "template")
    for number in (1, 2):
        run_once(template, number)
    died_at: set[str] = set()
    for step in range(1, STEPS_MAX):
        first = Warehouse(tmp_path / f"first{step}")
        shutil.copytree(template.path, first.path)
        with dying_at(monkeypatch, step) as told, suppress(Died):
            run_once(first, 3)
        if len(told) < step:
            compacted = first.folder(REJECTS).files(first.published().versions["rejects"])
            assert len(compacted) == 1, "the pointer names the version that was made small"
            break
        died_at.add(told[step - 1])
        for later in (1, 3, 5, 8):
            second = Warehouse(tmp_path / f"second{step}-{later}")
            shutil.copytree(first.path, second.path)
            with dying_at(monkeypatch, later), suppress(Died):
                run_once(second, 3)
            run_once(second, 3)
            assert seen(second) == ([1, 2, 3], ["3"])
            assert rows_of_newest(second) == [1, 2, 3]
    assert died_at >= {"compact", "forget", "vacuum", "point", "commit", "adopt"}
