"""Nothing is accepted twice: keys and ids against models that never forget."""

from typing import NamedTuple

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from rollmq.core.effects import Accepted, Refused
from rollmq.core.events import Settings
from rollmq.core.intake import Submit
from tests.properties.hall import Hall

KEEP_US = 10_000_000
KEYS_MAX = 3
FINISHED_MAX = 4


class First(NamedTuple):
    """The first job of a key."""

    job_id: str
    digest: str
    at_us: int


def _hall() -> Hall:
    hall = Hall()
    bounds = Settings(0, 0, 0, keys_keep_us=KEEP_US, keys_per_client_max=KEYS_MAX, finished_max=FINISHED_MAX)
    hall.leader.operate.set_settings(bounds, by="test", to=None)
    hall.worker("w", credit=1_000)
    hall.leader.desk.take_effects()
    return hall


def _answer(hall: Hall, submit: Submit) -> Accepted | Refused:
    hall.leader.intake.submit(submit, None)
    (effect,) = hall.leader.desk.take_effects()
    assert isinstance(effect, Accepted | Refused)
    return effect


SENDS = st.tuples(
    st.sampled_from("ab"), st.sampled_from(("mail", "pdf")), st.sampled_from("1234"), st.sampled_from("xy")
)


@settings(max_examples=200)
@given(st.lists(st.tuples(SENDS, st.integers(0, 4_000_000)), min_size=5, max_size=60))
def test_a_key_is_answered_as_a_dictionary_would(sends: list[tuple[tuple[str, str, str, str], int]]) -> None:
    hall = _hall()
    known: dict[tuple[str, str, str], First] = {}
    for number, ((client_id, exec_name, key, digest), pause_us) in enumerate(sends, start=1):
        hall.pass_time(pause_us)
        hall.leader.desk.take_effects()
        known = {scope: first for scope, first in known.items() if first.at_us + KEEP_US > hall.now_us}
        job_id = f"{hall.now_us // 1000:012x}7{number:019x}"
        answer = _answer(hall, Submit(job_id, client_id, exec_name, key=key, content_digest=digest))
        first = known.get((client_id, exec_name, key))
        if first is not None and first.digest == digest:
            assert isinstance(answer, Accepted)
            assert answer.first_id == first.job_id
        elif first is not None:
            assert isinstance(answer, Refused)
            assert answer.code == "key_conflict"
        elif sum(scope[0] == client_id for scope in known) >= KEYS_MAX:
            assert isinstance(answer, Refused)
            assert (answer.code, answer.is_retryable) == ("keys_full", True)
        else:
            assert isinstance(answer, Accepted)
            assert answer.first_id == job_id
            known[client_id, exec_name, key] = First(job_id, digest, hall.now_us)


@settings(max_examples=100)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 3_000)), min_size=10, max_size=80))
def test_an_id_runs_once_and_too_old_to_tell_is_never_said_without_need(steps: list[tuple[int, int]]) -> None:
    """Ids of any age are sent, again and again, while jobs finish and are forgotten."""
    hall = _hall()
    accepted: set[str] = set()
    ended: list[str] = []
    for pick, pause_ms in steps:
        hall.pass_time(pause_ms * 1000)
        hall.leader.desk.take_effects()
        job_id = f"{hall.now_us // 1000 - pick * 300:012x}7{pick:019x}"
        again = sorted(accepted)[pick % len(accepted)] if accepted and pick % 2 else job_id
        answer = _answer(hall, Submit(again, "c", "e"))
        forgotten = ended[:-FINISHED_MAX]
        if isinstance(answer, Refused):
            assert (answer.code, answer.is_unknown) == ("too_old_to_tell", True)
            assert again in forgotten or any(again[:12] <= old[:12] for old in forgotten)
            assert again not in hall.machine.jobs
        elif again not in hall.machine.jobs:
            assert again in ended[-FINISHED_MAX:], "answered without being remembered"
        else:
            accepted.add(again)
        for assigned in hall.told():
            assert assigned.job.id not in ended, "it ran again"
            hall.end(assigned.event)
            ended.append(assigned.job.id)
        hall.leader.desk.take_effects()


def test_the_bounds_of_this_page_are_in_force() -> None:
    in_force = _hall().machine.settings
    assert (in_force.keys_keep_us, in_force.keys_per_client_max) == (KEEP_US, KEYS_MAX)
    assert msgspec.structs.asdict(in_force)["finished_max"] == FINISHED_MAX
