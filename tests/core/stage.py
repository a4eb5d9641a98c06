"""A leader on a machine, with virtual time, played by commands: what scenario files are run on.

Decisions are the real ones; the stage stands in for the host (time, commits) and for clients and workers
(which remember the fences that they were told). Beside the leader's machine a follower, without the queues'
indexes, applies the lines: at the end both must have the same bytes.
"""

from collections.abc import Callable

import msgspec

from rollmq.core.attempts import Outcome
from rollmq.core.effects import AnyEffect, Assigned
from rollmq.core.events import AnyEvent, Backoff, Fence, Settings
from rollmq.core.intake import Submit, Wish
from rollmq.core.job import INFLIGHT, QUEUED, Job
from rollmq.core.leader import Leader
from rollmq.core.line import decode_line
from rollmq.core.liveness import Held, Hello
from rollmq.core.machine import Machine
from rollmq.core.state import dump_state, load_state
from tests.core.audit import audit
from tests.core.naming import T0_US, Names, duration_text, duration_us
from tests.core.telling import effect_text, place_text

STEPS_MAX = 120
"""An advance goes in at most so many steps, none shorter than a second unless the rest is."""


class Args:
    """The words of one command: names, then `key=value`."""

    def __init__(self, words: list[str]) -> None:
        self.names = [name for word in words if "=" not in word for name in _expanded(word)]
        self.values = dict(word.split("=", 1) for word in words if "=" in word)

    def text(self, key: str, default: str = "") -> str:
        return self.values.get(key, default)

    def number(self, key: str, default: int = 0) -> int:
        return int(self.values.get(key, default))

    def us(self, key: str, default: int = 0) -> int:
        return duration_us(self.values[key]) if key in self.values else default


def _expanded(word: str) -> list[str]:
    """j1..j4 stands for j1 j2 j3 j4."""
    if ".." not in word:
        return [word]
    first, last = word.split("..")
    letters = first.rstrip("0123456789")
    begin, end = int(first[len(letters) :]), int(last[len(letters) :])
    return [f"{letters}{number}" for number in range(begin, end + 1)]


class Stage:
    """One queue and everybody around it."""

    def __init__(self) -> None:
        self.now_us = T0_US
        self.names = Names()
        self.jitter = 0.0
        self.machine = Machine()
        self.follower = Machine(is_indexed=False)
        self.committed = 0
        self.is_holding = False
        self.is_scheduling = True
        self.waiting: list[AnyEffect] = []
        self.out: list[str] = []
        self.fences: dict[tuple[str, str], Fence] = {}
        """The newest fence that a worker was told for a job."""
        self.sent: dict[str, int] = {}
        self.hellos: dict[str, Hello] = {}
        self.talking: dict[str, bool] = {}
        """Workers with a connection, and whether they answer pings."""
        self._last_places = place_text(self.machine, self.names)
        self.leader = self._new_leader(term=1)
        self._settle()
        self.out.clear()
        self._commands: dict[str, Callable[[Args], None]] = {
            name.removeprefix("do_"): getattr(self, name) for name in dir(self) if name.startswith("do_")
        }

    def _new_leader(self, *, term: int) -> Leader:
        return Leader(self.machine, term=term, jitter=lambda: self.jitter, now_us=self.now_us)

    def run(self, commands: list[str]) -> list[str]:
        """Play one section's commands; return its transcript."""
        self.out = []
        for command in commands:
            verb, *words = command.split()
            self._commands[verb.replace("-", "_")](Args(words))
            self._settle()
        places = place_text(self.machine, self.names)
        if places != self._last_places:
            self.out.append(places)
            self._last_places = places
        return self.out

    def finish(self) -> None:
        """What must hold after every scenario."""
        audit(self.machine)
        assert self.machine.no_ops == 0
        dump = list(dump_state(self.machine))
        assert dump == list(dump_state(self.follower)), "leader and follower differ"
        assert dump == list(dump_state(load_state(dump))), "loading changed the state"

    # -- the host: schedule, write, commit, tell

    def _settle(self) -> None:
        if self.is_scheduling:
            self.leader.schedule()
        for line in self.leader.desk.take_lines():
            event: AnyEvent = decode_line(line)
            self.follower.apply(event)
            self.out.append(self.names.event(event))
        self.waiting += self.leader.desk.take_effects()
        if not self.is_holding:
            self._commit(self.machine.last_index)

    def _commit(self, index: int) -> None:
        self.committed = index
        told = [effect for effect in self.waiting if effect.index <= index]
        self.waiting = [effect for effect in self.waiting if effect.index > index]
        for effect in told:
            if isinstance(effect, Assigned):
                worker_id = effect.event.worker_id
                self.fences[worker_id, effect.job.id] = (effect.event.term, effect.event.index)
                self.sent[worker_id] = self.sent.get(worker_id, 0) + 1
            self.out.append(effect_text(effect, self.names))

    def do_hold(self, _args: Args) -> None:
        """Commits wait, as when followers are slow."""
        self.is_holding = True

    def do_commit(self, args: Args) -> None:
        """Everything up to an index commits; without one everything, and from now on by itself."""
        self.is_holding = bool(args.names)
        self._commit(int(args.names[0]) if args.names else self.machine.last_index)

    def do_schedule(self, args: Args) -> None:
        """off: only `schedule` hands out; on: it happens after every command, as on a node."""
        self.is_scheduling = args.names != ["off"]

    def do_advance(self, args: Args) -> None:
        """Time passes; whoever is connected and not silent answers pings. What falls due tells its time."""
        left_us = duration_us(args.names[0])
        step_us = max(left_us // STEPS_MAX, 1_000_000)
        while left_us > 0:
            passed_us = min(step_us, left_us)
            left_us -= passed_us
            self.now_us += passed_us
            before = len(self.out)
            self.leader.desk.set_time(self.now_us)
            for worker_id, is_answering in self.talking.items():
                if is_answering:
                    self.leader.liveness.heard(worker_id)
            self.leader.tick(self.now_us)
            self._settle()
            if len(self.out) > before:
                self.out.insert(before, f"at {duration_text(self.now_us - T0_US)}")

    def do_jitter(self, args: Args) -> None:
        """The chance that is handed in from now on."""
        self.jitter = float(args.names[0])

    def do_new_leader(self, _args: Args) -> None:
        """The leader is gone with what it had not said; the same node leads the next term."""
        self.waiting.clear()
        self._lead_next_term()

    def do_failover(self, _args: Args) -> None:
        """Another node leads, on a machine that it loaded from a snapshot and never led with."""
        self.waiting.clear()
        self.machine = load_state(list(dump_state(self.machine)))
        self._lead_next_term()

    def _lead_next_term(self) -> None:
        self.talking.clear()
        self.sent.clear()
        self.is_holding = False
        self.leader = self._new_leader(term=self.leader.desk.term + 1)

    def do_snapshot(self, _args: Args) -> None:
        """Dump, load, compare bytes: with and without indexes."""
        dump = list(dump_state(self.machine))
        for is_indexed in (True, False):
            loaded = load_state(dump, is_indexed=is_indexed)
            assert list(dump_state(loaded)) == dump
            audit(loaded)
        self.out.append(
            f"snapshot as of {self.machine.last_index}: {len(dump)} lines, loads to the same bytes"
        )

    # -- clients

    def do_client(self, args: Args) -> None:
        wish = Wish(args.number("cap"), args.number("weight", 1))
        (client_id,) = args.names
        if args.text("by"):
            by = args.text("by")
            self.leader.operate.set_client(client_id, cap=wish.cap, weight=wish.weight, by=by, to="op")
        else:
            problem = self.leader.intake.hello(client_id, wish)
            if problem is not None:
                self.out.append(f"no: {problem}")

    def do_submit(self, args: Args) -> None:
        for name in args.names:
            self.leader.intake.submit(self._submit_of(name, args), args.text("client", "c1"))
            if len(args.names) > 1:
                self._settle()

    def _submit_of(self, name: str, args: Args) -> Submit:
        drawn_us = self.now_us + args.us("id_ahead") - args.us("id_age")
        backoff = None
        if "first" in args.values:
            first_us = args.us("first")
            longest_us = args.us("max", max(first_us, 600_000_000))
            backoff = Backoff(
                first_us, float(args.text("factor", "2")), longest_us, float(args.text("chance", "0"))
            )
        return Submit(
            self.names.draw(name, drawn_us),
            args.text("client", "c1"),
            args.text("exec", "resize"),
            b"x" * args.number("payload"),
            content_digest=args.text("content", "same" if "key" in args.values else ""),
            key=args.text("key"),
            priority=args.number("priority"),
            not_before_us=self.now_us + args.us("delay") if "delay" in args.values else 0,
            expires_at_us=self.now_us + args.us("expires_in") if "expires_in" in args.values else 0,
            timeout_us=args.us("timeout", 600_000_000),
            timeout_factor=float(args.text("timeout_factor", "1")),
            tries_max=args.number("tries_max", 5),
            backoff=backoff,
        )

    def do_host(self, args: Args) -> None:
        """What the host tells the intake: disk_low, draining, or fine."""
        self.leader.intake.is_disk_low = "disk_low" in args.names
        self.leader.intake.is_draining = "draining" in args.names

    # -- workers

    def do_worker(self, args: Args) -> None:
        """A hello; what is not said is as in the worker's last hello. `held=j1*,j2`: * is a started one,
        `j1*@30s` with so much of its time left; `outcomes=j1` are acks that were not confirmed."""
        (worker_id,) = args.names
        old = self.hellos.get(worker_id)
        hello = Hello(
            worker_id,
            args.text("instance", old.instance if old else "a"),
            args.text("patterns", ",".join(old.patterns) if old else "job.assign.>").split(","),
            args.number("hands", old.hands if old else 8),
            args.number("credit", old.credit if old else 0),
            release=args.text("release", old.release if old else ""),
            held=[self._held(worker_id, text) for text in args.text("held").split(",") if text],
            outcomes=[
                Outcome(self._id(name), self._fence(worker_id, name, args), result=b"done")
                for name in args.text("outcomes").split(",")
                if name
            ],
        )
        problem = self.leader.liveness.hello(hello)
        if problem is not None:
            self.out.append(f"no: {self.names.in_text(problem)}")
            return
        self.hellos[worker_id] = hello
        self.talking[worker_id] = True
        self.sent[worker_id] = 0

    def _held(self, worker_id: str, text: str) -> Held:
        name, _, left = text.partition("@")
        is_started = name.endswith("*")
        name = name.removesuffix("*")
        left_us = duration_us(left) if left else None
        return Held(self._id(name), self._fence(worker_id, name, Args([])), is_started, left_us)

    def _id(self, name: str) -> str:
        return self.names.draw(name, self.now_us)

    def _fence(self, worker_id: str, name: str, args: Args) -> Fence:
        """What the worker was told, or what the command says."""
        if "fence" in args.values:
            term, index = args.values["fence"].split(".")
            return int(term), int(index)
        return self.fences.get((worker_id, self._id(name)), (0, 0))

    def do_credit(self, args: Args) -> None:
        seen = args.number("seen", self.sent.get(args.names[0], 0))
        self.leader.liveness.credit(args.names[0], seen, args.number("more"))

    def do_start(self, args: Args) -> None:
        worker_id, *names = args.names
        for name in names:
            self.leader.attempts.begin(worker_id, self._id(name), self._fence(worker_id, name, args))

    def do_extend(self, args: Args) -> None:
        worker_id, name = args.names
        fence = self._fence(worker_id, name, args)
        if not self.leader.attempts.extend(worker_id, self._id(name), fence, args.us("by")):
            self.out.append("no: the attempt does not run")

    def do_ack(self, args: Args) -> None:
        self._outcome(args, result=args.text("result", "done").encode())

    def do_fail(self, args: Args) -> None:
        self._outcome(args, is_ok=False, wants="retry")

    def do_snooze(self, args: Args) -> None:
        self._outcome(args, is_ok=False, wants="snooze")

    def do_reject(self, args: Args) -> None:
        self._outcome(args, is_ok=False, wants="reject")

    def _outcome(self, args: Args, *, is_ok: bool = True, result: bytes = b"", wants: str = "") -> None:
        worker_id, *names = args.names
        for name in names:
            outcome = Outcome(
                self._id(name),
                self._fence(worker_id, name, args),
                is_ok,
                result,
                run_us=args.us("run") if "run" in args.values else None,
                error_type=args.text("error"),
                error_message=args.text("message"),
                error_detail=args.text("detail").encode(),
                key_id=args.text("key_id"),
                wants=wants,
                after_us=args.us("after") if "after" in args.values else None,
            )
            self.leader.attempts.outcome(worker_id, outcome)
            self._settle()

    def do_back(self, args: Args) -> None:
        worker_id, *names = args.names
        for name in names:
            fence = self._fence(worker_id, name, args)
            reason = args.text("reason", "taken_back").replace("_", " ")
            self.leader.attempts.give_back(worker_id, self._id(name), fence, reason)

    def do_break(self, args: Args) -> None:
        for worker_id in args.names:
            self.leader.liveness.broken(worker_id)
            self.talking.pop(worker_id, None)

    def do_silent(self, args: Args) -> None:
        for worker_id in args.names:
            self.talking[worker_id] = False

    def do_goodbye(self, args: Args) -> None:
        for worker_id in args.names:
            self.leader.liveness.goodbye(worker_id)

    # -- operators

    def do_cancel(self, args: Args) -> None:
        for name in args.names:
            self.leader.operate.cancel(self._id(name), by="ann", why="", to="ann")

    def do_redrive(self, args: Args) -> None:
        ids = [self._id(name) for name in args.names]
        self.leader.operate.redrive(ids, by="ann", why="", to="ann")

    def do_drop(self, args: Args) -> None:
        self.leader.operate.drop([self._id(name) for name in args.names], by="ann", why="", to="ann")

    def do_pause(self, args: Args) -> None:
        is_total = args.text("submits") == "yes"
        self.leader.operate.pause(args.names[0], submits=is_total, by="ann", why="", to="ann")

    def do_resume(self, args: Args) -> None:
        self.leader.operate.resume(args.names[0], by="ann", why="", to="ann")

    def do_settings(self, args: Args) -> None:
        """Durations for what ends in _us, numbers for the rest."""
        changes = {
            name: duration_us(text) if name.endswith("_us") else int(text)
            for name, text in args.values.items()
        }
        settings: Settings = msgspec.structs.replace(self.machine.settings, **changes)
        self.leader.operate.set_settings(settings, by="ann", to="ann")

    def do_pipeline(self, args: Args) -> None:
        self.leader.operate.confirm_pipeline(args.names[0], args.number("index"), to="spark")

    # -- looking

    def do_explain(self, args: Args) -> None:
        for name in args.names:
            found = self.leader.explain(self._id(name))
            fields = self.names.fields(found, without=("job_id", "text", "errors"))
            self.out.append(f"{name}: {' '.join(fields)} -- {self.names.in_text(found.text)}")
            self.out += [f"{name}: error {' '.join(self.names.fields(each))}" for each in found.errors]

    def do_workers(self, _args: Args) -> None:
        for worker_id, slot in self.leader.desk.scheduler.workers.items():
            self.out.append(f"{worker_id}: running={slot.running} credit={slot.credit}")

    def do_job(self, args: Args) -> None:
        """What is remembered of a job's attempts."""
        for name in args.names:
            job_id = self._id(name)
            job = self.machine.jobs.get(job_id) or self.machine.dead.get(job_id)
            assert job is not None, f"{name} is not open"
            self.out.append(f"{name}: {_memory_of(job)}")

    def do_counts(self, _args: Args) -> None:
        self.out.append(" ".join(self.names.fields(self.machine.counts())))


def _memory_of(job: Job) -> str:
    errors = [f"{error.attempt}:{error.type}" for error in job.errors or []]
    state = {QUEUED: "queued", INFLIGHT: "inflight"}.get(job.state, "dead")
    return (
        f"{state} life={job.life} attempt={job.attempt} tries={job.tries} starts={job.starts} "
        f"crashes={job.crashes} errors=[{' '.join(errors)}]"
    )
