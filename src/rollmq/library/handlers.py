"""Which handler runs which exec: what a worker can do, checked before it starts.

A registry and nothing more; it runs no handler.
"""

import functools
import inspect
import sys
from collections.abc import Callable
from enum import Enum
from typing import Any, Final

import msgspec

from rollmq import limits
from rollmq.core.subject import ASSIGN_PREFIX, BadSubject, check_pattern, is_literal, matches
from rollmq.errors import HandlerProblem

FOUND_MAX: Final = 10_000
"""Execs remembered with their handlers: with patterns there may be any number of them."""


class Where(Enum):
    """Where a handler runs."""

    LOOP = "in the event loop"
    THREAD = "in a thread"
    PROCESS = "in a child process"


class Handler(msgspec.Struct, frozen=True, eq=False):
    """One function and how it is run."""

    exec: str
    """An exec, or a pattern of execs."""
    function: Callable[..., Any]
    where: Where
    max_jobs: int | None = None
    """In a child process: after so many jobs it is replaced by a new one."""
    place: tuple[str, str] = ("", "")
    """Module and qualified name by which a child process finds it."""


class Handlers:
    """Every handler of a worker. An exact name is found before a pattern, patterns in their order."""

    def __init__(self) -> None:
        self._exact: dict[str, Handler] = {}
        self._patterns: list[Handler] = []
        self._found: dict[str, Handler] = {}

    def __bool__(self) -> bool:
        return bool(self._exact or self._patterns)

    def __iter__(self) -> Any:
        return iter([*self._exact.values(), *self._patterns])

    def add(self, handler: Handler) -> None:
        """One more. Raises HandlerProblem for what cannot be used, or is there already."""
        try:
            check_pattern(ASSIGN_PREFIX + handler.exec)
        except BadSubject as error:
            raise HandlerProblem(f"{handler.exec!r} is no name of an exec: {error}.") from error
        if any(other.exec == handler.exec for other in self):
            raise HandlerProblem(
                f"there are two handlers for {handler.exec!r}. Give one of them another name."
            )
        if is_literal(handler.exec):
            self._exact[handler.exec] = handler
        else:
            self._patterns.append(handler)
        self._found.clear()

    def find(self, exec_name: str) -> Handler | None:
        """The handler for an exec. May be called from any thread."""
        found = self._exact.get(exec_name) or self._found.get(exec_name)
        if found is None and self._patterns:
            found = next((each for each in self._patterns if matches(each.exec, exec_name)), None)
            if found is not None:
                if len(self._found) >= FOUND_MAX:
                    self._found.clear()
                self._found[exec_name] = found
        return found

    def of(self, exec_name: str) -> Handler:
        """The same for an exec that was found before."""
        found = self._exact.get(exec_name) or self.find(exec_name)
        assert found is not None
        return found

    def patterns(self) -> tuple[str, ...]:
        """Subject patterns of all of them."""
        return tuple(ASSIGN_PREFIX + handler.exec for handler in self)


def make_handler(
    exec_name: str,
    function: Callable[..., Any],
    *,
    processes: bool,
    max_jobs: int | None,
    written: Callable[..., Any] | None = None,
) -> Handler:
    """A function as a handler. `written`: what its author wrote, if that is another function, which a child
    process finds by its name. Raises HandlerProblem for what cannot be one."""
    if not callable(function):
        raise HandlerProblem(f"the handler for {exec_name!r} is {type(function).__name__}, not a function.")
    if max_jobs is not None and not processes:
        raise HandlerProblem(
            f"the handler for {exec_name!r} has max_jobs without processes=True: "
            f"only child processes are replaced."
        )
    if max_jobs is not None and max_jobs < 1:
        raise HandlerProblem(
            f"the handler for {exec_name!r} has max_jobs={max_jobs}; at least 1 makes sense."
        )
    if processes:
        return Handler(exec_name, function, Where.PROCESS, max_jobs, place_of(written or function))
    return Handler(exec_name, function, Where.LOOP if is_async(function) else Where.THREAD)


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it makes a coroutine; also of a partial, and of an object with an async __call__."""
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.iscoroutinefunction(function):
        return True
    return not inspect.isroutine(function) and inspect.iscoroutinefunction(type(function).__call__)


def check_patterns(patterns: tuple[str, ...], handlers: Handlers) -> None:
    """Patterns that a user gave: sound, few enough, and none for an exec that nobody handles."""
    if len(patterns) > limits.WORKER_PATTERNS_MAX:
        raise HandlerProblem(
            f"{len(patterns):,} patterns are too many for one worker, at most "
            f"{limits.WORKER_PATTERNS_MAX:,} are taken. Use wildcards (image.*), or several workers."
        )
    for pattern in patterns:
        try:
            check_pattern(pattern)
        except BadSubject as error:
            raise HandlerProblem(f"{pattern!r} is no pattern: {error}.") from error
        exec_name = pattern.removeprefix(ASSIGN_PREFIX)
        if exec_name == pattern:
            raise HandlerProblem(f"the pattern {pattern!r} does not begin with {ASSIGN_PREFIX!r}.")
        if is_literal(exec_name) and handlers.find(exec_name) is None:
            raise HandlerProblem(
                f"the pattern {pattern!r} asks for {exec_name!r}, and there is no handler for it."
            )


def place_of(function: Callable[..., Any]) -> tuple[str, str]:
    """(module, qualified name) by which a child process finds it. Raises HandlerProblem if none does."""
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", None)
    if not module or not name or "<" in name:
        raise HandlerProblem(
            f"{name or function!r} cannot run in a child process, which would not find it. Write it as a "
            f"function at the top level of a module."
        )
    return module, name


def check_place(handler: Handler) -> None:
    """Once its module is complete: the name by which a child looks for it must be there."""
    module, name = handler.place
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is None:
        raise HandlerProblem(f"{module}:{name} cannot run in a child process: there is no such name there.")
