"""What holds in every life of a queue, whatever clients, workers and operators do."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollmq.core.attempts import Outcome
from rollmq.core.effects import Ended
from rollmq.core.events import AnyEvent, Assign, Cancel, Dlq, Ending, Enqueue, Redrive
from rollmq.core.job import Job
from rollmq.core.line import decode_line, encode_line
from rollmq.core.liveness import Hello
from rollmq.core.machine import Machine
from rollmq.core.scheduler import Choice, WorkerSlot
from rollmq.core.state import dump_state, load_state
from rollmq.core.subject import matches
from tests.core.audit import audit
from tests.properties.story import EXECS, SMALL, Connection, Story, played

SEEDS = st.integers(0, 2**32)
STEPS = st.integers(20, 250)


@settings(max_examples=200)
@given(SEEDS, STEPS)
def test_the_machine_never_contradicts_itself(seed: int, steps: int) -> None:
    story = Story(seed)
    for _ in range(steps):
        story.step()
        audit(story.machine)
        _check_volatile(story)
        _check_bounds(story.machine)
    assert story.machine.no_ops == 0, "a leader proposed a stale event"


def _check_volatile(story: Story) -> None:
    """What only the leader knows agrees with the machine."""
    leader, machine = story.leader, story.machine
    for worker_id, slot in leader.desk.scheduler.workers.items():
        assert slot.running == len(machine.inflight.held_by(worker_id))
        assert slot.credit >= 0
    started = {job.id for running in leader.attempts.running.values() for job in running.jobs.values()}
    assert started == {
        job.id for held in machine.inflight.by_worker.values() for job in held.values() if job.is_started
    }


def _check_bounds(machine: Machine) -> None:
    bounds = machine.settings
    finished = machine.finished
    assert len(finished) <= bounds.finished_max
    assert finished.results_count <= bounds.results_max
    assert finished.results_bytes <= bounds.results_bytes_max
    assert len(machine.dead) <= bounds.dlq_max
    assert machine.dead_bytes <= bounds.dlq_bytes_max
    for job in (*machine.jobs.values(), *machine.dead.values()):
        assert len(job.errors or []) <= bounds.errors_kept
        assert job.starts <= bounds.starts_max


@settings(max_examples=150)
@given(SEEDS, st.integers(60, 250))
def test_a_snapshot_at_any_prefix_and_the_rest_give_the_same_bytes(seed: int, steps: int) -> None:
    lines = played(seed, steps).lines
    whole = list(dump_state(_replica(lines)))
    for part in range(1, 8):
        cut = len(lines) * part // 8
        machine = load_state(list(dump_state(_replica(lines[:cut]))), is_indexed=part % 2 == 0)
        for line in lines[cut:]:
            machine.apply(decode_line(line))
        assert list(dump_state(machine)) == whole


def _replica(lines: list[bytes], *, is_indexed: bool = True) -> Machine:
    machine = Machine(is_indexed=is_indexed)
    for line in lines:
        machine.apply(decode_line(line))
    return machine


@settings(max_examples=40)
@given(SEEDS, STEPS)
def test_replicas_of_the_same_entries_have_the_same_bytes(seed: int, steps: int) -> None:
    story = played(seed, steps)
    leaders = list(dump_state(story.machine))
    assert leaders == list(dump_state(_replica(story.lines)))
    assert leaders == list(dump_state(_replica(story.lines, is_indexed=False)))


@settings(max_examples=200)
@given(SEEDS, STEPS)
def test_caps_credit_attempts_and_tries_are_as_promised(seed: int, steps: int) -> None:
    """The ledger in the story asserts them event by event; here: that the story had something to assert."""
    story = played(seed, steps)
    places = {"open": story.machine.jobs, "running": story.machine.jobs, "dead": story.machine.dead}
    for job_id, card in story.ledger.cards.items():
        assert card.state == "closed" or job_id in places[card.state]
        assert card.state != "closed" or job_id not in {**story.machine.jobs, **story.machine.dead}


def _eligible(story: Story) -> list[tuple[str, int, tuple[int, int], str]]:
    """(exec, level, place, job) of what may be handed out now, by the rules' own words."""
    machine, found = story.machine, []
    for job in machine.jobs.values():
        client = machine.clients.by_id[job.client_id]
        cap = client.cap or machine.settings.cap_default
        if job.lane is not None and job.exec not in machine.paused and client.inflight_count < cap:
            found.append((job.exec, job.lane.level.number, (job.since_us, job.place_index), job.id))
    return found


def _able(story: Story, exec_name: str) -> list[WorkerSlot]:
    """Connected workers whose pattern matches and that have credit."""
    return [
        slot
        for worker_id, slot in story.leader.desk.scheduler.workers.items()
        if slot.credit
        and any(matches(p, f"job.assign.{exec_name}") for p in story.connections[worker_id].hello.patterns)
    ]


def _check_choice(story: Story, choice: Choice) -> None:
    """A dumb twin of the scheduler: every rule, read aloud."""
    job, able = choice.job, _able(story, choice.job.exec)
    assert choice.worker in able
    others = [slot for slot in able if slot.worker_id != job.worker_id]
    if job.ended_by in ("failed", "timeout") and others:
        able = others
    best = min((slot.running, -slot.credit) for slot in able)
    assert (choice.worker.running, -choice.worker.credit) == best
    assert job.lane is not None
    rivals = [
        rival for rival in _eligible(story) if rival[0] == job.exec and not _is_owed(story, rival[3], job)
    ]
    level = job.lane.level.number
    assert level == max(rival[1] for rival in rivals), "a higher priority waits"
    mine = [r for r in rivals if r[1] == level and story.machine.jobs[r[3]].client_id == job.client_id]
    assert min(rival[2] for rival in mine)[0] == job.since_us, "not the client's first in this level"


def _is_owed(story: Story, job_id: str, chosen: Job) -> bool:
    """A client that came under its cap gets its lanes back one by one, a choice each: that may lag by some
    choices, but never puts a lower priority of the same client first."""
    job = story.machine.jobs[job_id]
    client = story.machine.clients.by_id[job.client_id]
    return job.lane in client.parked and job.client_id != chosen.client_id


@pytest.mark.pure
@settings(max_examples=200)
@given(SEEDS, STEPS)
def test_every_choice_is_the_one_that_the_rules_make(seed: int, steps: int) -> None:
    story = Story(seed, on_choice=_check_choice)
    for _ in range(steps):
        story.step()


@settings(max_examples=200)
@given(SEEDS, STEPS)
def test_no_worker_waits_while_there_is_a_job_for_it(seed: int, steps: int) -> None:
    story = Story(seed)
    for _ in range(steps):
        story.step()
        idle_pairs = [rival[0] for rival in _eligible(story) if _able(story, rival[0])]
        assert idle_pairs == []


@settings(max_examples=200)
@given(SEEDS, STEPS)
def test_when_faults_stop_every_job_ends(seed: int, steps: int) -> None:
    story = played(seed, steps)
    for exec_name in list(story.machine.paused):
        story.leader.operate.resume(exec_name, by="op", why="", to=None)
    for worker_id in ("good1", "good2"):
        hello = Hello(worker_id, worker_id, ["job.assign.>"], hands=4, credit=4)
        assert story.leader.liveness.hello(hello) is None
        story.connections[worker_id] = Connection(hello)
    for connection in story.connections.values():
        connection.is_talking = connection.hello.worker_id.startswith("good")
    for _ in range(400):
        story.settle()
        if not story.machine.jobs:
            break
        _work(story)
    assert [story.leader.explain(job_id) for job_id in story.machine.jobs] == []


def _work(story: Story) -> None:
    """The good workers finish what they hold and ask for more; half a second passes."""
    for worker_id in ("good1", "good2"):
        connection = story.connections[worker_id]
        for job_id, fence in list(connection.told.items()):
            story.leader.attempts.outcome(worker_id, Outcome(job_id, fence))
        connection.told.clear()
        story.leader.liveness.heard(worker_id)
        story.leader.liveness.credit(worker_id, connection.sent, 4)
        connection.limit = connection.sent + 4
    story.now_us += 500_000
    story.leader.desk.set_time(story.now_us)
    story.leader.tick(story.now_us)


@settings(max_examples=40)
@given(SEEDS, STEPS, st.integers(0, 2**32))
def test_a_stale_event_is_counted_and_changes_nothing_else(seed: int, steps: int, pick: int) -> None:
    story = played(seed, steps)
    machine = story.machine
    before = list(dump_state(machine))
    stale = _stale_among(story.events, machine)
    for event in stale[pick % 7 :: 7]:
        index, no_ops = machine.last_index + 1, machine.no_ops
        machine.apply(_again(event, index, machine))
        assert machine.no_ops == no_ops + 1
        after = list(dump_state(machine))
        assert after[1:-1] == before[1:-1]


def _stale_among(events: list[AnyEvent], machine: Machine) -> list[AnyEvent]:
    """Events of the past that are about jobs as they no longer are."""
    found: list[AnyEvent] = []
    for event in events:
        job = machine.jobs.get(getattr(event, "job_id", ""))
        if isinstance(event, Enqueue):
            if machine.is_known(event.job_id):
                found.append(event)
        elif isinstance(event, Assign):
            if job is None or job.attempt >= event.attempt:
                found.append(event)
        elif isinstance(event, Ending | Dlq | Cancel) and event.fence is not None:
            if job is None or job.fence != event.fence:
                found.append(event)
        elif isinstance(event, Redrive) and len(event.job_ids) == 1 and event.job_ids[0] not in machine.dead:
            found.append(event)
    return found


def _again(event: AnyEvent, index: int, machine: Machine) -> AnyEvent:
    return msgspec.structs.replace(event, index=index, term=machine.last_term, at_us=machine.last_at_us)


@settings(max_examples=30)
@given(SEEDS, STEPS, st.text("0123456789abcdef", min_size=32, max_size=32))
def test_explain_answers_for_any_id(seed: int, steps: int, unknown_id: str) -> None:
    story = played(seed, steps)
    for job_id in (*story.ids, unknown_id, "", "nonsense"):
        found = story.leader.explain(job_id)
        assert found.text
        is_open = job_id in story.machine.jobs
        assert (found.state in ("queued", "inflight")) == is_open
        assert found.before_count is None or found.before_count >= 0


@settings(max_examples=40)
@given(SEEDS, STEPS)
def test_a_life_is_told_one_final_state(seed: int, steps: int) -> None:
    story = played(seed, steps)
    told: dict[tuple[str, int], int] = {}
    lives = dict.fromkeys(story.ids, 1)
    for effect in story.effects:
        if isinstance(effect, Ended):
            ended_at = effect.event.index
            life = 1 + sum(
                isinstance(e, Redrive) and effect.job.id in e.job_ids and e.index < ended_at
                for e in story.events
            )
            told[effect.job.id, life] = told.get((effect.job.id, life), 0) + 1
    assert all(count == 1 for count in told.values())
    assert {job_id for job_id, _ in told} <= set(lives)


@settings(max_examples=40)
@given(SEEDS, STEPS)
def test_every_event_of_a_story_reads_back_to_itself(seed: int, steps: int) -> None:
    for event in played(seed, steps).events:
        assert decode_line(encode_line(event)) == event


def test_the_stories_are_worth_telling() -> None:
    """Every kind of event happens often, or the properties above prove little."""
    kinds: dict[str, int] = {}
    for seed in range(30):
        for event in played(seed, 200).events:
            kind = str(event.__struct_config__.tag)
            kinds[kind] = kinds.get(kind, 0) + 1
    wanted = (
        "enqueue assign ack fail_requeue timeout_requeue worker_down_requeue dlq redrive drop cancel client"
        " worker pause resume settings noop"
    )
    assert {kind: count for kind in wanted.split() if (count := kinds.get(kind, 0)) < 20} == {}
    assert len(EXECS) > 3
    assert SMALL.finished_max < 10
