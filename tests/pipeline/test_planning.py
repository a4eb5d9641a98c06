"""Each entry is read once, whatever files there are; what no file holds cannot be overlooked."""

import random
from collections.abc import Sequence

import pytest

from rollmq.pipeline.errors import HistoriesDiffer
from rollmq.pipeline.places import DeclaredGap, Found, Segment
from rollmq.pipeline.planning import Missing, Piece, pack, plan_parts

SEGMENTS = ((1, 10), (11, 30), (31, 31), (32, 80))


def _found(*ranges: tuple[int, int], gaps: Sequence[DeclaredGap] = ()) -> Found:
    return Found(tuple(Segment("g", first, last, f"f{first}") for first, last in ranges), tuple(gaps), ())


def _covered(parts: Sequence[object]) -> list[int]:
    return [
        index
        for part in parts
        if isinstance(part, Piece | Missing)
        for index in range(part.first, part.last + 1)
    ]


@pytest.mark.parametrize("seed", range(20))
def test_every_entry_in_range_is_in_exactly_one_part(seed: int) -> None:
    chance = random.Random(seed)
    kept = [each for each in SEGMENTS if chance.random() < 0.8] or [SEGMENTS[0]]
    start, end = sorted((chance.randint(1, 80), chance.randint(1, 80)))
    parts = plan_parts(_found(*kept), start=start, end=end)
    last = max((each[1] for each in kept if each[0] <= end), default=0)
    assert _covered(parts) == list(range(start, min(end, last) + 1))


def test_copies_of_a_segment_are_one_part_with_several_files() -> None:
    found = Found((Segment("g", 1, 10, "a"), Segment("g", 1, 10, "b")), (), ())
    (part,) = plan_parts(found)
    assert isinstance(part, Piece)
    assert part.urls == ("a", "b")
    assert part.is_whole


def test_what_is_missing_is_told_apart_from_a_declared_gap() -> None:
    gap = DeclaredGap("g", 1, 10, "retention")
    parts = plan_parts(_found((11, 30), (32, 80), gaps=[gap]))
    assert [(part.first, part.last, part.kind) for part in parts if isinstance(part, Missing)] == [
        (1, 10, "gap"),
        (31, 31, "missing"),
    ]


@pytest.mark.parametrize("other", [(5, 10), (11, 25), (8, 14), (1, 30)])
def test_segments_of_two_histories_are_refused_and_not_mixed(other: tuple[int, int]) -> None:
    with pytest.raises(HistoriesDiffer, match="two histories"):
        plan_parts(_found((1, 10), (11, 30), (31, 40), other), start=31)


def test_groups_are_planned_apart_and_each_from_its_own_start() -> None:
    found = Found((Segment("g", 1, 10, "a"), Segment("h", 1, 5, "b")), (), ())
    parts = plan_parts(found, starts={"g": 8, "h": 6})
    assert [(part.group, part.first, part.last) for part in parts] == [("g", 8, 10)]


def test_small_segments_share_a_task_and_large_ones_do_not() -> None:
    small = [Piece("g", n, n, n, n, ("f",), 100) for n in range(1, 1000)]
    assert len(pack(small)) == 1
    large = [Piece("g", n, n, n, n, ("f",), 400_000_000) for n in range(1, 4)]
    assert len(pack(large)) == 3


@pytest.mark.parametrize(("millions", "tasks"), [(1, 9), (10, 34), (100, 100)])
def test_much_work_is_shared_by_many_tasks_and_each_has_enough_to_do(millions: int, tasks: int) -> None:
    """Tasks that are too small leave too many files, and too few tasks leave executors idle."""
    ends = range(1, millions * 1_000_000, 30_000)
    packed = pack([Piece("g", first, first + 29_999, first, first + 29_999, ("f",), 9) for first in ends])
    assert tasks * 0.9 <= len(packed) <= tasks * 1.1
    assert [part for batch in packed for part in batch] == [
        Piece("g", first, first + 29_999, first, first + 29_999, ("f",), 9) for first in ends
    ]
