"""The small parts against naive models: events, timers, subjects, log time, backoff, the canonical state."""

import types
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollmq.core.attempts import backoff_us
from rollmq.core.events import AnyEvent, Backoff, Part
from rollmq.core.line import decode_line, encode_line
from rollmq.core.log_time import LogTime
from rollmq.core.state import StateDamaged, dump_state, load_state
from rollmq.core.subject import matches
from rollmq.core.timers import Timers
from tests.properties.story import played

EVENT_TYPES = get_args(AnyEvent)
NUMBERS = st.integers(0, 2**53)


def _values(hint: Any) -> st.SearchStrategy[Any]:
    """What a field of this type may hold."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return st.one_of([_values(part) for part in arguments])
    if origin is list:
        return st.lists(_values(arguments[0]), max_size=3)
    if origin is dict:
        return st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3)
    if origin is tuple:
        return st.tuples(*(_values(part) for part in arguments))
    if isinstance(hint, type) and issubclass(hint, Part):
        return _structs(hint)
    plain = {
        int: NUMBERS,
        str: st.text(max_size=20),
        bytes: st.binary(max_size=20),
        bool: st.booleans(),
        float: st.floats(allow_nan=False, allow_infinity=False),
        type(None): st.none(),
    }
    return plain[hint]


def _structs(kind: type) -> st.SearchStrategy[Any]:
    return st.builds(kind, **{name: _values(hint) for name, hint in get_type_hints(kind).items()})


@pytest.mark.parametrize("kind", EVENT_TYPES, ids=lambda kind: kind.__name__)
@settings(max_examples=30)
@given(data=st.data())
def test_an_event_is_read_as_it_was_written(kind: type, data: st.DataObject) -> None:
    event = data.draw(_structs(kind))
    line = encode_line(event)
    assert line.count(b"\n") == 1
    assert decode_line(line) == event


class _Model:
    """Timers as one would write them without caring for cost."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, int, int]] = []

    def pop_due(self, now_us: int, dead: set[int]) -> list[int]:
        due = sorted(entry for entry in self.entries if entry[0] <= now_us)
        self.entries = [entry for entry in self.entries if entry[0] > now_us]
        return [item for _, _, item in due if item not in dead]


@given(st.lists(st.tuples(st.sampled_from(("push", "cancel", "pop")), st.integers(0, 50)), max_size=600))
def test_timers_give_what_a_sorted_list_gives(steps: list[tuple[str, int]]) -> None:
    dead: set[int] = set()
    timers: Timers[int] = Timers(lambda item, _due_us: item not in dead)
    model = _Model()
    now_us = 0
    for number, (verb, amount) in enumerate(steps):
        if verb == "push":
            timers.push(now_us + amount, number)
            model.entries.append((now_us + amount, number, number))
        elif verb == "cancel" and (alive := [e for e in model.entries if e[2] not in dead]):
            dead.add(alive[amount % len(alive)][2])
            timers.cancelled()
        elif verb == "pop":
            now_us += amount
            assert list(timers.pop_due(now_us)) == model.pop_due(now_us, dead)
        live = [entry[0] for entry in model.entries if entry[2] not in dead]
        assert not live or (timers.next_due_us is not None and timers.next_due_us <= min(live))
        assert len(timers) <= max(256, 2 * len(live) + 1)


def test_cancelled_timers_do_not_pile_up() -> None:
    """Most are cancelled long before they are due; memory is bounded by those that are not."""
    dead: set[int] = set()
    timers: Timers[int] = Timers(lambda item, _due_us: item not in dead)
    for number in range(5_000):
        timers.push(1_000 + number, number)
        if number % 50:
            dead.add(number)
            timers.cancelled()
        assert len(timers) <= max(257, 2 * (number + 1 - len(dead)) + 1)
    assert list(timers.pop_due(10_000)) == list(range(0, 5_000, 50))


TOKENS = st.sampled_from(("a", "b", "image"))
SUBJECTS = st.lists(TOKENS, min_size=1, max_size=4)


@settings(max_examples=400)
@given(st.lists(st.one_of(TOKENS, st.just("*")), max_size=4), st.booleans(), SUBJECTS)
def test_a_pattern_matches_as_its_definition_says(
    wanted: list[str], is_open: bool, given_: list[str]
) -> None:
    pattern = [*wanted, ">"] if is_open or not wanted else wanted

    def naive(pattern: list[str], subject: list[str]) -> bool:
        if not pattern:
            return not subject
        if pattern[0] == ">":
            return bool(subject)
        return bool(subject) and pattern[0] in ("*", subject[0]) and naive(pattern[1:], subject[1:])

    assert matches(".".join(pattern), ".".join(given_)) == naive(pattern, given_)


@given(
    st.integers(0, 10**15),
    st.lists(
        st.tuples(st.integers(-1_000, 10_000_000), st.integers(-(10**12), 10**12)), min_size=1, max_size=60
    ),
)
def test_log_time_never_runs_backwards_and_never_freezes(start: int, steps: list[tuple[int, int]]) -> None:
    """Whatever the wall clock does; a monotonic clock that jumps back a little counts as standing still."""
    mono, newest = 0, 0
    clock = LogTime(last_at_us=start, mono_us=0, wall_us=start)
    before = start
    for step, gap in steps:
        mono += step
        passed, newest = max(mono - newest, 0), max(mono, newest)
        now = clock.read(mono_us=mono, wall_us=start + gap)
        assert before + passed * 95 // 100 <= now <= before + passed * 105 // 100 + 1
        assert now > before or passed == 0
        before = now


@given(
    st.integers(0, 10**7),
    st.floats(1, 100),
    st.integers(0, 10**9),
    st.floats(0, 1),
    st.integers(0, 1_000),
    st.floats(0, 1),
)
def test_a_backoff_is_never_longer_than_its_longest_nor_negative(
    first: int, factor: float, more: int, jitter: float, tries: int, chance: float
) -> None:
    backoff = Backoff(first, factor, first + more, jitter)
    pause = backoff_us(backoff, tries, chance)
    assert 0 <= pause <= backoff.max_us
    assert pause >= int(min(first, backoff.max_us) * (1 - jitter))
    assert backoff_us(backoff, tries + 1, 0.0) >= backoff_us(backoff, tries, 0.0)


@settings(max_examples=80)
@given(st.integers(0, 2**32), st.integers(20, 120), st.data())
def test_a_damaged_state_never_becomes_a_machine(seed: int, steps: int, data: st.DataObject) -> None:
    whole = list(dump_state(played(seed, steps).machine))
    at = data.draw(st.integers(0, len(whole) - 1))
    lines = list(whole)
    kind = data.draw(st.sampled_from(("flip", "cut", "drop", "twice", "end early", "swap", "behind")))
    if kind == "flip":
        place, bit = data.draw(st.integers(0, len(lines[at]) - 1)), data.draw(st.integers(0, 7))
        lines[at] = lines[at][:place] + bytes([lines[at][place] ^ 1 << bit]) + lines[at][place + 1 :]
    elif kind == "cut":
        lines[at] = lines[at][: data.draw(st.integers(0, len(lines[at]) - 1))]
    elif kind == "drop":
        del lines[at]
    elif kind == "twice":
        lines.insert(at, lines[at])
    elif kind == "end early":
        del lines[at:]
    elif kind == "swap":
        other = data.draw(st.integers(0, len(lines) - 1))
        lines[at], lines[other] = lines[other], lines[at]
    else:
        lines.append(lines[at])
    if lines == whole:
        return
    with pytest.raises(StateDamaged):
        load_state(lines)
