"""Snapshots between nodes, on the event loop: pieces read and written in threads, the state loaded off it.

It decides nothing: Raft says which piece, the store puts it in place, the replica takes the state over.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from rollmq.core.machine import Machine
from rollmq.core.raft_ready import ReadChunk, SnapshotFacts, WriteChunk
from rollmq.core.replica import Replica
from rollmq.errors import SnapshotRefused
from rollmq.node.assembling import rebuild
from rollmq.node.logs import EventLog
from rollmq.node.store_thread import StoreThread
from rollmq.store.store import Store


class Installer:
    """One node's snapshots on their way to others, and the one that comes in."""

    def __init__(
        self,
        replica: Replica,
        store: Store,
        thread: StoreThread,
        *,
        log: EventLog,
        begin_turn: Callable[[], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._replica = replica
        self._store = store
        self._thread = thread
        self._log = log
        self._begin_turn = begin_turn
        self._offered: dict[str, int] = {}
        """Node -> the snapshot that it was sent last, or was to be sent."""
        self._on_failure = on_failure
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="rollmq-snapshot")

    def close(self) -> None:
        """Begin nothing more."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    # -- a leader's side

    def read(self, request: ReadChunk) -> None:
        """A piece for a follower."""
        facts = request.snapshot
        if self._offered.get(request.target) != facts.last_index:
            # Once: to a node that is away the first piece goes again and again.
            self._offered[request.target] = facts.last_index
            self._log("snapshot_offered", to=request.target, index=facts.last_index, bytes=facts.total_bytes)
        index = request.snapshot.last_index
        asked = self._loop.run_in_executor(
            self._pool, self._store.read_chunk, index, request.offset, request.bytes_max
        )
        asked.add_done_callback(lambda done: self._read(request, done))

    def _read(self, request: ReadChunk, asked: "asyncio.Future[bytes | None]") -> None:
        if not asked.cancelled():
            self._begin_turn()
            self._replica.raft.chunk_read(request, asked.result())

    # -- a follower's side

    def write(self, chunk: WriteChunk) -> None:
        """A piece that came in."""
        self._thread.do(lambda: self._store.write_chunk(chunk), lambda _: self._written(chunk))

    def _written(self, chunk: WriteChunk) -> None:
        self._begin_turn()
        self._replica.raft.chunk_written(chunk)

    def install(self, facts: SnapshotFacts) -> None:
        """All pieces are here: put it in place of log and state."""

        def put() -> SnapshotRefused | None:
            try:
                self._store.install(facts)
            except SnapshotRefused as error:
                return error
            return None

        self._thread.do(put, lambda refused: self._put(facts, refused))

    def _put(self, facts: SnapshotFacts, refused: SnapshotRefused | None) -> None:
        if refused is not None:
            self._log("snapshot_refused", reason=refused)
            self._begin_turn()
            self._replica.raft.install_refused()
            return
        asked = self._loop.run_in_executor(self._pool, rebuild, self._store, facts.last_index)
        asked.add_done_callback(lambda done: self._loaded(facts, done))

    def _loaded(self, facts: SnapshotFacts, asked: "asyncio.Future[Machine]") -> None:
        if asked.cancelled():
            return
        error = asked.exception()
        if error is not None:
            self._on_failure(error)
            return
        self._begin_turn()
        self._replica.installed(facts, asked.result())
        self._log("snapshot_installed", index=facts.last_index, bytes=facts.total_bytes)
