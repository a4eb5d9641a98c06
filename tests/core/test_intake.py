"""Submits: each reason to refuse, alone; and nothing is written when one holds."""

from typing import Any

import msgspec
import pytest

from rollmq.core.effects import Accepted, Refused
from rollmq.core.events import Backoff, Enqueue
from rollmq.core.intake import Submit, Wish, problem_of
from rollmq.core.leader import Leader
from rollmq.core.line import decode_line
from rollmq.core.machine import Machine
from rollmq.core.record import NO_BYTES
from rollmq.core.state import dump_state
from rollmq.limits import (
    HEADER_VALUE_CHARS_MAX,
    ID_AHEAD_MAX_US,
    ID_CHARS_MAX,
    KEY_CHARS_MAX,
    PAYLOAD_BYTES_MAX,
    TIMEOUT_MAX_US,
    TRIES_MAX_MAX,
    USER_HEADERS_MAX,
)
from tests.core.naming import T0_US

JOB_ID = f"{T0_US // 1000:012x}7{1:019x}"
PLAIN = Submit(JOB_ID, "c1", "resize")


def _leader() -> Leader:
    leader = Leader(Machine(), term=1, jitter=lambda: 0.0, now_us=T0_US)
    leader.desk.take_lines()
    return leader


def _answer(leader: Leader, **changes: Any) -> Accepted | Refused:
    leader.intake.submit(msgspec.structs.replace(PLAIN, **changes), "session")
    (effect,) = leader.desk.take_effects()
    assert isinstance(effect, Accepted | Refused)
    return effect


BAD = [
    {"payload": bytes(PAYLOAD_BYTES_MAX + 1)},
    {"job_id": JOB_ID.upper()},
    {"job_id": JOB_ID[:-1]},
    {"job_id": "x" * 32},
    {"client_id": ""},
    {"client_id": "c" * (ID_CHARS_MAX + 1)},
    {"client_id": "\ud800"},
    {"key": "k" * (KEY_CHARS_MAX + 1), "content_digest": "d"},
    {"key": "k"},
    {"content_type": "t" * (ID_CHARS_MAX + 1)},
    {"headers": {str(number): "" for number in range(USER_HEADERS_MAX + 1)}},
    {"headers": {"a": "v" * (HEADER_VALUE_CHARS_MAX + 1)}},
    {"headers": {"\udfff": "v"}},
    {"not_before_us": -1},
    {"not_before_us": 2**53},
    {"expires_at_us": -1},
    {"priority": -1},
    {"priority": 10},
    {"tries_max": 0},
    {"tries_max": TRIES_MAX_MAX + 1},
    {"timeout_us": 0},
    {"timeout_us": TIMEOUT_MAX_US + 1},
    {"timeout_factor": 0.5},
    {"timeout_factor": float("nan")},
    {"backoff": Backoff(first_us=-1)},
    {"backoff": Backoff(first_us=2, max_us=1)},
    {"backoff": Backoff(factor=0.5)},
    {"backoff": Backoff(jitter=1.5)},
    {"backoff": Backoff(factor=float("inf"))},
    {"exec": ""},
    {"exec": "a..b"},
    {"exec": "a.*"},
    {"exec": "a b"},
    {"exec": "e" * 256},
]


@pytest.mark.parametrize("changes", BAD, ids=lambda changes: "-".join(changes))
def test_what_is_wrong_by_itself_is_refused_for_good_and_changes_nothing(changes: dict[str, Any]) -> None:
    leader = _leader()
    before = list(dump_state(leader.desk.machine))
    answer = _answer(leader, **changes)
    assert isinstance(answer, Refused)
    assert answer.code in ("bad_job", "payload_too_large")
    assert not answer.is_retryable
    assert not answer.is_unknown
    assert leader.desk.take_lines() == []
    assert list(dump_state(leader.desk.machine)) == before


def test_the_largest_and_longest_that_is_allowed_is_accepted() -> None:
    leader = _leader()
    answer = _answer(
        leader,
        payload=bytes(PAYLOAD_BYTES_MAX),
        client_id="c" * ID_CHARS_MAX,
        key="k" * KEY_CHARS_MAX,
        content_digest="d",
        headers={str(number): "v" * HEADER_VALUE_CHARS_MAX for number in range(USER_HEADERS_MAX)},
        priority=9,
        tries_max=TRIES_MAX_MAX,
        timeout_us=TIMEOUT_MAX_US,
        timeout_factor=10.0,
        backoff=Backoff(0, 100.0, TIMEOUT_MAX_US, 1.0),
        exec="e" * 255,
    )
    assert answer == Accepted(2, "session", JOB_ID, JOB_ID)
    (line,) = leader.desk.take_lines()
    event = decode_line(line)
    assert isinstance(event, Enqueue)
    assert event.payload_bytes == PAYLOAD_BYTES_MAX


def test_an_id_may_be_as_far_ahead_as_the_limit_says() -> None:
    ahead = f"{(T0_US + ID_AHEAD_MAX_US) // 1000:012x}7{1:019x}"
    too_far = f"{(T0_US + ID_AHEAD_MAX_US) // 1000 + 1:012x}7{1:019x}"
    assert isinstance(_answer(_leader(), job_id=ahead), Accepted)
    refused = _answer(_leader(), job_id=too_far)
    assert isinstance(refused, Refused)
    assert (refused.code, refused.is_retryable) == ("id_in_future", True)


@pytest.mark.parametrize("flag", ["is_draining", "is_disk_low", "is_overloaded"])
def test_a_leader_that_cannot_take_more_says_to_come_again(flag: str) -> None:
    leader = _leader()
    setattr(leader.intake, flag, True)
    answer = _answer(leader)
    assert isinstance(answer, Refused)
    assert answer.is_retryable
    setattr(leader.intake, flag, False)
    assert isinstance(_answer(leader), Accepted)
    setattr(leader.intake, flag, True)
    assert isinstance(_answer(leader), Accepted), "what was accepted is still answered"


def test_an_id_of_another_client_is_not_confirmed() -> None:
    leader = _leader()
    assert isinstance(_answer(leader), Accepted)
    answer = _answer(leader, client_id="c2")
    assert isinstance(answer, Refused)
    assert not answer.is_retryable


@pytest.mark.parametrize("empty", [NO_BYTES, bytes(0), b"x" * len(""), PLAIN.payload], ids=str)
def test_an_empty_payload_is_the_same_state_whatever_object_it_is(empty: bytes) -> None:
    """Python can make several empty bytes objects, and defaults are left out by identity."""
    leader = _leader()
    _answer(leader, payload=empty)
    assert b'"payload"' not in b"".join(dump_state(leader.desk.machine))
    follower = Machine()
    for line in [*_leader_noop(leader), *leader.desk.take_lines()]:
        follower.apply(decode_line(line))
    assert list(dump_state(follower)) == list(dump_state(leader.desk.machine))


def _leader_noop(leader: Leader) -> list[bytes]:
    other = Leader(Machine(), term=leader.desk.term, jitter=lambda: 0.0, now_us=T0_US)
    return other.desk.take_lines()


@pytest.mark.parametrize(
    ("client_id", "wish"),
    [
        ("", Wish()),
        ("c" * (ID_CHARS_MAX + 1), Wish()),
        ("c", Wish(cap=-1)),
        ("c", Wish(weight=0)),
        ("c", Wish(weight=101)),
    ],
)
def test_a_client_with_an_impossible_wish_is_not_welcomed(client_id: str, wish: Wish) -> None:
    assert _leader().intake.hello(client_id, wish)


def test_a_wish_is_forgotten_with_the_clients_last_session() -> None:
    leader = _leader()
    assert leader.intake.hello("c1", Wish(cap=3)) is None
    leader.intake.goodbye("c1")
    _answer(leader)
    assert leader.desk.machine.clients.by_id["c1"].cap == 0


def test_a_submit_that_is_known_to_be_plain_makes_the_same_event_and_state() -> None:
    found = []
    for is_plain in (False, True):
        leader = _leader()
        _answer(leader, payload=b"p", is_plain=is_plain)
        (line,) = leader.desk.take_lines()
        found.append((decode_line(line), list(dump_state(leader.desk.machine))))
    assert found[0] == found[1]


def test_the_latest_time_of_an_id_moves_with_log_time() -> None:
    leader = _leader()
    ahead = f"{(T0_US + ID_AHEAD_MAX_US) // 1000 + 1:012x}7{1:019x}"
    refused = _answer(leader, job_id=ahead)
    assert isinstance(refused, Refused)
    assert refused.code == "id_in_future"
    leader.desk.set_time(T0_US + 1000)
    assert isinstance(_answer(leader, job_id=ahead), Accepted)


def test_a_plain_submit_has_no_problem() -> None:
    assert problem_of(PLAIN) is None
