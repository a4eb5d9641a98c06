"""Peers that are broken, slow, silent or hostile: each harms itself at most, and memory stays bounded."""

import pytest

from rollmq import limits
from rollmq.core.job import INFLIGHT
from rollmq.node.peer_hello import PeerFacts, PeerIdentity, hello_of
from rollmq.wire import headers as h
from rollmq.wire import job_headers as j
from rollmq.wire.codec import encode_frame, encode_header, encode_payload, header_of
from rollmq.wire.message import NO_ID, MsgType
from tests.node.stage import SECOND_US, Host, Peer, ack, client, encode_fence, job_id, submit, worker


def last_error(peer: Peer) -> h.ErrorHeader:
    """The newest refusal."""
    return header_of(peer.take(MsgType.ERROR)[-1], h.ErrorHeader)


def query(name: str, arguments: object = None, number: int = 1) -> bytes:
    """A Query."""
    header = encode_header(h.QueryHeader(name=name))
    payload = encode_payload(arguments or {})
    return encode_frame(MsgType.QUERY, number.to_bytes(16, "big"), header=header, payload=payload)


def operator(host: Host) -> Peer:
    """An operator who was greeted."""
    peer = Peer(host)
    hello = encode_header(h.HelloOperatorHeader(version=1, by="olga"))
    peer.say(encode_frame(MsgType.HELLO_OPERATOR, b"h" * 16, header=hello))
    assert peer.take(MsgType.HELLO_OPERATOR)
    return peer


# --- too many --------------------------------------------------------------------------------------


def test_strangers_beyond_the_bound_are_told_so_and_those_who_introduced_themselves_do_not_count() -> None:
    host = Host()
    known = [client(host, f"c{number}") for number in range(50)]
    strangers = [Peer(host) for _ in range(limits.HANDSHAKES_MAX)]
    assert not any(peer.is_closed for peer in strangers)
    beyond = Peer(host)
    assert beyond.is_closed
    refusal = last_error(beyond)
    assert (refusal.code, refusal.retryable) == ("too_many_connections", True)
    host.door.drop(strangers.pop().conn)
    assert not Peer(host).is_closed
    assert all(not peer.is_closed for peer in known)


@pytest.mark.pure
def test_connections_beyond_the_bound_are_refused_and_leave_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "CONNECTIONS_MAX", 20)
    host = Host()
    peers = [client(host) for _ in range(20)]
    for _ in range(100):
        assert Peer(host).is_closed
    assert (len(host.door.conns), host.door.strangers_count) == (20, 0)
    host.door.drop(peers[0].conn)
    assert not client(host).is_closed


def test_ten_thousand_idle_connections_cost_a_tick_no_more_than_their_share() -> None:
    host = Host()
    for number in range(limits.CONNECTIONS_MAX):
        client(host, f"c{number % 100}")
    assert len(host.door.conns) == limits.CONNECTIONS_MAX
    assert Peer(host).is_closed
    some = list(host.door.conns)[:256]
    host.now_us += limits.PING_EVERY_US
    host.door.check(some)
    assert len(host.door.unflushed) == 256


def test_a_node_of_another_group_is_sent_away_by_one_that_has_no_peers() -> None:
    host = Host()
    node = Peer(host)
    hello = PeerIdentity(node_id="c" * 32, group="", group_name="default", address="10.0.0.9:5000")
    node.say(encode_frame(MsgType.LEADER_HELLO, b"h" * 16, header=hello_of(hello, PeerFacts())))
    assert last_error(node).code == "not_a_member"
    assert node.is_closed
    assert host.door.strangers_count == 0


# --- silent ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("bytes_a_second", [0, 1])
def test_a_stranger_who_is_silent_or_dribbles_is_closed_when_the_handshake_is_over(
    bytes_a_second: int,
) -> None:
    host = Host()
    peer = Peer(host)
    hello = encode_frame(MsgType.HELLO_CLIENT, header=b" " * 1_000)
    for second in range(9):
        host.pass_time(SECOND_US)
        host.door.receive(peer.conn, hello[second : second + bytes_a_second])
    assert not peer.is_closed
    host.pass_time(SECOND_US)
    assert peer.is_closed
    assert last_error(peer).code == "handshake_timeout"
    assert host.door.strangers_count == 0


def test_a_silent_peer_is_pinged_and_closed_and_one_that_answers_stays() -> None:
    host = Host()
    silent, lively = client(host), client(host)
    for _ in range(30):
        host.pass_time(SECOND_US)
        for ping in lively.take(MsgType.PING):
            lively.say(encode_frame(MsgType.PONG, NO_ID, ping.msg_id))
    assert len(silent.take(MsgType.PING)) == 2
    assert last_error(silent).code == "idle_timeout"
    assert silent.is_closed
    assert not lively.is_closed


def test_a_silent_workers_job_goes_to_another_one() -> None:
    host = Host()
    peer, dead = client(host), worker(host, "dead", hands=1, credit=1)
    peer.say(submit(1, host))
    assert dead.take(MsgType.ASSIGN_JOB)
    other = worker(host, "other")
    for _ in range(25):
        host.pass_time(SECOND_US)
        for each in (peer, other):
            for ping in each.take(MsgType.PING):
                each.say(encode_frame(MsgType.PONG, NO_ID, ping.msg_id))
    assert dead.is_closed
    (assign,) = other.take(MsgType.ASSIGN_JOB)
    assert header_of(assign, j.AssignJobHeader).attempt == 2


# --- slow ------------------------------------------------------------------------------------------


def test_a_client_that_does_not_read_is_cut_and_the_others_do_not_notice() -> None:
    host = Host()
    slow, quick, runner = client(host), client(host), worker(host, credit=100)
    slow.reads = False
    big = bytes(limits.PAYLOAD_BYTES_MAX)
    for number in range(20):
        slow.say(submit(number, host)) if not slow.is_closed else None
        quick.say(submit(100 + number, host))
        for assign in runner.take(MsgType.ASSIGN_JOB):
            runner.say(ack(assign, host.next_seq(runner), big))
        assert slow.unsent_bytes() <= limits.UNSENT_BYTES_MAX + 2 * limits.FRAME_BYTES_MAX
    assert slow.is_aborted
    assert not quick.is_closed
    assert len(quick.take(MsgType.RESULT)) == 20


def test_one_packet_that_asks_for_many_large_results_does_not_make_the_node_hold_them() -> None:
    host = Host()
    peer, runner = client(host), worker(host)
    peer.say(submit(1, host))
    (assign,) = runner.take(MsgType.ASSIGN_JOB)
    runner.say(ack(assign, 1, bytes(limits.PAYLOAD_BYTES_MAX)))
    hostile = client(host)
    hostile.reads = False
    asked = {"job_id": assign.msg_id.hex()}
    host.door.receive(hostile.conn, b"".join(query("result", asked, number) for number in range(1_000)))
    held = Held(hostile)
    host.turn()
    assert held.bytes_max <= limits.UNSENT_BYTES_MAX + 2 * limits.FRAME_BYTES_MAX
    assert hostile.is_aborted


class Held:
    """The most that a node and its socket hold for one peer, looked at with every write."""

    def __init__(self, peer: Peer) -> None:
        self.bytes_max = 0
        write = peer.write

        def watched(data: bytes) -> None:
            self.bytes_max = max(self.bytes_max, peer.unsent_bytes() + len(data))
            write(data)

        peer.write = watched  # type: ignore[method-assign]


def test_questions_that_wait_for_a_stalled_disk_are_bounded() -> None:
    host = Host()
    asker, op = client(host), operator(host)
    host.is_stalled = True
    asker.say(submit(1, host))
    asked = {"job_id": "0" * 32}
    asker.say(b"".join(query("result", asked, number) for number in range(2_000)))
    op.say(b"".join(query("jobs", None, number) for number in range(100)))
    assert last_error(asker).code == last_error(op).code == "overloaded"
    assert asker.conn.asks_count == limits.ASKS_WAITING_MAX
    assert op.conn.asks_count == limits.OPERATOR_ASKS_WAITING_MAX
    host.is_stalled = False
    host.turn()
    assert len(asker.take(MsgType.REPLY)) == limits.ASKS_WAITING_MAX
    assert len(op.take(MsgType.REPLY)) == limits.OPERATOR_ASKS_WAITING_MAX
    assert (asker.conn.asks_count, op.conn.asks_count) == (0, 0)
    op.say(query("jobs"))
    assert op.take(MsgType.REPLY)


def test_all_slow_readers_together_hold_back_only_so_much() -> None:
    host = Host()
    peers = [client(host) for _ in range(10)]
    for number, peer in enumerate(peers):
        peer.reads = False
        peer.write(bytes(1_000 * number))
    found = host.door.slowest_beyond(30_000)
    assert [size for size, _ in found] == [9_000, 8_000]
    assert host.door.slowest_beyond(45_000) == []


def test_a_worker_that_never_reads_gets_only_so_many_bytes() -> None:
    host = Host()
    peer, greedy = client(host), worker(host, credit=limits.WORKER_HELD_MAX)
    greedy.reads = False
    for number in range(10):
        peer.say(submit(number, host, bytes(limits.PAYLOAD_BYTES_MAX)))
    assert greedy.unsent_bytes() <= limits.UNSEEN_BYTES_MAX + limits.FRAME_BYTES_MAX
    assert not greedy.is_closed


# --- wrong bytes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "frame_too_large"),
        (bytes(100), "bad_frame"),
        (b"\xff" * 100, "frame_too_large"),
        ((limits.HELLO_FRAME_BYTES_MAX + 1).to_bytes(4, "big"), "frame_too_large"),
        (encode_frame(MsgType.SUBMIT_JOB), "illegal_message"),
        (encode_frame(MsgType.HELLO_CLIENT, header=b"{"), "bad_header"),
        (encode_frame(MsgType.HELLO_CLIENT, header=b'{"version":99}'), "unsupported_version"),
        (encode_frame(99), "illegal_message"),
    ],
)
def test_a_stranger_who_says_something_else_than_hello_is_told_what_is_wrong(data: bytes, code: str) -> None:
    host = Host()
    peer = Peer(host)
    peer.say(data)
    assert last_error(peer).code == code
    assert peer.conn.decoder.held_bytes == 0
    if peer.is_closed:
        peer.say(b"more of the same")
        assert peer.heard == []
        assert peer.conn not in host.door.conns


def test_a_worker_gives_no_reason_of_its_own_invention_for_handing_a_job_back() -> None:
    """Above all not "gone", the leader's word for a worker that died: the log would say what is not so."""
    host = Host()
    client(host).say(submit(1, host))
    peer = worker(host)
    (assign,) = peer.take(MsgType.ASSIGN_JOB)
    fence = encode_fence(assign)
    header = b'{"fence":[%d,%d],"seq":1,"ok":false,"what":"hand_back","reason":"gone"}' % fence
    peer.say(encode_frame(MsgType.ACK_JOB, NO_ID, assign.msg_id, header=header))
    assert last_error(peer).code == "bad_header"
    assert host.leader is not None
    assert host.leader.desk.machine.jobs[assign.msg_id.hex()].state == INFLIGHT


def test_an_announced_size_is_refused_before_a_byte_of_it_is_held() -> None:
    host = Host()
    peer = client(host)
    peer.say((limits.FRAME_BYTES_MAX + 1).to_bytes(4, "big") + bytes(1_000))
    assert last_error(peer).code == "frame_too_large"
    assert peer.conn.decoder.held_bytes == 0
    assert peer.is_closed


def test_frames_cut_anywhere_are_the_same_conversation() -> None:
    def told(pieces_of: int) -> list[tuple[int, bytes]]:
        host = Host()
        peer, runner = client(host), worker(host)
        said = b"".join(submit(number, host, bytes(number)) for number in range(5)) + query("status")
        for at in range(0, len(said), pieces_of):
            peer.say(said[at : at + pieces_of])
        for assign in runner.take(MsgType.ASSIGN_JOB):
            data = ack(assign, host.next_seq(runner), b"r")
            for at in range(0, len(data), pieces_of):
                runner.say(data[at : at + pieces_of])
        kinds = (MsgType.ACCEPTED, MsgType.RESULT)
        return [(frame.type, frame.corr_id[6:]) for kind in kinds for frame in peer.take(kind)]

    assert told(1) == told(7) == told(1 << 20)


def test_whatever_a_greeted_peer_may_not_say_harms_nobody_else() -> None:
    host = Host()
    peer, runner = client(host), worker(host)
    for kind in range(256):
        hostile = client(host, "hostile")
        for header in (b"", b"{", b'{"seq":-1}', b"[]"):
            if not hostile.is_closed:
                hostile.say(encode_frame(kind, b"m" * 16, b"c" * 16, "job.submit.e", header, b"\x00"))
        host.door.drop(hostile.conn)
        stranger = worker(host, "hostile")
        for header in (b"", b"{", b'{"fence":[0,0],"seq":0}', b"[]"):
            if not stranger.is_closed:
                stranger.say(encode_frame(kind, b"m" * 16, b"c" * 16, "", header, b"\x00"))
        host.door.drop(stranger.conn)
    peer.say(submit(10_000, host))
    assigned = {assign.msg_id: assign for assign in runner.take(MsgType.ASSIGN_JOB)}
    runner.say(ack(assigned[job_id(10_000, host)], 1))
    assert job_id(10_000, host) in [frame.corr_id for frame in peer.take(MsgType.RESULT)]


def test_acks_of_jobs_that_never_were_are_answered_and_not_kept() -> None:
    host = Host()
    hostile = worker(host)
    for seq in range(1, 1_001):
        header = encode_header(j.AckJobHeader((1, seq), seq))
        host.door.receive(hostile.conn, encode_frame(MsgType.ACK_JOB, NO_ID, b"x" * 16, header=header))
    host.turn()
    assert len(hostile.conn.acks) == 0
    done = [header_of(frame, j.AckDoneHeader) for frame in hostile.take(MsgType.ACK_DONE)]
    assert [each.seq for each in done] == [256, 512, 768, 1_000]
    assert sum(len(each.late) for each in done) == 1_000


def test_an_outcome_that_a_returning_worker_lists_is_waited_for() -> None:
    host = Host()
    old = worker(host)
    client(host).say(submit(1, host))
    (assign,) = old.take(MsgType.ASSIGN_JOB)
    host.door.drop(old.conn)
    new = Peer(host)
    hello = h.HelloWorkerHeader(
        version=1, worker_id="w1", instance="a", patterns=("job.assign.>",), hands=1, credit=1
    )
    fence = header_of(assign, j.AssignJobHeader).fence
    listed = h.HeldList((), (h.HeldOutcome(assign.msg_id.hex(), fence),))
    header, payload = encode_header(hello), encode_payload(listed)
    new.say(encode_frame(MsgType.HELLO_WORKER, b"h" * 16, header=header, payload=payload))
    assert not new.take(MsgType.ASSIGN_JOB)
    new.say(ack(assign, 1))
    (done,) = new.take(MsgType.ACK_DONE)
    assert header_of(done, j.AckDoneHeader).late == ()


# --- doubles ---------------------------------------------------------------------------------------


def test_a_second_process_with_a_workers_id_is_sent_away_and_the_first_one_stays() -> None:
    host = Host()
    first, second = worker(host), Peer(host)
    hello = h.HelloWorkerHeader(
        version=1, worker_id="w1", instance="b", patterns=("job.assign.>",), hands=1, credit=1
    )
    payload = encode_payload(h.HeldList((), ()))
    second.say(encode_frame(MsgType.HELLO_WORKER, b"h" * 16, header=encode_header(hello), payload=payload))
    refusal = last_error(second)
    assert (refusal.code, refusal.retryable) == ("worker_exists", True)
    client(host).say(submit(1, host))
    assert first.take(MsgType.ASSIGN_JOB)
    assert second.heard == []


def test_a_worker_that_comes_back_on_a_new_connection_takes_the_place_of_its_half_open_one() -> None:
    host = Host()
    old = worker(host)
    client(host).say(submit(1, host))
    assert old.take(MsgType.ASSIGN_JOB)
    new = worker(host)
    assert old.is_closed
    (again,) = new.take(MsgType.ASSIGN_JOB)
    assert header_of(again, j.AssignJobHeader).seq == 1
    assert set(host.door.workers) == {"w1"}


def test_a_wrong_token_is_refused_whoever_says_it() -> None:
    host = Host()
    host.token = "secret"
    for kind, header in (
        (MsgType.HELLO_CLIENT, h.HelloClientHeader(version=1, client_id="c", token="guess")),
        (MsgType.HELLO_OPERATOR, h.HelloOperatorHeader(version=1, by="o", token="")),
    ):
        peer = Peer(host)
        peer.say(encode_frame(kind, b"h" * 16, header=encode_header(header)))
        refusal = last_error(peer)
        assert refusal.code == "not_authorized"
        assert "secret" not in refusal.text


def test_no_error_of_a_peer_escapes_the_door() -> None:
    """What a frame brings about is a ProtocolError, answered on its connection; the others of the same packet
    are still read."""
    host = Host()
    peer = client(host)
    bad = encode_frame(MsgType.SUBMIT_JOB, b"m" * 16, subject="job.submit.a b")
    peer.say(bad + submit(1, host) + bad)
    assert len(peer.take(MsgType.ERROR)) == 2
    assert len(peer.take(MsgType.ACCEPTED)) == 1
