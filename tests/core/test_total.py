"""`apply` never refuses: whatever an event says, a replica goes on, and says the same as every other."""

from typing import get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollmq.core.events import AnyEvent, Backoff, Cancel, Enqueue, Event, Settings
from rollmq.core.line import decode_line, encode_line
from rollmq.core.machine import Machine
from rollmq.core.state import dump_state, load_state

JOBS = [f"{number:032x}" for number in range(4)]
NUMBERS = st.integers(-3, 12)
TEXTS = st.sampled_from(["", "a", "gone", "drained"])
BY_FIELD = {
    "job_id": st.sampled_from(JOBS),
    "job_ids": st.lists(st.sampled_from(JOBS), max_size=3),
    "client_id": st.sampled_from(["c1", "c2"]),
    "worker_id": st.sampled_from(["w1", "w2"]),
    "fence": st.one_of(st.none(), st.tuples(st.just(1), st.integers(1, 40))),
    "attempt": st.integers(0, 3),
    "backoff": st.sampled_from([None, Backoff()]),
    "headers": st.sampled_from([None, {"a": "b"}]),
    "timeout_factor": st.sampled_from([1.0, 2.0]),
    "priority": st.sampled_from([0, 5, 9, -7, 99]),
    "members": st.just([]),
    "execs": st.just([]),
    "workers": st.just([]),
    "patterns": st.just([]),
    "counts": st.just(msgspec.UNSET),
}


def field_value(name: str, kind: object) -> st.SearchStrategy[object]:
    """A value for a field: one that can meet another event, or a foolish one of the right type."""
    if name in BY_FIELD:
        return BY_FIELD[name]
    if kind is bool:
        return st.booleans()
    if kind is bytes:
        return st.binary(max_size=4)
    if kind in (int, int | None):
        return NUMBERS
    return TEXTS


@st.composite
def stories(draw: st.DrawFn) -> list[AnyEvent]:
    """Events of all types in a row, enqueues first so that the others have something to be about."""
    types = [Enqueue, Enqueue, *draw(st.lists(st.sampled_from(get_args(AnyEvent)), max_size=30))]
    events: list[AnyEvent] = []
    at_us = 100
    for index, kind in enumerate(types, start=1):
        at_us += draw(st.integers(0, 5))
        fields = {
            field.name: draw(field_value(field.name, field.type))
            for field in msgspec.structs.fields(kind)
            if field.name not in ("index", "term", "at_us", "counts")
        }
        if (
            kind is not Enqueue
            and "fence" in fields
            and fields["fence"] is None
            and kind.__name__ not in ("Dlq", "Cancel")
        ):
            fields["fence"] = (1, 1)
        events.append(kind(index=index, term=1, at_us=at_us, **fields))
    return events


@settings(max_examples=400)
@given(stories())
def test_whatever_the_events_say_apply_goes_on_and_replicas_agree(events: list[AnyEvent]) -> None:
    leader, follower = Machine(), Machine(is_indexed=False)
    for event in events:
        leader.apply(event)
        follower.apply(decode_line(encode_line(event)))
    lines = list(dump_state(leader))
    assert list(dump_state(follower)) == lines
    assert list(dump_state(load_state(lines))) == lines


@pytest.mark.parametrize("priority", [-1, 10, 1 << 60])
def test_a_priority_out_of_range_is_brought_into_it(priority: int) -> None:
    machine = Machine()
    machine.apply(Enqueue(1, 1, 1, JOBS[0], "c1", "exec", priority=priority))
    assert machine.jobs[JOBS[0]].priority == (0 if priority < 0 else 9)


def test_every_event_type_has_its_place_in_apply() -> None:
    assert all(issubclass(kind, Event) for kind in get_args(AnyEvent))
    assert set(Machine()._apply_by_type) == set(get_args(AnyEvent))


def test_foolish_settings_are_raised_to_what_can_be() -> None:
    machine = Machine()
    machine.apply(Enqueue(1, 1, 1, JOBS[0], "c1", "exec"))
    machine.apply(Settings(2, 1, 1, finished_max=-1, ageing_us=0))
    machine.apply(Cancel(3, 1, 1, JOBS[0]))
    assert (machine.settings.finished_max, machine.settings.ageing_us) == (0, 1)
    assert machine.finished.forgotten_id == JOBS[0][:12]
