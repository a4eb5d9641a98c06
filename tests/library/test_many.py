"""What client and worker put into one frame says exactly what as many single ones would, in their order."""

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollmq import limits
from rollmq.library.call import UNKNOWN
from rollmq.library.held_job import HeldJob, Outcome
from rollmq.library.together import ack_frames
from rollmq.wire.codec import FrameDecoder, encode_header, header_of
from rollmq.wire.job_headers import AckJobHeader, AssignJobHeader, SubmitJobHeader
from rollmq.wire.message import Frame, MsgType
from tests.library.desk import SECOND_US, Desk, Noted
from tests.wire.unfold import unfold, unfolded

BIG = limits.MANY_BYTES_MAX
HEADERS = [
    b"",
    encode_header(SubmitJobHeader(tries_max=3)),
    encode_header(SubmitJobHeader(key="k", content_digest="d")),
    encode_header(SubmitJobHeader(headers={"h": "x" * limits.MANY_OPTIONS_BYTES_MAX})),
]
SIZES = st.sampled_from([0, 1, 100, BIG // 2, BIG, BIG + 1])


@dataclass
class Said:
    """Frames as they were written, and what they say."""

    frames: list[Frame]
    singles: list[Frame]


def said(data: bytes) -> Said:
    frames = FrameDecoder(limits.FRAME_BYTES_MAX).feed(data)
    assert all(isinstance(frame, Frame) for frame in frames)
    return Said(frames, unfolded(data))  # type: ignore[arg-type]


@settings(max_examples=25)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(HEADERS), SIZES), min_size=1, max_size=12))
def test_submits_of_one_turn_are_said_in_their_order_with_all_that_they_say(
    jobs: list[tuple[str, bytes, int]],
) -> None:
    desk = Desk()
    desk.connect()
    calls = [
        desk.submit(Noted(bytes([number]) * size, header, exec=exec_name))
        for number, (exec_name, header, size) in enumerate(jobs)
    ]
    written = said(desk.out())
    assert [(f.type, f.msg_id, f.subject, f.payload) for f in written.singles] == [
        (MsgType.SUBMIT_JOB, call.job_id, call.subject.decode(), call.payload) for call in calls
    ]
    assert [header_of(f, SubmitJobHeader) for f in written.singles] == [
        header_of(Frame(MsgType.SUBMIT_JOB, header=call.header), SubmitJobHeader) for call in calls
    ]
    for frame in written.frames:
        assert frame.type == MsgType.SUBMIT_JOB or len(unfold(frame)) > 1
        assert frame.type == MsgType.SUBMIT_JOB or b'"key"' not in frame.header


def test_many_submits_are_few_frames() -> None:
    desk = Desk()
    desk.connect()
    for _ in range(600):
        desk.submit()
    assert [len(unfold(frame)) for frame in said(desk.out()).frames] == [256, 256, 88]


def test_a_node_that_knows_only_single_frames_gets_them() -> None:
    desk = Desk()
    desk.connect(many=False)
    for _ in range(3):
        desk.submit()
    assert [frame.type for frame in said(desk.out()).frames] == [MsgType.SUBMIT_JOB] * 3
    held = HeldJob(bytes(16), "x", AssignJobHeader(1, (2, 1), 1), b"")
    held.outcome = Outcome()
    acks = said(b"".join(ack_frames([held, held], 1, None, may_say_many=False))).frames
    assert [frame.type for frame in acks] == [MsgType.ACK_JOB] * 2


def test_a_goodbye_does_not_overtake_what_was_submitted_before_it() -> None:
    desk = Desk()
    desk.connect()
    desk.submit()
    desk.submit()
    desk.core.say_goodbye()
    kinds = [frame.type for frame in said(desk.out()).frames]
    assert kinds == [MsgType.SUBMIT_JOBS, MsgType.GOODBYE]


def test_a_submit_that_is_given_up_before_it_was_written_is_written_with_its_payload() -> None:
    """Its caller is told that nothing is known of it; an empty job under its id would be worse than none."""
    desk = Desk(patience_us=SECOND_US)
    desk.connect()
    call = desk.submit(Noted(b"precious"))
    desk.now_us += 2 * SECOND_US
    desk.core.tick(desk.now_us)
    assert call.state == UNKNOWN
    assert [frame.payload for frame in unfolded(desk.out())] == [b"precious"]


def test_what_was_held_back_for_a_connection_that_is_gone_is_sent_once_on_the_next() -> None:
    desk = Desk()
    desk.connect()
    calls = [desk.submit(), desk.submit()]
    desk.lose()
    line = desk.connect()
    frames = line.take(desk.out())
    assert [frame.msg_id for frame in frames] == [call.job_id for call in calls]


def test_a_submit_that_was_sent_before_goes_alone_and_says_so() -> None:
    desk = Desk()
    desk.connect()
    desk.submit()
    desk.submit()
    desk.out()
    desk.lose()
    desk.connect()
    written = said(desk.out())
    assert [frame.type for frame in written.frames] == [MsgType.SUBMIT_JOB] * 2
    assert all(header_of(frame, SubmitJobHeader).resend for frame in written.frames)


OUTCOMES = st.builds(
    lambda size, what, content_type: Outcome(b"r" * size, 7, what, content_type=content_type),
    SIZES,
    st.sampled_from(["", "", "", "retry"]),
    st.sampled_from(["", "", "text/plain"]),
)


@settings(max_examples=25)
@given(st.lists(OUTCOMES, min_size=1, max_size=16), st.sampled_from([None, (9, 3)]))
def test_outcomes_are_said_in_their_order_and_the_last_frame_says_the_credit(
    outcomes: list[Outcome], credit: tuple[int, int] | None
) -> None:
    ended = []
    for number, outcome in enumerate(outcomes, 1):
        held = HeldJob(number.to_bytes(16, "big"), "x", AssignJobHeader(1, (2, 40 + number), number), b"")
        held.outcome = outcome
        ended.append(held)
    frames = ack_frames(ended, 5, credit, may_say_many=True)
    singles = unfolded(b"".join(frames))
    headers = [header_of(frame, AckJobHeader) for frame in singles]
    assert [frame.corr_id for frame in singles] == [held.job_id for held in ended]
    assert [frame.payload for frame in singles] == [outcome.payload for outcome in outcomes]
    assert [header.fence for header in headers] == [held.fence for held in ended]
    assert [header.seq for header in headers] == list(range(5, 5 + len(outcomes)))
    assert [(header.ok, header.what, header.content_type) for header in headers] == [
        (not outcome.what, outcome.what, outcome.content_type) for outcome in outcomes
    ]
    assert [header.credit for header in headers] == [None] * (len(outcomes) - 1) + [credit]


@pytest.mark.parametrize("size", [BIG, BIG + 1])
def test_a_large_result_is_never_put_to_others(size: int) -> None:
    ended = []
    for number, each in enumerate((3, size, 3), 1):
        held = HeldJob(number.to_bytes(16, "big"), "x", AssignJobHeader(1, (2, number), number), b"")
        held.outcome = Outcome(b"r" * each)
        ended.append(held)
    frames = [unfolded(data) for data in ack_frames(ended, 1, None, may_say_many=True)]
    assert [len(frame) for frame in frames] == [1, 1, 1]
