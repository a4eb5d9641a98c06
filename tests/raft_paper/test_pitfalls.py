"""Every known mistake of a Raft implementation (docs/rules.md) has a test that names it."""

from tests.raft_paper.pitfalls import held_by, pitfalls

PITFALLS_COUNT = 43


def test_the_page_has_all_pitfalls() -> None:
    assert list(pitfalls()) == list(range(1, PITFALLS_COUNT + 1))


def test_every_pitfall_is_held_by_a_test_or_scenario_that_names_it() -> None:
    assert [number for number, names in held_by().items() if not names] == []
