"""Coroutines that begin without a task of their own behave as if they had one."""

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from rollmq.library.eager import Eager
from rollmq.library.handling import begin_async, step_async
from rollmq.library.held_job import HeldJob, Outcome
from rollmq.library.job import Job
from rollmq.wire.job_headers import AssignJobHeader

HELD = HeldJob(bytes(16), "x", AssignJobHeader(attempt=1, fence=(1, 1), seq=1), b"")
Async = Callable[[Job], Coroutine[Any, Any, object]]
MARK: contextvars.ContextVar[int] = contextvars.ContextVar("MARK", default=0)


class NoPort:
    """Nobody listens."""

    def progress(self, held: HeldJob, data: bytes) -> None: ...

    def extend(self, held: HeldJob, extend_us: int) -> None: ...


class Bench:
    """Begins handlers as a runner does: in a callback of the loop, outside of any task."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.eager = Eager(self.loop, step_async)

    async def begin(self, function: Async) -> object:
        """What Eager returns: an Outcome, or a task."""
        begun = self.loop.create_future()

        def call() -> None:
            try:
                begun.set_result(self.eager.begin(begin_async, function, Job(HELD, NoPort(), b"")))
            except asyncio.CancelledError as error:
                begun.set_exception(RuntimeError(repr(error)))

        self.loop.call_soon(call)
        return await begun

    async def end(self, function: Async) -> Outcome:
        """How it ends."""
        item = await self.begin(function)
        outcome = await item if isinstance(item, asyncio.Task) else item
        assert isinstance(outcome, Outcome)
        return outcome


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Callable[[Bench], Coroutine[Any, Any, None]]], None]:
    def run_it(body: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            bench = Bench()
            await body(bench)
            bench.eager.close()

        factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(main())

    return run_it


Run = Callable[[Callable[[Bench], Coroutine[Any, Any, None]]], None]


def test_a_handler_that_never_waits_makes_no_task_of_its_own(run: Run) -> None:
    seen = []

    async def quick(_job: Job) -> bytes:
        seen.append(asyncio.current_task())
        return b"done"

    async def body(bench: Bench) -> None:
        assert [(await bench.end(quick)).payload for _ in range(3)] == [b"done"] * 3
        assert seen[0] is not None
        assert seen[0] is seen[1] is seen[2]

    run(body)


def test_the_task_of_the_first_line_is_the_task_of_the_last(run: Run) -> None:
    async def slow(_job: Job) -> bytes:
        first = asyncio.current_task()
        await asyncio.sleep(0)
        await asyncio.sleep(0.001)
        assert asyncio.current_task() is first
        return b"same"

    async def body(bench: Bench) -> None:
        assert (await bench.end(slow)).payload == b"same"

    run(body)


def test_timeouts_and_task_groups_work_from_the_first_line(run: Run) -> None:
    async def late(_job: Job) -> None:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(60)

    async def group(_job: Job) -> bytes:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(asyncio.sleep(0.001))
        return b"all"

    async def broken_group(_job: Job) -> None:
        async def fail() -> None:
            raise ValueError("inside")

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(fail())
            await asyncio.sleep(60)

    async def body(bench: Bench) -> None:
        assert (await bench.end(late)).error_type == "TimeoutError"
        assert (await bench.end(group)).payload == b"all"
        assert (await bench.end(broken_group)).error_type == "ExceptionGroup"

    run(body)


def test_what_one_handler_sets_in_its_context_the_next_does_not_find(run: Run) -> None:
    async def leave_a_mark(_job: Job) -> bytes:
        MARK.set(MARK.get() + 1)
        return b"%d" % MARK.get()

    async def set_and_reset(_job: Job) -> bytes:
        token = MARK.set(7)
        await asyncio.sleep(0)
        inside = MARK.get()
        MARK.reset(token)
        return b"%d %d" % (inside, MARK.get())

    async def body(bench: Bench) -> None:
        assert [(await bench.end(leave_a_mark)).payload for _ in range(2)] == [b"1", b"1"]
        assert (await bench.end(set_and_reset)).payload == b"7 0"
        assert MARK.get() == 0

    run(body)


def test_cancelling_reaches_what_the_handler_waits_for(run: Run) -> None:
    async def body(bench: Bench) -> None:
        awaited = bench.loop.create_future()

        async def wait(_job: Job) -> None:
            await awaited

        at_once = await bench.begin(wait)
        assert isinstance(at_once, asyncio.Task)
        at_once.cancel()
        await asyncio.wait({at_once})
        assert at_once.cancelled()
        assert awaited.cancelled()

        later = bench.loop.create_future()

        async def wait_later(_job: Job) -> None:
            await later

        running = await bench.begin(wait_later)
        assert isinstance(running, asyncio.Task)
        await asyncio.sleep(0.001)
        running.cancel()
        await asyncio.wait({running})
        assert running.cancelled()
        assert later.cancelled()

    run(body)


def test_a_handler_may_cancel_itself_and_may_refuse_to_be_cancelled(run: Run) -> None:
    async def cancel_self(_job: Job) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(60)

    async def refuse(_job: Job) -> bytes:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return b"no"
        return b"slept"

    async def cancel_and_return(_job: Job) -> bytes:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return b"gone"

    async def quick(_job: Job) -> bytes:
        await asyncio.sleep(0)
        return b"next"

    async def body(bench: Bench) -> None:
        task = await bench.begin(cancel_self)
        assert isinstance(task, asyncio.Task)
        await asyncio.wait({task})
        assert task.cancelled()
        assert (await bench.end(refuse)).payload == b"no"
        assert (await bench.end(cancel_and_return)).payload == b"gone"
        assert (await bench.end(quick)).payload == b"next"

    run(body)


def test_what_a_handler_raises_is_its_outcome_and_ends_no_loop(run: Run) -> None:
    async def exit_at_once(_job: Job) -> None:
        raise SystemExit(3)

    async def exit_later(_job: Job) -> None:
        await asyncio.sleep(0.001)
        raise SystemExit(4)

    async def body(bench: Bench) -> None:
        for function, text in ((exit_at_once, "3"), (exit_later, "4")):
            outcome = await bench.end(function)
            assert (outcome.what, outcome.error_type, outcome.error_message) == ("retry", "SystemExit", text)
            assert function.__name__.encode() in outcome.payload, "the traceback names the handler"
            assert b"rollmq/library" not in outcome.payload, "and nothing of ours"

    run(body)


def test_cancelling_that_a_handler_lets_through_at_once_is_told(run: Run) -> None:
    async def let_through(_job: Job) -> None:
        raise asyncio.CancelledError

    async def quick(_job: Job) -> bytes:
        return b"next"

    async def body(bench: Bench) -> None:
        with pytest.raises(RuntimeError, match="CancelledError"):
            await bench.begin(let_through)
        assert (await bench.end(quick)).payload == b"next"

    run(body)
