"""Recounting a machine from its records alone: everything derived must equal what it is derived from.

Slow and plain on purpose. It trusts no count and no index of the machine; it changes nothing.
"""

from collections import Counter

from rollmq.core.job import DEAD, INFLIGHT, QUEUED, Job, weight_of
from rollmq.core.machine import Machine
from rollmq.core.queues import ExecQueue, Lane, Queues


def audit(machine: Machine) -> None:
    """Raise AssertionError when the machine contradicts itself."""
    _audit_places(machine)
    _audit_jobs(machine)
    _audit_clients(machine)
    _audit_finished(machine)
    counts = machine.counts()
    states = Counter(job.state for job in machine.jobs.values())
    assert counts.queued == states[QUEUED]
    assert counts.inflight == states[INFLIGHT]
    assert machine.queued_bytes == sum(weight_of(job) for job in _queued(machine))
    assert machine.dead_bytes == sum(weight_of(job) for job in machine.dead.values())
    if machine.queues is not None:
        _audit_queues(machine, machine.queues)


def _queued(machine: Machine) -> list[Job]:
    return [job for job in machine.jobs.values() if job.state == QUEUED]


def _audit_places(machine: Machine) -> None:
    """A job is in exactly one place."""
    places = [*machine.jobs, *machine.dead, *machine.finished.by_id]
    assert len(places) == len(set(places)), "a job is in two places"
    assert all(job.state in (QUEUED, INFLIGHT) for job in machine.jobs.values())
    assert all(job.state == DEAD for job in machine.dead.values())
    held = [(worker_id, job_id) for worker_id, jobs in machine.inflight.by_worker.items() for job_id in jobs]
    flying = [(job.worker_id, job.id) for job in machine.jobs.values() if job.state == INFLIGHT]
    assert sorted(held) == sorted(flying)
    assert machine.inflight.count == len(flying)
    held_jobs = [job for jobs in machine.inflight.by_worker.values() for job in jobs.values()]
    assert machine.inflight.size_bytes == sum(weight_of(job) for job in held_jobs)
    for jobs in machine.inflight.by_worker.values():
        fences = [job.fence or (0, 0) for job in jobs.values()]
        assert fences == sorted(fences), "a worker's jobs are not in the order of their assigns"


def _audit_jobs(machine: Machine) -> None:
    for job in (*machine.jobs.values(), *machine.dead.values()):
        assert 0 <= job.tries <= job.tries_max
        assert job.tries <= job.attempt
        assert 0 <= job.crashes <= job.starts <= job.attempt
        assert (job.fence is None) == (job.attempt == 0)
        if job.state == INFLIGHT:
            assert job.ended_by == ""
            assert job.tries < job.tries_max
        if job.state != QUEUED:
            assert job.lane is None
            assert job.prev is None
            assert job.next is None


def _audit_clients(machine: Machine) -> None:
    opened = Counter(job.client_id for job in machine.jobs.values())
    flying = Counter(job.client_id for job in machine.jobs.values() if job.state == INFLIGHT)
    keys = Counter(record.client_id for record in machine.keys.by_scope.values())
    assert {*opened, *keys} <= set(machine.clients.by_id)
    for client in machine.clients.by_id.values():
        assert client.open_count == opened[client.client_id]
        assert client.inflight_count == flying[client.client_id]
        assert client.key_count == keys[client.client_id]
        assert (client.idle_index == 0) == (client.open_count > 0)


def _audit_finished(machine: Machine) -> None:
    finished = machine.finished
    assert list(finished.by_id.values()) == list(finished.in_order())
    kept = [record for record in finished.in_order() if not record.is_result_dropped]
    assert finished.results_count == len(kept)
    assert finished.results_bytes == sum(len(record.result) for record in kept)
    assert all(record.result == b"" for record in finished.in_order() if record.is_result_dropped)


def _audit_queues(machine: Machine, queues: Queues) -> None:
    laned: list[Job] = []
    for queue in queues.execs.values():
        laned += _audit_exec(machine, queue)
    waiting = _queued(machine)
    in_lanes = [job for job in waiting if job.lane is not None]
    assert len(laned) == len(in_lanes)
    assert {job.id for job in laned} == {job.id for job in in_lanes}
    for client in machine.clients.by_id.values():
        assert all(lane.client is client and lane.count for lane in client.parked)
    for job in waiting:
        assert job.exec in queues.execs
        if job.lane is not None:
            assert job.lane.exec is queues.execs[job.exec]
            assert job.lane.client.client_id == job.client_id
            assert job.lane.level.number >= job.priority


def _audit_exec(machine: Machine, queue: ExecQueue) -> list[Job]:
    mine = [job for job in machine.jobs.values() if job.exec == queue.name]
    assert queue.queued_count == sum(job.state == QUEUED for job in mine)
    assert queue.inflight_count == sum(job.state == INFLIGHT for job in mine)
    assert queue.delayed_count == sum(job.state == QUEUED and job.lane is None for job in mine)
    assert queue.is_paused == (queue.name in machine.paused)
    assert queue.refuses_submits == machine.paused.get(queue.name, False)
    jobs: list[Job] = []
    for number, level in enumerate(queue.levels):
        assert (queue.ring_mask >> number & 1) == bool(level is not None and level.ring)
        if level is None:
            continue
        assert level.number == number
        assert level.count == sum(lane.count for lane in level.lanes.values())
        assert all(level.lanes[lane.client.client_id] is lane for lane in level.ring)
        for lane in level.lanes.values():
            is_waiting_once = (lane in level.ring) + (lane in lane.client.parked) == 1
            assert is_waiting_once if lane.count else lane not in level.ring
            jobs += _audit_lane(lane)
    return jobs


def _audit_lane(lane: Lane) -> list[Job]:
    jobs: list[Job] = []
    job, before = lane.head, None
    while job is not None:
        assert job.lane is lane
        assert job.prev is before
        jobs.append(job)
        before, job = job, job.next
    assert lane.tail is before
    assert lane.count == len(jobs)
    came = [job.since_us for job in jobs]
    assert came == sorted(came), "a lane is not first in, first out"
    return jobs
