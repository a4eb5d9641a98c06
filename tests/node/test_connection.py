"""A connection that brings much at once is dealt with in slices, and nobody waits for all of it."""

import asyncio
from typing import Any

import pytest

from rollmq.node.connection import SLICE_BYTES, Connection
from rollmq.wire import headers as h
from rollmq.wire.codec import encode_frame, encode_header
from rollmq.wire.message import MsgType
from tests.node.stage import Host, Peer, client, submit

MANY = 3_000
"""Submits, of more bytes than three slices."""


class Wire(asyncio.Transport):
    """A transport without a socket, which says whether it is read from."""

    def __init__(self) -> None:
        super().__init__()
        self.is_reading_now = True

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default if name == "socket" else None

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.is_reading_now = False

    def resume_reading(self) -> None:
        self.is_reading_now = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        pass

    def close(self) -> None:
        pass


def dialed(host: Host) -> tuple[Connection, Wire]:
    """A client's connection."""
    connection, wire = Connection(host.door), Wire()
    connection.connection_made(wire)
    hello = h.HelloClientHeader(version=1, client_id="c1")
    connection.data_received(encode_frame(MsgType.HELLO_CLIENT, b"h" * 16, header=encode_header(hello)))
    host.turn()
    return connection, wire


def jobs_of(host: Host) -> int:
    assert host.leader is not None
    return len(host.leader.desk.machine.jobs)


def flood(host: Host) -> bytes:
    return b"".join(submit(number, host, b"x" * 20) for number in range(MANY))


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_others_are_heard_between_the_slices_of_one_that_sends_much() -> None:
    async def story() -> None:
        host = Host()
        connection, wire = dialed(host)
        other: Peer = client(host, "c2")
        data = flood(host)
        assert len(data) > 3 * SLICE_BYTES
        connection.data_received(data)
        assert 0 < jobs_of(host) < MANY / 2
        assert not wire.is_reading_now, "nothing more is read while some of it waits"
        before = jobs_of(host)
        other.say(submit(MANY + 1, host))
        assert jobs_of(host) == before + 1
        assert other.take(MsgType.ACCEPTED)
        await turns(len(data) // SLICE_BYTES + 1)
        assert jobs_of(host) == MANY + 1
        assert wire.is_reading_now

    asyncio.run(story())


def test_what_was_sent_before_the_connection_ended_is_taken() -> None:
    async def story() -> None:
        host = Host()
        connection, _ = dialed(host)
        connection.data_received(flood(host))
        connection.connection_lost(None)
        assert jobs_of(host) == MANY
        await turns(3)

    asyncio.run(story())


@pytest.mark.parametrize("is_flood_first", [True, False])
def test_it_is_read_again_only_when_nothing_waits_on_either_side(is_flood_first: bool) -> None:
    async def story() -> None:
        host = Host()
        connection, wire = dialed(host)
        data = flood(host)
        if is_flood_first:
            connection.data_received(data)
            connection.pause_writing()
        else:
            connection.pause_writing()
            connection.data_received(data)
        await turns(len(data) // SLICE_BYTES + 1)
        assert jobs_of(host) == MANY
        assert not wire.is_reading_now, "it does not take what is written"
        connection.resume_writing()
        assert wire.is_reading_now

    asyncio.run(story())
