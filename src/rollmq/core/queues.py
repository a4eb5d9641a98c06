"""Who waits where: per exec, per priority level, per client, in order.

    exec ── level 9..0 ── ring of lanes ── lane: one client's jobs, first in, first out
                             │
                             └─ a lane whose client is at its cap is parked with its client

This is an index over queued jobs, derived from them: never in a snapshot, kept on every replica so
that taking over costs nothing. Whose turn it is (the order inside rings) matters to the leader alone.
It chooses among jobs and knows no workers; `scheduler` brings the two together.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from typing import Final

from rollmq.core.job import QUEUED, Job
from rollmq.core.parties import ClientState
from rollmq.core.timers import Timers
from rollmq.limits import PRIORITY_MAX

NEVER_US: Final = 1 << 62
"""Later than anything."""
GIVE_BACK_LOOKS_MAX: Final = 256
"""How many jobs one that is given back looks at for its place; thousands come back when workers drain."""


class Lane:
    """One client's jobs in one level of one exec. Invariants: head is None iff count is 0; a lane with
    jobs is either in its level's ring or parked with its client, never in both; an empty one in neither."""

    __slots__ = ("client", "count", "exec", "has_timer", "head", "level", "tail", "turns_left")

    def __init__(self, exec_queue: "ExecQueue", level: "Level", client: ClientState) -> None:
        self.exec = exec_queue
        self.level = level
        self.client = client
        self.head: Job | None = None
        self.tail: Job | None = None
        self.count = 0
        self.turns_left = client.weight
        self.has_timer = False

    def append(self, job: Job) -> None:
        """To the end."""
        self._link(job, self.tail)

    def comes_us(self, now_us: int) -> int:
        """When somebody comes who comes now: not before those that stand here, although the time may say so.
        A leader that fell may have ended their delays, or raised them, by a clock ahead of the next one's."""
        return now_us if self.tail is None else max(now_us, self.tail.since_us)

    def give_back(self, job: Job) -> None:
        """To where it was before it was assigned: near the front, so look from there. If that is far off,
        because many were given back before it, it comes a little earlier than it should."""
        before, place, looks_left = self.head, _place(job), GIVE_BACK_LOOKS_MAX
        while before is not None and _place(before) < place:
            if not looks_left:
                job.since_us = before.since_us
                break
            before, looks_left = before.next, looks_left - 1
        self._link(job, before.prev if before is not None else self.tail)

    def _link(self, job: Job, after: Job | None) -> None:
        assert job.lane is None
        before = self.head if after is None else after.next
        job.lane, job.prev, job.next = self, after, before
        if after is None:
            self.head = job
        else:
            after.next = job
        if before is None:
            self.tail = job
        else:
            before.prev = job
        self.count += 1
        self.level.count += 1

    def unlink(self, job: Job) -> None:
        """Take a job out, wherever it stands."""
        assert job.lane is self
        before, after = job.prev, job.next
        if before is None:
            self.head = after
        else:
            before.next = after
        if after is None:
            self.tail = before
        else:
            after.prev = before
        job.lane = job.prev = job.next = None
        self.count -= 1
        self.level.count -= 1


def _place(job: Job) -> tuple[int, int]:
    return job.since_us, job.place_index


class Level:
    """All lanes of one priority of an exec; `ring` holds those that may be served, the next one first."""

    __slots__ = ("count", "lanes", "number", "ring")

    def __init__(self, number: int) -> None:
        self.number = number
        self.count = 0
        self.lanes: dict[str, Lane] = {}
        self.ring: OrderedDict[Lane, None] = OrderedDict()


class ExecQueue:
    """All that waits for one exec. Invariant: bit n of ring_mask is set iff level n's ring has a lane."""

    __slots__ = (
        "delayed_count",
        "inflight_count",
        "is_offered",
        "is_paused",
        "levels",
        "name",
        "parked",
        "queued_count",
        "refuses_submits",
        "ring_mask",
        "route",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.levels: list[Level | None] = [None] * (PRIORITY_MAX + 1)
        self.ring_mask = 0
        self.queued_count = 0
        self.parked: Counter[str] = Counter()
        """Per client, its lanes here that were passed over because it is at its cap."""
        self.delayed_count = 0
        self.inflight_count = 0
        self.is_paused = False
        self.refuses_submits = False
        self.is_offered = False
        """It was put into `Queues.offered` or into the scheduler's rings and was not found dry since."""
        self.route: object | None = None
        """Where the scheduler keeps which patterns match this exec."""

    def lane_for(self, priority: int, client: ClientState) -> Lane:
        """The client's lane in a level, made when needed."""
        level = self.levels[priority]
        if level is None:
            level = self.levels[priority] = Level(priority)
        lane = level.lanes.get(client.client_id)
        if lane is None or lane.client is not client:
            lane = level.lanes[client.client_id] = Lane(self, level, client)
        return lane

    def unparked(self, client_id: str) -> None:
        """One of the client's lanes here is no longer passed over."""
        self.parked[client_id] -= 1
        if not self.parked[client_id]:
            del self.parked[client_id]

    def activate(self, lane: Lane) -> None:
        """Let a lane take turns."""
        lane.level.ring[lane] = None
        self.ring_mask |= 1 << lane.level.number

    def deactivate(self, lane: Lane) -> None:
        """Take a lane out of its ring."""
        ring = lane.level.ring
        del ring[lane]
        if not ring:
            self.ring_mask &= ~(1 << lane.level.number)

    @property
    def is_idle(self) -> bool:
        """Whether nothing would be lost by forgetting it."""
        return not (self.queued_count or self.inflight_count or self.is_paused) and not any(
            level is not None and level.lanes for level in self.levels
        )


class Queues:
    """Every exec's queue, and which of them have something to hand out."""

    def __init__(
        self,
        jobs: dict[str, Job],
        *,
        cap_default: Callable[[], int],
        ageing_us: Callable[[], int],
    ) -> None:
        self.execs: dict[str, ExecQueue] = {}
        self.offered: dict[ExecQueue, None] = {}
        """Execs that came to have a lane in a ring since the scheduler last looked."""
        self.owed: OrderedDict[ClientState, None] = OrderedDict()
        """Clients under their cap that still have parked lanes."""
        self.on_forget: Callable[[ExecQueue], None] | None = None
        """Called for each exec that is forgotten while it is offered; a scheduler's."""
        self._jobs = jobs
        """All open jobs. Timers hold ids: one of a job that is gone must not keep its payload for a year."""
        self._cap_default = cap_default
        self._ageing_us = ageing_us
        self._delays: Timers[str] = Timers(self._is_delayed_until)
        self.expiries: Timers[str] = Timers(self._is_queued_until)
        """Queued jobs that are given up at a time. The leader takes out what is due, and buries it."""
        self._ageing: Timers[Lane] = Timers(lambda _lane, _due_us: True)
        self.next_due_us = NEVER_US
        """When `advance` has something to do next, at the earliest."""

    def exec_queue(self, name: str) -> ExecQueue:
        """The exec's queue, made on first sight."""
        queue = self.execs.get(name)
        if queue is None:
            queue = self.execs[name] = ExecQueue(name)
        return queue

    def forget_if_idle(self, queue: ExecQueue) -> None:
        """Execs are made by their names in submits, so nothing may be kept for those that are done."""
        if queue.is_idle and self.execs.get(queue.name) is queue:
            del self.execs[queue.name]
            self.offered.pop(queue, None)
            if queue.is_offered and self.on_forget is not None:
                self.on_forget(queue)

    def attempt_ended(self, exec_name: str) -> None:
        """One job of this exec less is in flight."""
        queue = self.execs[exec_name]
        queue.inflight_count -= 1
        assert queue.inflight_count >= 0
        if not queue.inflight_count:
            self.forget_if_idle(queue)

    # -- jobs in and out

    def add(self, job: Job, client: ClientState, now_us: int, *, is_given_back: bool = False) -> None:
        """A job became queued: into its lane, or aside until its delay is over."""
        queue = self.exec_queue(job.exec)
        job.exec = queue.name  # one string for all its jobs
        queue.queued_count += 1
        if job.expires_at_us:
            self.expiries.push(job.expires_at_us, job.id)
        if job.place_us > now_us:
            queue.delayed_count += 1
            self._delays.push(job.place_us, job.id)
            self.next_due_us = min(self.next_due_us, job.place_us)
            return
        if job.place_us < now_us:
            level_number, job.since_us = self.risen(job, now_us)
            lane = queue.lane_for(level_number, client)
        else:
            lane = queue.lane_for(job.priority, client)
            job.since_us = lane.comes_us(now_us)
        self._enter(job, lane, is_given_back=is_given_back)

    def risen(self, job: Job, now_us: int) -> tuple[int, int]:
        """The level that a job has reached by waiting, and since when: one that was handed back or comes
        from a snapshot does not begin to wait anew."""
        step_us = self._ageing_us()
        steps = min(max(now_us - job.place_us, 0) // step_us, PRIORITY_MAX - job.priority)
        return job.priority + steps, job.place_us + steps * step_us

    def remove(self, job: Job) -> None:
        """A job is no longer queued."""
        lane = job.lane
        queue = lane.exec if lane is not None else self.execs[job.exec]
        queue.queued_count -= 1
        if job.expires_at_us:
            self.expiries.cancelled()
        if lane is None:
            queue.delayed_count -= 1
            self._delays.cancelled()
            self.forget_if_idle(queue)
        else:
            self._leave(job, lane)

    def _enter(self, job: Job, lane: Lane, *, is_given_back: bool = False) -> None:
        if is_given_back:
            lane.give_back(job)
        else:
            lane.append(job)
        if lane.count > 1:
            return
        lane.turns_left = lane.client.weight
        if not lane.has_timer:
            lane.has_timer = True
            due_us = job.since_us + self._ageing_us()
            self._ageing.push(due_us, lane)
            self.next_due_us = min(self.next_due_us, due_us)
        self._activate(lane)

    def _activate(self, lane: Lane) -> None:
        queue = lane.exec
        queue.activate(lane)
        self.offer(queue)

    def _leave(self, job: Job, lane: Lane) -> None:
        lane.unlink(job)
        if lane.count:
            return
        if lane in lane.client.parked:
            del lane.client.parked[lane]
            lane.exec.unparked(lane.client.client_id)
        else:
            lane.exec.deactivate(lane)

    # -- whose turn it is

    def candidate(self, queue: ExecQueue) -> Job | None:
        """The job of this exec whose turn it is: highest level, then client in turn, then first in."""
        if queue.is_paused:
            return None
        while queue.ring_mask:
            level = queue.levels[queue.ring_mask.bit_length() - 1]
            assert level is not None
            lane = next(iter(level.ring))
            client = lane.client
            if client.inflight_count < (client.cap or self._cap_default()):
                higher = _highest_parked(lane) if client.parked else lane
                if higher is lane:
                    return lane.head
                self._unpark(higher)
                continue
            queue.deactivate(lane)
            queue.parked[client.client_id] += 1
            client.parked[lane] = None
        return None

    def take_turn(self, lane: Lane) -> None:
        """The lane was served once: after as many turns as its client weighs, the next lane is first."""
        lane.turns_left -= 1
        if lane.turns_left <= 0:
            lane.turns_left = lane.client.weight
            if lane in lane.level.ring:
                lane.level.ring.move_to_end(lane)

    def client_may_run(self, client: ClientState) -> None:
        """A client came under its cap: give the lane that has waited longest its turn back.

        One at a time, because a client with jobs in thousands of execs must not cost thousands of
        steps for every job that ends; `pay_owed` gives back the others when there is nothing else to do.
        """
        if client.parked and client.inflight_count < (client.cap or self._cap_default()):
            self._unpark(next(iter(client.parked)))
            if client.parked:
                self.owed[client] = None

    def _unpark(self, lane: Lane) -> None:
        """Give a skipped lane its turn back."""
        del lane.client.parked[lane]
        lane.exec.unparked(lane.client.client_id)
        self._activate(lane)

    def pay_one_owed(self) -> None:
        """Give one more lane back to the client that has waited longest for it."""
        client, _ = self.owed.popitem(last=False)
        self.client_may_run(client)

    def pay_owed(self) -> None:
        """Give one more lane back to every client that is under its cap."""
        for client in list(self.owed):
            del self.owed[client]
            self.client_may_run(client)

    def pause(self, queue: ExecQueue, *, submits: bool) -> None:
        """Nothing of this exec is handed out."""
        queue.is_paused, queue.refuses_submits = True, submits

    def resume(self, queue: ExecQueue) -> None:
        """It is handed out again."""
        queue.is_paused = queue.refuses_submits = False
        self.offer(queue)

    def offer(self, queue: ExecQueue) -> None:
        """Tell the scheduler that an exec has something, unless it knows or there is nothing."""
        if queue.ring_mask and not queue.is_offered and not queue.is_paused:
            queue.is_offered = True
            self.offered[queue] = None

    # -- time

    @property
    def next_delay_us(self) -> int:
        """A lower bound of when the next delay ends. What is due before that only raises jobs."""
        due_us = self._delays.next_due_us
        return NEVER_US if due_us is None else due_us

    def advance(self, now_us: int, clients: dict[str, ClientState], budget: int) -> int:
        """End delays that are over and raise jobs that have waited long; at most `budget` steps."""
        budget = self._advance(now_us, clients, budget)
        dues = (self._delays.next_due_us, self._ageing.next_due_us)
        self.next_due_us = min((due_us for due_us in dues if due_us is not None), default=NEVER_US)
        return budget

    def _advance(self, now_us: int, clients: dict[str, ClientState], budget: int) -> int:
        for job_id in self._delays.pop_due(now_us):
            job = self._jobs[job_id]
            queue = self.execs[job.exec]
            queue.delayed_count -= 1
            lane = queue.lane_for(job.priority, clients[job.client_id])
            job.since_us = lane.comes_us(now_us)
            self._enter(job, lane)
            budget -= 1
            if budget <= 0:
                return 0
        for lane in self._ageing.pop_due(now_us):
            if lane.count:
                budget = self._age(lane, now_us, budget - 1)
            else:
                self._forget_lane(lane)
                budget -= 1
            if budget <= 0:
                return 0
        return budget

    def _forget_lane(self, lane: Lane) -> None:
        """An empty lane goes when its timer fires, not before: clients that come and go need not make
        a new one, and leave a timer behind, for every job."""
        lane.has_timer = False
        if lane.level.lanes.get(lane.client.client_id) is lane:
            del lane.level.lanes[lane.client.client_id]
        self.forget_if_idle(lane.exec)

    def _age(self, lane: Lane, now_us: int, budget: int) -> int:
        """Raise what has waited long enough at the lane's level."""
        step_us = self._ageing_us()
        while lane.level.number < PRIORITY_MAX and budget > 0:
            if not self._raise_head(lane, now_us, step_us):
                break
            budget -= 1
        head = lane.head if lane.level.number < PRIORITY_MAX else None
        since_us = head.since_us if head is not None else now_us
        self._ageing.push(since_us + step_us, lane)
        return budget

    def _raise_head(self, lane: Lane, now_us: int, step_us: int) -> bool:
        """Move the lane's first job a level up if it came to this one early enough."""
        job = lane.head
        if job is None or job.since_us + step_us > now_us:
            return False
        self._leave(job, lane)
        higher = lane.exec.lane_for(lane.level.number + 1, lane.client)
        job.since_us = higher.comes_us(now_us)
        self._enter(job, higher)
        return True

    def _is_delayed_until(self, job_id: str, due_us: int) -> bool:
        job = self._jobs.get(job_id)
        return job is not None and job.state == QUEUED and job.lane is None and job.place_us == due_us

    def _is_queued_until(self, job_id: str, due_us: int) -> bool:
        job = self._jobs.get(job_id)
        return job is not None and job.state == QUEUED and job.expires_at_us == due_us

    # -- looking

    def jobs_before(self, job: Job, walk_max: int) -> int | None:
        """About how many jobs come before this one in its exec; null when it is in no lane."""
        lane = job.lane
        if lane is None:
            return None
        ahead, walked = 0, job.prev
        while walked is not None and ahead < walk_max:
            ahead, walked = ahead + 1, walked.prev
        levels = lane.exec.levels[lane.level.number + 1 :]
        higher = sum(level.count for level in levels if level is not None)
        turns = max(len(lane.level.ring), 1)
        return higher + min(ahead * turns, lane.level.count - 1)

    def lanes(self) -> Iterator[Lane]:
        """Every lane that has jobs; for checks and tests, it is long."""
        for queue in self.execs.values():
            for level in queue.levels:
                if level is not None:
                    yield from (lane for lane in level.lanes.values() if lane.count)

    def dispose(self) -> None:
        """Break the links of all jobs: they are cycles that no collector would free."""
        for lane in self.lanes():
            job = lane.head
            while job is not None:
                following = job.next
                job.lane = job.prev = job.next = None
                job = following
            lane.head = lane.tail = None


def _highest_parked(lane: Lane) -> Lane:
    """The client's highest parked lane above this one in its exec, or this one: priorities come first."""
    client = lane.client
    for level in reversed(lane.exec.levels[lane.level.number + 1 :]):
        higher = level.lanes.get(client.client_id) if level is not None else None
        if higher is not None and higher in client.parked:
            return higher
    return lane
