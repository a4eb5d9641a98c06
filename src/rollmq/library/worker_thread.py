"""The thread in which a worker's connection lives, with a loop of its own.

No handler can starve it: not one that blocks the user's loop, not one that keeps every thread busy. So pings
are answered as long as the process runs, and silence means what the node takes it for. Batches go through
in both directions, never single jobs.
"""

import asyncio
import logging
import random
import threading
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

import uvloop

from rollmq.library.crew import Crew
from rollmq.library.handling import hand_back
from rollmq.library.held_job import ENDED, HeldJob
from rollmq.library.kit import Ended
from rollmq.library.link import Link, monotonic_us
from rollmq.library.mailbox import Mailbox
from rollmq.library.route import Route
from rollmq.library.worker_core import WorkerCore

LOOK_S: Final = 0.5
"""How often running jobs are looked at while there is no connection that would do it."""
HURRY_S: Final = 3.0
"""How long handlers may take to end once they were cancelled or killed; then their jobs are given back."""
CONFIRM_S: Final = 30.0
"""How long a worker that stops waits for its outcomes to be confirmed: a failover takes less."""
PROGRESS_BYTES_MAX: Final = 1024 * 1024
"""Progress on its way to the connection's thread: what is more is dropped, for the next one is newer."""

Call: TypeAlias = Callable[[], None]
_log = logging.getLogger("rollmq.worker")


class WorkerThread:
    """Carries a WorkerCore. Everything in here but the methods marked so runs in its own thread."""

    def __init__(
        self,
        core: WorkerCore,
        route: Route,
        *,
        make_crew: Callable[["WorkerThread"], Crew],
        on_over: Callable[[], None],
    ) -> None:
        self._core = core
        self._on_over = on_over
        """Called once in this thread, as its last act."""
        self._loop = uvloop.new_event_loop()
        self._link = Link(core, route, chance=random.random, after_turn=self._after_turn)
        self._mail = Mailbox[Ended | Call](self._loop, self._take_mail)
        self.crew = make_crew(self)
        self._over = self._loop.create_future()
        self.failure: BaseException | None = None
        """A mistake of ours, raised in a callback: the worker ends, and whoever runs it hears of it."""
        self._progress_bytes = 0
        """Of progress that waits in the mail. Two threads may change it at once: it is a bound, no count."""
        self._was_ready = False
        self._told_problems = ""
        self._thread = threading.Thread(target=self._main, name="rollmq-connection", daemon=True)
        self._is_hurried = False
        self._give_up_at_us: int | None = None
        """Of a worker that stops: when it leaves without having heard that its outcomes are confirmed."""

    # -- from any thread

    def start(self) -> None:
        """Begin to connect."""
        self._thread.start()

    def tell(self, ended: Iterable[Ended]) -> None:
        """From any thread: these handlers have ended."""
        self._mail.put_all(ended)

    def call(self, function: Call) -> None:
        """From any thread: do this in the connection's thread."""
        self._mail.put(function)

    def progress(self, held: HeldJob, data: bytes, key_id: str = "") -> None:
        """From any thread: something for the client; dropped when too much waits."""
        if self._progress_bytes <= PROGRESS_BYTES_MAX:
            self._progress_bytes += len(data)
            self._mail.put(lambda: self._say_progress(held, data, key_id))

    def extend(self, held: HeldJob, extend_us: int) -> None:
        """From any thread: more time for a job."""
        self._mail.put(lambda: self._core.extend(held, extend_us))

    def drain(self) -> None:
        """From any thread: finish what runs, hand back what has not begun, then end."""
        self._mail.put(self._drain)

    def hurry(self) -> None:
        """From any thread: the same, and stop what runs."""
        self._mail.put(self._hurry)

    def join(self, timeout_s: float) -> None:
        """From any thread: wait for its end."""
        self._thread.join(timeout_s)

    # -- its own

    def _main(self) -> None:
        try:
            asyncio.set_event_loop(self._loop)
            self._loop.run_until_complete(self._run())
        finally:
            self._loop.close()
            self._on_over()

    async def _run(self) -> None:
        self._loop.set_exception_handler(self._on_failure)
        self._link.start()
        self._look()
        await self._over

    def _take_mail(self, mail: list[Ended | Call]) -> None:
        core, crew = self._core, self.crew
        core.now_us = monotonic_us()
        for item in mail:
            if type(item) is tuple:
                held, outcome = item
                if held.state != ENDED:  # otherwise it was given up already
                    core.finished(held, outcome)
                crew.ended(held)
            else:
                item()  # type: ignore[operator]
        core.settle()
        self._link.flush()
        self._leave_when_done()

    def _after_turn(self) -> None:
        """What the core says was written: let begin what may begin, and stop what is to stop."""
        core = self._core
        starts = core.take_starts()
        if starts:
            self.crew.start(starts)
        self._take_stops()
        if core.complaints or core.is_ready != self._was_ready:
            self._report()
        self._leave_when_done()

    def _take_stops(self) -> None:
        for held in self._core.take_stops():
            self.crew.stop(held)

    def _look(self) -> None:
        """What is due without a connection too: handlers over their time, and the end of patience."""
        core = self._core
        core.tick(monotonic_us())
        self._take_stops()
        self._link.flush_soon()
        if not core.is_ready:
            self._tell_problems()
        if core.is_draining and not core.held and self._give_up_at_us is None:
            patience_s = HURRY_S if self._is_hurried else CONFIRM_S
            self._give_up_at_us = core.now_us + int(patience_s * 1e6)
        if self._give_up_at_us is not None and core.now_us >= self._give_up_at_us:
            self._give_up()
        if not self._over.done():
            self._loop.call_later(LOOK_S, self._look)

    def _drain(self) -> None:
        _log.info("event=worker_draining running=%d", len(self._core.held))
        self._core.drain()

    def _hurry(self) -> None:
        if self._is_hurried:
            return
        self._is_hurried = True
        self._core.drain()
        self._hand_back(self.crew.hurry())
        self._loop.call_later(HURRY_S, self._hand_back_all)

    def _hand_back_all(self) -> None:
        """Handlers that did not let themselves be stopped: nobody waits for them any more."""
        self._hand_back(list(self._core.held.values()))

    def _hand_back(self, jobs: list[HeldJob]) -> None:
        for held in jobs:
            if held.state != ENDED:
                self._core.finished(held, hand_back())
        self._core.settle()
        self._link.flush_soon()
        self._leave_when_done()

    def _give_up(self) -> None:
        count = len(self._core.outcomes)
        _log.warning("event=outcomes_unconfirmed count=%d meaning=these jobs may run again", count)
        self._leave()

    def _leave_when_done(self) -> None:
        if self._core.is_drained or self._core.fatal is not None:
            self._leave()

    def _on_failure(self, _loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        error = context.get("exception")
        if isinstance(error, OSError):
            return  # of a connection that broke: its protocol is told
        self.failure = (
            error if isinstance(error, BaseException) else RuntimeError(str(context.get("message")))
        )
        self._leave()

    def _leave(self) -> None:
        if not self._over.done():
            self._over.set_result(None)
            self._link.stop()

    def _say_progress(self, held: HeldJob, data: bytes, key_id: str) -> None:
        self._progress_bytes -= len(data)
        if not self._link.is_congested:
            self._core.progress(held, data, key_id=key_id)

    def _report(self) -> None:
        core = self._core
        complaints, core.complaints = core.complaints, []
        for complaint in complaints:
            _log.warning("event=node_complained text=%s", complaint)
        if core.is_ready != self._was_ready:
            self._was_ready = core.is_ready
            self._told_problems = ""
            if core.is_ready:
                _log.info("event=worker_connected server=%s held=%d", core.server, len(core.held))
            else:
                _log.warning("event=worker_disconnected reason=%s", core.trouble)

    def _tell_problems(self) -> None:
        """Why there is no connection, each time that it is for another reason."""
        problems = self._link.route.told()
        if problems and problems != self._told_problems:
            self._told_problems = problems
            _log.warning("event=worker_not_connected problems=%s", problems)
