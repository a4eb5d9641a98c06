"""Plain tests of a user: submit, let time pass, look. Every one of these takes milliseconds."""

from datetime import UTC, datetime, timedelta

import pytest

from rollmq.core.events import Assign, Enqueue, FailRequeue, TimeoutRequeue
from rollmq.errors import HandlerHangs, KeyConflict, NothingWillHappen, RequestRefused, ResultTimeout
from rollmq.library.job import Job
from rollmq.library.verdicts import Reject, Retry, Snooze
from rollmq.testing import SyncQueue
from rollmq.worker import Worker


def test_the_fixture_is_a_queue_in_which_a_handler_runs(rollmq: SyncQueue) -> None:
    @rollmq.handler("greet")
    def greet(job: Job) -> bytes:
        return b"hello " + job.payload

    job = rollmq.submit("greet", b"olga")
    outcome = job.result()
    assert (outcome.ok, outcome.result, outcome.tries) == (True, b"hello olga", 1)
    assert job.state == "done"


def test_nothing_runs_before_the_test_lets_it(rollmq: SyncQueue) -> None:
    ran: list[bytes] = []
    rollmq.handler("note")(lambda job: ran.append(job.payload))
    job = rollmq.submit("note", b"1")
    assert ran == []
    rollmq.run()
    assert ran == [b"1"]
    assert job.state == "done"


def test_retries_come_after_their_backoff_and_end_in_the_dead_letters(rollmq: SyncQueue) -> None:
    began = rollmq.now
    tries: list[timedelta] = []

    @rollmq.handler("fail")
    def fail(job: Job) -> None:
        tries.append(rollmq.now - began)
        raise ValueError(f"try {job.attempt}")

    outcome = rollmq.submit("fail", tries_max=3).result()
    assert [each.total_seconds() for each in tries] == [0, 1, 3]
    assert (outcome.state, outcome.reason, outcome.error_type) == ("dead", "tries", "ValueError")
    (dead,) = rollmq.dead()
    assert dead.error_message == "try 3"
    rollmq.redrive(dead.job_id)
    rollmq.run()
    assert len(tries) == 4


def test_delays_of_months_take_no_time_and_are_exact(rollmq: SyncQueue) -> None:
    rollmq.handler("later")(lambda job: job.payload)
    began = rollmq.now
    outcome = rollmq.submit("later", b"x", delay=90 * 86_400).result()
    assert outcome.ok
    assert rollmq.now - began == timedelta(days=90)


def test_advance_stops_where_it_is_told_to(rollmq: SyncQueue) -> None:
    rollmq.handler("later")(lambda job: job.payload)
    job = rollmq.submit("later", delay=60)
    began = rollmq.now
    rollmq.advance(59.999)
    assert job.state == "queued"
    rollmq.advance(0.001)
    assert job.state == "done"
    assert rollmq.now - began == timedelta(seconds=60)


def test_a_handler_says_retry_snooze_and_reject(rollmq: SyncQueue) -> None:
    @rollmq.handler("moody")
    def moody(job: Job) -> bytes:
        if job.attempt == 1:
            raise Retry("busy", after=10)
        if job.attempt == 2:
            raise Snooze(after=100)
        raise Reject("no such user")

    began = rollmq.now
    outcome = rollmq.submit("moody").result()
    assert (outcome.state, outcome.reason) == ("dead", "rejected")
    assert rollmq.now - began == timedelta(seconds=110)
    requeues = [event for event in rollmq.events if isinstance(event, FailRequeue)]
    assert [event.counted for event in requeues] == [True, False]


def test_a_coroutine_that_hangs_is_timed_out_and_tried_again(rollmq: SyncQueue) -> None:
    import asyncio

    cancelled: list[int] = []

    @rollmq.handler("hang")
    async def hang(job: Job) -> bytes:
        if job.attempt == 1:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(job.attempt)
                raise
        return b"at last"

    job = rollmq.submit("hang", timeout=30)
    rollmq.advance(29)
    assert (job.state, cancelled) == ("inflight", [])
    rollmq.advance(2)
    assert cancelled == [1]
    assert job.result().tries == 2
    assert any(isinstance(event, TimeoutRequeue) for event in rollmq.events)


def test_a_handler_that_takes_time_lets_it_pass_itself(rollmq: SyncQueue) -> None:
    @rollmq.handler("slow")
    def slow(job: Job) -> bytes:
        if job.attempt == 1:
            rollmq.advance(31)
        return b"%d" % job.attempt

    job = rollmq.submit("slow", timeout=30)
    assert job.result().result == b"2"


def test_extending_keeps_a_slow_handler_alive(rollmq: SyncQueue) -> None:
    @rollmq.handler("slow")
    def slow(job: Job) -> bytes:
        job.extend(60)
        rollmq.advance(31)
        return b"%d" % job.attempt

    assert rollmq.submit("slow", timeout=30).result().result == b"1"


def test_a_worker_that_dies_gives_its_job_to_another_after_the_grace(rollmq: SyncQueue) -> None:
    import asyncio

    async def hold(job: Job) -> bytes:
        if job.attempt == 1:
            await asyncio.Event().wait()
        return b"the other one"

    worker = Worker("127.0.0.1:1")
    worker.handler("hold")(hold)
    first = rollmq.add(worker)
    job = rollmq.submit("hold")
    rollmq.advance(1)
    assert job.state == "inflight"
    rollmq.add(worker)
    rollmq.kill_worker(first)
    rollmq.advance(4)
    assert job.state == "inflight"
    rollmq.advance(2)
    assert job.result().result == b"the other one"


def test_keys_progress_cancel_and_commands_are_those_of_the_real_queue(rollmq: SyncQueue) -> None:
    @rollmq.handler("work")
    def work(job: Job) -> bytes:
        job.progress(b"half")
        return b"done"

    first, again = rollmq.submit("work", b"1", key="k"), rollmq.submit("work", b"1", key="k")
    assert first.id == again.id
    assert again.is_repeat
    with pytest.raises(KeyConflict):
        rollmq.submit("work", b"2", key="k")
    assert first.result().result == b"done"
    assert first.reports == [b"half"]
    rollmq.ask("pause", exec="work")
    held = rollmq.submit("work")
    rollmq.advance(3600)
    assert held.explain().reason == "paused"
    held.cancel("not needed")
    assert held.result().state == "cancelled"
    with pytest.raises(RequestRefused):
        held.cancel()
    assert rollmq.ask("status").execs["work"].paused


def test_waiting_for_what_will_never_happen_is_an_error_that_says_why(rollmq: SyncQueue) -> None:
    job = rollmq.submit("nobody")
    with pytest.raises(NothingWillHappen, match="no connected worker"):
        job.result()
    with pytest.raises(ResultTimeout):
        job.result(timeout=60)


def test_a_handler_may_submit_and_wait_for_another_job(rollmq: SyncQueue) -> None:
    rollmq.handler("inner")(lambda job: job.payload * 2)

    @rollmq.handler("outer")
    def outer(job: Job) -> bytes:
        return rollmq.submit("inner", job.payload, delay=5).result().result

    assert rollmq.submit("outer", b"ab").result().result == b"abab"


def test_an_interrupt_of_the_test_passes_through_a_handler(rollmq: SyncQueue) -> None:
    @rollmq.handler("stop")
    def stop(_job: Job) -> None:
        raise KeyboardInterrupt

    job = rollmq.submit("stop")
    with pytest.raises(KeyboardInterrupt):
        job.result()


def test_the_same_seed_and_start_make_the_same_log() -> None:
    def log() -> list[bytes]:
        with SyncQueue(start=datetime(2026, 1, 1, tzinfo=UTC), seed=7) as queue:
            queue.handler("a")(lambda job: job.payload)
            for number in range(5):
                queue.submit("a", b"%d" % number, delay=number)
            queue.advance(60)
            return queue.engine.node.lines

    assert log() == log()


def test_two_clients_of_one_queue_have_caps_of_their_own() -> None:
    with SyncQueue(client_id="a", cap=1) as queue, SyncQueue(same_as=queue, client_id="b") as other:
        jobs = [queue.submit("e"), queue.submit("e"), other.submit("e")]
        queue.handler("e")(lambda job: job.payload)
        assert [job.state for job in jobs] == ["inflight", "queued", "inflight"]
        queue.run()
        assert [job.state for job in jobs] == ["done"] * 3
        assert sum(isinstance(event, Enqueue) for event in queue.events) == 3
        assert sum(isinstance(event, Assign) for event in queue.events) == 3


def test_a_handler_that_never_moves_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    import asyncio

    monkeypatch.setattr("rollmq.testing.engine.HANG_S", 0.05)
    with SyncQueue() as queue:

        @queue.handler("hang")
        async def hang(_job: Job) -> None:
            await asyncio.Event().wait()

        with pytest.raises(HandlerHangs, match="hang"):
            queue.submit("hang").result()
