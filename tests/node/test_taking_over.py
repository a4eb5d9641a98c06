"""A node that is elected: it leads when it has applied its log, and says so to those who wait for that."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from rollmq.core.raft_messages import RequestVote, VoteResp
from rollmq.core.raft_ready import HardState, RaftSettings, Role
from rollmq.limits import APPLIES_PER_TURN, FRAME_BYTES_MAX
from rollmq.node.assembling import group_uuid
from rollmq.node.cluster_node import ClusterNode
from rollmq.node.logs import EventLog
from rollmq.node.peer_hello import PeerIdentity
from rollmq.node.starting import open_state, start
from rollmq.wire import headers as h
from rollmq.wire.codec import FrameDecoder, encode_frame, encode_header, header_of
from rollmq.wire.message import Frame, MsgType
from tests.store.making import SMALL, LogMaker

OTHER = "cc" * 16
ADDRESS = "127.0.0.1:5000"
LIMIT_S = 30.0


class Watcher:
    """The other end of a connection that watches for leaders."""

    def __init__(self, node: ClusterNode) -> None:
        self.leaders: list[tuple[int, str | None]] = []
        self._decoder = FrameDecoder(FRAME_BYTES_MAX)
        conn = node.door.accept(self)
        header = encode_header(h.HelloClientHeader(version=1, client_id="c1", watches=True))
        node.door.receive(conn, encode_frame(MsgType.HELLO_CLIENT, bytes(16), header=header))

    def write(self, data: bytes) -> None:
        for frame in self._decoder.feed(data):
            assert isinstance(frame, Frame)
            if frame.type == MsgType.LEADER_IS:
                told = header_of(frame, h.LeaderIsHeader)
                self.leaders.append((told.term, told.leader))

    def close(self) -> None:
        """Nothing is kept."""

    abort = close

    def unsent_bytes(self) -> int:
        return 0


def one_of_two(directory: Path, *, entries_count: int) -> ClusterNode:
    """A node whose log is longer than what it knows to be committed; the other one is the test."""
    opened = open_state(directory, options=SMALL)
    node_id = opened.store.identity.node_id
    founders = sorted([node_id, OTHER])
    opened.store.set_group(group_uuid(founders), founders)
    opened.store.save_vote(HardState(1))
    opened.store.write(LogMaker().enqueues(entries_count), 1)
    opened.store.close()
    # Nothing happens by a timeout: the test says when to stand.
    settings = RaftSettings(election_us_min=3_600_000_000, election_us_max=7_200_000_000)
    started = start(open_state(directory, options=SMALL), raft_settings=settings)
    me = PeerIdentity(node_id=node_id, group=group_uuid(founders), group_name="g1", address=ADDRESS)
    return ClusterNode(
        started, directory, log=EventLog(), me=me, peers=(), on_stop=lambda _why: None, on_failure=_fail
    )


def _fail(error: BaseException) -> None:
    raise error


async def until(condition: Callable[[], object]) -> None:
    """Until it is so."""
    async with asyncio.timeout(LIMIT_S):
        while not condition():
            await asyncio.sleep(0.001)


def say_yes(node: ClusterNode, *, pre: bool) -> None:
    raft = node.replica.raft
    asked = raft.term + 1 if pre else raft.term
    node.begin_turn()
    node.step(VoteResp(OTHER, node.node_id, raft.term, asked_term=asked, granted=True, pre=pre))


def test_watchers_hear_of_a_leader_that_had_much_to_apply(tmp_path: Path) -> None:
    """They were told of the election alone, when nobody led yet: clients found the new leader by chance."""

    async def story() -> None:
        node = one_of_two(tmp_path, entries_count=2 * APPLIES_PER_TURN + 1)
        try:
            watcher = Watcher(node)
            raft = node.replica.raft
            node.begin_turn()
            raft.campaign()
            say_yes(node, pre=True)
            await until(lambda: node.store.hard_state.term == raft.term == 2)
            await until(lambda: raft.role is Role.CANDIDATE)
            say_yes(node, pre=False)
            await until(lambda: node.replica.leader is not None)
            await until(lambda: watcher.leaders[-1] == (2, ADDRESS))
        finally:
            node.close()

    asyncio.run(story())


@pytest.mark.pure
@pytest.mark.parametrize("in_us", [1_000, 5_000])
def test_an_election_that_is_due_soon_does_not_wait_for_the_next_tick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_us: int
) -> None:
    """The tick never comes here."""

    async def story() -> None:
        node = one_of_two(tmp_path, entries_count=1)
        assert node._ticker is not None
        node._ticker.cancel()
        try:
            asked: list[RequestVote] = []
            monkeypatch.setattr(node.peers, "send", asked.extend)
            node.begin_turn()
            raft = node.replica.raft
            raft._deadline_us = raft.now_us + in_us
            await until(lambda: asked)
            assert asked[0].pre
        finally:
            node.close()

    asyncio.run(story())
