"""Which workers are there, and what becomes of the jobs of those that are not.

Liveness belongs to the worker, the timeout to the job: two clocks that never mix. It writes `worker`
events; what ends an attempt goes through `attempts`.
"""

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Final

from rollmq.core.attempts import Attempts
from rollmq.core.desk import Desk
from rollmq.core.effects import AskedBack, AttemptVoid
from rollmq.core.events import Fence, Worker
from rollmq.core.inflight import is_current
from rollmq.core.job import Job
from rollmq.core.requests import Held as Held
from rollmq.core.requests import Hello as Hello
from rollmq.core.sanity import is_text
from rollmq.core.scheduler import WorkerSlot
from rollmq.core.subject import BadSubject, check_pattern
from rollmq.limits import (
    ID_CHARS_MAX,
    LEADER_GRACE_US,
    TIMEOUTS_PER_TICK,
    UNSEEN_BYTES_MAX,
    UNSTARTED_MAX_US,
    WORKER_GRACE_US,
    WORKER_HANDS_MAX,
    WORKER_HELD_MAX,
    WORKER_PATTERNS_MAX,
    WORKER_SILENT_MAX_US,
)

ASK_BACK_EVERY_US: Final = 1_000_000
"""How often a worker's unstarted jobs are looked at: they wait for a minute anyway."""
ASK_BACK_LOOKS_MAX: Final = 16
"""How many of a worker's oldest unstarted jobs one tick looks at."""
DRAINED: Final = "drained"
REFUSED: Final = "refused"


class Presence:
    """A worker with a connection, or one that lost it and may come back."""

    __slots__ = (
        "absent_until_us",
        "hello",
        "is_draining",
        "is_logged",
        "last_heard_us",
        "look_again_us",
        "seen_count",
        "sent_count",
        "slot",
        "unseen",
        "unseen_bytes",
    )

    def __init__(self, hello: Hello, now_us: int) -> None:
        self.hello = hello
        self.slot: WorkerSlot | None = None
        """Null while it is away."""
        self.sent_count = 0
        """Assigns decided on this connection; credit is counted against it."""
        self.seen_count = 0
        """Of these, how many it has said to have seen."""
        self.unseen: deque[int] = deque()
        """Payload bytes of the assigns that it has not yet said to have seen. Invariant: their sum is
        unseen_bytes. A worker with large jobs and much credit must not make the node hold all of them."""
        self.unseen_bytes = 0
        self.last_heard_us = now_us
        self.absent_until_us = 0
        self.look_again_us = 0
        """When its unstarted jobs are looked at next."""
        self.is_draining = False
        """It said goodbye; a credit that was under way then gives it nothing."""
        self.is_logged = False
        """Whether the log knows it as it is now."""

    @property
    def is_full(self) -> bool:
        """As many payload bytes as may be are on their way to it: it gets more when it has seen them."""
        return self.unseen_bytes >= UNSEEN_BYTES_MAX


class Liveness:
    """Decides about workers."""

    def __init__(self, desk: Desk, attempts: Attempts) -> None:
        self._desk = desk
        self._attempts = attempts
        self.present: dict[str, Presence] = {}
        # A new leader gives workers that it has not seen some time to find it before it calls them dead.
        self._unseen = dict.fromkeys(desk.machine.inflight.by_worker, desk.now_us + LEADER_GRACE_US)

    def connected(self) -> Iterator[str]:
        """The workers that have a connection now, in the order in which they came."""
        return (worker_id for worker_id, each in self.present.items() if each.slot is not None)

    # -- coming and going

    def hello(self, hello: Hello) -> str | None:
        """A worker connected. Returns why it may not, or null; then it may be assigned to."""
        problem = _problem_of(hello)
        if problem is not None:
            return problem
        old = self.present.get(hello.worker_id)
        if old is not None and old.slot is not None and old.hello.instance != hello.instance:
            return (
                f"worker id {hello.worker_id!r} is in use by another live instance; "
                f"give each process its own id, or wait {WORKER_SILENT_MAX_US // 1_000_000} s if it died"
            )
        if old is not None and old.slot is not None:
            self.broken(hello.worker_id)  # the same instance on a new connection
        for outcome in hello.outcomes:
            self._attempts.outcome(hello.worker_id, outcome)
        self._reconcile(
            hello, is_same=self._is_same_instance(hello, old), hands=self._hands_of_holder(hello, old)
        )
        self._unseen.pop(hello.worker_id, None)
        self._connect(hello)
        return None

    def _is_same_instance(self, hello: Hello, old: Presence | None) -> bool:
        """Whether this is the process that was given the jobs that the log says it holds."""
        if old is not None:
            return old.hello.instance == hello.instance
        record = self._desk.machine.workers.get(hello.worker_id)
        return record is not None and record.instance == hello.instance

    def _hands_of_holder(self, hello: Hello, old: Presence | None) -> int:
        """How many jobs the process that was given them ran at once: a new one may have other hands."""
        if old is not None:
            return old.hello.hands
        record = self._desk.machine.workers.get(hello.worker_id)
        return record.hands if record is not None else 1

    def _reconcile(self, hello: Hello, *, is_same: bool, hands: int) -> None:
        """Make the log's view and the worker's agree: the worker knows best what it holds. `hands` are
        those of the process that was given the jobs."""
        listed = {held.job_id: held for held in hello.held}
        lost: list[tuple[Job, bool]] = []
        for number, job in enumerate(self._held(hello.worker_id)):
            held = listed.get(job.id)
            if held is None or job.fence != held.fence:
                # A new process: the old one died with it. The same one: the assign never reached it,
                # unless it had said that the handler runs.
                lost.append((job, job.is_started or (not is_same and number < hands)))
            elif held.is_started:
                self._attempts.begin(hello.worker_id, job.id, held.fence, left_us=held.left_us)
        self._lose(lost)
        for held in hello.held:
            mine = self._desk.machine.jobs.get(held.job_id)
            if mine is None or not is_current(mine, held.fence) or mine.worker_id != hello.worker_id:
                self._void(hello.worker_id, held.job_id, held.fence)

    def _void(self, worker_id: str, job_id: str, fence: Fence) -> None:
        self._desk.say(AttemptVoid(self._desk.last_index, worker_id, job_id, fence, "no longer yours"))

    def _connect(self, hello: Hello) -> None:
        desk = self._desk
        presence = self.present[hello.worker_id] = Presence(hello, desk.now_us)
        running = len(desk.machine.inflight.held_by(hello.worker_id))
        presence.slot = desk.scheduler.add_worker(
            hello.worker_id, hello.patterns, hands=hello.hands, running=running
        )
        record = desk.machine.workers.get(hello.worker_id)
        presence.is_logged = record is not None and (
            (record.instance, record.host, record.release, record.patterns, record.hands)
            == (hello.instance, hello.host, hello.release, hello.patterns, hello.hands)
        )
        desk.scheduler.set_credit(presence.slot, hello.credit)

    def heard(self, worker_id: str) -> None:
        """Anything came from it, a ping included."""
        presence = self.present.get(worker_id)
        if presence is not None:
            presence.last_heard_us = self._desk.now_us

    def credit(self, worker_id: str, seen_count: int, more: int) -> None:
        """How many assigns it has seen on this connection, and how many more it will take: absolute, so
        that repeating it adds nothing and what is under way is not counted twice."""
        presence = self.present.get(worker_id)
        if presence is None or presence.slot is None or presence.is_draining:
            return
        if not 0 <= seen_count <= presence.sent_count:
            return
        while presence.seen_count < seen_count:
            presence.seen_count += 1
            presence.unseen_bytes -= presence.unseen.popleft()
        under_way = presence.sent_count - seen_count
        credit = max(min(more, WORKER_HELD_MAX) - under_way, 0)
        self._desk.scheduler.set_credit(presence.slot, 0 if presence.is_full else credit)

    def broken(self, worker_id: str) -> None:
        """Its connection is gone. It has a grace in which the same instance may come back."""
        presence = self.present.get(worker_id)
        if presence is None or presence.slot is None:
            return
        self._desk.scheduler.remove_worker(worker_id)
        presence.slot = None
        presence.absent_until_us = self._desk.now_us + WORKER_GRACE_US

    def goodbye(self, worker_id: str) -> None:
        """It drains: it takes nothing new, hands back what has not started, and finishes what runs."""
        presence = self.present.get(worker_id)
        if presence is not None and presence.slot is not None:
            presence.is_draining = True
            self._desk.scheduler.set_credit(presence.slot, 0)

    # -- assigning

    def before_assign(self, worker_id: str) -> None:
        """The log must know a worker as it is before the first assign to it."""
        presence = self.present[worker_id]
        presence.sent_count += 1
        if presence.is_logged and worker_id in self._desk.machine.workers:
            return
        presence.is_logged = True
        desk, hello = self._desk, presence.hello
        desk.decide(
            Worker(
                desk.next_index,
                desk.term,
                desk.now_us,
                hello.worker_id,
                hello.instance,
                hello.host,
                hello.release,
                hello.patterns,
                hello.hands,
            )
        )

    def after_assign(self, worker_id: str, payload_bytes: int) -> None:
        """The assign is decided: its payload is on its way."""
        presence = self.present[worker_id]
        presence.unseen.append(payload_bytes)
        presence.unseen_bytes += payload_bytes
        if presence.is_full and presence.slot is not None:
            self._desk.scheduler.set_credit(presence.slot, 0)

    # -- time

    def was_deaf(self, for_us: int) -> None:
        """This process stood still: nobody could be heard, so nobody was silent for that long."""
        for presence in self.present.values():
            presence.last_heard_us += for_us
            presence.absent_until_us += for_us
        for worker_id in self._unseen:
            self._unseen[worker_id] += for_us

    def time_stepped(self, by_us: int) -> None:
        """Log time went ahead by so much at once, and nobody was silent or ran for that long."""
        self.was_deaf(by_us)
        for running in self._attempts.running.values():
            running.time_stepped(by_us)

    def tick(self) -> None:
        """Look for workers that went away, attempts over their time, and jobs that nobody starts."""
        now_us = self._desk.now_us
        gone: dict[str, int] = {}
        for worker_id, presence in list(self.present.items()):
            if presence.slot is not None and presence.last_heard_us + WORKER_SILENT_MAX_US <= now_us:
                self._desk.scheduler.remove_worker(worker_id)
                presence.slot = None
                presence.absent_until_us = now_us
            if presence.slot is None and presence.absent_until_us <= now_us:
                del self.present[worker_id]
                gone[worker_id] = presence.hello.hands
            elif presence.slot is not None and presence.look_again_us <= now_us:
                presence.look_again_us = now_us + ASK_BACK_EVERY_US
                self._ask_back(worker_id)
        for worker_id in [w for w, until_us in self._unseen.items() if until_us <= now_us]:
            del self._unseen[worker_id]
            record = self._desk.machine.workers.get(worker_id)
            gone[worker_id] = record.hands if record is not None else 1
        self._lose([lost for worker_id, hands in gone.items() for lost in self._lost_with(worker_id, hands)])
        self._time_out(now_us)

    def _time_out(self, now_us: int) -> None:
        """End what is over its time, worker by worker; the others wait for the next tick."""
        ended_count = 0
        for running in list(self._attempts.running.values()):
            if ended_count >= TIMEOUTS_PER_TICK:
                return
            for job in running.over_time(now_us):
                self._attempts.time_out(job)
                ended_count += 1

    def _lost_with(self, worker_id: str, hands: int) -> list[tuple[Job, bool]]:
        """It died without a word: its oldest jobs, as many as it has hands, are presumed started, so that
        a job that kills its worker is found out, and those prefetched behind it are not blamed."""
        held = enumerate(self._held(worker_id))
        return [(job, job.is_started or number < hands) for number, job in held]

    def _lose(self, lost: list[tuple[Job, bool]]) -> None:
        """Requeue jobs, given with whether they were started, so that they stay in order: the unstarted
        newest first, for each goes back to the front; the started oldest first, to the end. All that are
        lost at once go together: worker by worker each would look for its place among those before it."""
        lost.sort(key=lambda each: each[0].fence or (0, 0))
        for job in [job for job, is_started in reversed(lost) if not is_started]:
            self._attempts.lose(job.worker_id, job, is_started=False)
        for job in [job for job, is_started in lost if is_started]:
            self._attempts.lose(job.worker_id, job, is_started=True)

    def _held(self, worker_id: str) -> list[Job]:
        return list(self._desk.machine.inflight.held_by(worker_id).values())

    def _ask_back(self, worker_id: str) -> None:
        """A job that waits in a worker's prefetch, while another worker has a free hand, is asked back."""
        desk = self._desk
        held = desk.machine.inflight.held_by(worker_id).values()
        for job in islice((job for job in held if not job.is_started), ASK_BACK_LOOKS_MAX):
            since_us = max(job.assigned_us, job.asked_back_us)
            if since_us + UNSTARTED_MAX_US > desk.now_us:
                continue
            if desk.scheduler.has_free_hand(job.exec, but=worker_id):
                assert job.fence is not None
                job.asked_back_us = desk.now_us
                desk.say(AskedBack(desk.last_index, worker_id, job.id, job.fence))


def _problem_of(hello: Hello) -> str | None:
    if not 0 < len(hello.worker_id) <= ID_CHARS_MAX or not 0 < len(hello.instance) <= ID_CHARS_MAX:
        return f"a worker's id and instance have 1 to {ID_CHARS_MAX} characters"
    if not 1 <= hello.hands <= WORKER_HANDS_MAX or not 0 <= hello.credit <= WORKER_HELD_MAX:
        return f"hands are 1 to {WORKER_HANDS_MAX}, credit 0 to {WORKER_HELD_MAX}"
    if not 1 <= len(hello.patterns) <= WORKER_PATTERNS_MAX:
        return f"a worker has 1 to {WORKER_PATTERNS_MAX} subject patterns"
    texts = hello.worker_id, hello.instance, hello.host, hello.release
    if not all(is_text(text, ID_CHARS_MAX) for text in texts):
        return f"worker id, instance, host and release have at most {ID_CHARS_MAX} characters"
    try:
        for pattern in hello.patterns:
            check_pattern(pattern)
    except BadSubject as error:
        return str(error)
    return None
