"""Commands: each refusal, and that a command on something that is not there writes nothing."""

from collections.abc import Callable

import msgspec
import pytest

from rollmq.core.effects import Answer
from rollmq.core.events import Settings
from rollmq.core.operate import Done, Operate, Refusal
from tests.properties.hall import Hall

NOBODY = "0" * 32
WHO = {"by": "ann", "why": "test", "to": "op"}
DEFAULTS = Settings(0, 0, 0)


def _value(hall: Hall) -> object:
    (effect,) = [effect for effect in hall.leader.desk.take_effects() if isinstance(effect, Answer)]
    assert effect.to == "op"
    assert effect.index == hall.leader.desk.last_index, "the answer waits for what it depends on"
    return effect.value


REFUSED: list[tuple[str, Callable[[Operate], None]]] = [
    ("job_unknown", lambda operate: operate.cancel(NOBODY, **WHO)),
    ("bad_command", lambda operate: operate.pause("a..b", submits=False, **WHO)),
    ("bad_command", lambda operate: operate.pause("a.>", submits=True, **WHO)),
    ("bad_command", lambda operate: operate.set_client("", cap=1, weight=1, by="ann", to="op")),
    ("bad_command", lambda operate: operate.set_client("c", cap=-1, weight=1, by="ann", to="op")),
    ("bad_command", lambda operate: operate.set_client("c", cap=1, weight=0, by="ann", to="op")),
    ("bad_command", lambda operate: operate.set_client("c", cap=1, weight=101, by="ann", to="op")),
    ("bad_command", lambda operate: operate.set_client("c", cap=1, weight=1, by="", to="op")),
    ("bad_command", lambda operate: operate.confirm_pipeline("", 1, to="op")),
    ("bad_command", lambda operate: operate.confirm_pipeline("lake", 2, to="op")),
    ("bad_command", lambda operate: operate.confirm_pipeline("lake", -1, to="op")),
]


@pytest.mark.parametrize(("code", "command"), REFUSED)
def test_an_impossible_command_is_refused_and_writes_nothing(
    code: str, command: Callable[[Operate], None]
) -> None:
    hall = Hall()
    hall.leader.desk.take_lines()
    command(hall.leader.operate)
    value = _value(hall)
    assert isinstance(value, Refusal)
    assert value.code == code
    assert value.text
    assert hall.leader.desk.take_lines() == []


@pytest.mark.parametrize(
    "name", ["crashes_max", "starts_max", "ageing_us", "cap_default", "finished_max", "clients_max"]
)
def test_settings_that_would_stop_everything_are_refused(name: str) -> None:
    hall = Hall()
    hall.leader.operate.set_settings(msgspec.structs.replace(DEFAULTS, **{name: 0}), by="ann", to="op")
    assert isinstance(_value(hall), Refusal)
    assert not hall.machine.is_settled


@pytest.mark.parametrize(
    "name", ["results_max", "keys_keep_us", "queued_max", "dlq_max", "errors_kept", "workers_max"]
)
def test_settings_are_never_negative_nor_beyond_every_reader(name: str) -> None:
    hall = Hall()
    for value in (-1, 2**53):
        hall.leader.operate.set_settings(
            msgspec.structs.replace(DEFAULTS, **{name: value}), by="ann", to="op"
        )
        assert isinstance(_value(hall), Refusal)


def test_commands_that_change_nothing_write_nothing() -> None:
    hall = Hall()
    hall.leader.operate.pause("e", submits=True, **WHO)
    assert _value(hall) == Done(1)
    hall.leader.desk.take_lines()
    for command in (
        lambda: hall.leader.operate.pause("e", submits=True, **WHO),
        lambda: hall.leader.operate.resume("other", **WHO),
        lambda: hall.leader.operate.redrive([NOBODY], **WHO),
        lambda: hall.leader.operate.drop([], **WHO),
    ):
        command()
        assert _value(hall) == Done(0)
    assert hall.leader.desk.take_lines() == []


def test_a_pause_can_be_made_to_refuse_submits_and_back() -> None:
    hall = Hall()
    for submits in (False, True, False):
        hall.leader.operate.pause("e", submits=submits, **WHO)
        assert _value(hall) == Done(1)
        assert hall.machine.paused == {"e": submits}


def test_an_exec_that_is_done_is_forgotten() -> None:
    """Execs are made by their names in submits: paused, delayed or run long, nothing may stay behind."""
    hall = Hall()
    hall.worker("w", credit=9)
    hall.submit("c", "slow")
    (assigned,) = hall.told()
    hall.pass_time(600_000_000)
    hall.end(assigned.event)
    hall.leader.operate.cancel(hall.submit("c", "delayed", delay_us=3_600_000_000), **WHO)
    hall.leader.operate.pause("paused", submits=False, **WHO)
    hall.leader.operate.cancel(hall.submit("c", "paused"), **WHO)
    hall.leader.operate.resume("paused", **WHO)
    for _ in range(3):
        hall.pass_time(120_000_000)
        hall.told()
    assert hall.machine.queues is not None
    assert hall.machine.queues.execs == {}
    assert hall.machine.queues.offered == {}
