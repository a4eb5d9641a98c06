"""Who may say what when: examples, random walks through the table, and every edge that is not in it."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollmq import limits
from rollmq.wire.codec import FrameDecoder, header_of
from rollmq.wire.headers import ErrorHeader
from rollmq.wire.message import Frame, MsgType
from rollmq.wire.session import Session, Side
from rollmq.wire.session_table import HELLOS, LEGAL, Direction, Role, State
from tests.wire.pairs import (
    ANSWER,
    CLOSING_ERROR,
    HELLO_FRAMES,
    WATCHING_WORKER,
    M,
    Pair,
    greeted,
    reached,
    refusal,
)

# --- examples ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", HELLO_FRAMES)
def test_a_hello_and_its_answer_make_both_ends_ready(role: Role) -> None:
    pair = greeted(role)
    assert pair.node.role is role
    assert pair.node.is_ready
    assert pair.library.is_ready
    assert pair.node.version == pair.library.version == 1


def test_a_watching_worker_is_answered_in_kind() -> None:
    pair = Pair()
    pair.to_node(WATCHING_WORKER)
    pair.from_node(Frame(M.HELLO_WORKER, header=ANSWER))
    pair.from_node(Frame(M.LEADER_IS))
    assert pair.node.role is Role.WATCHER


def test_a_hello_is_answered_by_a_frame_of_its_own_type_only() -> None:
    pair = Pair()
    pair.to_node(WATCHING_WORKER)
    error = refusal(pair.library, Frame(M.HELLO_CLIENT, header=ANSWER))
    assert error.code == "illegal_message"
    assert not pair.library.is_ready


def test_nothing_may_be_sent_before_the_hello_is_answered() -> None:
    pair = Pair()
    pair.to_node(HELLO_FRAMES[Role.CLIENT])
    assert not pair.library.may_send(M.SUBMIT_JOB)
    assert "SubmitJob may not be sent to_node by or to a client whose state is connected" in str(
        refusal(pair.node, Frame(M.SUBMIT_JOB))
    )


def test_a_second_hello_is_illegal() -> None:
    assert refusal(greeted(Role.CLIENT).node, HELLO_FRAMES[Role.CLIENT]).code == "illegal_message"


def test_a_hello_with_a_bad_header_moves_nothing_and_may_be_said_again() -> None:
    node = Session(Side.NODE)
    error = refusal(node, Frame(M.HELLO_CLIENT, header=b'{"version":1}'))
    assert (error.code, error.closes) == ("bad_header", False)
    assert (node.role, node.version) == (Role.STRANGER, 0)
    node.receive(HELLO_FRAMES[Role.CLIENT])
    assert node.role is Role.CLIENT


def test_another_version_is_refused_with_the_spoken_ones_and_the_connection_closes() -> None:
    node, library = Session(Side.NODE), Session(Side.LIBRARY)
    error = refusal(node, Frame(M.HELLO_CLIENT, msg_id=b"h" * 16, header=b'{"version":7,"client_id":"c"}'))
    (frame,) = FrameDecoder(limits.FRAME_BYTES_MAX).feed(node.refuse(error))
    assert isinstance(frame, Frame)
    assert node.is_closed
    library.receive(frame)
    assert library.is_closed
    header = header_of(frame, ErrorHeader)
    assert (header.code, header.closes, header.request_type) == ("unsupported_version", True, 1)
    assert "1 to 1" in header.text
    assert frame.corr_id == b"h" * 16


def test_a_follower_sends_a_client_elsewhere_and_closes() -> None:
    pair = Pair()
    pair.to_node(HELLO_FRAMES[Role.CLIENT])
    pair.from_node(Frame(M.NOT_LEADER, header=b'{"leader":"10.0.0.2:5000","term":4}'))
    assert pair.library.is_closed
    assert pair.node.is_closed


def test_an_assign_that_was_under_way_when_the_worker_said_goodbye_is_no_error() -> None:
    pair = greeted(Role.WORKER)
    goodbye = Frame(M.GOODBYE)
    pair.library.send(goodbye)
    pair.library.receive(Frame(M.ASSIGN_JOB))
    pair.node.receive(goodbye)
    pair.from_node(goodbye)
    assert not pair.node.may_send(M.ASSIGN_JOB)
    assert pair.node.may_send(M.ACK_DONE)
    assert pair.library.may_send(M.ACK_JOB)
    assert not pair.library.may_send(M.CREDIT)


def test_an_unknown_type_is_skipped_when_ready_but_ends_a_strangers_connection() -> None:
    error = refusal(greeted(Role.CLIENT).node, Frame(250))
    assert (error.code, error.closes) == ("unknown_type", False)
    assert refusal(Session(Side.NODE), Frame(250)).closes


def test_a_payload_over_the_limit_is_refused_and_the_session_goes_on() -> None:
    pair = greeted(Role.CLIENT)
    large = Frame(M.SUBMIT_JOB, msg_id=b"j" * 16, payload=bytes(limits.PAYLOAD_BYTES_MAX + 1))
    error = refusal(pair.node, large)
    assert (error.code, error.closes, error.request_id) == ("payload_too_large", False, b"j" * 16)
    pair.library.receive(Frame(M.ERROR, header=b'{"code":"payload_too_large"}'))
    assert pair.node.is_ready


def test_a_line_of_the_log_may_be_larger_than_a_payload() -> None:
    greeted(Role.PEER).node.receive(Frame(M.APPEND_ENTRIES, payload=bytes(limits.PAYLOAD_BYTES_MAX + 1)))


def test_only_a_node_listens_narrowly_and_only_before_the_hello() -> None:
    assert Session(Side.NODE).frame_bytes_max == limits.HELLO_FRAME_BYTES_MAX
    assert Session(Side.LIBRARY).frame_bytes_max == limits.FRAME_BYTES_MAX
    assert greeted(Role.CLIENT).node.frame_bytes_max == limits.FRAME_BYTES_MAX


def test_a_library_answers_a_violation_with_silence_and_leaves_if_it_must() -> None:
    pair = greeted(Role.CLIENT)
    assert pair.library.refuse(refusal(pair.library, Frame(250))) == b""
    assert not pair.library.is_closed
    assert pair.library.refuse(refusal(pair.library, Frame(M.ASSIGN_JOB))) == b""
    assert pair.library.is_closed


def test_sending_what_the_table_forbids_is_a_programmers_error() -> None:
    with pytest.raises(AssertionError, match="AssignJob may not be sent from_node"):
        greeted(Role.CLIENT).node.send(Frame(M.ASSIGN_JOB))


def test_after_close_nothing_goes() -> None:
    pair = greeted(Role.WORKER)
    pair.node.close()
    assert not any(pair.node.may_send(kind) for kind in MsgType)
    assert refusal(pair.node, Frame(M.PING)).code == "illegal_message"
    assert pair.node.refuse(refusal(pair.node, Frame(M.PING))) == b""


# --- the table --------------------------------------------------------------------------------------


def test_the_table_has_a_row_for_every_role_direction_and_state_that_can_be() -> None:
    impossible = {
        (Role.STRANGER, direction, state)
        for direction in Direction
        for state in (State.READY, State.DRAINING)
    }
    assert set(LEGAL) == set(itertools.product(Role, Direction, State)) - impossible


def test_every_message_type_is_legal_somewhere() -> None:
    assert frozenset().union(*LEGAL.values()) == frozenset(MsgType)


def test_draining_never_allows_more_than_ready() -> None:
    for role, direction in itertools.product(HELLO_FRAMES, Direction):
        assert LEGAL[role, direction, State.DRAINING] < LEGAL[role, direction, State.READY]


def test_goodbye_is_said_once() -> None:
    assert not any(M.GOODBYE in legal for (_, _, state), legal in LEGAL.items() if state is State.DRAINING)


@pytest.mark.parametrize("place", LEGAL, ids="-".join)
def test_what_the_table_has_is_taken_and_every_other_type_is_refused(
    place: tuple[Role, Direction, State],
) -> None:
    role, direction, state = place
    for kind in MsgType:
        pair = reached(role, direction, state)
        receiver = pair.node if direction is Direction.TO_NODE else pair.library
        sender = pair.library if direction is Direction.TO_NODE else pair.node
        assert (receiver.role, receiver.incoming, sender.outgoing) == (role, state, state)
        frame = message(kind, role)
        assert sender.may_send(kind) == (kind in LEGAL[place])
        if kind not in LEGAL[place]:
            error = refusal(receiver, frame)
            assert (error.code, error.closes) == ("illegal_message", True)
            assert f"{role} whose state is {state}" in error.text
            assert receiver.incoming is state
        elif kind in HELLOS and state is State.CONNECTED and role is not Role.STRANGER:
            is_answer = kind == HELLO_FRAMES[role].type
            assert is_answer or refusal(receiver, frame).code == "illegal_message"
        else:
            receiver.receive(frame)


def message(kind: MsgType, role: Role) -> Frame:
    """A frame of this type with a header that moves the state as it would."""
    if kind in HELLOS:
        hello = next(frame for frame in HELLO_FRAMES.values() if frame.type == kind)
        return hello if role is Role.STRANGER else Frame(kind, header=ANSWER)
    if kind == M.ERROR:
        return Frame(M.ERROR, header=b'{"code":"queue_full"}')
    return Frame(kind)


@given(st.sampled_from(sorted(HELLO_FRAMES)), st.data())
def test_a_random_legal_walk_never_errs_and_both_ends_always_agree(role: Role, data: st.DataObject) -> None:
    pair = Pair()
    for _ in range(data.draw(st.integers(0, 30))):
        moves = [
            (direction, kind)
            for direction, sender in ((Direction.TO_NODE, pair.library), (Direction.FROM_NODE, pair.node))
            for kind in MsgType
            if sender.may_send(kind)
        ]
        if not moves:
            break
        direction, kind = data.draw(st.sampled_from(moves))
        if pair.node.role is Role.STRANGER and direction is Direction.TO_NODE:
            frame = HELLO_FRAMES[role]
        elif kind in HELLOS:
            frame = Frame(HELLO_FRAMES[role].type, header=ANSWER)
        else:
            frame = (
                data.draw(st.sampled_from([message(kind, role), CLOSING_ERROR]))
                if kind == M.ERROR
                else Frame(kind)
            )
        pair.pass_on(direction, frame)
    assert pair.library.is_closed == pair.node.is_closed


@given(
    st.sampled_from(sorted(HELLO_FRAMES)),
    st.lists(st.tuples(st.booleans(), st.sampled_from(MsgType)), max_size=40),
)
def test_frames_that_are_still_under_way_never_surprise_the_other_end(
    role: Role, wishes: list[tuple[bool, MsgType]]
) -> None:
    """Each end sends what it may as far as it knows; everything arrives late, in order, and is legal."""
    pair = greeted(role)
    under_way: list[Frame] = []
    for is_library, kind in wishes:
        if is_library and pair.library.may_send(kind):
            frame = message(kind, role)
            pair.library.send(frame)
            under_way.append(frame)
        elif not is_library and kind != M.NOT_LEADER and pair.node.may_send(kind):
            frame = message(kind, role)
            pair.node.send(frame)
            pair.library.receive(frame)
    for frame in under_way:
        pair.node.receive(frame)
