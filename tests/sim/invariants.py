"""A full audit of a machine: everything counted again, every link followed, from the outside.

    audit(machine)            # raises Broken, which says what contradicts what
    audit_leader(leader)      # what only a leader has: running counts, credit, started jobs

Slow on purpose: it shares no code and no counter with what it audits. It changes nothing.
"""

from collections import Counter

from rollmq.core.job import DEAD, INFLIGHT, QUEUED, Job, weight_of
from rollmq.core.leader import Leader
from rollmq.core.machine import Machine
from rollmq.core.queues import ExecQueue, Lane, Level, Queues
from rollmq.limits import PRIORITY_MAX


class Broken(AssertionError):
    """An invariant of the machine does not hold."""


def audit(machine: Machine) -> None:
    """Every invariant of the machine and its queues."""
    _audit_places(machine)
    _audit_inflight(machine)
    _audit_clients(machine)
    _audit_memory(machine)
    _same("no-op events", machine.no_ops, 0)
    if machine.queues is not None:
        _audit_queues(machine, machine.queues)


def audit_leader(leader: Leader) -> None:
    """What a leader keeps besides the machine."""
    machine, scheduler = leader.desk.machine, leader.desk.scheduler
    for worker_id, slot in scheduler.workers.items():
        _same(f"running of {worker_id}", slot.running, len(machine.inflight.held_by(worker_id)))
        _true(slot.credit >= 0, f"credit of {worker_id} is {slot.credit}")
    for worker_id, presence in leader.liveness.present.items():
        has_slot = presence.slot is not None and not presence.slot.is_closed
        _same(f"slot of {worker_id}", has_slot, worker_id in scheduler.workers)
    started = {job.id for job in machine.jobs.values() if job.state == INFLIGHT and job.is_started}
    known = [job_id for running in leader.attempts.running.values() for job_id in running.jobs]
    _same("jobs known to run", sorted(known), sorted(started))
    for worker_id, running in leader.attempts.running.items():
        for job in running.jobs.values():
            _same(f"worker of started {job.id}", job.worker_id, worker_id)
            _true(job.deadline_us >= running.earliest_us, f"deadline of started {job.id} is overlooked")


def _true(is_so: bool, otherwise: str) -> None:
    if not is_so:
        raise Broken(otherwise)


def _same(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise Broken(f"{what}: is {found!r}, should be {expected!r}")


# -- the replicated state


def _audit_places(machine: Machine) -> None:
    """Each job is in exactly one place."""
    places = Counter([*machine.jobs, *machine.dead, *machine.finished.by_id])
    _same("jobs in two places", [job_id for job_id, count in places.items() if count > 1], [])
    for job in machine.jobs.values():
        _true(job.state in (QUEUED, INFLIGHT), f"open {job.id} is {job.state}")
        _audit_job(job)
    for job in machine.dead.values():
        _same(f"state of dead {job.id}", job.state, DEAD)
        _true(job.lane is None, f"dead {job.id} is in a lane")
        _audit_job(job)
    queued = [job for job in machine.jobs.values() if job.state == QUEUED]
    _same("queued bytes", machine.queued_bytes, sum(weight_of(job) for job in queued))
    counts = machine.counts()
    _same("queued", counts.queued, len(queued))
    _same("inflight", counts.inflight, len(machine.jobs) - len(queued))


def _audit_job(job: Job) -> None:
    _true(job.tries <= job.tries_max, f"{job.id} had {job.tries} tries of {job.tries_max}")
    _true(0 <= job.crashes <= job.starts, f"{job.id}: {job.crashes} crashes, {job.starts} starts")
    _same(f"whether {job.id} has a fence", job.fence is not None, job.attempt > 0)
    if job.state == INFLIGHT:
        _same(f"ended_by of running {job.id}", job.ended_by, "")


def _audit_inflight(machine: Machine) -> None:
    inflight = machine.inflight
    held = {job.id for job in machine.jobs.values() if job.state == INFLIGHT}
    found: list[str] = []
    for worker_id, jobs in inflight.by_worker.items():
        _true(bool(jobs), f"an empty entry for {worker_id}")
        fences = [job.fence or (0, 0) for job in jobs.values()]
        _same(f"order of {worker_id}'s jobs", fences, sorted(fences))
        for job_id, job in jobs.items():
            _same("key", job_id, job.id)
            _same(f"worker of {job.id}", job.worker_id, worker_id)
            found.append(job.id)
    _same("jobs in flight", sorted(found), sorted(held))
    _same("inflight count", inflight.count, len(held))


def _audit_clients(machine: Machine) -> None:
    clients = machine.clients
    opened = Counter(job.client_id for job in machine.jobs.values())
    running = Counter(job.client_id for job in machine.jobs.values() if job.state == INFLIGHT)
    keys = Counter(record.client_id for record in machine.keys.by_scope.values())
    for client_id in (*opened, *keys):
        _true(client_id in clients.by_id, f"client {client_id} is gone while it has jobs or keys")
    for client_id, client in clients.by_id.items():
        _same(f"open jobs of {client_id}", client.open_count, opened[client_id])
        _same(f"running jobs of {client_id}", client.inflight_count, running[client_id])
        _same(f"keys of {client_id}", client.key_count, keys[client_id])
        _same(f"whether {client_id} is idle", client.idle_index > 0, client.open_count == 0)


def _audit_memory(machine: Machine) -> None:
    finished = machine.finished
    order = list(finished.in_order())
    _same("finished jobs in order", [each.id for each in order], list(finished.by_id))
    with_result = [each for each in order if not each.is_result_dropped]
    _same("results", finished.results_count, len(with_result))
    _same("bytes of results", finished.results_bytes, sum(len(each.result) for each in with_result))
    for scope, record in machine.keys.by_scope.items():
        _same("scope of a key", record.scope, scope)
    in_order = {id(record) for record in machine.keys.in_order()}
    _true(all(id(r) in in_order for r in machine.keys.by_scope.values()), "a key that is never evicted")


# -- the queues


def _audit_queues(machine: Machine, queues: Queues) -> None:
    queued: dict[str, list[Job]] = {}
    inflight: Counter[str] = Counter()
    for job in machine.jobs.values():
        if job.state == QUEUED:
            queued.setdefault(job.exec, []).append(job)
        else:
            inflight[job.exec] += 1
            _true(job.lane is None and job.prev is None and job.next is None, f"{job.id} runs in a lane")
    for exec_name in (*queued, *inflight, *machine.paused):
        _true(exec_name in queues.execs, f"exec {exec_name} has no queue")
    for name, queue in queues.execs.items():
        mine = queued.get(name, [])
        _same(f"queued of {name}", queue.queued_count, len(mine))
        _same(f"delayed of {name}", queue.delayed_count, sum(job.lane is None for job in mine))
        _same(f"inflight of {name}", queue.inflight_count, inflight[name])
        _same(f"pause of {name}", queue.is_paused, name in machine.paused)
        _audit_exec(machine, queue, {job.id for job in mine if job.lane is not None})
    _audit_parked(machine, queues)


def _audit_exec(machine: Machine, queue: ExecQueue, expected: set[str]) -> None:
    in_lanes: list[str] = []
    for number, level in enumerate(queue.levels):
        if level is None:
            continue
        _same("number of a level", level.number, number)
        _audit_level(machine, queue, level, in_lanes)
    mask = sum(1 << n for n in range(PRIORITY_MAX + 1) if (level := queue.levels[n]) and level.ring)
    _same(f"ring mask of {queue.name}", queue.ring_mask, mask)
    _same(f"jobs in lanes of {queue.name}", sorted(in_lanes), sorted(expected))
    if queue.ring_mask and not queue.is_paused:
        _true(queue.is_offered, f"{queue.name} has jobs that nobody will be offered")


def _audit_level(machine: Machine, queue: ExecQueue, level: Level, in_lanes: list[str]) -> None:
    for client_id, lane in level.lanes.items():
        _same("client of a lane", lane.client.client_id, client_id)
        _true(lane.exec is queue and lane.level is level, "a lane in another exec or level")
        if lane.count:
            _true(lane.client is machine.clients.by_id.get(client_id), f"a lane of a forgotten {client_id}")
            _true(lane.has_timer, f"nothing ages {client_id}'s jobs in {queue.name}")
        in_ring, is_parked = lane in level.ring, lane in lane.client.parked
        _same(f"places of {client_id}'s lane in {queue.name}", in_ring + is_parked, int(lane.count > 0))
        in_lanes += _jobs_of(lane)
    _same("jobs of a level", level.count, sum(lane.count for lane in level.lanes.values()))
    for lane in level.ring:
        _true(level.lanes.get(lane.client.client_id) is lane, "a lane in the ring that its level forgot")


def _jobs_of(lane: Lane) -> list[str]:
    """The lane's jobs, each link followed in both directions."""
    found: list[str] = []
    before: Job | None = None
    job = lane.head
    while job is not None:
        _true(job.lane is lane, f"{job.id} believes that it is in another lane")
        _true(job.prev is before, f"{job.id} and the job before it disagree")
        _same("client of a job in a lane", job.client_id, lane.client.client_id)
        if before is not None:
            # Delays that end, and jobs that rise, in one step come at one time, in the order of the step.
            _true(before.since_us <= job.since_us, f"{before.id} stands before {job.id}, which came first")
        found.append(job.id)
        before, job = job, job.next
    _true(lane.tail is before, "the tail of a lane is not its last job")
    _same("jobs of a lane", len(found), lane.count)
    return found


def _audit_parked(machine: Machine, queues: Queues) -> None:
    for client_id, client in machine.clients.by_id.items():
        for lane in client.parked:
            _true(lane.count > 0, f"an empty lane of {client_id} is parked")
            _true(lane.level.lanes.get(client_id) is lane, f"a forgotten lane of {client_id} is parked")
        if client.parked:
            _true(client.inflight_count > 0 or client in queues.owed, f"{client_id} is parked for ever")
