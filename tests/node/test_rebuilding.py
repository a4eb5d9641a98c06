"""A node whose state is loaded anew, and what may cross that."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from rollmq.node.rebuilding import Rebuilder


class Crossing:
    """A replica that waits for its state, and a store that is read for it."""

    def __init__(self) -> None:
        log = SimpleNamespace(truncate_from=None, commit_index=5, persisted_index=5, applied_index=5)
        self.raft = SimpleNamespace(log=log, is_installing=False)
        self.replica = SimpleNamespace(is_rebuilding=True, raft=self.raft)
        self.said: list[str] = []
        self.failures: list[BaseException] = []

    def rebuilder(self) -> Rebuilder:
        anything: Any = self
        return Rebuilder(
            cast(Any, self.replica),
            store=anything,
            thread=anything,
            log=cast(Any, lambda event, **_: self.said.append(event)),
            done=lambda: None,
            on_failure=self.failures.append,
        )


def test_nothing_is_loaded_while_a_snapshot_takes_the_logs_place() -> None:
    """Seed 1795120676211 of groups: the log was gone, the node gave up after three looks and stopped."""

    async def story() -> None:
        crossing = Crossing()
        rebuilder = crossing.rebuilder()
        crossing.raft.is_installing = True
        rebuilder.look()
        assert crossing.said == []
        crossing.raft.is_installing = False
        rebuilder.look()
        assert crossing.said == ["rebuild_began"]
        rebuilder.close()

    asyncio.run(story())
