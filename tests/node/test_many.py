"""A node says to those who take many jobs in one frame exactly what it says to those who do not."""

from rollmq import limits
from rollmq.wire import job_headers as j
from rollmq.wire.catalog import MESSAGES
from rollmq.wire.codec import encode_frame, encode_header, header_of
from rollmq.wire.headers import Header
from rollmq.wire.many_headers import AckJobsHeader, SubmitJobsHeader
from rollmq.wire.message import Frame, MsgType
from rollmq.wire.readers import submit_subject
from tests.node.stage import Host, Peer, ack, client, job_id, submit, worker
from tests.wire.unfold import unfold

COUNT = 20


def play(*, many: bool) -> tuple[Host, Peer, Peer]:
    """One story: plain jobs, large ones, a repeat, headers, two execs, a failure; acks in another order."""
    host = Host()
    seller, runner = client(host, many=many), worker(host, credit=COUNT, many=many)
    submits = [submit(number, host, b"p" * number) for number in range(COUNT - 4)]
    submits += [
        submit(COUNT - 4, host, tries_max=2),
        submit(COUNT - 3, host, b"p" * (limits.MANY_BYTES_MAX + 1)),
        submit(3, host, b"ppp"),
        submit(COUNT - 2, host, headers={"trace": "1"}),
    ]
    seller.say(b"".join(submits))
    assigns = assigns_of(runner)
    said = [ack(each, number, bytes(number)) for number, each in enumerate(reversed(assigns[2:]), 1)]
    failed = j.AckJobHeader(fence_of(assigns[0]), len(said) + 1, ok=False, what="reject", error_type="E")
    said.append(encode_frame(MsgType.ACK_JOB, corr_id=assigns[0].msg_id, header=encode_header(failed)))
    said.append(ack(assigns[1], len(said) + 1, b"r" * (limits.MANY_BYTES_MAX + 1)))
    runner.say(b"".join(said))
    return host, seller, runner


def assigns_of(runner: Peer) -> list[Frame]:
    singles = [single for frame in runner.heard for single in unfold(frame)]
    return [frame for frame in singles if frame.type == MsgType.ASSIGN_JOB]


def fence_of(assign: Frame) -> tuple[int, int]:
    return header_of(assign, j.AssignJobHeader).fence


def said_to(peer: Peer) -> list[tuple[object, ...]]:
    """Every single message, its header as it is understood."""
    return [
        (each.type, each.msg_id, each.corr_id, each.subject, _header(each), each.payload)
        for frame in peer.heard
        for each in unfold(frame)
    ]


def _header(frame: Frame) -> Header:
    return header_of(frame, MESSAGES[MsgType(frame.type)].header)


def test_both_are_told_the_same_in_the_same_order() -> None:
    _, seller, runner = play(many=True)
    _, plain_seller, plain_runner = play(many=False)
    assert said_to(seller) == said_to(plain_seller)
    assert said_to(runner) == said_to(plain_runner)
    many = {MsgType.ACCEPTED_JOBS, MsgType.RESULTS, MsgType.ASSIGN_JOBS}
    assert {frame.type for frame in seller.heard + runner.heard} >= many
    assert not {frame.type for frame in plain_seller.heard + plain_runner.heard} & many
    assert len(seller.heard) < len(plain_seller.heard) / 2


def test_many_submits_and_many_acks_are_taken_as_single_ones_are() -> None:
    host, plain = Host(), Host()
    seller, runner = client(host, many=True), worker(host, credit=COUNT, many=True)
    plain_seller, plain_runner = client(plain), worker(plain, credit=COUNT)
    ids = [job_id(number, host) for number in range(COUNT)]
    options = j.SubmitJobHeader(tries_max=3, priority=2)
    header = encode_header(SubmitJobsHeader((3,) * COUNT, options))
    payload = b"".join(ids) + b"abc" * COUNT
    seller.say(encode_frame(MsgType.SUBMIT_JOBS, subject=submit_subject("e"), header=header, payload=payload))
    plain_seller.say(
        b"".join(submit(number, plain, b"abc", tries_max=3, priority=2) for number in range(COUNT))
    )
    assert said_to(seller) == said_to(plain_seller)
    assert said_to(runner) == said_to(plain_runner)
    assigns = assigns_of(runner)
    acks = AckJobsHeader(tuple((*fence_of(each), 1, 2) for each in assigns), 1, credit=(COUNT, 7))
    payload = b"".join(each.msg_id for each in assigns) + b"ok" * COUNT
    runner.say(encode_frame(MsgType.ACK_JOBS, header=encode_header(acks), payload=payload))
    plain_runner.say(b"".join(ack(each, seq, b"ok") for seq, each in enumerate(assigns, 1)))
    assert said_to(seller) == said_to(plain_seller)
    assert said_to(runner) == said_to(plain_runner)
    leader = host.leader
    assert leader is not None
    slot = leader.liveness.present["w1"].slot
    assert slot is not None
    assert slot.credit == 7


def test_submits_whose_sizes_do_not_add_up_are_refused_as_a_whole() -> None:
    host = Host()
    seller = client(host, many=True)
    header = encode_header(SubmitJobsHeader((3, 3)))
    frame = encode_frame(
        MsgType.SUBMIT_JOBS, b"m" * 16, subject=submit_subject("e"), header=header, payload=bytes(37)
    )
    seller.say(frame)
    (error,) = seller.take(MsgType.ERROR)
    assert error.corr_id == b"m" * 16
    assert host.leader is not None
    assert not host.leader.desk.machine.jobs
    seller.say(submit(1, host))
    assert len(seller.heard) == 1, "the connection goes on"


def test_one_refused_job_among_many_is_refused_alone() -> None:
    host = Host()
    seller = client(host, many=True)
    future = bytes.fromhex("ffffffffffff7" + "0" * 19)
    ids = [job_id(1, host), future, job_id(2, host)]
    header = encode_header(SubmitJobsHeader((0, 0, 0)))
    seller.say(
        encode_frame(MsgType.SUBMIT_JOBS, subject=submit_subject("e"), header=header, payload=b"".join(ids))
    )
    singles = [single for frame in seller.heard for single in unfold(frame)]
    kinds = {frame.corr_id: frame.type for frame in singles}
    assert kinds == {ids[0]: MsgType.ACCEPTED, future: MsgType.ERROR, ids[2]: MsgType.ACCEPTED}
