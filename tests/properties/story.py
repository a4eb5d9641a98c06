"""A random life of a queue, told by a generator that knows its state.

Independent random events almost never form a story: an ack needs an assign before it. So each step looks at
what there is (jobs in flight, workers connected, dead letters) and does something with it: mostly what
decent clients and workers do, sometimes what late, forgetful or lying ones do. Bounds are tiny, so that
they are met.
"""

import random
from collections.abc import Callable

import msgspec

from rollmq.core.attempts import Outcome
from rollmq.core.effects import Accepted, AnyEffect, Assigned, Ended
from rollmq.core.events import AnyEvent, Backoff, Fence, Settings
from rollmq.core.intake import Submit, Wish
from rollmq.core.job import QUEUED
from rollmq.core.leader import Leader
from rollmq.core.line import decode_line
from rollmq.core.liveness import Held, Hello
from rollmq.core.machine import Machine
from rollmq.core.scheduler import Choice
from rollmq.core.state import dump_state, load_state
from tests.core.naming import T0_US
from tests.properties.ledger import Ledger

CLIENTS = ("ann", "bob", "cem", "dee", "eve", "flo", "gus", "hal", "ida", "jon")
KNOWN_TO_OPERATORS = CLIENTS[:2]
"""These are never forgotten; the others are, or stories would not show it."""
EXECS = ("mail", "mail.big", "image.small", "image.big", "audio")
PATTERNS = ("job.assign.>", "job.assign.*", "job.assign.image.*", "job.assign.mail", "job.assign.image.big")
WORKERS = ("w1", "w2", "w3", "w4")

SMALL = Settings(
    0,
    0,
    0,
    results_keep_us=20_000_000,
    results_max=5,
    results_bytes_max=40,
    finished_max=8,
    keys_keep_us=30_000_000,
    keys_per_client_max=3,
    queued_max=25,
    queued_bytes_max=400,
    dlq_max=3,
    dlq_bytes_max=60,
    errors_kept=2,
    crashes_max=2,
    starts_max=6,
    ageing_us=5_000_000,
    cap_default=3,
    clients_max=6,
    workers_max=2,
    by="story",
)


class Connection:
    """A worker as it sees itself: instance, what it was told, how many assigns it saw."""

    def __init__(self, hello: Hello) -> None:
        self.hello = hello
        self.told: dict[str, Fence] = {}
        self.sent = 0
        self.limit = hello.credit
        """Independent recount of credit: the most assigns that may be sent on this connection by now."""
        self.is_talking = True


class Story:
    """One seed's life. `on_choice` sees each choice before it becomes a fact."""

    def __init__(self, seed: int, *, on_choice: Callable[["Story", Choice], None] | None = None) -> None:
        self.seed = seed
        self.is_busy = seed % 4 < 2
        """Otherwise little comes, jobs end, and idle clients are forgotten."""
        self.random = random.Random(seed)
        self.on_choice = on_choice
        self.now_us = T0_US
        self.machine = Machine()
        self.lines: list[bytes] = []
        self.events: list[AnyEvent] = []
        self.effects: list[AnyEffect] = []
        self.ledger = Ledger(knows_caps=seed % 2 == 0)
        self.ids: list[str] = []
        self.submits: dict[str, Submit] = {}
        self.connections: dict[str, Connection] = {}
        self.past: list[tuple[str, str, Fence]] = []
        """Every (worker, job, fence) that was ever told: late answers are drawn from here."""
        self.instance_number = 0
        self.leader = self._lead(term=1)
        self.leader.operate.set_settings(self.bounds(), by="story", to=None)
        self.settle()

    def bounds(self) -> Settings:
        """Half of the stories forget clients, and with them what these wished; the ledger cannot see that."""
        return SMALL if self.seed % 2 else msgspec.structs.replace(SMALL, clients_max=99)

    def _lead(self, *, term: int) -> Leader:
        leader = Leader(self.machine, term=term, jitter=self.random.random, now_us=self.now_us)
        if self.on_choice is not None:
            self._watch(leader, self.on_choice)
        return leader

    def _watch(self, leader: Leader, on_choice: Callable[["Story", Choice], None]) -> None:
        choose = leader.desk.scheduler.next

        def watched() -> Choice | None:
            choice = choose()
            if choice is not None:
                on_choice(self, choice)
            return choice

        leader.desk.scheduler.next = watched  # type: ignore[method-assign]

    # -- the host

    def settle(self) -> None:
        """Hand out, write, tell: nothing is held back, because commits are another property's business."""
        self.leader.schedule()
        for line in self.leader.desk.take_lines():
            event: AnyEvent = decode_line(line)
            self.lines.append(line)
            self.events.append(event)
            self.ledger.take(event)
        for effect in self.leader.desk.take_effects():
            self.effects.append(effect)
            if isinstance(effect, Assigned):
                self._told(effect)
            elif isinstance(effect, Accepted):
                assert effect.first_id in self.ledger.cards, "accepted, and not in the log"
            elif isinstance(effect, Ended):
                assert self.ledger.cards[effect.job.id].finals_in_life == 1

    def _told(self, effect: Assigned) -> None:
        worker_id, fence = effect.event.worker_id, (effect.event.term, effect.event.index)
        self.past.append((worker_id, effect.job.id, fence))
        connection = self.connections[worker_id]
        connection.sent += 1
        assert connection.sent <= connection.limit, "assigned without credit"
        if connection.is_talking:
            connection.told[effect.job.id] = fence

    def step(self) -> None:
        """Something happens."""
        self.random.choices(
            (
                self.submit,
                self.answer,
                self.give_credit,
                self.pass_time,
                self.connect,
                self.lose_connection,
                self.answer_late,
                self.operate,
                self.change_leader,
                self.repeat_submit,
            ),
            weights=(30 if self.is_busy else 15, 40, 25, 25, 8, 4, 8, 10, 1, 5),
        )[0]()
        self.settle()

    def pass_time(self) -> None:
        """Between a moment and longer than any patience."""
        step_us = self.random.choice((1_000, 100_000, 1_000_000, 3_000_000, 8_000_000, 30_000_000))
        self.now_us += self.random.randrange(step_us)
        self.leader.desk.set_time(self.now_us)
        for worker_id, connection in self.connections.items():
            if connection.is_talking:
                self.leader.liveness.heard(worker_id)
        self.leader.tick(self.now_us)
        self._check_what_was_due()

    def _check_what_was_due(self) -> None:
        """A tick leaves nothing undone whose time has come; stories are small, so its budgets suffice."""
        for job in self.machine.jobs.values():
            if job.state == QUEUED:
                assert job.place_us > self.now_us or job.lane is not None, "its delay is over"
                # What this tick took back from a worker is looked at by the next, and not assigned before.
                is_back = job.ready_us >= self.now_us
                assert is_back or not 0 < job.expires_at_us <= self.now_us, "it has expired"
            elif job.is_started:
                assert job.deadline_us > self.now_us, "it is over its time"

    # -- clients

    def submit(self) -> None:
        """A new job, often plain."""
        chance = self.random
        client_id = chance.choice(CLIENTS)
        if chance.random() < 0.1:
            wish = Wish(chance.randrange(4), chance.randrange(1, 4))
            assert self.leader.intake.hello(client_id, wish) is None
        is_plain = chance.random() < 0.5
        number = len(self.ids)
        age_us = chance.choice((0, 0, 0, 0, 5_000_000, 60_000_000))
        job_id = f"{(self.now_us - age_us) // 1000:012x}7{number:019x}"
        self.ids.append(job_id)
        submit = Submit(job_id, client_id, chance.choice(EXECS), b"p" * chance.choice((0, 1, 40)))
        if not is_plain:
            key = chance.choice(("", "", "k1", "k2", "k3", "k4"))
            submit = msgspec.structs.replace(
                submit,
                key=key,
                content_digest=chance.choice("ab") if key else "",
                priority=chance.randrange(10),
                not_before_us=chance.choice((0, 0, self.now_us + chance.randrange(20_000_000))),
                expires_at_us=chance.choice((0, 0, self.now_us + chance.randrange(30_000_000))),
                timeout_us=chance.choice((1_000_000, 10_000_000)),
                timeout_factor=chance.choice((1.0, 2.0)),
                tries_max=chance.randrange(1, 4),
                backoff=chance.choice((None, Backoff(100_000, 2.0, 5_000_000, 0.5))),
            )
        self.submits[job_id] = submit
        self.leader.intake.submit(submit, None)

    def repeat_submit(self) -> None:
        """A client that was not sure sends the same again, perhaps much later."""
        if self.ids:
            self.leader.intake.submit(self.submits[self.random.choice(self.ids)], None)

    # -- workers

    def connect(self) -> None:
        """A worker comes, comes back with what it holds, or comes back as a new process."""
        worker_id = self.random.choice(WORKERS)
        old = self.connections.get(worker_id)
        is_new = old is None or self.random.random() < 0.3
        if is_new:
            self.instance_number += 1
        hello = Hello(
            worker_id,
            f"i{self.instance_number}" if is_new or old is None else old.hello.instance,
            self.random.sample(PATTERNS, k=self.random.randrange(1, 3)),
            hands=self.random.randrange(1, 4),
            credit=self.random.randrange(5),
            held=[] if is_new or old is None else self._held(old),
        )
        if self.leader.liveness.hello(hello) is None:
            told = {} if is_new or old is None else {held.job_id: held.fence for held in hello.held}
            self.connections[worker_id] = Connection(hello)
            self.connections[worker_id].told = told

    def _held(self, old: Connection) -> list[Held]:
        """What it holds, now and then with something forgotten."""
        return [
            Held(job_id, fence, self.random.random() < 0.5, self.random.choice((None, 2_000_000)))
            for job_id, fence in old.told.items()
            if self.random.random() < 0.9
        ]

    def lose_connection(self) -> None:
        """Cut, silent, or a goodbye."""
        if not self.connections:
            return
        worker_id = self.random.choice(list(self.connections))
        kind = self.random.randrange(3)
        if kind == 0:
            self.leader.liveness.broken(worker_id)
        elif kind == 1:
            self.connections[worker_id].is_talking = False
        else:
            self.leader.liveness.goodbye(worker_id)

    def give_credit(self) -> None:
        """Absolute credit, sometimes said late (it has not seen everything that was sent)."""
        if not self.connections:
            return
        worker_id = self.random.choice(list(self.connections))
        connection = self.connections[worker_id]
        presence = self.leader.liveness.present.get(worker_id)
        if presence is None or presence.slot is None or presence.hello.instance != connection.hello.instance:
            return
        seen = self.random.choice((connection.sent, self.random.randrange(connection.sent + 1)))
        more = self.random.randrange(5)
        self.leader.liveness.credit(worker_id, seen, more)
        connection.limit = max(seen + more, connection.sent)

    def answer(self) -> None:
        """A worker goes on with something that it was told to do."""
        holding = [
            (worker_id, job_id, fence)
            for worker_id, connection in self.connections.items()
            if connection.is_talking
            for job_id, fence in connection.told.items()
        ]
        if holding:
            worker_id, job_id, fence = self.random.choice(holding)
            if self._say(worker_id, job_id, fence):
                self.connections[worker_id].told.pop(job_id)

    def answer_late(self) -> None:
        """An answer to any attempt there ever was, by whoever had it."""
        if self.past:
            self._say(*self.random.choice(self.past[-40:]))

    def _say(self, worker_id: str, job_id: str, fence: Fence) -> bool:
        """Whether that was the last word on the attempt."""
        attempts = self.leader.attempts
        kind = self.random.choices(
            ("start", "ack", "fail", "snooze", "reject", "back", "extend"), weights=(9, 12, 5, 2, 2, 3, 1)
        )[0]
        if kind == "start":
            attempts.begin(worker_id, job_id, fence)
            return False
        if kind == "extend":
            attempts.extend(worker_id, job_id, fence, 2_000_000)
            return False
        if kind == "back":
            reason = self.random.choice(("refused", "drained", "taken back"))
            attempts.give_back(worker_id, job_id, fence, reason)
            return True
        outcome = Outcome(job_id, fence, is_ok=kind == "ack", result=b"r" * self.random.choice((0, 9)))
        if kind != "ack":
            wants = {"fail": "retry"}.get(kind, kind)
            after_us = self.random.choice((None, 0, 3_000_000))
            outcome = msgspec.structs.replace(outcome, error_type="Boom", wants=wants, after_us=after_us)
        attempts.outcome(worker_id, outcome)
        return True

    # -- operators and failovers

    def operate(self) -> None:
        """A command on something that is there, mostly."""
        chance, operate = self.random, self.leader.operate
        kind = chance.randrange(7)
        open_ids, dead_ids = list(self.machine.jobs), list(self.machine.dead)
        if kind == 0 and open_ids:
            operate.cancel(chance.choice(open_ids), by="op", why="", to=None)
        elif kind == 1 and dead_ids:
            operate.redrive(dead_ids[: chance.randrange(1, 4)], by="op", why="", to=None)
        elif kind == 2 and dead_ids:
            operate.drop([chance.choice(dead_ids), "0" * 32], by="op", why="", to=None)
        elif kind == 3:
            operate.pause(chance.choice(EXECS), submits=chance.random() < 0.3, by="op", why="", to=None)
        elif kind in (4, 5) and self.machine.paused:
            operate.resume(chance.choice(list(self.machine.paused)), by="op", why="", to=None)
        elif chance.random() < 0.5:
            cap, weight = chance.randrange(4), chance.randrange(1, 4)
            operate.set_client(chance.choice(KNOWN_TO_OPERATORS), cap=cap, weight=weight, by="op", to=None)
        else:
            changed = msgspec.structs.replace(
                self.bounds(),
                cap_default=chance.randrange(1, 5),
                ageing_us=chance.choice((1_000_000, 9_000_000)),
            )
            operate.set_settings(changed, by="op", to=None)

    def change_leader(self) -> None:
        """The same node leads again, or another that loaded a snapshot does."""
        if self.random.random() < 0.5:
            self.machine = load_state(list(dump_state(self.machine)))
        self.leader = self._lead(term=self.leader.desk.term + 1)
        for connection in self.connections.values():
            connection.sent, connection.limit = 0, 0


def played(seed: int, steps: int) -> Story:
    """A whole story."""
    story = Story(seed)
    for _ in range(steps):
        story.step()
    return story
