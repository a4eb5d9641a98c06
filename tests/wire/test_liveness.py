"""When a connection is pinged and when it is given up, by times that are handed in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollmq import limits
from rollmq.wire.liveness import Due, Liveness, timeout_error

SECOND = 1_000_000
START = 1_000 * SECOND


def ready_at(now_us: int) -> Liveness:
    liveness = Liveness(now_us)
    liveness.ready(now_us)
    return liveness


def test_a_quiet_connection_is_pinged_every_five_seconds_and_lost_after_fifteen() -> None:
    liveness = ready_at(START)
    asked = [liveness.due(START + second * SECOND) for second in range(16)]
    pings = [second for second, due in enumerate(asked) if due is Due.PING]
    assert pings == [5, 10]
    assert asked[15] is Due.IDLE_TIMEOUT
    assert asked[14] is Due.NOTHING


def test_whoever_is_heard_all_the_time_is_never_pinged() -> None:
    liveness = ready_at(START)
    for second in range(60):
        liveness.heard(START + second * SECOND)
        assert liveness.due(START + second * SECOND) is Due.NOTHING


def test_any_sign_of_life_puts_the_loss_off() -> None:
    liveness = ready_at(START)
    liveness.heard(START + 14 * SECOND)
    assert liveness.due(START + 28 * SECOND) is Due.PING
    assert liveness.due(START + 29 * SECOND) is Due.IDLE_TIMEOUT


def test_a_stranger_who_dribbles_bytes_runs_out_of_time_like_a_silent_one() -> None:
    liveness = Liveness(START)
    liveness.heard(START + 9 * SECOND)
    assert liveness.due(START + limits.HANDSHAKE_US_MAX - 1) is Due.NOTHING
    assert liveness.due(START + limits.HANDSHAKE_US_MAX) is Due.HANDSHAKE_TIMEOUT


def test_bytes_heard_out_of_order_do_not_turn_the_clock_back() -> None:
    liveness = ready_at(START)
    liveness.heard(START + 4 * SECOND)
    liveness.heard(START + 1 * SECOND)
    assert liveness.next_us == START + 9 * SECOND


@given(st.lists(st.tuples(st.integers(0, 20 * SECOND), st.booleans()), max_size=40), st.booleans())
def test_asking_at_next_us_misses_nothing_and_asking_before_finds_nothing(
    steps: list[tuple[int, bool]], is_ready: bool
) -> None:
    liveness, now_us = (ready_at(START) if is_ready else Liveness(START)), START
    for wait_us, is_heard in steps:
        next_us = liveness.next_us
        if now_us < next_us:
            assert liveness.due(now_us) is Due.NOTHING
        assert liveness.due(max(next_us, now_us)) is not Due.NOTHING
        now_us = max(next_us, now_us) + wait_us
        if is_heard:
            liveness.heard(now_us)


@pytest.mark.parametrize(
    ("due", "code"), [(Due.HANDSHAKE_TIMEOUT, "handshake_timeout"), (Due.IDLE_TIMEOUT, "idle_timeout")]
)
def test_each_timeout_has_its_error_and_closes(due: Due, code: str) -> None:
    error = timeout_error(due)
    assert (error.code, error.closes) == (code, True)
