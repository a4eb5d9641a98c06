"""Whoever is told that a job was accepted is told of its end, or that its end is not kept: never nothing."""

from rollmq.core.events import Settings
from rollmq.wire import headers as h
from rollmq.wire import job_headers as j
from rollmq.wire.codec import encode_frame, encode_header, encode_payload, header_of
from rollmq.wire.message import MsgType
from tests.node.stage import Host, ack, client, submit, worker


def test_a_repeated_submit_of_a_job_whose_result_is_gone_is_told_so() -> None:
    host = Host()
    leader = host.leader
    assert leader is not None
    leader.operate.set_settings(Settings(0, 0, 0, results_max=0), by="test", to=None)
    first, runner = client(host), worker(host)
    first.say(submit(1, host))
    (assign,) = runner.take(MsgType.ASSIGN_JOB)
    runner.say(ack(assign, 1, b"result"))
    again = client(host)
    again.say(submit(1, host, resend=True))
    assert again.take(MsgType.ACCEPTED)
    (result,) = again.take(MsgType.RESULT)
    assert result.corr_id == assign.msg_id
    assert header_of(result, j.ResultHeader).state == "gone"


def test_a_job_that_dies_in_the_turn_of_its_acceptance_is_told_of_after_that() -> None:
    host = Host()
    peer = client(host)
    host.door.receive(peer.conn, submit(1, host, expires_in_us=1))
    host.pass_time(1_000)
    kinds = [frame.type for frame in peer.heard]
    assert kinds == [MsgType.ACCEPTED, MsgType.RESULT]


def test_a_client_that_asks_for_a_result_where_nobody_leads_is_sent_away_and_not_refused() -> None:
    host = Host()
    peer = client(host)
    host.is_leading = False
    payload = encode_payload({"job_id": "0" * 32})
    query = encode_header(h.QueryHeader(name="result"))
    peer.say(encode_frame(MsgType.QUERY, b"q" * 16, header=query, payload=payload))
    assert [frame.type for frame in peer.heard] == [MsgType.NOT_LEADER]
    assert peer.is_closed
