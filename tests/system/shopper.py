"""A client of a storm, as a process: `python -m tests.system.shopper SERVERS FOLDER NAME async|sync`.

It keeps some orders under way with rollmq.Client, or with rollmq.sync.Client from as many threads, and writes
down what it is told. Killed and started again, it goes on with what was not finished: keyed orders are
submitted again, accepted ones asked for by their ids. SIGTERM: it takes no new ones, and ends with 0 once all
have ended. What it is told that cannot be true is written down as a lie.
"""

import asyncio
import contextlib
import signal
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import rollmq
import rollmq.sync
from rollmq.errors import RequestRefused, RequestUnknown, RollmqError, SubmitRefused, SubmitUnknown
from rollmq.library.call import Outcome
from tests.system.orders import Order, Unfinished, result_of
from tests.system.receipts import Receipts, notes_of

HANDS = {"async": 24, "sync": 8}
PATIENCE_S = {"async": 60.0, "sync": 1.0}
"""One of the two gives up early, so that unknown outcomes come about."""
CAP = {"async": 0, "sync": 6}
"""And one has a cap, which is less than it has under way."""
AGAIN_S = 0.05


def begun_path(folder: Path, name: str) -> Path:
    """Where it notes what it is about to submit."""
    return folder / f"begun-{name}.jsonl"


def receipts_path(folder: Path, name: str) -> Path:
    """Where it notes what it was told."""
    return folder / f"receipts-{name}.jsonl"


def unfinished(folder: Path, name: str) -> Unfinished:
    """What earlier runs have left. A keyless order that was not confirmed stays unknown."""
    left = Unfinished()
    for note in notes_of(begun_path(folder, name)):
        left.next_number = max(left.next_number, note["number"] + 1)
        left.orders[note["number"]] = ""
    for note in notes_of(receipts_path(folder, name)):
        if note["told"] == "accepted":
            left.orders[note["number"]] = note["job_id"]
        else:
            left.orders.pop(note["number"], None)
    for number in [n for n, job_id in left.orders.items() if not job_id and Order(name, n).key is None]:
        del left.orders[number]
    return left


class Shopper:
    """One run of the client."""

    def __init__(self, folder: Path, name: str, client: Any, hands: int) -> None:
        self.name = name
        self.client = client
        self.hands = hands
        self.is_stopping = False
        self._left = unfinished(folder, name)
        self._begun = Receipts(begun_path(folder, name))
        self._receipts = Receipts(receipts_path(folder, name))

    async def run(self) -> None:
        """Until it is asked to stop and everything has ended."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self.hands):
                group.create_task(self._hand())

    async def _hand(self) -> None:
        while True:
            if self._left.orders:
                number, job_id = self._left.orders.popitem()
            elif self.is_stopping:
                return
            else:
                number, job_id = self._left.next_number, ""
                self._left.next_number += 1
                self._begun.note(number=number)
            await self._serve(Order(self.name, number), job_id)

    async def _serve(self, order: Order, job_id: str) -> None:
        job = self.client.job(job_id) if job_id and order.key is None else await self._submit(order, job_id)
        if job is None:
            return
        if order.kind == "cancel":
            await self._cancel(job, order)
        try:
            outcome = await job.result()
        except RollmqError as error:
            self._lie(order, job.id, f"an accepted job's result: {type(error).__name__}: {error}")
            return
        self._ended(order, job.id, outcome)

    async def _submit(self, order: Order, job_id: str) -> Any:
        while True:
            try:
                job = await self.client.submit(order.exec, order.payload, **order.options)
            except SubmitRefused as error:
                if not error.retryable:
                    self._lie(order, "", f"a submit was refused: {error}")
                    return None
                await asyncio.sleep(AGAIN_S)
                continue
            except SubmitUnknown as error:
                if order.key is None:
                    self._receipts.told(error.job_id, "unknown", number=order.number)
                    return None
                await asyncio.sleep(AGAIN_S)
                continue
            if job_id and job.id != job_id:
                self._lie(order, job_id, f"the key's repeat was accepted as {job.id}")
            if not job_id:
                self._receipts.told(job.id, "accepted", number=order.number)
            return job

    async def _cancel(self, job: Any, order: Order) -> None:
        is_answered = False
        while not is_answered:
            with contextlib.suppress(RequestUnknown):  # repeating it is safe
                try:
                    await job.cancel("changed my mind")
                except RequestRefused as error:
                    if error.code != "job_finished":  # an earlier try, of unknown outcome, did it
                        self._lie(order, job.id, f"a cancel was refused: {error}")
                is_answered = True

    def _ended(self, order: Order, job_id: str, outcome: Outcome) -> None:
        is_right = outcome.state in order.states and outcome.job_id == job_id
        if outcome.ok:
            is_right = is_right and outcome.result == result_of(order.payload)
        if not is_right:
            self._lie(order, job_id, f"it ended like this: {outcome}")
        self._receipts.told(job_id, outcome.state, number=order.number, tries=outcome.tries)

    def _lie(self, order: Order, job_id: str, text: str) -> None:
        self._receipts.told(job_id, "lie", number=order.number, text=f"{order}: {text}")


class InThreads:
    """rollmq.sync as if it were asynchronous: each call in a thread of its own."""

    def __init__(self, waits: Callable[..., Awaitable[Any]], inner: Any) -> None:
        self._waits = waits
        self._inner = inner

    @property
    def id(self) -> str:
        """Of a job."""
        return str(self._inner.id)

    def job(self, job_id: str) -> "InThreads":
        """A job that was submitted before."""
        return InThreads(self._waits, self._inner.job(job_id))

    async def submit(self, *arguments: Any, **options: Any) -> "InThreads":
        """As the client's."""
        return InThreads(self._waits, await self._waits(self._inner.submit, *arguments, **options))

    async def result(self) -> Any:
        """As the job's."""
        return await self._waits(self._inner.result)

    async def cancel(self, why: str) -> None:
        """As the job's."""
        await self._waits(self._inner.cancel, why)


async def _main(servers: str, folder: Path, name: str, mode: str) -> None:
    loop = asyncio.get_running_loop()
    options: dict[str, Any] = {"client_id": name, "cap": CAP[mode], "patience": PATIENCE_S[mode]}

    async def run(client: Any) -> None:
        shopper = Shopper(folder, name, client, HANDS[mode])

        def stop() -> None:
            shopper.is_stopping = True

        loop.add_signal_handler(signal.SIGTERM, stop)
        print("begun", flush=True)
        await shopper.run()

    if mode == "async":
        async with rollmq.Client(servers, **options) as client:
            await run(client)
    else:
        loop.set_default_executor(ThreadPoolExecutor(HANDS[mode]))
        with rollmq.sync.Client(servers, **options) as blocking:
            await run(InThreads(asyncio.to_thread, blocking))


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4]))
