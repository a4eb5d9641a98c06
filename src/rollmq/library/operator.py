"""A small blocking connection for people's tools: one question or command at a time, on one plain socket.

    with OperatorConnection("127.0.0.1:5000,127.0.0.1:5001", by="olga") as node:
        status = node.ask("status")

It tries every server, follows NotLeader, and tells three endings apart: the answer, a refusal (nothing was
changed), and unknown. It never repeats a command by itself, and knows nothing of what it asks.
"""

import itertools
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import msgspec

from rollmq import __version__, limits
from rollmq.errors import (
    AnswerUnknown,
    NoLeader,
    NotAuthorized,
    NotRollmqServer,
    OperatorError,
    ProtocolError,
    QueryRefused,
    ServerUnreachable,
    WrongProtocolVersion,
)
from rollmq.wire.codec import FrameDecoder, encode_header, encode_payload, header_of
from rollmq.wire.error_codes import ErrorCode
from rollmq.wire.headers import (
    ErrorHeader,
    HelloAnswerHeader,
    HelloOperatorHeader,
    LogChunkHeader,
    NotLeaderHeader,
    QueryHeader,
    ReadLogHeader,
    ReplyHeader,
)
from rollmq.wire.message import PROTOCOL_VERSION, PROTOCOL_VERSION_MIN, Frame, MsgType
from rollmq.wire.session import Session, Side

Address: TypeAlias = tuple[str, int]
Value = TypeVar("Value")

PORT_MAX: Final = 65_535
READ_BYTES: Final = 65_536
CONNECT_S: Final = 3.0
"""For one server to take the connection and answer the hello: the next one may be alive."""
ROUNDS_PAUSE_S: Final = 0.25
"""Between two rounds through all servers, while there is no leader."""
TIMEOUT_S: Final = 10.0
"""For a question or command as a whole: longer than an election."""


def parse_servers(text: str) -> list[Address]:
    """`host:port[,host:port…]`. Raises ValueError with a text for people."""
    found = [_parse_server(part.strip()) for part in text.split(",") if part.strip()]
    if not found:
        raise ValueError("no server is named: write HOST:PORT, several with commas between them")
    return found


def _parse_server(text: str) -> Address:
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or not 1 <= int(port) <= PORT_MAX:
        raise ValueError(f"{text!r} is no server: write HOST:PORT, for example 127.0.0.1:5000")
    return host, int(port)


def server_text(server: Address) -> str:
    """As people write it."""
    host, port = server
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class LogChunk(NamedTuple):
    """A stretch of the log: the very lines."""

    group: str
    first_index: int
    """Of the first line; 0: nothing newer is committed."""
    last_index: int
    commit_index: int
    lines: bytes


class OperatorConnection:
    """A blocking connection to whichever server answers. Not for more than one thread."""

    def __init__(self, servers: str, *, by: str = "", token: str = "", timeout_s: float = TIMEOUT_S) -> None:
        self._servers = parse_servers(servers)
        self._by = by[: limits.ID_CHARS_MAX]
        self._token = token
        self._timeout_s = timeout_s
        self._ids = itertools.count(1)
        self._link: _Link | None = None
        self._reasons: dict[Address, OperatorError] = {}
        """Why a server could not be used, the newest reason of each."""

    def __enter__(self) -> "OperatorConnection":
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    @property
    def server(self) -> str:
        """Who answers now; empty while nobody does."""
        return server_text(self._link.server) if self._link is not None else ""

    @property
    def servers_count(self) -> int:
        """How many servers were named."""
        return len(self._servers)

    def close(self) -> None:
        """Give the connection up. The next question makes a new one."""
        if self._link is not None:
            self._link.close()
            self._link = None

    def ask(self, name: str, arguments: object | None = None, *, is_command: bool = False) -> Any:
        """The answer's JSON. Raises QueryRefused (nothing was changed), AnswerUnknown (a command may have
        been carried out; repeating it is safe), ServerUnreachable, NoLeader and what else a server may be."""

        def ask(link: "_Link", number: int, deadline: float) -> Any:
            return link.ask(name, arguments, number, deadline)

        return self._exchange(name, ask, is_command=is_command)

    def read_log(self, from_index: int, *, bytes_max: int, wait_us: int = 0) -> "LogChunk":
        """Committed lines from this entry on, from whichever server answers, leader or follower: none when
        nothing is newer. Raises QueryRefused (`history_gone`: they were dropped) and what `ask` does."""

        def read(link: "_Link", number: int, deadline: float) -> LogChunk:
            return link.read_log(ReadLogHeader(from_index, bytes_max, wait_us), number, deadline)

        return self._exchange("ReadLog", read, is_command=False)

    def _exchange(
        self, name: str, exchange: "Callable[[_Link, int, float], Value]", *, is_command: bool
    ) -> "Value":
        deadline = time.monotonic() + self._timeout_s
        self._reasons.clear()
        to_try: deque[Address] = deque(self._servers)
        used = self._link
        if used is not None:
            to_try.appendleft(used.server)
        while True:
            link = self._connected(to_try, deadline)
            try:
                return exchange(link, next(self._ids), deadline)
            except _NotLeader as answer:
                self.close()
                self._follow(answer, link.server, to_try, deadline)
            except (OSError, ProtocolError) as error:
                self.close()
                is_stale = link is used and not is_command and not isinstance(error, TimeoutError)
                if not is_stale:  # the server had closed it while nothing was asked
                    raise self._unanswered(name, link.server, error, is_command=is_command) from error
                to_try.appendleft(link.server)
            except OperatorError:
                if link.is_closed:
                    self.close()
                raise

    def _unanswered(self, name: str, server: Address, error: Exception, *, is_command: bool) -> OperatorError:
        reason = f"no answer within {self._timeout_s:g} s" if isinstance(error, TimeoutError) else str(error)
        return AnswerUnknown(name=name, server=server_text(server), reason=reason, is_command=is_command)

    def _follow(self, answer: "_NotLeader", server: Address, to_try: deque[Address], deadline: float) -> None:
        """Go where the answer points, if that is somewhere new; else on through the list."""
        self._reasons[server] = NoLeader(servers=[server_text(server)], term=answer.term, why=answer.why)
        leader = _leader_of(answer)
        if leader is not None and leader != server:
            to_try.appendleft(leader)
        elif not to_try:
            self._rest(deadline, to_try)

    def _connected(self, to_try: deque[Address], deadline: float) -> "_Link":
        """A ready link: the one that is open, or to the first server that answers a hello."""
        while True:
            if not to_try:
                self._rest(deadline, to_try)
            server = to_try.popleft()
            if self._link is not None and self._link.server == server:
                return self._link
            self.close()
            try:
                self._link = _Link(server, min(deadline, time.monotonic() + CONNECT_S))
                self._link.hello(self._by, self._token)
            except _NotLeader as answer:
                self.close()
                self._follow(answer, server, to_try, deadline)
            except (NotAuthorized, WrongProtocolVersion):
                self.close()
                raise
            except OperatorError as error:
                self.close()
                self._reasons[server] = error
            except (OSError, ProtocolError) as error:
                self.close()
                self._reasons[server] = _why_no_hello(server, error)
            else:
                return self._link

    def _rest(self, deadline: float, to_try: deque[Address]) -> None:
        """All were asked. An election is over soon; anything else is told at once."""
        is_election = any(isinstance(reason, NoLeader) for reason in self._reasons.values())
        if not is_election or time.monotonic() + ROUNDS_PAUSE_S >= deadline:
            raise self._gave_up()
        time.sleep(ROUNDS_PAUSE_S)
        to_try.extend(self._servers)

    def _gave_up(self) -> OperatorError:
        reasons = list(self._reasons.values())
        leaderless = [reason for reason in reasons if isinstance(reason, NoLeader)]
        if leaderless:
            return NoLeader(
                servers=[server for reason in leaderless for server in reason.servers],
                term=max(reason.term for reason in leaderless),
                why=next((reason.why for reason in reversed(leaderless) if reason.why), ""),
            )
        if len(reasons) == 1:
            return reasons[0]
        return ServerUnreachable(
            servers=[server_text(server) for server in self._reasons], reason="; ".join(map(str, reasons))
        )


class _NotLeader(Exception):
    """A server says that it does not lead. It stays inside this module."""

    def __init__(self, header: NotLeaderHeader) -> None:
        super().__init__("not the leader")
        self.leader = header.leader
        self.term = header.term
        self.why = header.why


def _leader_of(answer: _NotLeader) -> Address | None:
    try:
        return _parse_server(answer.leader) if answer.leader else None
    except ValueError:
        return None


def _why_no_hello(server: Address, error: Exception) -> OperatorError:
    """What it means that a server did not come as far as a hello."""
    name = server_text(server)
    if isinstance(error, ProtocolError):
        if error.code == ErrorCode.UNSUPPORTED_VERSION:
            return WrongProtocolVersion(server=name, text=error.text)
        return NotRollmqServer(server=name)
    if isinstance(error, _HungUp):
        return NotRollmqServer(server=name, reason=str(error))
    return ServerUnreachable(servers=[name], reason=_plain(error))


def _plain(error: Exception) -> str:
    """An OSError without its number."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text[:1].lower() + text[1:]


class _HungUp(ConnectionError):
    """It took the connection, and closed it when it was greeted."""


class _Link:
    """One socket to one server. Raises OSError, ProtocolError, _NotLeader and OperatorErrors."""

    def __init__(self, server: Address, deadline: float) -> None:
        self.server = server
        self._deadline = deadline
        self._session = Session(Side.LIBRARY)
        self._decoder = FrameDecoder(self._session.frame_bytes_max)
        self._arrived: deque[Frame | ProtocolError] = deque()
        self._socket = socket.create_connection(server, timeout=self._left())

    @property
    def is_closed(self) -> bool:
        """Nothing more can be asked here."""
        return self._session.is_closed

    def close(self) -> None:
        """At once: nothing of ours is under way."""
        self._session.close()
        self._socket.close()

    def hello(self, by: str, token: str) -> None:
        """Say who asks; returns once the server has answered."""
        header = HelloOperatorHeader(
            version=PROTOCOL_VERSION,
            version_min=PROTOCOL_VERSION_MIN,
            by=by,
            token=token,
            release=f"rollmq {__version__}",
        )
        self._send(Frame(MsgType.HELLO_OPERATOR, (0).to_bytes(16, "big"), header=encode_header(header)))
        try:
            frame = self._next()
        except TimeoutError as error:
            text = "it took the connection and does not answer; it is stopped, or no rollmq server"
            raise TimeoutError(text) from error
        except ConnectionError as error:
            raise _HungUp("it closed the connection when it was greeted") from error
        if frame.type == MsgType.HELLO_OPERATOR:
            header_of(frame, HelloAnswerHeader)
            return
        raise self._refusal(frame, "hello")

    def ask(self, name: str, arguments: object | None, number: int, deadline: float) -> Any:
        """One question and its answer; a long list may come in several frames."""
        self._deadline = deadline
        msg_id = number.to_bytes(16, "big")
        payload = encode_payload(arguments) if arguments is not None else b""
        self._send(Frame(MsgType.QUERY, msg_id, header=encode_header(QueryHeader(name)), payload=payload))
        pages: list[Any] = []
        while True:
            frame = self._next()
            if frame.type in (MsgType.ERROR, MsgType.NOT_LEADER):
                raise self._refusal(frame, name)
            if frame.type != MsgType.REPLY or frame.corr_id != msg_id:
                continue  # a late answer, or a goodbye: the answer is still to come
            pages.append(msgspec.json.decode(frame.payload))
            if not header_of(frame, ReplyHeader).more:
                return pages[0] if len(pages) == 1 else list(itertools.chain.from_iterable(pages))

    def read_log(self, header: ReadLogHeader, number: int, deadline: float) -> LogChunk:
        """One stretch of the log."""
        self._deadline = deadline
        msg_id = number.to_bytes(16, "big")
        self._send(Frame(MsgType.READ_LOG, msg_id, header=encode_header(header)))
        while True:
            frame = self._next()
            if frame.type in (MsgType.ERROR, MsgType.NOT_LEADER):
                raise self._refusal(frame, "ReadLog")
            if frame.type == MsgType.LOG_CHUNK and frame.corr_id == msg_id:
                found = header_of(frame, LogChunkHeader)
                return LogChunk(
                    found.group, found.first_index, found.last_index, found.commit_index, bytes(frame.payload)
                )

    def _refusal(self, frame: Frame, name: str) -> Exception:
        if frame.type == MsgType.NOT_LEADER:
            return _NotLeader(header_of(frame, NotLeaderHeader))
        server = server_text(self.server)
        error = header_of(frame, ErrorHeader)
        if error.code == ErrorCode.UNSUPPORTED_VERSION:
            return WrongProtocolVersion(server=server, text=error.text)
        if error.code == ErrorCode.NOT_AUTHORIZED:
            return NotAuthorized(server=server, text=error.text)
        if error.unknown:
            return AnswerUnknown(name=name, server=server, reason=error.text or error.code, is_command=True)
        return QueryRefused(name=name, code=error.code, text=error.text, is_retryable=error.retryable)

    # -- bytes

    def _send(self, frame: Frame) -> None:
        self._socket.settimeout(self._left())
        self._socket.sendall(self._session.send(frame))

    def _next(self) -> Frame:
        """The next frame that is not about the connection itself."""
        while True:
            while not self._arrived:
                self._socket.settimeout(self._left())
                data = self._socket.recv(READ_BYTES)
                if not data:
                    raise ConnectionError("the connection was closed")
                self._arrived.extend(self._decoder.feed(data))
            item = self._arrived.popleft()
            if isinstance(item, ProtocolError):
                raise item
            self._session.receive(item)
            self._decoder.frame_bytes_max = self._session.frame_bytes_max
            if item.type == MsgType.PING:
                self._send(Frame(MsgType.PONG, corr_id=item.msg_id))
            elif item.type != MsgType.PONG:
                return item

    def _left(self) -> float:
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("time is over")
        return left_s
