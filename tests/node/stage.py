"""A door with a real leader behind it and no network: tests hold the other ends of the connections.

The replica commits at once. Nothing happens by itself; time goes when a test says so.
"""

import random

from rollmq.core.leader import Leader
from rollmq.core.machine import Machine
from rollmq.core.raft import RaftCore
from rollmq.core.raft_log import RaftLog
from rollmq.core.raft_ready import HardState, RaftSettings, Write
from rollmq.core.replica import Replica
from rollmq.core.segment_digest import SegmentDigest
from rollmq.errors import ProtocolError
from rollmq.limits import FRAME_BYTES_MAX
from rollmq.node.conn import Conn
from rollmq.node.door import Door
from rollmq.node.peers import Peers
from rollmq.node.query_status import NodeFacts
from rollmq.node.telling import put_error
from rollmq.wire import headers as h
from rollmq.wire import job_headers as j
from rollmq.wire.codec import FrameDecoder, encode_frame, encode_header, encode_payload, header_of
from rollmq.wire.error_codes import ErrorCode
from rollmq.wire.message import NO_ID, Frame, MsgType
from rollmq.wire.readers import submit_subject

WALL_US = 1_763_490_000_000_000
NODE_ID, GROUP = "1" * 32, "2" * 32
SECOND_US = 1_000_000


class Host:
    """What the door stands on. `is_leading` false: a node that has just lost its office."""

    token = ""
    node_id, group = NODE_ID, GROUP
    peers: Peers | None = None

    def __init__(self) -> None:
        self.now_us = 0
        self.is_leading = True
        self.is_stalled = False
        """The disk takes its time: nothing is committed."""
        self._stalled: list[Write] = []
        self._seqs: dict[int, int] = {}
        self.turns_count = 0
        raft = RaftCore(
            node_id=NODE_ID,
            voters=frozenset([NODE_ID]),
            hard_state=HardState(),
            log=RaftLog(tail_bytes_max=1 << 20),
            settings=RaftSettings(),
            chance=random.Random(1).random,
            now_us=0,
        )
        self.replica = Replica(
            raft,
            Machine(),
            SegmentDigest(group=GROUP, first_index=1),
            group=GROUP,
            founders=[NODE_ID],
            jitter=lambda: 0.0,
        )
        self.door = Door(self)
        while self.replica.leader is None:
            self.pass_time(100_000)

    @property
    def leader(self) -> Leader | None:
        return self.replica.leader if self.is_leading else None

    @property
    def term(self) -> int:
        return self.replica.raft.term

    def leader_address(self) -> str | None:
        return "10.0.0.1:5000" if self.is_leading else None

    def mono_us(self) -> int:
        return self.now_us

    def log_us(self) -> int:
        return WALL_US + self.now_us

    def begin_turn(self) -> None:
        self.turns_count += 1

    def read_log(self, conn: Conn, frame: Frame) -> None:
        put_error(conn, frame.msg_id, ErrorCode.HISTORY_GONE, "no log here")

    def why_no_leader(self) -> str:
        return "" if self.is_leading else "it has just lost its office"

    def facts(self) -> NodeFacts:
        raft = self.replica.raft
        return NodeFacts(
            node_id=NODE_ID,
            group=GROUP,
            role="leader",
            leader=self.leader_address(),
            term=raft.term,
            last_index=raft.log.last_index,
            commit_index=raft.commit_index,
            applied_index=raft.log.applied_index,
            machine=self.replica.machine,
            drain_worker=self.door.drain_worker,
            stop=lambda _why: None,
            mark=lambda: False,
        )

    def turn(self) -> None:
        """Decide, commit, tell, send."""
        self._sync()
        while True:
            work = self.replica.ready()
            if work.raft is None and not work.effects:
                break
            if work.raft is not None and work.raft.write is not None:
                self._stalled.append(work.raft.write)
                self._sync()
            self.door.tell(work.effects)
        self.door.flush()

    def _sync(self) -> None:
        while self._stalled and not self.is_stalled:
            self.replica.persisted(self._stalled.pop(0))

    def next_seq(self, peer: "Peer") -> int:
        """The number of a worker's next ack."""
        self._seqs[id(peer)] = self._seqs.get(id(peer), 0) + 1
        return self._seqs[id(peer)]

    def pass_time(self, us: int) -> None:
        """A tick so much later, as the host makes it."""
        self.now_us += us
        self.replica.set_time(mono_us=self.now_us, wall_us=WALL_US + self.now_us)
        self.replica.tick()
        self.door.check(list(self.door.conns))
        self.turn()


class Peer:
    """The other end of a connection. It is the `Pipe` of its Conn, and reads when the test lets it."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.reads = True
        self.is_closed = self.is_aborted = False
        self.unread: list[bytes] = []
        self.heard: list[Frame] = []
        self._decoder = FrameDecoder(FRAME_BYTES_MAX)
        self._unread_bytes = 0
        self.conn = host.door.accept(self)

    # -- the pipe

    def write(self, data: bytes) -> None:
        if self.reads:
            self._read(data)
        else:
            self.unread.append(data)
            self._unread_bytes += len(data)

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = self.is_aborted = True
        self.unread.clear()
        self._unread_bytes = 0

    def unsent_bytes(self) -> int:
        return self._unread_bytes

    def _read(self, data: bytes) -> None:
        for item in self._decoder.feed(data):
            assert not isinstance(item, ProtocolError), "a node never writes what cannot be read"
            self.heard.append(item)

    # -- the test's side

    def say(self, data: bytes) -> None:
        """Bytes for the node, and its turn."""
        self.host.door.receive(self.conn, data)
        self.host.turn()

    def take(self, kind: MsgType) -> list[Frame]:
        """What was heard of this type; it is forgotten."""
        found = [frame for frame in self.heard if frame.type == kind]
        self.heard = [frame for frame in self.heard if frame.type != kind]
        return found


def client(host: Host, client_id: str = "c1", *, many: bool = False) -> Peer:
    """A client that was greeted."""
    peer = Peer(host)
    hello = h.HelloClientHeader(version=1, client_id=client_id, many=many)
    peer.say(encode_frame(MsgType.HELLO_CLIENT, b"h" * 16, header=encode_header(hello)))
    assert peer.take(MsgType.HELLO_CLIENT)
    return peer


def worker(
    host: Host, worker_id: str = "w1", *, credit: int = 10, hands: int = 4, many: bool = False
) -> Peer:
    """A worker that was greeted."""
    peer = Peer(host)
    hello = h.HelloWorkerHeader(
        version=1,
        worker_id=worker_id,
        instance="a",
        patterns=("job.assign.>",),
        hands=hands,
        credit=credit,
        many=many,
    )
    payload = encode_payload(h.HeldList((), ()))
    peer.say(encode_frame(MsgType.HELLO_WORKER, b"h" * 16, header=encode_header(hello), payload=payload))
    assert peer.take(MsgType.HELLO_WORKER)
    return peer


def job_id(number: int, host: Host) -> bytes:
    """An id as a client would draw it now."""
    return bytes.fromhex(f"{host.log_us() // 1000:012x}7{number:019x}")


def submit(number: int, host: Host, payload: bytes = b"", **options: object) -> bytes:
    """A SubmitJob."""
    header = encode_header(j.SubmitJobHeader(**options)) if options else b""  # type: ignore[arg-type]
    return encode_frame(MsgType.SUBMIT_JOB, job_id(number, host), NO_ID, submit_subject("e"), header, payload)


def ack(assign: Frame, seq: int, result: bytes = b"") -> bytes:
    """The success of an assign that was heard."""
    fence = encode_fence(assign)
    header = encode_header(j.AckJobHeader(fence, seq, run_us=1))
    return encode_frame(MsgType.ACK_JOB, NO_ID, assign.msg_id, header=header, payload=result)


def encode_fence(assign: Frame) -> h.Fence:
    """The fence of an assign."""
    return header_of(assign, j.AssignJobHeader).fence
