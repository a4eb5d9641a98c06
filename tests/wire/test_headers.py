"""What headers say: defaults, unknown fields, bounds, and the messages that are read as a whole."""

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollmq import limits
from rollmq.core.events import Backoff, Enqueue
from rollmq.errors import ProtocolError
from rollmq.wire.catalog import DECODERS, DEFAULTS, MESSAGES
from rollmq.wire.codec import (
    agree_version,
    encode_frame,
    encode_header,
    encode_payload,
    header_of,
    payload_of,
)
from rollmq.wire.headers import Header, Held, HeldList, HelloClientHeader, PongHeader
from rollmq.wire.job_headers import AckJobHeader, AssignJobHeader, BackoffOptions, SubmitJobHeader
from rollmq.wire.message import Frame, MsgType
from rollmq.wire.readers import (
    assign_subject,
    exec_of_assign,
    exec_of_submit,
    read_ack,
    read_hello_worker,
    read_submit,
    submit_subject,
)
from tests.wire.strategies import header_values

HEADER_TYPES = sorted(DECODERS, key=lambda kind: kind.__name__)
JOB = "ab" * 16


def code_of(error: "pytest.ExceptionInfo[ProtocolError]") -> str:
    return error.value.code


def refusal_of(read: Callable[[], object]) -> ProtocolError | None:
    try:
        read()
    except ProtocolError as error:
        return error
    return None


def test_every_message_type_has_a_row_with_its_header() -> None:
    assert set(MESSAGES) == set(MsgType)


@pytest.mark.parametrize("kind", HEADER_TYPES, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_any_header_comes_back_as_it_went(kind: type[Header], data: st.DataObject) -> None:
    header = data.draw(header_values(kind))
    assert header_of(Frame(0, header=encode_header(header)), kind) == header


@pytest.mark.parametrize("kind", HEADER_TYPES, ids=lambda kind: kind.__name__)
@given(
    body=st.binary(max_size=60)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=5,
    ).map(msgspec.json.encode)
)
def test_any_bytes_as_a_header_are_read_or_refused_with_bad_header(kind: type[Header], body: bytes) -> None:
    error = refusal_of(lambda: header_of(Frame(0, header=body), kind))
    assert error is None or (error.code, error.closes) == ("bad_header", False)


@pytest.mark.parametrize(
    "kind", [kind for kind in HEADER_TYPES if kind in DEFAULTS], ids=lambda kind: kind.__name__
)
def test_an_empty_header_says_the_defaults_and_the_defaults_are_sent_as_nothing(kind: type[Header]) -> None:
    assert header_of(Frame(0), kind) == kind()
    assert encode_header(kind()) == b""
    assert header_of(Frame(0, header=b"{}"), kind) == kind()


def test_an_empty_header_is_refused_where_a_field_must_be_said() -> None:
    with pytest.raises(ProtocolError, match=r"AckJob: its header is wrong: .*fence") as error:
        header_of(Frame(MsgType.ACK_JOB, msg_id=b"a" * 16), AckJobHeader)
    assert code_of(error) == "bad_header"
    assert error.value.request_id == b"a" * 16
    assert error.value.request_type == MsgType.ACK_JOB


def test_unknown_fields_are_ignored_so_that_a_newer_side_may_say_more() -> None:
    assert header_of(Frame(16, header=b'{"log_at_us":7,"mood":"good"}'), PongHeader).log_at_us == 7


def test_deeply_nested_json_is_refused_and_not_a_crash() -> None:
    with pytest.raises(ProtocolError) as error:
        header_of(Frame(3, header=b'{"x":' + b"[" * 30_000), SubmitJobHeader)
    assert code_of(error) == "bad_header"


@pytest.mark.parametrize(
    "header",
    [
        b'{"priority":10}',
        b'{"priority":-1}',
        b'{"timeout_us":0}',
        b'{"tries_max":0}',
        b'{"delay_us":9007199254740992}',
        b'{"timeout_factor":0.5}',
        b'{"timeout_factor":1e999}',
        b'{"backoff":{"factor":1e9}}',
        b'{"backoff":{"jitter":1.5}}',
        b'{"backoff":{"first_us":-1}}',
        b'{"priority":"high"}',
        b"[]",
        b"null",
        b'{"key":"\xff"}',
        b"{",
    ],
)
def test_an_option_out_of_bounds_is_refused(header: bytes) -> None:
    with pytest.raises(ProtocolError) as error:
        header_of(Frame(3, header=header), SubmitJobHeader)
    assert code_of(error) == "bad_header"


def test_a_submit_without_options_is_what_the_log_means_by_its_defaults() -> None:
    logged = {field.name: field.default for field in msgspec.structs.fields(Enqueue)}
    submitted = {field.name: field.default for field in msgspec.structs.fields(SubmitJobHeader)}
    common = logged.keys() & submitted.keys()
    assert {"priority", "timeout_us", "timeout_factor", "tries_max", "backoff"} <= common
    assert {name: submitted[name] for name in common} == {name: logged[name] for name in common}
    assert BackoffOptions().to_log() == Backoff()


# --- versions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("header", [b'{"version":1}', b'{"version":9,"version_min":1}'])
def test_a_hello_that_speaks_version_1_is_agreed_with(header: bytes) -> None:
    assert agree_version(Frame(1, header=header)) == 1


@pytest.mark.parametrize("header", [b'{"version":0}', b'{"version":2}', b'{"version":9,"version_min":2}'])
def test_a_hello_without_a_common_version_is_told_which_are_spoken(header: bytes) -> None:
    with pytest.raises(ProtocolError, match="this one 1 to 1") as error:
        agree_version(Frame(1, header=header))
    assert code_of(error) == "unsupported_version"
    assert error.value.closes


def test_the_version_is_read_before_fields_whose_form_another_version_may_have_changed() -> None:
    frame = Frame(1, header=b'{"version":2,"client_id":["now","a","list"]}')
    with pytest.raises(ProtocolError) as error:
        agree_version(frame)
    assert code_of(error) == "unsupported_version"
    with pytest.raises(ProtocolError, match="client_id"):
        header_of(frame, HelloClientHeader)


# --- read as a whole --------------------------------------------------------------------------------


def test_an_exec_goes_into_the_subject_and_comes_out_of_it() -> None:
    assert exec_of_submit(Frame(3, subject=submit_subject("image.resize"))) == "image.resize"
    assert exec_of_assign(Frame(4, subject=assign_subject("image.resize", "w-1"))) == "image.resize"


@pytest.mark.parametrize(
    "subject",
    ["", "job.submit.", "job.submit", "job.assign.a", "job.submit.a..b", "job.submit.*", "job.submit.a b"],
)
def test_a_submit_with_another_subject_is_refused(subject: str) -> None:
    with pytest.raises(ProtocolError) as error:
        exec_of_submit(Frame(3, subject=subject))
    assert code_of(error) == "bad_subject"


@pytest.mark.parametrize("subject", ["", "job.assign.w", "job.assign..w", "job.submit.a.w"])
def test_an_assign_with_another_subject_is_refused(subject: str) -> None:
    with pytest.raises(ProtocolError) as error:
        exec_of_assign(Frame(4, subject=subject))
    assert code_of(error) == "bad_subject"


def test_a_key_without_a_digest_is_refused() -> None:
    with pytest.raises(ProtocolError, match="content_digest") as error:
        read_submit(Frame(3, header=b'{"key":"k"}'))
    assert code_of(error) == "bad_header"
    assert read_submit(Frame(3, header=b'{"key":"k","content_digest":"00"}')).key == "k"


@pytest.mark.parametrize(
    ("rest", "text"),
    [
        (',"ok":false', "`what`"),
        (',"what":"retry"', "`what`"),
        (',"ok":false,"what":"snooze"', "after_us"),
        (',"ok":false,"what":"explode"', "what"),
    ],
)
def test_an_ack_that_contradicts_itself_is_refused(rest: str, text: str) -> None:
    with pytest.raises(ProtocolError, match=text) as error:
        read_ack(Frame(5, header=f'{{"fence":[1,2],"seq":1{rest}}}'.encode()))
    assert code_of(error) == "bad_header"


@pytest.mark.parametrize("what", ["retry", "reject", "snooze", "hand_back"])
def test_every_way_to_fail_can_be_said(what: str) -> None:
    header = AckJobHeader(fence=(1, 2), seq=1, ok=False, what=what, after_us=5)  # type: ignore[arg-type]
    assert read_ack(Frame(5, header=encode_header(header))) == header


def test_a_worker_may_list_as_many_jobs_as_its_hello_frame_holds() -> None:
    rows = [
        {"job_id": JOB, "fence": [9_999_999, 10**12], "started": True, "run_us": 10**10, "left_us": 10**10}
    ] * (limits.WORKER_HELD_MAX - 600)
    rows += [{"job_id": JOB, "fence": [9_999_999, 10**12]}] * 600
    payload = encode_payload({"held": rows})
    header = b'{"version":1,"worker_id":"w1","instance":"i1","patterns":["job.assign.>"]}'
    frame = Frame(2, header=header, payload=payload)
    assert len(encode_frame(2, header=header, payload=payload)) <= limits.HELLO_FRAME_BYTES_MAX
    assert len(read_hello_worker(frame)[1].held) == limits.WORKER_HELD_MAX


def test_a_worker_with_a_bad_pattern_is_refused() -> None:
    header = b'{"version":1,"worker_id":"w1","instance":"i1","patterns":["a.>.b"]}'
    with pytest.raises(ProtocolError, match="patterns") as error:
        read_hello_worker(Frame(2, header=header))
    assert code_of(error) == "bad_header"


@pytest.mark.parametrize("worker_id", ["a.b", "*", ">", "a b", "", "ä", "a\\u0000", "x\\n"])
def test_a_worker_id_that_is_no_token_is_refused(worker_id: str) -> None:
    header = f'{{"version":1,"instance":"i","worker_id":"{worker_id}"}}'.encode()
    with pytest.raises(ProtocolError, match="worker_id"):
        read_hello_worker(Frame(2, header=header))


@pytest.mark.parametrize("client_id", ["", "two\\nlines", "bell\\u0007", "del\\u007f", "end\\n"])
def test_a_client_id_that_could_forge_a_log_line_is_refused(client_id: str) -> None:
    header = f'{{"version":1,"client_id":"{client_id}"}}'.encode()
    with pytest.raises(ProtocolError, match="client_id"):
        header_of(Frame(1, header=header), HelloClientHeader)


@given(st.binary(max_size=80))
def test_any_bytes_as_a_held_list_are_read_or_refused_with_bad_payload(payload: bytes) -> None:
    error = refusal_of(lambda: payload_of(Frame(2, payload=payload), HeldList))
    assert error is None or error.code == "bad_payload"


def test_an_assign_that_says_little_is_short() -> None:
    header = encode_header(AssignJobHeader(attempt=1, fence=(3, 4812), seq=17))
    assert header == b'{"attempt":1,"fence":[3,4812],"seq":17}'


def test_the_longest_list_of_held_jobs_fits_into_a_hello() -> None:
    held = Held("f" * 32, (2**40, 2**53 - 1), started=True, run_us=2**53 - 1, left_us=2**53 - 1)
    payload = msgspec.json.encode(HeldList((held,) * limits.WORKER_HELD_MAX))
    assert (
        len(payload) + limits.HEADER_BYTES_MAX + limits.FRAME_SUBJECT_BYTES_MAX < limits.HELLO_FRAME_BYTES_MAX
    )
