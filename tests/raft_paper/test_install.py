"""InstallSnapshot (section 7 of the paper): what a follower gets whose next line the leader no longer has."""

import zlib
from dataclasses import replace

import pytest

from rollmq.core.raft_messages import InstallSnapResp, InstallSnapshot
from rollmq.core.raft_ready import RaftSettings, Role
from tests.raft_paper.group import MS, Group, append

SETTINGS = RaftSettings(tail_bytes_max=0, chunk_bytes_max=64)


def lagging_group(*, settings: RaftSettings = SETTINGS) -> Group:
    """n1 leads and keeps a snapshot instead of the lines that n3, which was down, does not have."""
    group = Group(3, settings=settings)
    group.elect("n1")
    group.propose("n1", b"a\n", b"b\n")
    group.settle()
    group.crash("n3")
    group.propose("n1", *[b"c%d\n" % n for n in range(20)])
    group.settle()
    group.fold("n1")
    group.propose("n1", b"after\n")
    group.settle()
    group.start("n3")
    return group


def beat(group: Group, *, times: int = 1) -> None:
    """Heartbeats, and all that follows."""
    for _ in range(times):
        group.tick(group.settings.heartbeat_us)
        group.settle()


def chunk_for(group: Group, node_id: str) -> InstallSnapshot:
    """Run until a chunk is on its way to this node; it is taken off the network."""
    for _ in range(200):
        for message in group.network:
            if isinstance(message, InstallSnapshot) and message.target == node_id:
                group.network.remove(message)
                return message
        group.deliver()
        for each in group.nodes:
            group.persist(each)
            group.read(each)
        if not group.network:
            group.tick(group.settings.heartbeat_us)
    raise AssertionError("no chunk is sent")


def test_a_follower_behind_the_snapshot_gets_it_in_chunks_and_then_the_lines_after_it() -> None:
    group = lagging_group()
    beat(group, times=3)
    assert group.nodes["n3"].entries() == group.nodes["n1"].entries()
    assert group.nodes["n3"].disk.snapshot == group.nodes["n1"].disk.snapshot
    assert group["n3"].commit_index == group["n1"].commit_index
    group.propose("n1", b"more\n")
    group.settle()
    beat(group)
    assert group.nodes["n3"].released[-1] == b"more\n"


def test_the_leader_serves_the_others_while_it_ships_a_snapshot() -> None:
    """Pitfall 32: nothing waits for it."""
    group = lagging_group()
    chunk_for(group, "n3")
    before = group["n1"].commit_index
    group.cut("n1", "n3")
    group.propose("n1", b"while\n")
    group.settle()
    assert group["n1"].commit_index == before + 1


def test_a_lost_chunk_is_sent_again_and_what_came_is_not() -> None:
    """Pitfall 29: resumable."""
    group = lagging_group()
    group.hand_over(chunk_for(group, "n3"))
    group.receive("n3")
    lost = chunk_for(group, "n3")
    assert lost.offset == 64
    for _ in range(10):
        # Its answer never comes: after an election timeout the leader asks its store for it once more.
        again = chunk_for(group, "n3")
        if again.offset == lost.offset:
            break
    assert again.offset == lost.offset
    group.hand_over(again)
    group.receive("n3")
    beat(group, times=3)
    assert group.nodes["n3"].entries() == group.nodes["n1"].entries()


def test_a_chunk_whose_checksum_is_wrong_is_not_taken() -> None:
    """Pitfall 28: what travels has checksums too."""
    group = lagging_group()
    chunk = chunk_for(group, "n3")
    group.network.clear()
    group["n3"].step(replace_bytes(chunk))
    group.work("n3")
    answers = group.sent(InstallSnapResp, source="n3")
    assert [answer.next_offset for answer in answers if isinstance(answer, InstallSnapResp)] == [0]
    assert group.nodes["n3"].chunk is None
    beat(group, times=5)
    assert group.nodes["n3"].entries() == group.nodes["n1"].entries()


def replace_bytes(chunk: InstallSnapshot) -> InstallSnapshot:
    """The same message after a bit has flipped in it."""
    data = bytes([chunk.data[0] ^ 1]) + chunk.data[1:]
    names = {name: getattr(chunk, name) for name in chunk.__struct_fields__}
    return InstallSnapshot(**{**names, "data": data})


def test_a_chunk_of_another_snapshot_never_continues_this_one() -> None:
    """Pitfall 29: chunks are bound to the snapshot."""
    group = lagging_group()
    group.hand_over(chunk_for(group, "n3"))
    group.receive("n3")
    second = chunk_for(group, "n3")
    names = {name: getattr(second, name) for name in second.__struct_fields__}
    group.network.clear()
    group["n3"].step(InstallSnapshot(**{**names, "digest": "0" * 64}))
    group.work("n3")
    assert group.nodes["n3"].chunk is None
    (answer,) = group.sent(InstallSnapResp, source="n3")
    assert isinstance(answer, InstallSnapResp)
    assert answer.next_offset == 0


def test_chunks_of_an_older_term_are_refused_and_what_came_of_them_is_dropped() -> None:
    """Pitfall 29: chunks are bound to their leader's term."""
    group = lagging_group()
    group.hand_over(chunk_for(group, "n3"))
    group.receive("n3")
    second = chunk_for(group, "n3")
    group.network.clear()
    group.elect("n2")
    group["n3"].step(second)
    group.work("n3")
    assert group.nodes["n3"].chunk is None
    assert group["n1"].role is Role.FOLLOWER


def test_a_file_that_is_not_what_its_digest_says_is_never_installed_and_is_sent_anew() -> None:
    """Pitfall 28: nothing is dropped for a snapshot that is not sound."""
    group = lagging_group(settings=replace(SETTINGS, chunk_bytes_max=1 << 20))
    chunk = chunk_for(group, "n3")
    group.hand_over(chunk)
    group.receive("n3")
    node = group.nodes["n3"]
    before = node.entries()
    assert node.installing is not None
    node.received = node.received[:-1] + b"?"
    group.receive("n3")
    assert node.entries() == before
    beat(group, times=5)
    assert node.entries() == group.nodes["n1"].entries()


def test_a_snapshot_that_is_not_ahead_of_the_commit_index_is_ignored() -> None:
    """Pitfall 29: it would take back what is applied."""
    group = lagging_group()
    beat(group, times=3)
    before = group.nodes["n3"].entries()
    for last_index in (5, group["n3"].log.snapshot_index):
        group.network.clear()
        group["n3"].step(InstallSnapshot("n1", "n3", 1, last_index, 1, "d", 9, 0, b"x", zlib.crc32(b"x")))
        group.work("n3")
        assert group.nodes["n3"].chunk is None
        answers = group.sent(InstallSnapResp, source="n3")
        assert [answer.installed for answer in answers if isinstance(answer, InstallSnapResp)] == [True]
    assert group.nodes["n3"].entries() == before


def test_a_follower_that_has_the_snapshots_last_entry_keeps_its_log_and_what_follows() -> None:
    """Section 7, step 6: entries that it confirmed may be what made them committed."""
    group = Group(3, settings=SETTINGS)
    group.elect("n1")
    group.propose("n1", *[b"%d\n" % n for n in range(5)])
    group.settle()
    group.fold("n1", 3)
    facts = group.nodes["n1"].disk.snapshot
    assert facts is not None
    group.crash("n3")
    group.start("n3")
    assert group["n3"].commit_index == 0
    request = InstallSnapshot(
        "n1", "n3", 1, facts.last_index, facts.last_term, facts.digest, facts.total_bytes, 0, b"x", 0
    )
    group["n3"].step(request)
    group.work("n3")
    assert group["n3"].commit_index == 3
    assert group["n3"].log.last_index == 6
    (answer,) = group.sent(InstallSnapResp, source="n3")
    assert isinstance(answer, InstallSnapResp)
    assert answer.installed


def test_after_an_installation_commit_applied_and_log_move_up_together() -> None:
    """Pitfall 30: no state in between is ever seen."""
    group = lagging_group()
    node = group.nodes["n3"]
    while node.installing is None:
        group.hand_over(chunk_for(group, "n3"))
        group.receive("n3") if node.installing is None and node.chunk is not None else None
    log = group["n3"].log
    assert (log.snapshot_index, log.commit_index) == (0, 0)
    facts = node.installing
    group.receive("n3")
    pointers = (log.snapshot_index, log.applied_index, log.commit_index, log.persisted_index, log.last_index)
    assert pointers == (facts.last_index,) * 5
    assert log.last_term == facts.last_term


def test_nothing_is_added_to_the_log_while_it_is_being_replaced_and_nobody_stands_for_election() -> None:
    """Pitfall 30: it would be lost without a word."""
    group = lagging_group(settings=replace(SETTINGS, chunk_bytes_max=1 << 20))
    group.hand_over(chunk_for(group, "n3"))
    group.receive("n3")
    node = group.nodes["n3"]
    assert node.installing is not None
    last_index = group["n3"].log.last_index
    group["n3"].step(append("n3", 1, (last_index, 1), 1, source="n1"))
    group.work("n3")
    assert group["n3"].log.last_index == last_index
    group["n3"].campaign()
    assert group["n3"].role is Role.FOLLOWER


def test_a_node_starts_from_a_snapshot_and_the_log_after_it() -> None:
    """Pitfall 30: at the start both are reconciled."""
    group = lagging_group()
    beat(group, times=3)
    group.propose("n1", b"last\n")
    group.settle()
    group.crash("n3")
    group.start("n3")
    log = group["n3"].log
    assert log.snapshot_index == group.nodes["n1"].disk.snapshot_index
    assert log.last_index == group["n1"].log.last_index
    beat(group)
    assert group.nodes["n3"].entries() == group.nodes["n1"].entries()


def test_a_crash_in_the_middle_of_a_shipment_begins_it_anew() -> None:
    group = lagging_group()
    group.hand_over(chunk_for(group, "n3"))
    group.receive("n3")
    group.crash("n3")
    group.start("n3")
    beat(group, times=8)
    assert group.nodes["n3"].entries() == group.nodes["n1"].entries()


def test_a_snapshot_that_the_leader_no_longer_keeps_is_replaced_by_its_newer_one() -> None:
    """Pitfall 31: a shipment pins nothing for ever."""
    group = lagging_group()
    group.hand_over(chunk_for(group, "n3"))
    group.receive("n3")
    group.fold("n1")
    beat(group, times=8)
    assert group.nodes["n3"].entries() == group.nodes["n1"].entries()
    assert group.nodes["n3"].disk.snapshot == group.nodes["n1"].disk.snapshot


def test_a_short_outage_is_made_good_from_memory() -> None:
    """Pitfall 31: the leader keeps a tail of the log, so that nobody reads a disk, let alone a snapshot."""
    group = Group(3)
    group.elect("n1")
    group.crash("n3")
    group.propose("n1", *[b"%d\n" % n for n in range(50)])
    group.settle()
    group.start("n3")
    for _ in range(20):
        group.tick(20 * MS)
        group.deliver()
        for each in group.nodes:
            group.persist(each)
        assert not any(isinstance(message, InstallSnapshot) for message in group.network)
        assert group.nodes["n1"].reads == []
    assert group.nodes["n3"].entries() == group.nodes["n1"].entries()


@pytest.mark.parametrize("last_index", [-1, 0])
def test_a_snapshot_of_nothing_is_ignored_and_counted(last_index: int) -> None:
    group = Group(3)
    group["n3"].step(InstallSnapshot("n1", "n3", 1, last_index, 1, "d", 1, 0, b"x", 0))
    assert group["n3"].ignored_count == 1
