"""All connections of a node: frames in become calls of the leader, released effects become frames.

Sans-IO: the host hands in bytes and time, and flushes. What a frame means is read in `from_clients`,
`from_workers` and `queries`; what is said, in `telling`. A few duties are the door's alone: to drop an assign
that was decided for an earlier connection of its worker, to give one back that may not be sent any more, to
close what is silent or does not read, and to send everybody away when this node stops leading.
"""

import hmac
from collections.abc import Callable, Iterable
from typing import Protocol

from rollmq import limits
from rollmq.compiled import mypyc_attr
from rollmq.core.effects import Answer, AnyEffect
from rollmq.core.events import Fence
from rollmq.core.intake import Wish
from rollmq.core.leader import Leader
from rollmq.core.operate import Refusal
from rollmq.errors import ProtocolError
from rollmq.limits import ASKS_WAITING_MAX, OPERATOR_ASKS_WAITING_MAX
from rollmq.node import from_clients, from_workers
from rollmq.node.asked import Asker, Greeting
from rollmq.node.conn import Conn, Pipe
from rollmq.node.peers import Peers
from rollmq.node.queries import NeedsLeader, answer
from rollmq.node.query_status import NodeFacts
from rollmq.node.telling import Teller, confirm, put_error, reply
from rollmq.wire import headers as h
from rollmq.wire.codec import encode_header, header_of
from rollmq.wire.error_codes import ErrorCode, violation
from rollmq.wire.liveness import Due, timeout_error
from rollmq.wire.message import Frame, MsgType
from rollmq.wire.readers import read_hello_worker
from rollmq.wire.session_table import Role


class Host(Protocol):
    """What the door needs of the process around it."""

    token: str
    node_id: str
    group: str

    @property
    def leader(self) -> Leader | None: ...
    @property
    def term(self) -> int: ...
    def leader_address(self) -> str | None:
        """Where the leader is, as far as this node knows."""

    def mono_us(self) -> int: ...
    def log_us(self) -> int:
        """Log time, as far as this node knows it."""

    def begin_turn(self) -> None:
        """Something came: the time is read, and a turn follows soon."""

    def facts(self) -> NodeFacts:
        """What queries say of this node beside its queues."""

    def read_log(self, conn: Conn, frame: Frame) -> None: ...
    @property
    def peers(self) -> Peers | None:
        """The other nodes of its group; None: it belongs to none."""

    def why_no_leader(self) -> str:
        """Why nobody leads, as far as this node knows; empty when somebody does."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Door:
    """Every connection of one run of a node."""

    def __init__(self, host: Host, *, holds_confirmations: bool = False) -> None:
        self.host = host
        self.conns: dict[Conn, None] = {}
        self.workers: dict[str, Conn] = {}
        self.unflushed: list[Conn] = []
        self.confirming: list[Conn] = []
        """Workers with acks that are to be confirmed."""
        self.holds_confirmations = holds_confirmations
        """An AckDone waits until its worker is told something else, at most for the next `check`: one wake-up
        less. For hosts that check many times a second."""
        self.strangers_count = 0
        self.teller = Teller(self)
        submits = from_clients.Submits()
        self._sessions: dict[str, int] = {}
        """How many connections each client has."""
        self._interests: dict[str, Conn | list[Conn]] = {}
        self._take: dict[int, Callable[[Conn, Frame, Leader], None]] = {
            MsgType.HELLO_CLIENT: self._hello_client,
            MsgType.HELLO_WORKER: self._hello_worker,
            MsgType.SUBMIT_JOB: submits.take,
            MsgType.CANCEL: self._cancel,
            MsgType.SUBMIT_JOBS: submits.take_many,
            MsgType.ACK_JOB: from_workers.ack,
            MsgType.ACK_JOBS: from_workers.ack_many,
            MsgType.CREDIT: from_workers.credit,
            MsgType.STARTED: from_workers.started,
            MsgType.RESULT: from_workers.progress,
        }

    # -- connections come and go

    def accept(self, pipe: Pipe) -> Conn:
        """Somebody dialed. Beyond the bounds he is told so, and that is all."""
        conn = Conn(self, pipe, self.host.mono_us())
        self.conns[conn] = None
        self.strangers_count += 1
        if len(self.conns) > limits.CONNECTIONS_MAX or self.strangers_count > limits.HANDSHAKES_MAX:
            text = (
                f"{len(self.conns) - 1:,} connections are open, {self.strangers_count - 1:,} without a hello"
            )
            conn.refuse(violation(ErrorCode.TOO_MANY_CONNECTIONS, f"{text}; try again later"))
            self.drop(conn)
        return conn

    def receive(self, conn: Conn, data: bytes) -> None:
        """Bytes came."""
        host = self.host
        host.begin_turn()
        conn.liveness.heard(host.mono_us())
        leader = host.leader
        if conn.worker_id and leader is not None:
            leader.liveness.heard(conn.worker_id)
        session = conn.session
        for item in conn.decoder.feed(data):
            if session.is_closed:
                return
            if isinstance(item, ProtocolError):
                conn.refuse(item)
                continue
            try:
                session.receive(item)
                self._take_frame(conn, item)
            except ProtocolError as error:
                conn.refuse(error)
        if session.is_closed:
            self.drop(conn)

    def drop(self, conn: Conn) -> None:
        """A connection is gone, or is given up: what was said is still sent."""
        if conn not in self.conns:
            return
        del self.conns[conn]
        if not conn.is_greeted:
            self.strangers_count -= 1
        if conn.done_seq:
            confirm(conn)
        conn.session.close()
        if conn.is_unflushed:
            self.unflushed.remove(conn)
            conn.flush()
        conn.pipe.close()
        leader = self.host.leader
        if conn.peer_id and self.host.peers is not None:
            self.host.peers.dropped(conn)
        if conn.worker_id and self.workers.get(conn.worker_id) is conn:
            del self.workers[conn.worker_id]
            if leader is not None:
                self.host.begin_turn()
                leader.liveness.broken(conn.worker_id)
        if conn.client_id:
            left = self._sessions[conn.client_id] = self._sessions[conn.client_id] - 1
            if not left:
                del self._sessions[conn.client_id]
                if leader is not None:
                    leader.intake.goodbye(conn.client_id)

    def cut(self, conn: Conn) -> None:
        """Give up a connection that does not read: it comes back and asks for what it missed."""
        conn.pipe.abort()
        self.drop(conn)

    def flush(self) -> None:
        """Send what was said in this turn: one write per connection."""
        self._confirm(is_time=not self.holds_confirmations)
        unflushed, self.unflushed = self.unflushed, []
        for conn in unflushed:
            if not conn.flush():
                self.cut(conn)

    def _confirm(self, *, is_time: bool) -> None:
        confirming, self.confirming = self.confirming, []
        for conn in confirming:
            if conn.done_seq and not conn.is_unflushed and not is_time:
                self.confirming.append(conn)
            elif conn.done_seq:  # or it was confirmed when the message was full, and is here twice
                confirm(conn)

    def flush_early(self, conn: Conn) -> None:
        """Send what was said to one of them now: it is much."""
        self.unflushed.remove(conn)
        if not conn.flush():
            self.cut(conn)

    def slowest_beyond(self, unsent_bytes_max: int) -> list[tuple[int, Conn]]:
        """Those to cut, with the bytes that each holds back, so that all together hold back no more."""
        held = [(conn.pipe.unsent_bytes() + conn.decoder.held_bytes, conn) for conn in self.conns]
        over = sum(size for size, _ in held) - unsent_bytes_max
        slowest: list[tuple[int, Conn]] = []
        for size, conn in sorted(held, key=lambda each: -each[0]) if over > 0 else ():
            if over <= 0:
                break
            slowest.append((size, conn))
            over -= size
        return slowest

    def send_away(self) -> None:
        """This node does not lead any more: whoever needs a leader is told where it is, and dropped."""
        header = self._not_leader_header()
        for conn in list(self.conns):
            if conn.session.role in (Role.CLIENT, Role.WORKER, Role.OPERATOR):
                conn.send(Frame(MsgType.NOT_LEADER, header=header))
                self.drop(conn)
        self._interests.clear()

    def drain_worker(self, worker_id: str) -> bool:
        """An operator wants this worker to stop: it finishes what runs and leaves. Whether it is there."""
        conn, leader = self.workers.get(worker_id), self.host.leader
        if conn is None or leader is None:
            return False
        leader.liveness.goodbye(worker_id)
        goodbye = h.GoodbyeHeader(why="an operator drains this worker", leave=True)
        conn.send(Frame(MsgType.GOODBYE, header=encode_header(goodbye)))
        return True

    def say_goodbye(self) -> None:
        """The node drains: nothing new begins on any connection."""
        leader = self.host.leader
        for conn in list(self.conns):
            if conn.worker_id and leader is not None:
                leader.liveness.goodbye(conn.worker_id)
            conn.send(Frame(MsgType.GOODBYE, header=encode_header(h.GoodbyeHeader(why="the node stops"))))

    # -- time

    def check(self, conns: Iterable[Conn]) -> None:
        """Ping the silent, close the dead, and those whose worker the leader has given up."""
        now_us, leader = self.host.mono_us(), self.host.leader
        self._confirm(is_time=True)
        for conn in conns:
            due = conn.liveness.due(now_us)
            if due is Due.PING:
                conn.put_frame(MsgType.PING)
            elif due is not Due.NOTHING:
                conn.refuse(timeout_error(due))
                self.drop(conn)
                continue
            if conn.worker_id and leader is not None:
                presence = leader.liveness.present.get(conn.worker_id)
                if presence is None or presence.slot is None:
                    self.drop(conn)

    def forgive_silence(self) -> None:
        """This process stood still: what was sent meanwhile lies unread."""
        now_us = self.host.mono_us()
        for conn in self.conns:
            conn.liveness.heard(now_us)

    # -- frames in

    def _take_frame(self, conn: Conn, frame: Frame) -> None:
        """One frame that the session let in."""
        kind, leader = frame.type, self.host.leader
        take = self._take.get(kind)
        if take is not None and leader is not None:
            take(conn, frame, leader)
        elif kind == MsgType.PING:
            pong = encode_header(h.PongHeader(log_at_us=self.host.log_us()))
            conn.put_frame(MsgType.PONG, corr_id=frame.msg_id, header=pong)
        elif kind == MsgType.QUERY:
            self._query(conn, frame, leader)
        elif kind == MsgType.READ_LOG:
            self.host.read_log(conn, frame)
        elif kind == MsgType.GOODBYE:
            self._goodbye(conn, leader)
        elif kind == MsgType.HELLO_OPERATOR:
            self._hello_operator(conn, frame)
        elif kind == MsgType.LEADER_HELLO:
            self._peers(frame).answer_hello(conn, frame)
        elif conn.session.role is Role.PEER and kind != MsgType.PONG:
            self._peers(frame).take_frame(conn, frame)
        elif kind in (MsgType.HELLO_CLIENT, MsgType.HELLO_WORKER) and conn.session.role is Role.WATCHER:
            self._hello_watcher(conn, frame)
        elif kind != MsgType.PONG:
            self.not_leader(conn)

    def _peers(self, frame: Frame) -> Peers:
        if self.host.peers is None:
            raise violation(ErrorCode.NOT_A_MEMBER, "this node is no member of a group", frame)
        return self.host.peers

    def not_leader(self, conn: Conn) -> None:
        """Send it to the leader; the connection closes behind that."""
        conn.send(Frame(MsgType.NOT_LEADER, header=self._not_leader_header()))

    def _not_leader_header(self) -> bytes:
        host = self.host
        return encode_header(
            h.NotLeaderHeader(leader=host.leader_address(), term=host.term, why=host.why_no_leader())
        )

    def _check_token(self, token: str, frame: Frame) -> None:
        if self.host.token and not hmac.compare_digest(token.encode(), self.host.token.encode()):
            text = "the node asks for a token, and this is not it: see `rollmq serve --token-file`"
            raise violation(ErrorCode.NOT_AUTHORIZED, text, frame)

    # -- hellos

    def _hello_client(self, conn: Conn, frame: Frame, leader: Leader) -> None:
        header = header_of(frame, h.HelloClientHeader)
        if header.watches:
            self._hello_watcher(conn, frame)
            return
        self._check_token(header.token, frame)
        problem = leader.intake.hello(header.client_id, Wish(header.cap, header.weight))
        if problem is not None:
            raise violation(ErrorCode.BAD_HEADER, problem, frame)
        conn.client_id, conn.takes_many = header.client_id, header.many
        self._sessions[conn.client_id] = self._sessions.get(conn.client_id, 0) + 1
        known = leader.desk.machine.clients.by_id.get(conn.client_id)
        cap = known.cap if known is not None and (known.by or not header.cap) else header.cap
        self._greet_at_commit(conn, frame, leader, cap)

    def _hello_worker(self, conn: Conn, frame: Frame, leader: Leader) -> None:
        header, listed = read_hello_worker(frame)
        if header.watches:
            self._hello_watcher(conn, frame)
            return
        self._check_token(header.token, frame)
        # The greeting first: what follows from the hello is told after it.
        greeting = self._greet_at_commit(conn, frame, leader, 0)
        problem = leader.liveness.hello(from_workers.hello_of(header, listed))
        if problem is not None:
            greeting.kind = 0
            raise violation(ErrorCode.WORKER_EXISTS, problem, frame)
        old = self.workers.pop(header.worker_id, None)
        if old is not None:
            old.worker_id = ""
            self.drop(old)
        conn.worker_id, conn.takes_many = header.worker_id, header.many
        conn.hello_index = leader.desk.last_index
        self.workers[conn.worker_id] = conn

    def _hello_operator(self, conn: Conn, frame: Frame) -> None:
        header = header_of(frame, h.HelloOperatorHeader)
        self._check_token(header.token, frame)
        conn.by = header.by
        self.greet(Greeting(self, conn, frame.type, frame.msg_id))

    def _hello_watcher(self, conn: Conn, frame: Frame) -> None:
        hello: h.HelloClientHeader | h.HelloWorkerHeader
        if frame.type == MsgType.HELLO_CLIENT:
            hello = header_of(frame, h.HelloClientHeader)
        else:
            hello = header_of(frame, h.HelloWorkerHeader)
        self._check_token(hello.token, frame)
        self.greet(Greeting(self, conn, frame.type, frame.msg_id))
        self.announce_leader((conn,))

    def announce_leader(self, conns: Iterable[Conn] | None = None) -> None:
        """Tell watchers who leads."""
        header = h.LeaderIsHeader(leader=self.host.leader_address(), term=self.host.term)
        for conn in self.conns if conns is None else conns:
            if conn.session.role is Role.WATCHER:
                conn.put_frame(MsgType.LEADER_IS, header=encode_header(header))

    def _greet_at_commit(self, conn: Conn, frame: Frame, leader: Leader, cap: int) -> Greeting:
        greeting = Greeting(self, conn, frame.type, frame.msg_id, cap)
        leader.desk.say(Answer(leader.desk.last_index, greeting, None))
        return greeting

    def greet(self, greeting: Greeting) -> None:
        """Answer a hello: from now on the connection is what it asked to be."""
        conn = greeting.conn
        if not greeting.kind or conn.is_closed:
            return
        header = h.HelloAnswerHeader(
            version=conn.session.version,
            node_id=self.host.node_id,
            group=self.host.group,
            term=self.host.term,
            log_at_us=self.host.log_us(),
            cap=greeting.cap,
            many=True,
        )
        conn.send(Frame(greeting.kind, corr_id=greeting.msg_id, header=encode_header(header)))
        self.welcome(conn)

    def welcome(self, conn: Conn) -> None:
        """Its hello was answered: it is no stranger any more."""
        if conn.session.is_ready and not conn.is_greeted:
            conn.is_greeted = True
            self.strangers_count -= 1
            conn.liveness.ready(self.host.mono_us())
            conn.decoder.frame_bytes_max = conn.session.frame_bytes_max
            early, conn.early = conn.early, []
            self.tell(early)

    # -- clients

    def will_tell(self, job_id: str, conn: Conn) -> None:
        """A submit was accepted, and this session is told of the job's end; at once if it has ended."""
        leader = self.host.leader
        assert leader is not None, "effects of a leader that is gone are dropped"
        if job_id in leader.desk.machine.jobs:
            self.add_interest(job_id, conn)
        else:
            from_clients.push_result(conn, job_id, leader)

    def add_interest(self, job_id: str, conn: Conn) -> None:
        """This session is told when the job ends."""
        known = self._interests.get(job_id)
        if known is None:
            self._interests[job_id] = conn
        elif known is not conn:
            conns = known if isinstance(known, list) else [known]
            self._interests[job_id] = [
                *(each for each in conns if not each.is_closed and each is not conn),
                conn,
            ]

    def interested_in(self, job_id: str) -> tuple[Conn, ...]:
        """The sessions that are told of this job."""
        known = self._interests.get(job_id)
        return () if known is None else tuple(known) if isinstance(known, list) else (known,)

    def take_interest(self, job_id: str) -> tuple[Conn, ...] | None:
        """The same, for the last time."""
        known = self._interests.pop(job_id, None)
        if known is None:
            return None
        return tuple(known) if isinstance(known, list) else (known,)

    # -- questions and farewells

    def _check_asks(self, conn: Conn, frame: Frame) -> None:
        """Raises ProtocolError for an ask too many: its answer would have to be held until its commit."""
        is_operator = conn.session.role is Role.OPERATOR
        if conn.asks_count >= (OPERATOR_ASKS_WAITING_MAX if is_operator else ASKS_WAITING_MAX):
            text = f"{conn.asks_count} questions of this connection wait already; nothing was changed"
            raise violation(ErrorCode.OVERLOADED, text, frame)

    def _cancel(self, conn: Conn, frame: Frame, leader: Leader) -> None:
        self._check_asks(conn, frame)
        from_clients.cancel(conn, frame, leader)

    def _query(self, conn: Conn, frame: Frame, leader: Leader | None) -> None:
        self._check_asks(conn, frame)
        is_result = header_of(frame, h.QueryHeader).name == "result"
        if is_result and conn.session.role is Role.CLIENT:
            if leader is not None:
                from_clients.ask_result(conn, frame, leader)
            else:
                self.not_leader(conn)
        else:
            self._other_query(conn, frame, leader)

    def _other_query(self, conn: Conn, frame: Frame, leader: Leader | None) -> None:
        is_operator = conn.session.role is Role.OPERATOR
        value = answer(
            header_of(frame, h.QueryHeader).name,
            frame.payload,
            by=conn.by if is_operator else conn.client_id,
            to=Asker(conn, frame.msg_id),
            leader=leader,
            node=self.host.facts(),
            is_operator=is_operator,
        )
        if value is None:
            conn.asks_count += 1  # the leader's desk says the answer
        elif isinstance(value, Refusal):
            put_error(conn, frame.msg_id, value.code, value.text)
        elif isinstance(value, NeedsLeader):
            self.not_leader(conn)
        else:
            reply(conn, frame.msg_id, value)

    def _goodbye(self, conn: Conn, leader: Leader | None) -> None:
        if conn.worker_id and leader is not None:
            leader.liveness.goodbye(conn.worker_id)
        conn.send(Frame(MsgType.GOODBYE))

    def give_back(self, worker_id: str, job_id: str, fence: Fence, reason: str) -> None:
        """An assign that can no longer be sent."""
        leader = self.host.leader
        assert leader is not None, "effects of a leader that is gone are dropped"
        leader.attempts.give_back(worker_id, job_id, fence, reason)

    # -- effects out

    def tell(self, effects: Iterable[AnyEffect]) -> None:
        """Say what is committed."""
        tell = self.teller.tell
        for effect in effects:
            tell(effect)
