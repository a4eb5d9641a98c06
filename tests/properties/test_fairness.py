"""Fairness over many turns: shares, rounds, order, and that nobody starves."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.properties.hall import Hall

WEIGHTS = st.lists(st.integers(1, 7), min_size=2, max_size=6)


@settings(max_examples=40)
@given(WEIGHTS, st.integers(1, 60))
def test_shares_are_within_one_turn_of_the_weights(weights: list[int], job_count: int) -> None:
    hall = Hall()
    for number, weight in enumerate(weights):
        hall.cap(f"c{number}", weight=weight)
        for _ in range(job_count):
            hall.submit(f"c{number}", "e")
    hall.worker("w")
    given_to: Counter[int] = Counter()
    for _ in range(job_count):
        (assigned,) = hall.take("w", 1)
        given_to[int(assigned.job.client_id[1:])] += 1
        rounds = [given_to[number] / weight for number, weight in enumerate(weights)]
        assert max(rounds) - min(rounds) <= 1


@settings(max_examples=40)
@given(st.lists(st.integers(1, 30), min_size=2, max_size=8), st.integers(1, 5))
def test_execs_with_a_backlog_get_equal_turns(backlogs: list[int], worker_count: int) -> None:
    hall = Hall()
    for number, backlog in enumerate(backlogs):
        for _ in range(backlog):
            hall.submit("c", f"e{number}")
    for number in range(worker_count):
        hall.worker(f"w{number}")
    given_to: Counter[str] = Counter()
    for turn in range(sum(backlogs)):
        waiting = [
            f"e{number}" for number, backlog in enumerate(backlogs) if given_to[f"e{number}"] < backlog
        ]
        (assigned,) = hall.take(f"w{turn % worker_count}", 1)
        least = min(given_to[name] for name in waiting)
        assert given_to[assigned.job.exec] <= least, "an exec had a turn more than one that waits"
        given_to[assigned.job.exec] += 1


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=2, max_size=40))
def test_a_clients_jobs_of_one_priority_come_in_their_order(jobs: list[tuple[int, int]]) -> None:
    hall = Hall()
    sent = [(client, level, hall.submit(f"c{client}", "e", priority=level)) for client, level in jobs]
    hall.worker("w", credit=len(jobs))
    came = [assigned.job.id for assigned in hall.told()]
    assert sorted(came) == sorted(job_id for _, _, job_id in sent)
    for kind in {(client, level) for client, level, _ in sent}:
        mine = [job_id for client, level, job_id in sent if (client, level) == kind]
        assert [job_id for job_id in came if job_id in mine] == mine


@settings(max_examples=20)
@given(st.integers(0, 8), st.integers(1, 3))
def test_low_priority_is_late_but_never_starved(priority: int, urgent_each_second: int) -> None:
    """Urgent jobs come as fast as jobs can be run, or faster: the low one runs when its age has raised it to
    their level and those that came there before it are done."""
    hall = Hall()
    low = hall.submit("patient", "e", priority=priority)
    hall.worker("w")
    for second in range(1, 3 * 600):
        for _ in range(urgent_each_second):
            hall.submit("urgent", "e", priority=9)
        hall.pass_time(1_000_000)
        if any(assigned.job.id == low for assigned in hall.take("w", 1)):
            assert second >= (9 - priority) * 60, "it was before its time"
            assert second <= (9 - priority) * 60 + 2, "in turn with the other client at the top"
            return
    raise AssertionError("starved")


@settings(max_examples=30)
@given(st.integers(1, 4), st.integers(2, 12), st.integers(0, 2**32))
def test_a_capped_client_uses_its_cap_and_no_more_in_however_many_execs(
    cap: int, execs: int, seed: int
) -> None:
    hall = Hall()
    hall.cap("c", cap=cap)
    for number in range(execs):
        hall.submit("c", f"e{number}")
        hall.submit("c", f"e{number}")
        hall.submit("other", f"e{number}")
    hall.worker("w", credit=4 * execs)
    running = [assigned.event for assigned in hall.told()]
    done = 0
    while running:
        mine = [event for event in running if hall.machine.jobs[event.job_id].client_id == "c"]
        waiting = 2 * execs - done - len(mine)
        assert len(mine) == min(cap, len(mine) + waiting)
        event = running.pop(seed % len(running))
        done += hall.machine.jobs[event.job_id].client_id == "c"
        hall.end(event)
        running += [assigned.event for assigned in hall.told()]
    assert hall.machine.counts().finished == 3 * execs
