"""A snapshot of another node takes the place of log and state, whole or not at all when the power goes."""

import contextlib
import hashlib
from random import Random

import pytest

from rollmq.core.raft_ready import SnapshotFacts, WriteChunk
from rollmq.errors import SnapshotRefused, StoreFailed
from rollmq.store import layout
from rollmq.store.fold import fold_snapshot
from rollmq.store.gaps import read_gaps
from rollmq.store.store import Store
from rollmq.store.verify import verify_directory
from tests.sim.sim_disk import PowerCut, SimDisk
from tests.store.making import LogMaker, lines_of, new_store, open_store, state_of

CHUNK_BYTES = 200
LOSSES_PER_STEP = 4


def leaders_snapshot() -> tuple[LogMaker, SnapshotFacts, bytes]:
    """A leader that folded its log of 24 entries; the log goes on."""
    disk, log = SimDisk(), LogMaker()
    store = new_store(disk)
    for _ in range(6):
        store.write([*log.enqueues(3), log.marker()], store.next_index)
        store.seal(store.next_index - 1)
    result = fold_snapshot(disk)
    assert result is not None
    content = disk.content(layout.snapshot_name(result.last_index))
    return log, SnapshotFacts(result.last_index, 1, result.digest, len(content)), content


def followers_store(log: LogMaker) -> tuple[SimDisk, Store]:
    """It has a snapshot and sealed segments of the beginning, and an open one that was never committed."""
    disk = SimDisk()
    store = new_store(disk)
    for first in (0, 4):
        store.write(log.lines[first : first + 4], store.next_index)
        store.seal(store.next_index - 1)
        result = fold_snapshot(disk)
        assert result is not None
        store.adopt_snapshot(result)
    store.write(log.lines[8:11], store.next_index)
    return disk, store


def receive(store: Store, facts: SnapshotFacts, content: bytes) -> None:
    for offset in range(0, len(content), CHUNK_BYTES):
        store.write_chunk(WriteChunk(facts, offset, content[offset : offset + CHUNK_BYTES]))


def test_an_installed_snapshot_is_the_state_and_the_log_goes_on_behind_it() -> None:
    log, facts, content = leaders_snapshot()
    disk, store = followers_store(log)
    receive(store, facts, content)
    store.install(facts)
    assert store.next_index == 25
    assert store.snapshot is not None
    assert store.snapshot.digest == facts.digest
    assert store.segment_digest().first_index == 25
    store.write(log.enqueues(3), 25)
    assert store.read_lines(25, 1 << 20) == log.lines[24:]
    store.close()
    again, recovered = open_store(disk)
    assert recovered.state_index == 24
    assert lines_of(recovered) == log.lines[24:]
    assert read_gaps(disk).covers(1, 24)
    assert verify_directory(disk).damages == []
    again.write([log.marker()], 28)
    assert again.seal(28)[0].first_index == 25
    assert fold_snapshot(disk) is not None


def test_a_base_stands_where_the_history_begins_so_that_it_can_be_shortened_later() -> None:
    log, facts, content = leaders_snapshot()
    disk, store = followers_store(log)
    receive(store, facts, content)
    store.install(facts)
    assert [base.last_index for base in layout.bases(disk)] == [24]
    assert disk.content(layout.base_name(24)) == content
    assert layout.sealed_segments(disk) == []


@pytest.mark.parametrize("damage", ["a byte", "the end", "the term"])
def test_what_is_not_what_its_digest_says_is_thrown_away_and_changes_nothing(damage: str) -> None:
    log, facts, content = leaders_snapshot()
    disk, store = followers_store(log)
    if damage == "a byte":
        content = content[:300] + bytes([content[300] ^ 1]) + content[301:]
    elif damage == "the end":
        content = content[:-40]
    else:
        facts = SnapshotFacts(facts.last_index, 2, facts.digest, facts.total_bytes)
    receive(store, facts, content)
    with pytest.raises(SnapshotRefused, match="nothing was changed"):
        store.install(facts)
    assert store.next_index == 12
    assert store.read_lines(9, 1 << 20) == log.lines[8:11]
    assert disk.exists(layout.open_name(9))


def test_the_power_cut_at_each_call_leaves_the_old_state_or_the_new_one() -> None:
    log, facts, content = leaders_snapshot()
    disk, store = followers_store(log)
    receive(store, facts, content)
    before = disk.calls
    store.install(facts)
    calls = disk.calls - before
    ends = set()
    for at in range(calls + 1):
        for seed in range(LOSSES_PER_STEP):
            disk, store = followers_store(log)
            receive(store, facts, content)
            disk.stop_at = disk.calls + at
            with contextlib.suppress(PowerCut, StoreFailed):
                store.install(facts)
            disk.stop_at = None
            disk.crash(Random(f"{at}/{seed}"))
            again, recovered = open_store(disk)
            ends.add(recovered.last_index)
            if recovered.last_index == 24:
                assert hashlib.sha256(state_of(recovered)).hexdigest() == facts.digest
            else:
                assert recovered.last_index == 11
                assert lines_of(recovered) == log.lines[recovered.state_index : 11]
            assert not disk.exists(layout.INSTALLING_FILE)
            again.close()
    assert ends == {11, 24}


def test_a_chunk_at_offset_zero_begins_anew() -> None:
    log, facts, content = leaders_snapshot()
    _, store = followers_store(log)
    store.write_chunk(WriteChunk(facts, 0, b"x" * 5000))
    receive(store, facts, content)
    store.install(facts)
    assert store.next_index == 25


def test_a_snapshot_that_is_being_sent_stays_readable_when_it_is_dropped() -> None:
    _, facts, content = leaders_snapshot()
    log, _, _ = leaders_snapshot()
    disk, store = followers_store(log)
    index = store.snapshot.last_index if store.snapshot is not None else 0
    whole = disk.content(layout.snapshot_name(index))
    assert store.read_chunk(index, 0, 10) == whole[:10]
    receive(store, facts, content)
    store.install(facts)
    assert store.read_chunk(index, 10, 10) == whole[10:20]
    assert store.read_chunk(3, 0, 10) is None
