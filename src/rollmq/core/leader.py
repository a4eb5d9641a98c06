"""One term of one leader: its desk, everything that decides at it, and what is due by time.

A leader is made when its node wins an election and thrown away when it is deposed; nothing of it is
durable. Inputs go to its parts (`intake`, `attempts`, `liveness`, `operate`), time to `tick`, and `schedule`
hands out jobs. What comes of it are lines for the log and effects that wait for their commit.
"""

from collections.abc import Callable
from heapq import nlargest
from itertools import islice

from rollmq.core.attempts import Attempts
from rollmq.core.desk import Desk
from rollmq.core.events import (
    ExecCensus,
    Member,
    Members,
    Noop,
    Settings,
    SnapshotMarker,
)
from rollmq.core.explain import Explanation, explain
from rollmq.core.intake import Intake
from rollmq.core.liveness import Liveness
from rollmq.core.machine import Machine
from rollmq.core.operate import Operate
from rollmq.core.queues import Queues
from rollmq.core.requests import SegmentFacts as SegmentFacts
from rollmq.limits import (
    AGEING_BUDGET_PER_TICK,
    ASSIGNS_PER_TURN,
    CENSUS_EXECS_MAX,
    CENSUS_WORKERS_MAX,
    EXPIRIES_PER_TICK,
    MARKER_EVERY_BYTES,
    MARKER_EVERY_ENTRIES,
    MARKER_EVERY_US,
)


class Leader:
    """What a node does while it leads. Its first event is the noop of its term."""

    def __init__(self, machine: Machine, *, term: int, jitter: Callable[[], float], now_us: int) -> None:
        self.desk = Desk(machine, term=term, jitter=jitter)
        self.desk.set_time(now_us)
        self.desk.decide(Noop(self.desk.next_index, term, self.desk.now_us))
        self.attempts = Attempts(self.desk)
        self.intake = Intake(self.desk)
        self.liveness = Liveness(self.desk, self.attempts)
        self.operate = Operate(self.desk, self.attempts)
        self._marked_us = self.desk.now_us

    def found_group(self, *, group: str, node_ids: list[str]) -> None:
        """The first leader of a new group says who is in it and what the settings are."""
        desk = self.desk
        if desk.machine.members is None:
            self.set_members(group, [Member(node_id) for node_id in node_ids])
        if not desk.machine.is_settled:
            desk.decide(Settings(desk.next_index, desk.term, desk.now_us))

    def set_members(self, group: str, members: list[Member]) -> None:
        """From this entry on these are the members."""
        desk = self.desk
        desk.decide(Members(desk.next_index, desk.term, desk.now_us, group, members))

    def tick(self, now_us: int) -> None:
        """Carry out what is due. Call it often; a quiet tick is a few comparisons per worker."""
        desk = self.desk
        desk.set_time(now_us)
        desk.queues.advance(desk.now_us, desk.machine.clients.by_id, AGEING_BUDGET_PER_TICK)
        self._expire()
        self.liveness.tick()

    def _expire(self) -> None:
        due = self.desk.queues.expiries.pop_due(self.desk.now_us)
        for job_id in islice(due, EXPIRIES_PER_TICK):
            self.attempts.expire(self.desk.machine.jobs[job_id])

    def schedule(self) -> int:
        """Hand out what can be handed out, a bounded number of jobs; how many. Full: call it again soon."""
        scheduler = self.desk.scheduler
        for assigned_count in range(ASSIGNS_PER_TURN):
            choice = scheduler.next()
            if choice is None:
                return assigned_count
            if 0 < choice.job.expires_at_us <= self.desk.now_us:
                self.attempts.expire(choice.job)  # `tick` was not there yet
                continue
            self.liveness.before_assign(choice.worker.worker_id)
            self.attempts.assign(choice)
            self.liveness.after_assign(choice.worker.worker_id, len(choice.job.payload))
        return ASSIGNS_PER_TURN

    def explain(self, job_id: str) -> Explanation:
        """Why a job is not running."""
        return explain(self.desk, job_id)

    # -- markers

    def is_marker_due(self, *, segment_first_index: int, segment_bytes: int) -> bool:
        """By entries or bytes, or a minute after the last one if there is anything new."""
        entry_count = self.desk.last_index + 1 - segment_first_index
        if entry_count >= MARKER_EVERY_ENTRIES or segment_bytes >= MARKER_EVERY_BYTES:
            return True
        is_time = self.desk.now_us >= self._marked_us + MARKER_EVERY_US
        return is_time and entry_count > 0 and self.desk.news_index >= segment_first_index

    def mark(self, facts: SegmentFacts) -> None:
        """End the segment here: the marker is its last line, and every replica seals it."""
        desk, machine = self.desk, self.desk.machine
        desk.decide(
            SnapshotMarker(
                desk.next_index,
                desk.term,
                desk.now_us,
                facts.digest,
                machine.counts(),
                facts.snapshot_index,
                facts.snapshot_digest,
                census_of(desk.queues, desk),
                list(islice(self.liveness.connected(), CENSUS_WORKERS_MAX)),
            )
        )
        self._marked_us = desk.now_us


def census_of(queues: Queues, desk: Desk) -> list[ExecCensus]:
    """The execs with the most jobs, as they are now."""
    most = nlargest(CENSUS_EXECS_MAX, queues.execs.values(), key=lambda q: q.queued_count + q.inflight_count)
    credit_of = desk.scheduler.credit_by_exec(most)
    return [
        ExecCensus(
            queue.name,
            queue.queued_count,
            queue.delayed_count,
            queue.inflight_count,
            credit,
            len(queue.parked),
        )
        for queue, credit in zip(most, credit_of, strict=True)
    ]
