"""The real door on simulated connections: what it is given to stand on, and who looks over its shoulder.

Every byte of a run passes the real codec, session table and door. The oracle watches the frames that a node
takes, so that it knows how much each worker allows without asking the code that it judges.
"""

from typing import TYPE_CHECKING

from rollmq.core.effects import AnyEffect
from rollmq.core.leader import Leader
from rollmq.node.conn import Conn
from rollmq.node.door import Door
from rollmq.node.query_status import NodeFacts
from rollmq.node.telling import put_error
from rollmq.wire import headers as h
from rollmq.wire import job_headers as j
from rollmq.wire.codec import header_of
from rollmq.wire.error_codes import ErrorCode
from rollmq.wire.message import Frame, MsgType
from tests.sim.net import End, frames_of
from tests.wire.unfold import unfold

if TYPE_CHECKING:
    from tests.sim.node import SimNode


class SimPipe:
    """Where the node's bytes go. Frame by frame only when the net plays with frames."""

    def __init__(self, end: End, *, is_orderly: bool) -> None:
        self.end = end
        self._is_orderly = is_orderly

    def write(self, data: bytes) -> None:
        for piece in (data,) if self._is_orderly else frames_of(data):
            self.end.send(piece)

    def close(self) -> None:
        self.end.close()

    def abort(self) -> None:
        self.end.close()

    def unsent_bytes(self) -> int:
        return 0


class NodeHost:
    """What the door asks of the process around it."""

    token = ""

    def __init__(self, node: "SimNode") -> None:
        self.node = node
        self.node_id = node.store.identity.node_id
        self.group = node.store.identity.group

    @property
    def leader(self) -> Leader | None:
        return self.node.leader

    @property
    def term(self) -> int:
        return self.node.replica.raft.term

    def leader_address(self) -> str | None:
        return self.node.leader_address()

    def why_no_leader(self) -> str:
        return ""

    def mono_us(self) -> int:
        return self.node.mono_us

    def log_us(self) -> int:
        leader = self.node.leader
        return leader.desk.now_us if leader is not None else self.node.replica.machine.last_at_us

    def begin_turn(self) -> None:
        self.node.set_time()
        self.node.wake()

    def facts(self) -> NodeFacts:
        raft = self.node.replica.raft
        return NodeFacts(
            node_id=self.node_id,
            group=self.group,
            role="leader" if self.leader is not None else raft.role.value,
            leader=self.leader_address(),
            term=raft.term,
            last_index=raft.log.last_index,
            commit_index=raft.commit_index,
            applied_index=raft.log.applied_index,
            machine=self.node.replica.machine,
            drain_worker=self.node.door.drain_worker,
            stop=lambda _why: self.node.drain(),
            mark=lambda: False,
        )

    def read_log(self, conn: Conn, frame: Frame) -> None:
        put_error(conn, frame.msg_id, ErrorCode.HISTORY_GONE, "nobody reads the log here")


class SimDoor(Door):
    """All connections of one run of a node."""

    def __init__(self, node: "SimNode") -> None:
        super().__init__(NodeHost(node), holds_confirmations=True)
        self._node = node
        self._oracle = node.oracle

    def dialed(self, end: End) -> None:
        """Somebody connected to this node."""
        conn = self.accept(SimPipe(end, is_orderly=self._node.swarm.net.is_orderly))
        end.on_data = lambda data: self.receive(conn, data)
        end.on_closed = lambda: self.drop(conn)

    def ends(self) -> list[End]:
        """The node's ends of all connections."""
        return [conn.pipe.end for conn in self.conns if isinstance(conn.pipe, SimPipe)]

    def tick(self) -> None:
        """Ping the silent, close the dead."""
        self.check(list(self.conns))

    def tell_all(self, effects: list[AnyEffect]) -> None:
        """Let effects out whose entries are committed."""
        for effect in effects:
            self._oracle.told(effect)
        self.tell(effects)

    # -- what the oracle sees

    def drop(self, conn: Conn) -> None:
        if conn in self.conns and conn.worker_id and self.workers.get(conn.worker_id) is conn:
            self._oracle.worker_went(conn.worker_id)
        super().drop(conn)

    def _take_frame(self, conn: Conn, frame: Frame) -> None:
        leader = self.host.leader
        before_count = len(leader.desk.effects) if leader is not None else 0
        super()._take_frame(conn, frame)
        if leader is not None:
            self._oracle.asked(leader.desk.effects[before_count:], leader.desk.term)
        if not conn.worker_id or self.host.leader is None:
            return
        if frame.type == MsgType.HELLO_WORKER:
            self._oracle.worker_came(conn.worker_id, header_of(frame, h.HelloWorkerHeader).credit)
        elif frame.type == MsgType.CREDIT:
            credit = header_of(frame, j.CreditHeader)
            self._oracle.worker_allows(conn.worker_id, credit.seen, credit.more)
        elif frame.type in (MsgType.ACK_JOB, MsgType.ACK_JOBS):
            with_ack = header_of(unfold(frame)[-1], j.AckJobHeader).credit
            if with_ack is not None:
                self._oracle.worker_allows(conn.worker_id, *with_ack)
        elif frame.type == MsgType.GOODBYE:
            self._oracle.worker_allows(conn.worker_id, 0, 0)
