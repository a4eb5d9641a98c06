"""The asyncio host of a dialog: it connects, follows hints, reconnects, watches, and closes politely."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from rollmq.library.dialog import Dialog, hello_frame
from rollmq.library.link import Link
from rollmq.library.route import Route
from rollmq.wire.headers import HelloAnswerHeader, HelloClientHeader
from rollmq.wire.message import Frame, MsgType
from tests.library.played_node import SOON_S, PlayedNode, free_port_taken_by_nobody

M = MsgType
Story = Callable[[], Coroutine[Any, Any, None]]


class Talker(Dialog):
    """A client that says hello and keeps what it hears."""

    def __init__(self) -> None:
        super().__init__()
        self.happened: list[str] = []
        self.heard: list[Frame] = []
        self.change = asyncio.Event()

    def make_hello(self) -> Frame:
        return hello_frame(
            M.HELLO_CLIENT, self.next_request_id(), HelloClientHeader(version=1, client_id="c")
        )

    def make_watch_hello(self) -> Frame:
        header = HelloClientHeader(version=1, client_id="c", watches=True)
        return hello_frame(M.HELLO_CLIENT, self.next_request_id(), header)

    def on_ready(self, answer: HelloAnswerHeader) -> None:
        self.happened.append(f"ready {self.server} term {answer.term}")
        self.change.set()

    def on_frame(self, frame: Frame) -> None:
        self.heard.append(frame)

    def on_lost(self) -> None:
        self.happened.append("lost")
        self.change.set()

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(SOON_S):
            while not is_so():
                self.change.clear()
                await self.change.wait()


def link_to(talker: Talker, *servers: str, after_turn: Callable[[], None] = lambda: None) -> Link:
    route = Route(",".join(servers), lambda: 0.0)
    return Link(talker, route, chance=lambda: 0.0, after_turn=after_turn)


async def end(link: Link) -> None:
    link.stop()
    await link.close()


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Story], None]:
    """Run a story on either loop."""
    new_loop = asyncio.new_event_loop if request.param == "asyncio" else uvloop.new_event_loop

    def runs(story: Story) -> None:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(story())

    return runs


def test_what_is_said_in_one_turn_of_the_loop_is_one_write(run: Callable[[Story], None]) -> None:
    async def story() -> None:
        async with PlayedNode() as node:
            talker, writes = Talker(), list[bytes]()
            link = link_to(talker, node.address)
            link.start()
            visit = await node.visit()
            visit.answer()
            await talker.until(lambda: talker.is_ready)
            line = link._main._line
            assert line is not None
            write = line.write

            def counted(data: bytes) -> None:
                writes.append(data)
                write(data)

            line.write = counted  # type: ignore[method-assign]
            for _ in range(10):
                talker.say(Frame(M.PING))
                link.flush_soon()
            await node.until(lambda: len(visit.frames) == 11)
            assert len(writes) == 1
            await end(link)

    run(story)


def test_out_is_written_before_the_user_may_act_on_it(run: Callable[[Story], None]) -> None:
    async def story() -> None:
        seen: list[bool] = []
        async with PlayedNode() as node:
            talker = Talker()
            link = link_to(talker, node.address, after_turn=lambda: seen.append(not talker.out))
            link.start()
            (await node.visit()).answer()
            await talker.until(lambda: talker.is_ready)
            await end(link)
        assert seen
        assert all(seen)

    run(story)


def test_a_hint_is_followed_to_the_leader(run: Callable[[Story], None]) -> None:
    async def story() -> None:
        async with PlayedNode() as follower, PlayedNode() as leader:
            talker = Talker()
            link = link_to(talker, follower.address)
            link.start()
            (await follower.visit()).send_away(leader.address, term=3)
            (await leader.visit()).answer(term=3)
            await talker.until(lambda: talker.is_ready)
            assert talker.happened == [f"ready {leader.address} term 3"]
            await end(link)

    run(story)


def test_the_next_server_is_tried_when_nobody_listens_at_the_first(run: Callable[[Story], None]) -> None:
    async def story() -> None:
        async with PlayedNode() as node:
            talker = Talker()
            link = link_to(talker, f"127.0.0.1:{free_port_taken_by_nobody()}", node.address)
            link.start()
            await node.visit()
            assert any("refused" in problem for problem in link.route.problems.values())
            await end(link)

    run(story)


def test_a_lost_connection_is_made_again_with_its_hello(run: Callable[[Story], None]) -> None:
    async def story() -> None:
        async with PlayedNode() as node:
            talker = Talker()
            link = link_to(talker, node.address)
            link.start()
            for _ in range(3):
                visit = await node.visit()
                visit.answer()
                await talker.until(lambda: talker.is_ready)
                visit.transport.abort()
                await talker.until(lambda: not talker.is_ready)
            assert [event.split()[0] for event in talker.happened] == ["ready", "lost"] * 3
            await end(link)

    run(story)


def test_the_second_connection_watches_another_server_and_tells_of_a_new_leader(
    run: Callable[[Story], None],
) -> None:
    async def story() -> None:
        async with PlayedNode() as first, PlayedNode() as second, PlayedNode() as third:
            talker = Talker()
            link = link_to(talker, first.address, second.address)
            link.start()
            (await first.visit()).answer(term=1)
            watch = await second.visit()
            assert b'"watches":true' in watch.frames[0].header
            watch.answer(term=1)
            watch.announce(first.address, term=1)
            # A leader that hangs: nothing closes, and still the client moves.
            watch.announce(third.address, term=2)
            (await third.visit()).answer(term=2)
            await talker.until(lambda: talker.is_ready and talker.server == third.address)
            assert talker.happened[1:] == ["lost", f"ready {third.address} term 2"]
            await end(link)

    run(story)


def test_an_announcement_that_is_no_news_moves_nobody(run: Callable[[Story], None]) -> None:
    async def story() -> None:
        async with PlayedNode() as first, PlayedNode() as second, PlayedNode() as third:
            talker = Talker()
            link = link_to(talker, first.address, second.address)
            link.start()
            leader = await first.visit()
            leader.answer(term=5)
            watch = await second.visit()
            watch.answer(term=4)
            watch.announce(third.address, term=4)
            watch.announce(None, term=6)
            watch.announce("no address", term=7)
            watch.announce(first.address, term=8)
            watch.say(Frame(M.PING))
            await watch.heard(M.PONG)
            assert talker.is_ready
            assert not third.visits
            await end(link)

    run(story)


def test_an_announcement_of_another_group_is_not_followed(run: Callable[[Story], None]) -> None:
    async def story() -> None:
        async with PlayedNode() as first, PlayedNode() as stranger:
            talker = Talker()
            link = link_to(talker, first.address, stranger.address)
            link.start()
            (await first.visit()).answer(term=1)
            watch = await stranger.visit()
            watch.answer(term=9, group="9" * 32)
            watch.announce(stranger.address, term=9)
            watch.say(Frame(M.PING))
            await watch.heard(M.PONG)
            assert talker.is_ready
            assert talker.server == first.address
            await end(link)

    run(story)


def test_closing_says_goodbye_and_waits_for_the_answer_to_it(run: Callable[[Story], None]) -> None:
    async def story() -> None:
        async with PlayedNode() as node:
            talker = Talker()
            link = link_to(talker, node.address)
            link.start()
            visit = await node.visit()
            visit.answer()
            await talker.until(lambda: talker.is_ready)
            closing = asyncio.ensure_future(link.close())
            await visit.heard(M.GOODBYE)
            assert not closing.done()
            visit.say(Frame(M.ACCEPTED))
            visit.say(Frame(M.GOODBYE))
            await closing
            assert [frame.type for frame in talker.heard] == [M.ACCEPTED]
            assert link.is_stopped
            await node.until(lambda: visit.is_closed)
        assert len(node.visits) == 1, "it came back"

    run(story)


def test_closing_does_not_wait_for_ever_for_a_node_that_hangs(run: Callable[[Story], None]) -> None:
    async def story() -> None:
        async with PlayedNode() as node:
            talker = Talker()
            link = link_to(talker, node.address)
            link.start()
            (await node.visit()).answer()
            await talker.until(lambda: talker.is_ready)
            await link.close(timeout_s=0.01)
            assert link.is_stopped
            assert talker.is_over

    run(story)


def test_a_node_that_takes_the_connection_and_says_nothing_is_given_up(
    run: Callable[[Story], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rollmq.limits.HANDSHAKE_US_MAX", 50_000)

    async def story() -> None:
        async with PlayedNode() as silent, PlayedNode() as node:
            talker = Talker()
            link = link_to(talker, silent.address, node.address)
            link.start()
            await silent.visit()
            (await node.visit()).answer()
            await talker.until(lambda: talker.is_ready)
            await end(link)

    run(story)


def test_a_link_that_was_stopped_while_it_connects_stays_stopped(run: Callable[[Story], None]) -> None:
    async def story() -> None:
        async with PlayedNode() as node:
            talker = Talker()
            link = link_to(talker, node.address)
            link.start()
            await end(link)
            assert talker.happened == []
            assert not node.visits

    run(story)


def test_a_connection_that_is_let_go_as_soon_as_it_is_made_is_closed_and_told(
    run: Callable[[Story], None],
) -> None:
    async def story() -> None:
        async with PlayedNode() as node:
            talker, links = Talker(), list[Link]()
            link = link_to(talker, node.address, after_turn=lambda: links[0].stop())
            links.append(link)
            link.start()
            visit = await node.visit()
            async with asyncio.timeout(SOON_S):
                await link.close(timeout_s=2 * SOON_S)  # it waits for its sockets, so it hears of each
            await node.until(lambda: visit.is_closed)

    run(story)


def test_a_fatal_answer_ends_the_link_for_good(run: Callable[[Story], None]) -> None:
    async def story() -> None:
        async with PlayedNode() as node:
            talker = Talker()
            link = link_to(talker, node.address)
            link.start()
            visit = await node.visit()
            header = b'{"code":"not_authorized","text":"no","closes":true}'
            visit.say(Frame(M.ERROR, corr_id=visit.frames[0].msg_id, header=header))
            await node.until(lambda: visit.is_closed)
            assert link.is_stopped
            assert "no" in str(talker.fatal)

    run(story)
