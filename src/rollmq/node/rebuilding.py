"""Loads a node's machine anew, off the loop, after entries that it had applied were cut (rule 3).

A deposed leader's machine holds what it decided and nobody committed. The state is loaded from the newest
snapshot and the log, up to what is committed and on this disk. Meanwhile the node confirms lines and votes.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from rollmq.core.machine import Machine
from rollmq.core.replica import Replica
from rollmq.core.segment_digest import SegmentDigest
from rollmq.errors import StateError
from rollmq.node.assembling import rebuild
from rollmq.node.logs import EventLog
from rollmq.node.store_thread import StoreThread
from rollmq.store.store import Store

TRIES_MAX: Final = 3
"""Another cut, or an old snapshot that goes, may cross the reading; then it is read once more."""


class Rebuilder:
    """One node's. It begins by itself when it is looked at."""

    def __init__(
        self,
        replica: Replica,
        store: Store,
        thread: StoreThread,
        *,
        log: EventLog,
        done: Callable[[], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._replica = replica
        self._store = store
        self._thread = thread
        self._log = log
        self._done = done
        self._on_failure = on_failure
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="rollmq-rebuild")
        self._is_running = False
        self._tries = 0

    def look(self) -> None:
        """Begin, if there is something to rebuild and the disk has all that was applied. A snapshot that is
        put in place of the log brings the state with it, and takes away what would be read here."""
        raft = self._replica.raft
        log = raft.log
        if self._is_running or not self._replica.is_rebuilding:
            return
        if log.truncate_from is not None or raft.is_installing:
            return
        until_index = min(log.commit_index, log.persisted_index)
        if until_index >= log.applied_index:
            self._is_running = True
            self._log("rebuild_began", until_index=until_index)
            asked = self._loop.run_in_executor(self._pool, rebuild, self._store, until_index)
            asked.add_done_callback(self._loaded)

    def close(self) -> None:
        """Begin nothing more."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _loaded(self, asked: "asyncio.Future[Machine]") -> None:
        if asked.cancelled():
            return
        error = asked.exception()
        if error is None:
            machine, self._tries = asked.result(), 0
            self._thread.do(
                lambda: self._store.segment_digest(machine.last_index + 1),
                lambda segment: self._finish(machine, segment),
            )
            return
        self._is_running = False
        self._tries += 1
        self._log("rebuild_failed", reason=error, count=self._tries)
        if self._tries >= TRIES_MAX or not isinstance(error, StateError | OSError):
            self._on_failure(error)

    def _finish(self, machine: Machine, segment: SegmentDigest) -> None:
        self._is_running = False
        if not self._replica.is_rebuilding:
            return  # a snapshot was installed meanwhile
        self._replica.rebuilt(machine, segment)
        self._log("rebuild_done", index=machine.last_index)
        self._done()
