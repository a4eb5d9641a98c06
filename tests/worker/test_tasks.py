"""Typed tasks from one end to the other: declared, called, submitted, run, read."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, assert_type

import pytest

from rollmq.client import Client
from rollmq.errors import ArgumentsWrong, HandlerProblem, ResultWrong, TaskFailed, TaskProblem
from rollmq.tasks import App, current_job
from tests.cli.running import clean_env, running_node
from tests.house_rules import ROOT
from tests.worker import shop
from tests.worker.shop import Picture, Size, app

SOON_S = 60.0


@contextlib.asynccontextmanager
async def open_shop(server: str) -> AsyncIterator[None]:
    """The app's worker at work, in this process."""
    app.servers = server
    worker = app.worker(hands=4)
    run = asyncio.ensure_future(worker.run())
    try:
        async with app:
            yield
    finally:
        worker.stop()
        async with asyncio.timeout(SOON_S):
            await run


def test_a_task_is_still_the_function_that_it_was() -> None:
    assert shop.resize("cat.png", width=3) == Picture("cat.png#small", 3)
    assert asyncio.run(shop.total(1, 2, discount=0.5)) == 1.5
    assert shop.resize.__doc__ == "A plain function."
    assert shop.resize.__name__ == "resize"
    assert repr(shop.resize) == "<Task shop.resize>"
    with pytest.raises(TaskProblem, match="where no job runs"):
        current_job()


def test_tasks_run_elsewhere_and_their_values_come_back_with_their_types(tmp_path: Path) -> None:
    async def main(server: str) -> None:
        async with open_shop(server):
            job = await shop.resize.submit("cat.png", width=300, size=Size.LARGE)
            picture = await job.value(SOON_S)
            assert_type(picture, Picture)
            assert picture == Picture("cat.png#large", 300)
            price = await (await shop.total.submit(10, 20.5, discount=0.1)).value(SOON_S)
            assert_type(price, float)
            assert price == pytest.approx(27.45)
            number, pid = await (await shop.in_a_child.submit(7)).value(SOON_S)
            assert number == 7
            assert pid != os.getpid()
            asked = await shop.who_am_i.submit()
            assert await asked.value(SOON_S) == f"{asked.id} 1"
            outcome = await asked.result()
            assert outcome.content_type == "application/json"

    with running_node(tmp_path / "state") as node:
        asyncio.run(main(node.server))


def test_what_fails_in_a_task_is_told_to_whoever_waits_for_its_value(tmp_path: Path) -> None:
    async def main(server: str) -> None:
        async with open_shop(server):
            with pytest.raises(
                TaskFailed, match=r"shop\.fail, job .* is dead: ValueError: .*broken"
            ) as failed:
                await (await shop.fail.submit("bug")).value(SOON_S)
            assert failed.value.outcome.tries == 2
            assert b"rollmq" not in failed.value.outcome.detail, "the traceback is the user's alone"
            with pytest.raises(TaskFailed, match="not for sale"):
                await (await shop.fail.submit("reject")).value(SOON_S)
            with pytest.raises(TaskFailed, match=r"ResultWrong: .*Expected `int`, got `str`"):
                await (await shop.lie.submit()).value(SOON_S)
            async with Client(server) as client:
                # Somebody with another version of the task, or none at all.
                outcome = await (await client.submit("shop.resize", b'{"uri":"x"}')).result(SOON_S)
                assert (outcome.state, outcome.error_type, outcome.tries) == ("dead", "ArgumentsWrong", 1)
                assert "shop.resize(url: str, width: int" in outcome.error

    with running_node(tmp_path / "state") as node:
        asyncio.run(main(node.server))


def test_options_of_the_task_and_of_the_call_reach_the_job(tmp_path: Path) -> None:
    async def main(server: str) -> None:
        app.servers = server
        async with app:
            task = shop.resize.options(priority=7, key="cat-300", headers={"trace": "1"}, delay=600)
            job = await task.submit("cat.png", 300)
            again = await task.submit("cat.png", 300)
            assert again.id == job.id
            explained = await job.job.explain()
            assert explained.state == "queued"
            await job.cancel("changed our minds")
            with pytest.raises(TaskFailed, match="cancelled"):
                await job.value(SOON_S)
            assert "key" not in shop.resize.submit_options

    with running_node(tmp_path / "state") as node:
        asyncio.run(main(node.server))


def test_tasks_are_submitted_without_a_loop_too(tmp_path: Path) -> None:
    def submit() -> None:
        job = shop.resize.submit_sync("cat.png", width=300)
        picture = job.value(SOON_S)
        assert_type(picture, Picture)
        assert picture == Picture("cat.png#small", 300)
        assert job.result().ok
        app.client_sync().close()

    async def work(server: str) -> None:
        async with open_shop(server):
            await asyncio.to_thread(submit)
            program = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", FORKS),
                cwd=ROOT,
                env=clean_env(ROLLMQ_SERVER=server),
                stdout=asyncio.subprocess.PIPE,
            )
            output, _ = await asyncio.wait_for(program.communicate(), SOON_S)
            assert sorted(output.split()) == [b"child:7.0", b"parent:3.0"]

    with running_node(tmp_path / "state") as node:
        asyncio.run(work(node.server))


FORKS = """
import os
from tests.worker.shop import total
before = total.submit_sync(1, 2)
pid = os.fork()
if pid == 0:
    print(f"child:{total.submit_sync(3, 4).value(60)}", flush=True)
else:
    os.waitpid(pid, 0)
    print(f"parent:{before.value(60)}", flush=True)
"""


def test_arguments_that_do_not_fit_are_refused_before_anything_is_sent() -> None:
    app.servers = "127.0.0.1:1"

    async def main() -> None:
        wrong: Any = shop.resize
        with pytest.raises(ArgumentsWrong, match=r"Expected `int`.*shop\.resize\(url: str, width: int"):
            await wrong.submit("cat.png", width="wide")
        with pytest.raises(ArgumentsWrong, match="missing a required argument: 'width'"):
            await wrong.submit("cat.png")
        with pytest.raises(ArgumentsWrong, match="unexpected keyword argument 'height'"):
            wrong.submit_sync("cat.png", 1, height=2)

    asyncio.run(main())


def test_a_value_of_another_version_is_said_to_be_one() -> None:
    class Ended:
        """How the job of a newer task ended."""

        ok, job_id, result = True, "0" * 32, b'{"address":"x"}'

    outcome: Any = Ended()
    with pytest.raises(ResultWrong, match="another version"):
        shop.resize.value_of(outcome)


def test_what_cannot_be_a_task_is_said_where_it_is_written() -> None:
    other = App()

    @other.task
    def one() -> None: ...

    with pytest.raises(TaskProblem, match="two tasks 'one'"):
        other.task(name="one")(one.function)
    with pytest.raises(HandlerProblem, match="no name of an exec"):
        other.task(name="a b")(one.function)
    with pytest.raises(HandlerProblem, match="top level of a module"):
        other.task(name="two", processes=True)(one.function)

    @other.task
    def unreadable(first: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(TaskProblem, match="Nowhere"):
        other.worker()
    with pytest.raises(HandlerProblem, match="no handlers"):
        asyncio.run(App().worker(servers="127.0.0.1:1").run())
