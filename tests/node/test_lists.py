"""Lists come in pages: complete while little changes, bounded in work, honest about what may be missing."""

import pytest

from rollmq.node import query_lists
from rollmq.node.query_lists import Walked, walk


def page(items: list[int], after: str, limit: int = 10, *, wanted: int = 1) -> Walked[int]:
    return walk(
        items,
        after,
        limit=limit,
        name_of=str,
        order_of=lambda item: item,
        is_wanted=lambda n: n % wanted == 0,
    )


def all_pages(items: list[int], limit: int = 10, *, wanted: int = 1) -> list[int]:
    found, after, is_first = [], "", True
    while after or is_first:
        walked = page(items, after, limit, wanted=wanted)
        assert not walked.may_miss
        found += walked.found
        after, is_first = walked.after, False
    return found


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 100])
def test_every_row_comes_once_however_long_the_list(count: int) -> None:
    assert all_pages(list(range(count))) == list(range(count))


def test_rows_that_go_between_two_pages_hide_none_behind_them() -> None:
    items = list(range(100))
    first = page(items, "")
    del items[:7]  # they ended
    items.append(100)
    second = page(items, first.after)
    assert second.found == list(range(10, 20))
    assert not second.may_miss


def test_the_row_of_the_cursor_may_go_itself() -> None:
    items = list(range(100))
    first = page(items, "")
    del items[5:12]
    second = page(items, first.after)
    assert second.found == list(range(12, 22))
    assert second.may_miss


def test_a_filter_that_lets_nothing_through_looks_at_a_bounded_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(query_lists, "QUERY_LOOKS_MAX", 30)
    looked = 0

    def is_wanted(_item: int) -> bool:
        nonlocal looked
        looked += 1
        return False

    walked = walk(range(1000), "", limit=10, name_of=str, is_wanted=is_wanted)
    assert (walked.found, looked, bool(walked.after)) == ([], 30, True)
    assert all_pages(list(range(100)), wanted=40) == [0, 40, 80]


def test_a_list_ends_at_its_deepest_row_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_lists, "QUERY_PLACE_MAX", 25)
    items = list(range(100))
    second = page(items, page(items, "").after)
    last = page(items, second.after)
    assert (last.found, last.after, last.may_miss) == ([20, 21, 22, 23, 24], "", True)


@pytest.mark.parametrize(
    "cursor", ["x", "1:2", "-1:0:a", "99999999999999999999:0:a", "9" * 17 + ":0:a", "::"]
)
def test_a_cursor_that_nobody_gave_out_is_no_trouble(cursor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_lists, "QUERY_PLACE_MAX", 1_000)
    walked = page(list(range(50)), cursor)
    assert len(walked.found) in (0, 10)
