"""What a damaged node may take from whom, and when it counts again: rule 7, each sentence once."""

from collections.abc import Sequence
from random import Random

import msgspec
import pytest

from rollmq.core.line import seal
from rollmq.core.raft_messages import VoteResp
from rollmq.core.raft_ready import HardState
from rollmq.core.repair_messages import RepairAsk, RepairHas, RepairMessage, RepairPiece
from rollmq.node.repairing import Repairing
from rollmq.store import layout
from rollmq.store.store import Store
from rollmq.store.verify import verify_directory
from rollmq.store.vote import read_vote
from tests.repair.clinic import IDS, Clinic, Sound, usual_disks, usual_log, write_log
from tests.sim.sim_disk import PowerCut, SimDisk
from tests.store.making import LogMaker

NEWEST = layout.open_name(13)
ME, SECOND, THIRD = IDS


def line_at(disk: SimDisk, name: str, number: int) -> int:
    """Somewhere in a line of a file, counted from 1."""
    return sum(len(line) for line in disk.content(name).splitlines(keepends=True)[: number - 1]) + 30


def forked(*, common: int, ends: Sequence[tuple[int, int]]) -> list[SimDisk]:
    """Three logs, the same up to entry `common`; each goes on in a (term, up to an entry) of its own."""
    disks = []
    for node_id, (term, last_index) in zip(IDS, ends, strict=True):
        log = LogMaker()
        log.enqueues(common)
        log.term = term
        log.enqueues(last_index - common)
        disk = SimDisk()
        write_log(disk, node_id, log, until_index=last_index)
        disks.append(disk)
    return disks


def healed(clinic: Clinic, node_id: str = ME) -> Store:
    clinic.run()
    assert not clinic.ill, clinic.ill[0].plan.wait
    return clinic.store(node_id)


def is_waiting(clinic: Clinic, *, for_what: str) -> Repairing:
    clinic.run(seconds=100)
    node = clinic.nodes[ME]
    assert isinstance(node, Repairing)
    assert for_what in node.plan.wait
    return node


# -- lines in the middle


def test_one_peer_is_enough_for_a_line_in_the_middle_and_no_leader_is_needed() -> None:
    disks = usual_disks()
    disks[0].rot(NEWEST, line_at(disks[0], NEWEST, 3))
    clinic = Clinic(disks, away=[THIRD])
    healed(clinic)
    assert clinic.lines(ME) == usual_log().lines


def test_a_line_is_taken_only_from_a_log_that_is_the_same_behind_it() -> None:
    """The second has another entry 4, which would fit; the third has ours."""
    disks = forked(common=3, ends=[(3, 8), (2, 9), (3, 8)])
    lines = [disk.content(layout.open_name(1)) for disk in disks]
    disks[0].rot(layout.open_name(1), line_at(disks[0], layout.open_name(1), 5))
    clinic = Clinic(disks)
    healed(clinic)
    assert clinic.disks[ME].content(layout.open_name(1)) == lines[0] == lines[2]


def test_a_line_that_no_other_log_has_is_cut_and_the_newest_of_all_logs_is_copied() -> None:
    disks = forked(common=3, ends=[(2, 8), (3, 9), (3, 6)])
    disks[0].rot(layout.open_name(1), line_at(disks[0], layout.open_name(1), 6))
    newest = disks[1].content(layout.open_name(1))
    clinic = Clinic(disks)
    store = healed(clinic)
    assert clinic.disks[ME].content(layout.open_name(1)) == newest
    assert store.hard_state.term >= 3
    assert "repair_cut" in clinic.events()


def test_a_line_that_only_a_node_has_that_is_down_is_waited_for() -> None:
    disks = forked(common=3, ends=[(2, 8), (3, 9), (2, 8)])
    disks[0].rot(layout.open_name(1), line_at(disks[0], layout.open_name(1), 6))
    clinic = Clinic(disks, away=[THIRD])
    is_waiting(clinic, for_what="entries 5 to 5")
    clinic.start(THIRD)
    healed(clinic)


def test_lines_that_are_not_what_was_asked_for_are_not_taken() -> None:
    disks = usual_disks()
    disks[0].rot(NEWEST, line_at(disks[0], NEWEST, 3))
    clinic = Clinic(disks)
    log = usual_log()

    def lie(message: RepairMessage) -> RepairMessage:
        if isinstance(message, RepairPiece) and message.source == SECOND:
            return msgspec.structs.replace(message, is_refused=False, data=log.lines[4])
        return message

    clinic.on_message = lie
    healed(clinic)
    assert clinic.lines(ME) == log.lines


# -- sealed segments, and groups in which every node is damaged


def test_a_segment_of_other_lines_than_its_marker_says_is_not_taken() -> None:
    """Whole lines, in order, and yet another file: its digest tells."""
    disks = usual_disks()
    name = layout.sealed_name(5, 8)
    disks[0].remove(name)
    before = disks[1].content(name)
    other = LogMaker()
    other.term = 1
    other.enqueues(4)
    forged = other.enqueue(payload_bytes=33)
    clinic = Clinic(disks)

    def lie(message: RepairMessage) -> RepairMessage:
        if isinstance(message, RepairPiece) and message.source == SECOND and message.data:
            lines = message.data.splitlines(keepends=True)
            return msgspec.structs.replace(message, data=b"".join([forged, *lines[1:]]))
        return message

    clinic.on_message = lie
    healed(clinic)
    assert clinic.disks[ME].content(name) == before
    assert "repair_refused" in clinic.events()


def test_every_node_is_damaged_elsewhere_and_all_recover_from_each_other() -> None:
    disks = usual_disks()
    for number, disk in enumerate(disks):
        disk.rot(NEWEST, line_at(disk, NEWEST, 2 + number))
        disk.rot(layout.open_name(9), line_at(disk, layout.open_name(9), 3 + number % 2 * 2))
        disk.remove(layout.sealed_name(1, 4) if number == 0 else layout.snapshot_name(4))
    clinic = Clinic(disks)
    assert len(clinic.refused) == 3
    clinic.run()
    assert not clinic.ill, [node.plan.wait for node in clinic.ill]
    assert all(clinic.lines(node_id) == usual_log().lines for node_id in IDS)


# -- a lost end


@pytest.mark.parametrize("away", [SECOND, THIRD])
def test_a_lost_end_waits_for_all_other_voters(away: str) -> None:
    disks = forked(common=3, ends=[(2, 8), (2, 6), (2, 8)])
    content = disks[0].content(layout.open_name(1))
    disks[0].replace(layout.open_name(1), content[:-200])
    clinic = Clinic(disks, away=[away])
    is_waiting(clinic, for_what=away)
    clinic.start(away)
    healed(clinic)
    assert clinic.disks[ME].content(layout.open_name(1)) == content


def test_a_lost_end_is_not_copied_from_a_node_that_has_lost_its_own() -> None:
    disks = forked(common=3, ends=[(2, 8), (2, 8), (2, 5)])
    for disk in disks[:2]:
        disk.replace(layout.open_name(1), disk.content(layout.open_name(1))[:-200])
    clinic = Clinic(disks)
    is_waiting(clinic, for_what="the end of whose log is damaged too")


def test_answers_count_only_if_asked_for_after_everybody_had_answered() -> None:
    """Else one could have told the end of its log before it got an entry, and the other after it lost it."""
    disks = forked(common=3, ends=[(2, 8), (2, 8), (2, 8)])
    disks[0].replace(layout.open_name(1), disks[0].content(layout.open_name(1))[:-200])
    clinic = Clinic(disks)
    rounds: dict[str, list[int]] = {SECOND: [], THIRD: []}

    def note(message: RepairMessage) -> RepairMessage | None:
        if isinstance(message, RepairHas):
            rounds[message.source].append(message.round)
            if message.source == THIRD and message.round < 5:
                return None  # it is slow to come up
            if message.source == SECOND and 5 < message.round < 12:
                return None  # and this one then falls silent for a while
        return message

    clinic.on_message = note
    healed(clinic)
    assert rounds[SECOND][-1] == 12


def test_a_leader_no_longer_counts_what_a_damaged_node_had_confirmed() -> None:
    disks = usual_disks()
    clinic = Clinic(disks)
    node = clinic.nodes[SECOND]
    assert isinstance(node, Sound)
    raft = node.raft
    raft.tick(10_000_000)
    _elect(node)
    leadership = raft.leadership
    assert leadership is not None
    progress = leadership.progress(ME)
    assert progress is not None
    progress.matched(16)
    node.take(RepairAsk(ME, SECOND, 0, 1))
    assert progress.match_index == 0


def _elect(node: Sound) -> None:
    """Both others vote for it."""
    raft = node.raft
    for _ in range(2):
        ready = raft.ready()
        while ready is not None:
            if ready.write is not None:
                raft.persisted(ready.write)
            ready = raft.ready()
        ballot = raft._ballot
        assert ballot is not None
        is_pre, term = ballot.is_pre, ballot.asked_term
        raft.step(VoteResp(THIRD, SECOND, raft.term, asked_term=term, granted=True, pre=is_pre))


# -- a lost vote


def test_a_lost_vote_takes_the_highest_term_among_all_others_as_spent() -> None:
    disks = usual_disks()
    store, _ = Store.open(disks[2], fresh_node_id=THIRD)
    store.save_vote(HardState(7, THIRD))
    store.close()
    disks[0].remove(layout.VOTE_FILE)
    clinic = Clinic(disks, away=[THIRD])
    is_waiting(clinic, for_what=THIRD)
    clinic.start(THIRD)
    healed(clinic)
    assert read_vote(clinic.disks[ME]) == HardState(7, ME)


# -- crashes


def test_the_power_may_go_in_any_step_of_a_repair() -> None:
    """Each time it begins again; nothing that was confirmed is missing in the end."""
    for stop_at in range(60):
        disks = usual_disks()
        disk = disks[0]
        disk.rot(layout.open_name(9), line_at(disk, layout.open_name(9), 3))
        disk.replace(NEWEST, disk.content(NEWEST)[:-150])
        clinic = Clinic(disks)
        disk.stop_at = disk.calls + stop_at
        try:
            clinic.run()
        except PowerCut:
            disk.crash(Random(stop_at))
            for other in disks[1:]:
                other.kill()
            clinic = Clinic(disks)
            clinic.run()
        assert not clinic.ill
        assert clinic.lines(ME) == usual_log().lines
        assert layout.REPAIRING_FILE not in disk.files()
        for node_id in IDS:
            clinic.store(node_id).close()


def test_a_lost_end_is_remembered_although_the_files_look_whole() -> None:
    disks = usual_disks()
    disks[0].replace(layout.SYNCED_FILE, seal(b'{"first":13,"bytes":1,"index":12}')[:-3])
    clinic = Clinic(disks, away=[SECOND, THIRD])
    is_waiting(clinic, for_what=SECOND)
    assert layout.REPAIRING_FILE in disks[0].files()
    assert layout.REPAIRING_FILE in [each.name for each in verify_directory(disks[0]).damages]
    disks[0].kill()
    disks[0].replace(layout.SYNCED_FILE, usual_disks()[0].content(layout.SYNCED_FILE))
    again = Clinic(disks, away=[SECOND, THIRD])
    assert "repair" in str(again.refused[ME])
    is_waiting(again, for_what=SECOND)
