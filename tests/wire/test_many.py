"""Frames that carry many jobs: what is put together is what is taken apart, within every limit of a frame."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollmq import limits
from rollmq.errors import MessageTooLarge, ProtocolError
from rollmq.wire.codec import encode_frame, encode_header
from rollmq.wire.headers import NUMBER_MAX, Header
from rollmq.wire.job_headers import SubmitJobHeader
from rollmq.wire.many import Parts, ids_of, parts_of
from rollmq.wire.many_headers import AckJobsHeader, AssignJobsHeader, ResultsHeader, SubmitJobsHeader
from rollmq.wire.message import Frame, MsgType
from rollmq.wire.readers import read_submits

COUNT = limits.JOBS_PER_MESSAGE_MAX
LONGEST = "\u0080" * limits.ID_CHARS_MAX
"""Takes the most bytes of all names that a header may have."""


@given(st.lists(st.tuples(st.binary(min_size=16, max_size=16), st.binary(max_size=40)), min_size=1))
def test_what_is_put_together_is_taken_apart(jobs: list[tuple[bytes, bytes]]) -> None:
    parts = Parts()
    for job_id, part in jobs:
        parts.add(job_id, part)
    frame = Frame(MsgType.ACK_JOBS, payload=parts.payload())
    assert list(parts_of(frame, [len(part) for _, part in jobs])) == jobs


@given(st.binary(max_size=100), st.lists(st.integers(0, 60), min_size=1, max_size=4))
def test_a_payload_that_does_not_add_up_is_refused_before_the_first_job(
    payload: bytes, sizes: list[int]
) -> None:
    frame = Frame(MsgType.ACK_JOBS, payload=payload)
    if len(payload) == 16 * len(sizes) + sum(sizes):
        assert len(list(parts_of(frame, sizes))) == len(sizes)
    else:
        with pytest.raises(ProtocolError, match="its header tells of") as caught:
            parts_of(frame, sizes)
        assert caught.value.code == "bad_payload"


@pytest.mark.parametrize("payload", [b"", b"x" * 15, b"x" * 33])
def test_ids_are_sixteen_bytes_each(payload: bytes) -> None:
    with pytest.raises(ProtocolError, match="are no ids"):
        ids_of(Frame(MsgType.ACCEPTED_JOBS, payload=payload))


@pytest.mark.parametrize(
    "header",
    [
        AssignJobsHeader(
            ((NUMBER_MAX, NUMBER_MAX, NUMBER_MAX, NUMBER_MAX, 256),) * COUNT,
            NUMBER_MAX,
            NUMBER_MAX,
            NUMBER_MAX,
            NUMBER_MAX,
            LONGEST,
            LONGEST,
            LONGEST,
        ),
        AckJobsHeader(
            ((NUMBER_MAX, NUMBER_MAX, NUMBER_MAX, 256),) * COUNT,
            NUMBER_MAX,
            LONGEST,
            LONGEST,
            (NUMBER_MAX, limits.WORKER_HELD_MAX),
        ),
        ResultsHeader(((NUMBER_MAX, NUMBER_MAX, NUMBER_MAX, 256),) * COUNT, LONGEST, LONGEST),
    ],
    ids=lambda header: type(header).__name__,
)
def test_the_largest_header_fits(header: Header) -> None:
    payload = b"x" * (16 * COUNT + limits.MANY_BYTES_MAX)
    try:
        assert encode_frame(MsgType.RESULTS, header=encode_header(header), payload=payload)
    except MessageTooLarge as error:
        pytest.fail(f"{type(header).__name__}: {error}")
    assert len(payload) <= limits.PAYLOAD_BYTES_MAX


def test_the_largest_options_fit() -> None:
    options = SubmitJobHeader(headers={"h": "x"})
    room = limits.MANY_OPTIONS_BYTES_MAX - len(encode_header(options))
    options = SubmitJobHeader(headers={"h": "x" * (room + 1)})
    assert len(encode_header(options)) == limits.MANY_OPTIONS_BYTES_MAX
    header = encode_header(SubmitJobsHeader((limits.MANY_BYTES_MAX,) * COUNT, options))
    assert len(header) <= limits.HEADER_BYTES_MAX


@pytest.mark.parametrize(
    "options",
    [SubmitJobHeader(key="k", content_digest="d"), SubmitJobHeader(resend=True)],
    ids=["key", "resend"],
)
def test_what_belongs_to_one_job_is_not_shared(options: SubmitJobHeader) -> None:
    header = encode_header(SubmitJobsHeader((0, 0), options))
    with pytest.raises(ProtocolError, match="goes alone") as caught:
        read_submits(Frame(MsgType.SUBMIT_JOBS, b"m" * 16, header=header, payload=bytes(32)))
    assert caught.value.code == "bad_header"
    assert caught.value.request_id == b"m" * 16
