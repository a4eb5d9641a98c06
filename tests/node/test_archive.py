"""Who ships which segment and when, what is counted, and what the node's history waits for."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import cast

import pytest

from rollmq.limits import (
    ARCHIVE_RETRY_FIRST_US,
    ARCHIVE_RETRY_MAX_US,
    ARCHIVE_SILENT_US,
    ARCHIVE_TURN_US,
)
from rollmq.node.archive import Shipper, helper, turn_of
from rollmq.node.logs import EventLog
from rollmq.node.ship import Request, Told
from rollmq.node.store_thread import StoreThread
from rollmq.node.upkeep import Upkeep
from rollmq.store.layout import SegmentName, sealed_name
from rollmq.store.store import Store
from tests.node.stage import Host
from tests.node.test_ship import history, names_in, request_of

GROUP = "aa" * 16
ME, OTHER, LEADER = "11" * 16, "22" * 16, "33" * 16
MEMBERS = (ME, OTHER, LEADER)
SECOND_US = 1_000_000

__all__ = ["history"]

Helper = Callable[[Request, Callable[["subprocess.Popen[bytes]"], None], Callable[[Told], None]], str]


def segment(first: int, last: int) -> SegmentName:
    return SegmentName(first, last, sealed_name(first, last))


def file_name(first: int, last: int) -> str:
    return Path(sealed_name(first, last)).name


class Yard:
    """A shipper whose helper does what the test says, and whose time goes when the test says so."""

    def __init__(self, folder: Path, *sealed: SegmentName, me: str = ME) -> None:
        self.requests: list[Request] = []
        self.answer: Callable[[str], Told] = lambda name: Told(name, "shipped", size_bytes=1)
        self.failure = ""
        self.now_us = 1
        self.written = StringIO()
        self.log = EventLog(self.written)
        self.shipper = Shipper(
            "s3://key:secret@bucket/archive",
            folder,
            group=GROUP,
            node_id=me,
            sealed=sealed,
            log=self.log,
            run_helper=self.help,
        )

    def help(self, request: Request, _began: object, say: Callable[[Told], None]) -> str:
        self.requests.append(request)
        if not self.failure:
            for name in request.names:
                say(self.answer(name))
        return self.failure

    async def look(self, *, later_us: int = 0, leader: str | None = LEADER) -> list[str]:
        """Look once; which segments the helper was asked for."""
        before = len(self.requests)
        self.now_us += later_us
        self.shipper.look(members=MEMBERS, leader_id=leader, now_us=self.now_us)
        while self.shipper.is_running:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        asked = self.requests[before:]
        return [name for request in asked for name in request.names]

    def told(self) -> str:
        self.shipper.close()
        self.log.close()
        return self.written.getvalue()


def test_followers_share_the_segments_and_the_leader_comes_last() -> None:
    names = [file_name(n, n + 3) for n in range(1, 400, 4)]
    turns = {node: [turn_of(name, node, MEMBERS, LEADER) for name in names] for node in MEMBERS}
    assert set(turns[LEADER]) == {2}
    assert 30 < turns[ME].count(0) < 70
    assert all({one, other} == {0, 1} for one, other in zip(turns[ME], turns[OTHER], strict=True))
    assert turn_of(names[0], ME, (ME,), ME) == 0, "alone it ships everything, at once"
    assert turn_of(names[0], ME, (), None) == 1, "who is no member yet lets others go first"


def test_a_node_ships_at_once_what_is_its_turn_and_later_what_others_left(tmp_path: Path) -> None:
    sealed = [segment(n, n + 3) for n in range(1, 80, 4)]

    async def story() -> None:
        yard = Yard(tmp_path, *sealed)
        first = await yard.look()
        assert first == [
            Path(each.name).name for each in sealed if turn_of(Path(each.name).name, ME, MEMBERS, LEADER) == 0
        ]
        assert 0 < len(first) < len(sealed)
        assert await yard.look(later_us=ARCHIVE_TURN_US - 1) == []
        second = await yard.look(later_us=1)
        assert sorted(first + second) == [Path(each.name).name for each in sealed]
        assert [request.lists for request in yard.requests] == [True, False]
        yard.told()

    asyncio.run(story())


def test_the_leader_ships_what_nobody_else_has(tmp_path: Path) -> None:
    async def story() -> None:
        yard = Yard(tmp_path, segment(1, 4), me=LEADER)
        assert await yard.look() == []
        assert len(yard.requests) == 1, "the archive is looked at all the same: a wrong URL is told at once"
        yard.answer = lambda name: Told(name, "present")
        assert await yard.look(later_us=2 * ARCHIVE_TURN_US) == [file_name(1, 4)]
        assert yard.shipper.facts.shipped_count == 0
        assert yard.shipper.facts.waiting_count == 0
        yard.told()

    asyncio.run(story())


def test_an_archive_that_cannot_be_reached_is_tried_less_and_less_and_shown(tmp_path: Path) -> None:
    async def story() -> None:
        yard = Yard(tmp_path, segment(1, 4))
        yard.failure = "ConnectionRefusedError: nobody listens"
        pause_us, runs = ARCHIVE_RETRY_FIRST_US, 0
        for runs in range(1, 12):
            await yard.look(leader=ME)
            assert len(yard.requests) == runs
            await yard.look(later_us=pause_us - 1, leader=ME)
            assert len(yard.requests) == runs, "not before the pause is over"
            pause_us = min(2 * pause_us, ARCHIVE_RETRY_MAX_US)
            yard.now_us += 1
        facts = yard.shipper.facts
        assert (facts.failures_count, facts.waiting_count) == (runs, 1)
        assert facts.problem == yard.failure
        assert facts.place == "s3://bucket/archive"
        yard.failure = ""
        assert await yard.look(later_us=pause_us, leader=None) == [file_name(1, 4)]
        assert yard.shipper.facts.problem == ""
        assert yard.shipper.facts.failures_count == 0
        told = yard.told()
        assert told.count("event=archive_failed") == runs
        assert "event=segment_archived" in told
        assert "secret" not in told

    asyncio.run(story())


def test_history_waits_for_the_archive_and_for_nothing_that_is_there(tmp_path: Path) -> None:
    async def story() -> None:
        yard = Yard(tmp_path, segment(1, 4), segment(5, 8))
        assert yard.shipper.confirmed_index == 0
        yard.answer = lambda name: (
            Told(name, "shipped") if name == file_name(1, 4) else Told(name, "damaged", "rot")
        )
        await yard.look(later_us=2 * ARCHIVE_TURN_US)
        await yard.look(later_us=2 * ARCHIVE_TURN_US)
        assert yard.shipper.confirmed_index == 4
        yard.answer = lambda name: Told(name, "gone", "it was dropped")
        yard.shipper.add([segment(9, 12)])
        await yard.look(later_us=ARCHIVE_RETRY_MAX_US)
        assert yard.shipper.confirmed_index is None
        assert yard.shipper.facts.missed_count == 2
        assert "event=archive_missed" in yard.told()

    asyncio.run(story())


def test_what_is_in_the_way_is_told_once_and_nothing_behind_it_is_shipped(tmp_path: Path) -> None:
    async def story() -> None:
        sealed = [segment(1, 4), segment(5, 8), segment(9, 12)]
        yard = Yard(tmp_path, *sealed)
        yard.answer = lambda name: (
            Told(name, "shipped") if name == file_name(1, 4) else Told(name, "conflict", "other bytes")
        )

        def stops_there(request: Request, _began: object, say: Callable[[Told], None]) -> str:
            yard.requests.append(request)
            for name in request.names:
                say(yard.answer(name))
                if yard.answer(name).outcome == "conflict":
                    break
            return ""

        yard.shipper._run_helper = stops_there
        await yard.look(leader=ME)
        await yard.look(later_us=2 * ARCHIVE_TURN_US, leader=ME)
        assert yard.shipper.facts.problem == f"{file_name(5, 8)}: other bytes"
        assert await yard.look(later_us=SECOND_US, leader=ME) == []
        again = await yard.look(later_us=ARCHIVE_RETRY_MAX_US, leader=ME)
        assert again == [file_name(5, 8), file_name(9, 12)], "somebody may have cleared the way"
        yard.answer = lambda name: Told(name, "shipped")
        await yard.look(later_us=ARCHIVE_RETRY_MAX_US, leader=ME)
        assert yard.shipper.facts.problem == ""
        assert yard.told().count("event=archive_conflict") == 1

    asyncio.run(story())


def test_what_the_archive_has_and_this_node_has_not_is_remembered(tmp_path: Path) -> None:
    async def story() -> None:
        yard = Yard(tmp_path)
        theirs = [file_name(1, 4), file_name(5, 20)]

        def lists(request: Request, _began: object, say: Callable[[Told], None]) -> str:
            yard.requests.append(request)
            for name in theirs if request.lists else ():
                say(Told(name, "ahead"))
            return yard.help(request, _began, say)

        yard.shipper._run_helper = lists
        await yard.look()
        assert yard.requests[0].from_index == 1
        yard.shipper.add([segment(1, 4)])
        await yard.look(later_us=2 * ARCHIVE_TURN_US)
        assert yard.requests[-1].ahead == tuple(theirs)
        yard.shipper.add([segment(5, 8)])
        await yard.look(later_us=2 * ARCHIVE_TURN_US)
        assert yard.requests[-1].ahead == (file_name(5, 20),)
        yard.told()

    asyncio.run(story())


def test_a_helper_that_hangs_is_ended_and_counts_as_failed(tmp_path: Path) -> None:
    async def story() -> None:
        yard = Yard(tmp_path, segment(1, 4))

        def hangs(request: Request, began: Callable[..., None], _say: object) -> str:
            yard.requests.append(request)
            process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
            began(process)
            code = process.wait()
            assert process.stdin is not None
            process.stdin.close()
            return f"ended with code {code}"

        yard.shipper._run_helper = hangs
        yard.shipper.look(members=(ME,), leader_id=ME, now_us=yard.now_us)
        while yard.shipper._process is None:
            await asyncio.sleep(0)
        yard.shipper.look(members=(ME,), leader_id=ME, now_us=yard.now_us + ARCHIVE_SILENT_US)
        assert yard.shipper._process.poll() is None
        await yard.look(later_us=ARCHIVE_SILENT_US + 1)
        assert yard.shipper.facts.problem == "ended with code -9"
        yard.told()

    asyncio.run(story())


def test_the_real_helper_ships_and_says_why_it_cannot(tmp_path: Path, history: Path) -> None:
    told: list[Told] = []
    request = request_of(history, archive=str(tmp_path / "archive"), parent=os.getpid())
    assert helper(request, lambda _process: None, told.append) == ""
    assert [each.outcome for each in told if each.outcome != "moving"] == ["shipped"] * 3
    wrong = request_of(history, archive="nonsense://x", parent=os.getpid())
    assert "nonsense" in helper(wrong, lambda _process: None, told.append)
    closed = request_of(history, archive="http://127.0.0.1:9/archive", parent=os.getpid())
    assert helper(closed, lambda _process: None, told.append) != ""


def test_a_helper_whose_node_is_gone_publishes_nothing(tmp_path: Path, history: Path) -> None:
    request = request_of(history, archive=str(tmp_path / "archive"), parent=1)
    assert "has ended" in helper(request, lambda _process: None, lambda _told: None)
    assert not list((tmp_path / "archive").rglob("events-*"))


class Shelf:
    """A store that is asked which history may go."""

    failure = None
    found_damage = None

    def __init__(self) -> None:
        self.asked: list[int | None] = []

    def is_disk_low(self) -> bool:
        return False

    def is_fold_due(self) -> bool:
        return False

    def base_index_due(self, *, now_us: int, confirmed_index: int | None) -> None:
        del now_us
        self.asked.append(confirmed_index)


@pytest.mark.parametrize(
    ("pipelines", "has_archive", "expected"),
    [
        ({}, False, None),
        ({"a": 7}, False, 7),
        ({}, True, 4),
        ({"a": 7, "b": 2}, True, 2),
        ({"a": 7}, True, 4),
    ],
)
def test_old_history_waits_for_pipelines_and_for_the_archive(
    tmp_path: Path, pipelines: dict[str, int], has_archive: bool, expected: int | None
) -> None:
    async def story() -> None:
        yard, shelf, host = Yard(tmp_path, segment(5, 8)), Shelf(), Host()
        yard.failure = "it is away"
        host.replica.machine.pipelines.update(pipelines)
        thread = StoreThread(asyncio.get_running_loop(), on_failure=lambda error: pytest.fail(str(error)))
        archive = yard.shipper if has_archive else None
        upkeep = Upkeep(
            cast(Store, shelf), thread, tmp_path, log=yard.log, free_bytes=lambda: 1, archive=archive
        )
        upkeep.look(host.replica, now_us=2 * ARCHIVE_TURN_US)
        thread.stop()
        assert shelf.asked == [expected]
        yard.told()

    asyncio.run(story())


@pytest.mark.parametrize("node", [ME, OTHER])
def test_two_helpers_of_two_nodes_fill_one_archive(tmp_path: Path, history: Path, node: str) -> None:
    archive = str(tmp_path / "archive")
    for each in (node, LEADER):
        request = request_of(history, archive=archive, parent=os.getpid(), node=each)
        assert helper(request, lambda _process: None, lambda _told: None) == ""
    assert names_in(tmp_path / "archive" / GROUP) == names_in(history)
