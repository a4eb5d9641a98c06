"""A task's signature decides what fits: at submit, in the worker, and in what comes back."""

import enum
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from rollmq.errors import ArgumentsWrong, TaskProblem
from rollmq.library.task_types import TaskTypes


class Color(enum.Enum):
    """A type of a user."""

    RED = "red"


@dataclass
class Box:
    """Another one."""

    width: int
    height: float = 1.0


def paint(box: Box, color: Color = Color.RED, *tags: str, when: datetime | None = None, **more: int) -> Box:
    raise NotImplementedError


def only_by_place(first: int, second: bytes = b"", /, third: float = 3.0) -> None:
    raise NotImplementedError


def untyped(anything, other=None):  # type: ignore[no-untyped-def]
    raise NotImplementedError


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("function", "args", "kwargs"),
    [
        (paint, (Box(3),), {}),
        (paint, (Box(3, 2.5), Color.RED, "a", "b"), {"when": NOON, "left": 1}),
        (paint, (), {"box": Box(3), "when": None}),
        (only_by_place, (1,), {}),
        (only_by_place, (1, b"\x00\xff"), {"third": 4.0}),
        (untyped, ({"a": [1, None]},), {"other": "x"}),
    ],
)
def test_a_call_arrives_as_it_was_made(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    types = TaskTypes("task", function)
    given = types._signature.bind(*args, **kwargs)
    got_args, got_kwargs = types.call_of(types.payload_of(args, kwargs))
    assert types._signature.bind(*got_args, **got_kwargs) == given


def test_the_payload_is_an_object_with_the_arguments_that_were_given_and_no_others() -> None:
    assert TaskTypes("paint", paint).payload_of((Box(3),), {}) == b'{"box":{"width":3,"height":1.0}}'
    assert TaskTypes("untyped", untyped).payload_of((1,), {"other": None}) == b'{"anything":1,"other":null}'


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "says"),
    [
        (paint, (), {}, "missing a required argument: 'box'"),
        (paint, (3,), {}, "Expected `object`, got `int` - at `box`"),
        (paint, (Box("wide"),), {}, "Expected `int`, got `str` - at `box.width`"),  # type: ignore[arg-type]
        (paint, (Box(1), "blue"), {}, "Invalid enum value 'blue'"),
        (paint, (Box(1),), {"left": "x"}, "Expected `int`, got `str`"),
        (only_by_place, (1,), {"second": b""}, "second"),
        (only_by_place, (1, 2), {}, "Expected `bytes`"),
        (only_by_place, (True,), {}, "Expected `int`, got `bool`"),
        (untyped, (object(),), {}, "unsupported"),
        (untyped, (1, 2, 3), {}, "too many positional arguments"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_with_the_signature(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], says: str
) -> None:
    with pytest.raises(ArgumentsWrong) as caught:
        TaskTypes("task", function).payload_of(args, kwargs)
    assert says in str(caught.value)
    assert "The task is task(" in str(caught.value)
    assert isinstance(caught.value, TypeError)


def test_in_the_worker_what_does_not_fit_is_told_the_same_way() -> None:
    types = TaskTypes("paint", paint)
    for payload in (b"", b"[]", b"\xff", b'{"box":{"width":"x"}}', b'{"box":{"width":1},"when":3.5}'):
        with pytest.raises(ValueError):
            types.call_of(payload)


def test_results_are_checked_when_they_are_written_and_when_they_are_read() -> None:
    types = TaskTypes("paint", paint)
    assert types.result_of(types.result_bytes(Box(3))) == Box(3)
    for wrong in (None, 3, {"width": "x"}):
        with pytest.raises(ValueError):
            types.result_bytes(wrong)
    for wrong_bytes in (b"", b"null", b'{"width":null}'):
        with pytest.raises(ValueError):
            types.result_of(wrong_bytes)
    assert TaskTypes("task", only_by_place).result_bytes(None) == b"null"


def test_types_that_cannot_be_read_make_no_task() -> None:
    def unknown_name(first: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    def two_structs(first: dict[int, set[complex]]) -> None: ...

    with pytest.raises(TaskProblem, match="Nowhere"):
        TaskTypes("task", unknown_name)
    with pytest.raises((TaskProblem, ArgumentsWrong)):
        TaskTypes("task", two_structs).payload_of(({1: {2j}},), {})
