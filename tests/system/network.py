"""The network between nodes, clients and workers: a gate in front of each node, which a test may close.

A gate listens where the node says that it is reached (`--advertise`), looks at the first frame of each
connection to see who dials, and passes bytes on in both directions. A direction that is cut passes nothing:
nobody is told, connections stay open, and when the cut is healed what was held back arrives late, or, as
after a reboot of a router, never.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from rollmq.limits import HELLO_FRAME_BYTES_MAX
from rollmq.wire.codec import FrameDecoder, header_of
from rollmq.wire.message import Frame, MsgType
from rollmq.wire.peer_headers import LeaderHelloHeader
from tests.group.real_group import free_ports

OTHERS = "others"
"""Who is no node: clients, workers, operators."""
CHUNK_BYTES = 65_536
Way = tuple[str, str]
"""From whom to whom, as addresses of gates."""


class Network:
    """All gates; lives in a thread of its own. Its methods may be called from any other."""

    def __init__(self) -> None:
        self._cut: set[Way] = set()
        self._healed = asyncio.Event()
        self._pipes: set[_Pipe] = set()
        self._servers: list[asyncio.Server] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="network", daemon=True)

    def add(self, target_port: int) -> str:
        """A gate in front of this port; its address. Before the network is entered."""
        (port,) = free_ports(1)
        self._call(lambda: self._listen(port, target_port))
        return f"127.0.0.1:{port}"

    def __enter__(self) -> "Network":
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._call(self._close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self, ways: Iterable[Way]) -> None:
        """Nothing passes these ways any more."""
        wanted = set(ways)

        async def do() -> None:
            self._cut |= wanted

        self._call(do)

    def heal(self, *, resets: bool = False) -> None:
        """Everything passes again. `resets`: connections that were cut break instead."""

        async def do() -> None:
            if resets:
                self._break(lambda pipe: not self._cut.isdisjoint(pipe.ways))
            self._cut.clear()
            self._healed.set()
            self._healed.clear()

        self._call(do)

    def reset(self, address: str, *, of: str = OTHERS) -> None:
        """Break all connections of those to this gate, wherever in a frame they are."""

        async def do() -> None:
            self._break(lambda pipe: pipe.ways[0] == (of, address))

        self._call(do)

    # -- in the thread

    def _call(self, make: Callable[[], Any]) -> None:
        asyncio.run_coroutine_threadsafe(make(), self._loop).result(30)

    async def _listen(self, port: int, target_port: int) -> None:
        address = f"127.0.0.1:{port}"

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            pipe = _Pipe(self, reader, writer)
            self._pipes.add(pipe)
            try:
                with contextlib.suppress(
                    OSError, asyncio.IncompleteReadError
                ):  # one end is gone: so is the other
                    await pipe.run(address, target_port)
            finally:
                self._pipes.discard(pipe)
                pipe.abort()

        self._servers.append(await asyncio.start_server(serve, "127.0.0.1", port))

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        self._break(lambda _pipe: True)
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _break(self, which: Callable[["_Pipe"], bool]) -> None:
        for pipe in [pipe for pipe in self._pipes if which(pipe)]:
            pipe.abort()

    async def may_pass(self, way: Way) -> None:
        """Returns once this way is open."""
        while way in self._cut:
            await self._healed.wait()


class _Pipe:
    """One connection through a gate."""

    def __init__(self, network: Network, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.ways: tuple[Way, Way] = (("", ""), ("", ""))
        """There and back, once it is known who dials."""
        self._network = network
        self._reader = reader
        self._writers = [writer]

    async def run(self, address: str, target_port: int) -> None:
        """Until one end hangs up."""
        first, source = await self._who_dials()
        self.ways = ((source, address), (address, source))
        await self._network.may_pass(self.ways[0])
        reader, writer = await asyncio.open_connection("127.0.0.1", target_port)
        self._writers.append(writer)
        writer.write(first)
        there = asyncio.ensure_future(self._pass(self._reader, writer, self.ways[0]))
        back = asyncio.ensure_future(self._pass(reader, self._writers[0], self.ways[1]))
        try:
            await asyncio.wait({there, back}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.abort()
            there.cancel()
            back.cancel()
            await asyncio.gather(there, back, return_exceptions=True)

    async def _who_dials(self) -> tuple[bytes, str]:
        decoder, first = FrameDecoder(HELLO_FRAME_BYTES_MAX), b""
        while data := await self._reader.read(CHUNK_BYTES):
            first += data
            for frame in decoder.feed(data):
                if isinstance(frame, Frame) and frame.type == MsgType.LEADER_HELLO:
                    return first, header_of(frame, LeaderHelloHeader).address
                return first, OTHERS
        raise ConnectionResetError

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Way) -> None:
        while data := await reader.read(CHUNK_BYTES):
            await self._network.may_pass(way)
            writer.write(data)
            await writer.drain()
        await self._network.may_pass(way)  # that somebody hung up is news too

    def abort(self) -> None:
        """Both ends are told, at once, whatever is on its way."""
        for writer in self._writers:
            writer.transport.abort()


@contextlib.contextmanager
def running_network() -> Iterator[Network]:
    """Its thread and connections end with the block."""
    with Network() as network:
        yield network
