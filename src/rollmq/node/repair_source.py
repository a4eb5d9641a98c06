"""What a sound node gives to one that repairs itself: what it has, lines, and its newest snapshot.

Only what is on this disk and part of the log as it is now. It reads, and changes nothing but one thing: a
leader no longer counts what the damaged node had confirmed.
"""

from rollmq.core.raft import RaftCore
from rollmq.core.repair_messages import RepairAsk, RepairFetch, RepairHas, RepairPiece
from rollmq.errors import StateError
from rollmq.limits import REPAIR_BYTES_MAX, REPAIR_RUNS_MAX, SNAPSHOT_CHUNK_BYTES_MAX
from rollmq.store.store import Store


class RepairSource:
    """One running node's. `read` may be called in another thread, the rest only in the loop's."""

    def __init__(self, raft: RaftCore, store: Store) -> None:
        self._raft = raft
        self._store = store

    def has(self, ask: RepairAsk) -> RepairHas:
        """The answer to a question."""
        raft, log = self._raft, self._raft.log
        raft.peer_is_damaged(ask.source)
        last_index, snapshot = log.persisted_index, raft.snapshot
        first_index = max(log.snapshot_index + 1, 1)
        runs = log.runs(first_index, last_index) if first_index <= last_index else ()
        membership = log.membership
        return RepairHas(
            raft.node_id,
            ask.source,
            raft.term,
            round=ask.round,
            last_index=last_index,
            last_term=log.term_at(last_index) or 0,
            commit_index=min(log.commit_index, last_index),
            ranges=self._ranges(last_index),
            runs=runs[-REPAIR_RUNS_MAX:],
            snapshot_index=snapshot.last_index if snapshot is not None else 0,
            snapshot_term=snapshot.last_term if snapshot is not None else 0,
            snapshot_digest=snapshot.digest if snapshot is not None else "",
            snapshot_bytes=snapshot.total_bytes if snapshot is not None else 0,
            members_index=membership.index,
            voters=tuple(sorted(membership.current.voters)),
        )

    def _ranges(self, last_index: int) -> tuple[tuple[int, int], ...]:
        found = [(first, min(last, last_index)) for first, last in self._store.ranges()]
        return tuple(each for each in found if each[0] <= each[1])[-REPAIR_RUNS_MAX:]

    def may_send(self, fetch: RepairFetch) -> bool:
        """Whether these lines are what is asked for: then so are all before the entry that is compared (5.3).

        Asked before the lines are read and after: meanwhile they may have been cut.
        """
        log = self._raft.log
        if fetch.snapshot_index:
            return True
        if not 1 <= fetch.first_index <= fetch.last_index <= log.persisted_index:
            return False
        if not fetch.check_index:
            return fetch.last_index <= log.commit_index
        is_behind = fetch.last_index <= fetch.check_index <= log.persisted_index
        return is_behind and log.term_at(fetch.check_index) == fetch.check_term

    def read(self, fetch: RepairFetch) -> bytes | None:
        """What is asked for, from the disk; None when it is not there, or is damaged here too."""
        if fetch.snapshot_index:
            return self._store.read_chunk(fetch.snapshot_index, fetch.offset, SNAPSHOT_CHUNK_BYTES_MAX)
        count = fetch.last_index + 1 - fetch.first_index
        try:
            return b"".join(self._store.read_lines(fetch.first_index, REPAIR_BYTES_MAX)[:count])
        except StateError:
            return None

    def piece(self, fetch: RepairFetch, data: bytes | None) -> RepairPiece:
        """The answer with what was read."""
        return piece_for(fetch, data if self.may_send(fetch) else None)


def piece_for(fetch: RepairFetch, data: bytes | None) -> RepairPiece:
    """The answer to a fetch; None: this node does not have it."""
    return RepairPiece(
        fetch.target,
        fetch.source,
        0,
        first_index=fetch.first_index,
        check_index=fetch.check_index,
        snapshot_index=fetch.snapshot_index,
        offset=fetch.offset,
        is_refused=not data,
        data=data or b"",
    )
