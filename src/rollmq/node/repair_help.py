"""What a running node does for a damaged peer, on the event loop: answers, read in a thread of their own."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from rollmq.core.raft import RaftCore
from rollmq.core.repair_messages import RepairAsk, RepairFetch, RepairMessage
from rollmq.node.logs import EventLog
from rollmq.node.repair_source import RepairSource
from rollmq.store.store import Store


class RepairHelp:
    """One node's."""

    def __init__(
        self, raft: RaftCore, store: Store, *, log: EventLog, send: Callable[[RepairMessage], None]
    ) -> None:
        """`send` begins a turn, at whose end the message leaves."""
        self._loop = asyncio.get_running_loop()
        self._source = RepairSource(raft, store)
        self._log = log
        self._send = send
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="rollmq-repair")
        self._told: dict[str, int] = {}
        """The newest round of each peer whose repair was told: a process of it tells once."""

    def take(self, message: RepairMessage) -> None:
        """A message of a repair. Answers are for damaged nodes, and this one is none."""
        if isinstance(message, RepairAsk):
            if message.round > self._told.get(message.source, -2) + 1:
                self._log("peer_repairs_itself", node=message.source)
            self._told[message.source] = message.round
            self._send(self._source.has(message))
        elif isinstance(message, RepairFetch):
            if not self._source.may_send(message):
                self._send(self._source.piece(message, None))
                return
            asked = self._loop.run_in_executor(self._pool, self._source.read, message)
            asked.add_done_callback(lambda done: self._read(message, done))

    def _read(self, fetch: RepairFetch, asked: "asyncio.Future[bytes | None]") -> None:
        if not asked.cancelled():
            self._send(self._source.piece(fetch, asked.result()))

    def close(self) -> None:
        """Begin nothing more."""
        self._pool.shutdown(wait=True, cancel_futures=True)
