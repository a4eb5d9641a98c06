"""A leader with plain clients and workers, for properties and costs where no story is needed.

It gives out credit and ends jobs on request; nobody fails, dies or is late here.
"""

from rollmq.core.attempts import Outcome
from rollmq.core.effects import Assigned
from rollmq.core.events import Assign
from rollmq.core.intake import Submit
from rollmq.core.leader import Leader
from rollmq.core.liveness import Hello
from rollmq.core.machine import Machine
from tests.core.naming import T0_US


class Hall:
    """Submits, credit and assignments in order."""

    def __init__(self) -> None:
        self.now_us = T0_US
        self.machine = Machine()
        self.leader = Leader(self.machine, term=1, jitter=lambda: 0.0, now_us=T0_US)
        self.count = 0
        self.sent: dict[str, int] = {}

    def lead_again(self) -> None:
        """The next term, on the same machine."""
        term = self.leader.desk.term + 1
        self.leader = Leader(self.machine, term=term, jitter=lambda: 0.0, now_us=self.now_us)
        self.sent.clear()

    def cap(self, client_id: str, *, cap: int = 0, weight: int = 1) -> None:
        """An operator's setting."""
        self.leader.operate.set_client(client_id, cap=cap, weight=weight, by="op", to=None)

    def submit(self, client_id: str, exec_name: str, *, priority: int = 0, delay_us: int = 0) -> str:
        """A plain job; its id."""
        self.count += 1
        job_id = f"{self.now_us // 1000:012x}7{self.count:019x}"
        not_before_us = self.now_us + delay_us if delay_us else 0
        submit = Submit(job_id, client_id, exec_name, priority=priority, not_before_us=not_before_us)
        self.leader.intake.submit(submit, None)
        return job_id

    def worker(self, worker_id: str, *patterns: str, credit: int = 0) -> None:
        """A worker connects."""
        hello = Hello(worker_id, "a", list(patterns) or ["job.assign.>"], hands=8, credit=credit)
        assert self.leader.liveness.hello(hello) is None
        self.sent[worker_id] = 0

    def take(self, worker_id: str, more: int) -> list[Assigned]:
        """The worker takes so many more; what it and the others were given."""
        self.leader.liveness.credit(worker_id, self.sent[worker_id], more)
        return self.told()

    def told(self) -> list[Assigned]:
        """Hand out; the assignments in the order of their making."""
        self.leader.schedule()
        self.leader.desk.take_lines()
        given = [effect for effect in self.leader.desk.take_effects() if isinstance(effect, Assigned)]
        for effect in given:
            self.sent[effect.event.worker_id] += 1
        return given

    def end(self, event: Assign) -> None:
        """The job is done."""
        outcome = Outcome(event.job_id, (event.term, event.index))
        self.leader.attempts.outcome(event.worker_id, outcome)

    def pass_time(self, us: int) -> None:
        """A tick, with everybody alive."""
        self.now_us += us
        self.leader.desk.set_time(self.now_us)
        for worker_id in self.sent:
            self.leader.liveness.heard(worker_id)
        self.leader.tick(self.now_us)
