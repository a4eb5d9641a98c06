"""Begins coroutines at once, and makes tasks only of those that have to wait.

A handler that never waits costs no task, no turn of the loop and no future. One that does must not notice
that it began without a task: the task in whose name it began is the one that carries it on, so timeouts,
task groups and context variables work from its first line. It knows nothing of jobs.
"""

import asyncio
import contextvars
from asyncio.tasks import _enter_task, _leave_task
from collections.abc import Callable, Coroutine
from typing import Any

Advance = Callable[[Callable[[Any], object], object], object]
"""(send or throw of the coroutine, value) -> what it waits for. At its end StopIteration."""


class Carrier(Coroutine[Any, Any, object]):
    """What a task runs that was made before its coroutine: it waits until one is handed over, then is it."""

    __slots__ = ("_advance", "_inner", "_parked", "_pending")

    def __init__(self, advance: Advance) -> None:
        self._advance = advance
        self._parked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._inner: Coroutine[Any, Any, object] | None = None
        self._pending: object = None
        """What the coroutine waits for since its first step, until the task has been told."""

    def hand_over(self, inner: Coroutine[Any, Any, object], pending: object) -> None:
        """This coroutine has taken its first step and waits for `pending`."""
        assert self._inner is None
        self._inner, self._pending = inner, pending
        if not self._parked.done():
            self._parked.set_result(None)

    def send(self, value: Any) -> object:
        """The task goes on."""
        if self._inner is None:
            return self._parked.__await__().send(None)
        if self._pending is not None:
            pending, self._pending = self._pending, None
            return pending
        return self._advance(self._inner.send, value)

    def throw(self, typ: Any, _val: Any = None, _tb: Any = None) -> object:
        """The task is cancelled."""
        if self._inner is None:
            raise typ
        pending, self._pending = self._pending, None
        if isinstance(pending, asyncio.Future) and pending.cancel():
            return (
                pending  # As a task does it: what is awaited is cancelled, and its end wakes the coroutine.
            )
        return self._advance(self._inner.throw, typ)

    def close(self) -> None:
        """The task is thrown away."""
        if self._inner is not None:
            self._inner.close()

    def __await__(self) -> Any:
        raise TypeError("a carrier is run by its task only")


class Eager:
    """Makes tasks ahead, and uses each for as many coroutines as end at their first step."""

    def __init__(self, loop: asyncio.AbstractEventLoop, advance: Advance) -> None:
        self._loop = loop
        self._advance = advance
        self._base = contextvars.copy_context()
        """What every coroutine finds: nothing that another one has set."""
        self._spare: tuple[Carrier, asyncio.Task[object], contextvars.Context] | None = None

    def begin(
        self, first_step: Callable[..., tuple[Coroutine[Any, Any, object] | None, object]], *arguments: object
    ) -> object:
        """Call it, as the current task and in a context of its own: the end that it returns, or the task
        that carries on what it began. Cancelling passes through."""
        carrier, task, context = self._spare or self._make()
        self._spare = None
        loop = self._loop
        _enter_task(loop, task)
        try:
            inner, item = context.run(first_step, *arguments)
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            _leave_task(loop, task)
        if inner is not None:
            carrier.hand_over(inner, item)
            return task
        if context == self._base and not task.cancelling():
            self._spare = carrier, task, context
        else:
            task.cancel()
        return item

    def close(self) -> None:
        """Nothing begins any more."""
        if self._spare is not None:
            self._spare[1].cancel()
            self._spare = None

    def _make(self) -> tuple[Carrier, asyncio.Task[object], contextvars.Context]:
        carrier, context = Carrier(self._advance), self._base.copy()
        return carrier, self._loop.create_task(carrier, context=context), context
