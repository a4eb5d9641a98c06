"""Which job goes to which worker next. Leader only, volatile: a new leader starts with fresh turns.

    pattern ── ring of execs it matches that have something ready   (execs take turns)
       └────── heap of its workers with credit                      (fewest running, then most credit)

A pattern with both is *hot*. Every step of `next` either finds an assignment or removes something that
a later event must put back, so the cost per assignment depends neither on the backlog nor on the number
of workers or execs. It decides nothing about time, retries or failures: that is `leader`.
"""

from collections import OrderedDict
from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from rollmq.core.job import AVOID_WORKER_AFTER, Job
from rollmq.core.pattern_tree import PatternTree
from rollmq.core.queues import ExecQueue, Queues
from rollmq.core.subject import ASSIGN_PREFIX, is_literal

HEAP_SLACK: Final = 64
"""Stale heap entries that are left alone; with more than this and four per worker it is rebuilt."""


class WorkerSlot:
    """A connected worker as the scheduler sees it. Invariant: credit >= 0."""

    __slots__ = ("credit", "hands", "is_closed", "is_dirty", "number", "patterns", "running", "worker_id")

    def __init__(self, worker_id: str, number: int, *, hands: int, running: int) -> None:
        self.worker_id = worker_id
        self.hands = hands
        self.number = number
        """Breaks ties, so that equal workers are taken in the order in which they came."""
        self.running = running
        self.credit = 0
        self.patterns: list[Pattern] = []
        self.is_dirty = False
        self.is_closed = False


class Pattern:
    """A subject pattern that some connected worker has."""

    __slots__ = ("heap", "ring", "text", "workers")

    def __init__(self, text: str) -> None:
        self.text = text
        self.workers: dict[str, WorkerSlot] = {}
        self.heap: list[tuple[int, int, int, WorkerSlot]] = []
        self.ring: OrderedDict[ExecQueue, None] = OrderedDict()

    def enter(self, slot: WorkerSlot) -> None:
        """Offer the worker's current state; older entries of it become stale."""
        heappush(self.heap, (slot.running, -slot.credit, slot.number, slot))
        if len(self.heap) > HEAP_SLACK + 4 * len(self.workers):
            self.heap = [(s.running, -s.credit, s.number, s) for s in self.workers.values() if s.credit]
            heapify(self.heap)

    def best(self) -> WorkerSlot | None:
        """The worker with credit that runs the least; null when none has credit."""
        heap = self.heap
        while heap:
            running, credit, _, slot = heap[0]
            if slot.running == running and -slot.credit == credit and credit and not slot.is_closed:
                return slot
            heappop(heap)
        return None

    def best_but(self, worker_id: str) -> WorkerSlot | None:
        """The best worker other than this one."""
        first = self.best()
        if first is None or first.worker_id != worker_id:
            return first
        held_back = heappop(self.heap)
        second = self.best()
        while second is first:  # the same state was entered twice
            heappop(self.heap)
            second = self.best()
        heappush(self.heap, held_back)
        return second


class Choice(NamedTuple):
    """An assignment that may be made now."""

    job: Job
    worker: WorkerSlot


class Reach(NamedTuple):
    """Which workers an exec has: for `explain` and the census."""

    worker_count: int
    credit: int

    @property
    def has_credit(self) -> bool:
        """Whether any of them takes a job now."""
        return self.credit > 0


class Scheduler:
    """Brings ready jobs and free workers together."""

    def __init__(self, queues: Queues) -> None:
        self.workers: dict[str, WorkerSlot] = {}
        self._queues = queues
        self._patterns: dict[str, Pattern] = {}
        self._wildcards: PatternTree[Pattern] = PatternTree()
        self._hot: OrderedDict[Pattern, None] = OrderedDict()
        self._dirty: list[WorkerSlot] = []
        self._number = 0
        queues.offered.clear()
        queues.on_forget = self._dry
        for queue in queues.execs.values():
            queue.route = None
            queue.is_offered = False
            queues.offer(queue)

    # -- workers come, go and give credit

    def add_worker(
        self, worker_id: str, patterns: Iterable[str], *, hands: int = 1, running: int = 0
    ) -> WorkerSlot:
        """A worker has connected; it has no credit yet."""
        assert worker_id not in self.workers
        self._number += 1
        slot = self.workers[worker_id] = WorkerSlot(worker_id, self._number, hands=hands, running=running)
        texts = list(dict.fromkeys(patterns))
        self._add_patterns([text for text in texts if text not in self._patterns])
        for text in texts:
            pattern = self._patterns[text]
            pattern.workers[worker_id] = slot
            slot.patterns.append(pattern)
        return slot

    def remove_worker(self, worker_id: str) -> None:
        """It has gone; nothing more is assigned to it."""
        slot = self.workers.pop(worker_id)
        slot.is_closed = True
        for pattern in slot.patterns:
            del pattern.workers[worker_id]
        self._drop_patterns([pattern for pattern in slot.patterns if not pattern.workers])

    def set_credit(self, slot: WorkerSlot, credit: int) -> None:
        """How many more jobs the worker takes now."""
        assert credit >= 0
        slot.credit = credit
        self._touch(slot)

    def ended(self, worker_id: str) -> None:
        """One of the worker's jobs ended, in whatever way."""
        slot = self.workers.get(worker_id)
        if slot is not None:
            slot.running -= 1
            assert slot.running >= 0
            self._touch(slot)

    def _touch(self, slot: WorkerSlot) -> None:
        if not slot.is_dirty:
            slot.is_dirty = True
            self._dirty.append(slot)

    # -- patterns and the execs they match

    def _add_patterns(self, texts: list[str]) -> None:
        """Nobody had these before. Execs that are offered enter the rings of those that match them."""
        new: PatternTree[Pattern] = PatternTree()
        has_wildcard = False
        for text in texts:
            pattern = self._patterns[text] = Pattern(text)
            if not is_literal(text):
                has_wildcard = True
                new.add(text, pattern)
                self._wildcards.add(text, pattern)
            elif (queue := self._exec_of(text)) is not None:
                queue.route = None
                if queue.is_offered:
                    pattern.ring[queue] = None
        for queue in self._queues.execs.values() if has_wildcard else ():
            queue.route = None
            for pattern in new.find(ASSIGN_PREFIX + queue.name) if queue.is_offered else ():
                pattern.ring[queue] = None

    def _drop_patterns(self, patterns: list[Pattern]) -> None:
        """Nobody has these any more."""
        has_wildcard = False
        for pattern in patterns:
            del self._patterns[pattern.text]
            self._hot.pop(pattern, None)
            pattern.ring.clear()
            if not is_literal(pattern.text):
                has_wildcard = True
                self._wildcards.remove(pattern.text)
            elif (queue := self._exec_of(pattern.text)) is not None:
                queue.route = None
        for queue in self._queues.execs.values() if has_wildcard else ():
            queue.route = None

    def _exec_of(self, text: str) -> ExecQueue | None:
        """The exec that a pattern without wildcards means, if it has a queue."""
        is_assign = text.startswith(ASSIGN_PREFIX)
        return self._queues.execs.get(text.removeprefix(ASSIGN_PREFIX)) if is_assign else None

    def _route(self, queue: ExecQueue) -> list[Pattern]:
        """The connected workers' patterns that match this exec, looked up once until patterns come or go."""
        route = queue.route
        if route is None:
            queue.route = route = self._patterns_of(queue.name)
        assert isinstance(route, list)
        return route

    def _patterns_of(self, exec_name: str) -> list[Pattern]:
        subject = ASSIGN_PREFIX + exec_name
        literal = self._patterns.get(subject)
        return [*([literal] if literal is not None else []), *self._wildcards.find(subject)]

    # -- choosing

    def next(self) -> Choice | None:
        """The next assignment, or null when there is none to make. The caller makes it: `assigned`."""
        if self._queues.owed:
            # One for each choice, or a client whose first lane cannot run now would wait while others run.
            self._queues.pay_one_owed()
        self._take_news()
        while True:
            while self._hot:
                pattern = next(iter(self._hot))
                choice = self._try(pattern)
                if choice is not None:
                    return choice
            if not self._queues.owed or not self._any_credit():
                return None
            self._queues.pay_owed()
            self._take_news()

    def assigned(self, choice: Choice, queue: ExecQueue) -> None:
        """The choice was made: next turn is another exec's, and the worker has one more to run."""
        slot = choice.worker
        slot.running += 1
        slot.credit -= 1
        assert slot.credit >= 0
        for pattern in slot.patterns:
            if slot.credit:
                pattern.enter(slot)
        for pattern in self._route(queue):
            if queue in pattern.ring:
                pattern.ring.move_to_end(queue)
            if pattern in self._hot:
                self._hot.move_to_end(pattern)

    def has_free_hand(self, exec_name: str, *, but: str) -> bool:
        """Whether another worker than this one has credit for this exec and would begin at once. Asked of
        each pattern's least busy worker only."""
        queue = self._queues.execs.get(exec_name)
        found = [p.best_but(but) for p in self._route(queue)] if queue is not None else []
        return any(slot is not None and slot.running < slot.hands for slot in found)

    def reach(self, exec_name: str) -> Reach:
        """The connected workers that could run this exec, and their credit together."""
        found = {
            slot.worker_id: slot
            for pattern in self._patterns_of(exec_name)
            for slot in pattern.workers.values()
        }
        return Reach(len(found), sum(slot.credit for slot in found.values()))

    def credit_by_exec(self, queues: Iterable[ExecQueue]) -> list[int]:
        """The free credit that each exec could use. Execs that the same patterns match are counted once."""
        known: dict[tuple[str, ...], int] = {}
        credits = []
        for queue in queues:
            route = self._route(queue)
            key = tuple(pattern.text for pattern in route)
            if key not in known:
                slots = {slot.worker_id: slot.credit for p in route for slot in p.workers.values()}
                known[key] = sum(slots.values())
            credits.append(known[key])
        return credits

    def _try(self, pattern: Pattern) -> Choice | None:
        """One step with a hot pattern: a choice, or one reason less for it to be hot."""
        slot = pattern.best()
        if slot is None or not pattern.ring:
            del self._hot[pattern]
            return None
        queue = next(iter(pattern.ring))
        job = self._queues.candidate(queue)
        if job is None:
            self._dry(queue)
            return None
        return Choice(job, self._worker_for(job, queue, slot))

    def _worker_for(self, job: Job, queue: ExecQueue, default: WorkerSlot) -> WorkerSlot:
        route = self._route(queue)
        avoided = job.worker_id if job.ended_by in AVOID_WORKER_AFTER else ""
        if len(route) == 1 and default.worker_id != avoided:
            return default
        found = [p.best_but(avoided) if avoided else p.best() for p in route]
        slots = [slot for slot in found if slot is not None]
        return min(slots, key=lambda slot: (slot.running, -slot.credit, slot.number), default=default)

    def _dry(self, queue: ExecQueue) -> None:
        """Nothing of this exec can be handed out; `Queues` offers it again when that changes."""
        queue.is_offered = False
        for pattern in self._route(queue):
            pattern.ring.pop(queue, None)

    def _take_news(self) -> None:
        """Look at what changed since the last choice: workers touched, execs offered."""
        if self._dirty:
            dirty, self._dirty = self._dirty, []
            for slot in dirty:
                slot.is_dirty = False
                if slot.credit and not slot.is_closed:
                    for pattern in slot.patterns:
                        pattern.enter(slot)
                        if pattern.ring:
                            self._hot[pattern] = None
        if self._queues.offered:
            offered, self._queues.offered = self._queues.offered, {}
            for queue in offered:
                for pattern in self._route(queue):
                    pattern.ring[queue] = None
                    if pattern.best() is not None:
                        self._hot[pattern] = None

    def _any_credit(self) -> bool:
        return any(pattern.best() is not None for pattern in self._patterns.values())
