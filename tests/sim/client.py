"""Clients: processes that host the library's ClientCore, ask it for everything, and check what they are told.

What the core says of a submit is held against the log: accepted is in it once, refused is not in it, and only
unknown may be either. Every plain payload is unlike all others, so that a job which was accepted twice under
two ids is found.
"""

from hashlib import sha256
from typing import Final

from rollmq.errors import JobUnknown, ResultExpired
from rollmq.library.call import ACCEPTED, CANCEL, ENDED, GONE, REFUSED, UNKNOWN, Call, Question
from rollmq.library.client_core import ClientCore, ClientProfile
from rollmq.wire import job_headers as j
from rollmq.wire.codec import encode, encode_header
from rollmq.wire.message import MsgType
from rollmq.wire.readers import submit_subject
from tests.sim.party import Party, Town
from tests.sim.swarm import MS, Swarm
from tests.sim.world import SECOND_US, Violation, World
from tests.wire.unfold import unfolded

PATIENCE_US: Final = (2 * SECOND_US, 60 * SECOND_US, 3_600 * SECOND_US)
REFUSALS_ENOUGH: Final = 5
"""In the calm: what is refused so often will be for ever, for no worker empties the queue."""


class SimCall(Call):
    """A submit as its client sees it."""

    def __init__(
        self, client: "SimClient", exec_name: str, payload: bytes, header: bytes, **how: bool
    ) -> None:
        super().__init__(submit_subject(exec_name).encode(), payload, header, **how)
        self.client = client
        self.text = payload
        """The payload, kept for the accounts."""
        self.key = ""
        self.is_copied = False
        """A copy of its frame was sent, which the core knows nothing of."""
        self.told = ""

    def moved(self) -> None:
        self.client.moved(self)

    def progressed(self, data: bytes, key_id: str) -> None:
        del key_id
        if data != b"half":
            raise Violation(f"{self.client.name} is told a progress that no handler reported: {data!r}")


class SimClient(Party):
    """One session's process of a client."""

    core: ClientCore

    def __init__(
        self, world: World, town: Town, swarm: Swarm, name: str, client_id: str, jobs_max: int
    ) -> None:
        super().__init__(world, town, swarm, name)
        self.client_id = client_id
        self.calls: list[SimCall] = []
        self.submits_left = jobs_max
        traffic = swarm.traffic
        profile = ClientProfile(
            client_id,
            cap=world.random.randint(1, 4) if world.happens(traffic.capped) else 0,
            weight=world.random.choice((1, 1, 3)),
            release="sim",
            patience_us=world.random.choice(PATIENCE_US),
        )
        self.core = ClientCore(profile, bits=world.random.getrandbits, chance=world.random.random)
        world.after(world.between((0, SECOND_US)), lambda: self.begin(self.core))
        world.after(world.between((0, SECOND_US)), self._submit_some)

    # -- submitting

    def _submit_some(self) -> None:
        """A burst now, another later; whether there is a connection is the core's business."""
        if self.submits_left <= 0:
            return
        count = min(self.world.random.randint(1, self.swarm.traffic.burst), self.submits_left)
        self.submits_left -= count
        for _ in range(count):
            self._submit(self._new_call())
        self.turn()
        self.world.after(self.world.rarely(self.swarm.traffic.submit_every_us), self._submit_some)

    def _submit(self, call: SimCall) -> None:
        self.calls.append(call)
        call.wants_result = not self.world.happens(0.1)
        self.core.submit(call, self.world.now_us)
        traffic = self.swarm.traffic
        if self.world.is_calm:
            return
        if self.world.happens(traffic.resend):
            self._copy_last(call)
        if self.world.happens(traffic.cancel):
            self.world.after(self.world.between((0, 5 * SECOND_US)), lambda: self._cancel(call))

    def _copy_last(self, call: SimCall) -> None:
        self.core.gather()
        if self.core.out:
            call.is_copied = True
            copy = encode(unfolded(self.core.out[-1])[-1])
            self.world.after(self.world.between((0, 5 * SECOND_US)), lambda: self._send_copy(copy))

    def _send_copy(self, frame: bytes) -> None:
        """What a library may do that repeats too much."""
        if self.is_alive and self.core.can_say(MsgType.SUBMIT_JOB) and self.core.is_ready:
            self.core.put(frame)
            self.turn()

    def _cancel(self, call: SimCall) -> None:
        if call.state in (ACCEPTED, UNKNOWN):
            self.core.ask(Question(CANCEL, job_id=call.job_id, why="sim"), self.world.now_us)
            self.turn()

    def _new_call(self) -> SimCall:
        world, traffic = self.world, self.swarm.traffic
        kind = world.random.choices(list(traffic.kinds), list(traffic.kinds.values()))[0]
        serial = f"{self.name}/{len(self.calls)}"
        payload = f"{kind} {serial} ".encode() + bytes(world.random.randint(0, traffic.payload_bytes))
        key = digest = ""
        if world.happens(traffic.keyed):
            key = f"k{world.random.randrange(8)}"
            payload = f"{kind} {key} {int(world.happens(0.1))}".encode()
            digest = sha256(payload).hexdigest()
        header = j.SubmitJobHeader(
            key=key,
            content_digest=digest,
            priority=world.random.randrange(10) if world.happens(traffic.prioritised) else 0,
            delay_us=world.between((MS, 60 * SECOND_US)) if world.happens(traffic.delayed) else 0,
            expires_in_us=world.between((MS, 30 * SECOND_US)) if world.happens(traffic.expiring) else 0,
            timeout_us=(2 if world.happens(traffic.short_timeout) else 60) * SECOND_US,
            timeout_factor=world.random.choice((1.0, 2.0)),
            tries_max=world.random.choice((1, 2, 5)),
            backoff=world.random.choice(
                (None, j.BackoffOptions(10 * MS, 2.0, SECOND_US, 0.5), j.BackoffOptions(0, 1.0, 0, 0.0))
            ),
        )
        exec_name = f"exec{world.random.randrange(traffic.execs)}"
        call = SimCall(self, exec_name, payload, encode_header(header), is_patient=world.happens(0.3))
        call.key = key
        return call

    # -- what it is told

    def moved(self, call: SimCall) -> None:
        """The core says what became of a submit."""
        ledger, job_id = self.oracle.ledger, call.job_id.hex()
        if call.told in ("done", "dead", "cancelled", "dropped", "gone", "refused", "unknown"):
            raise Violation(f"P2: {self.name} was told {call.told} of {job_id}, and now state {call.state}")
        if call.state == ACCEPTED:
            call.told = "accepted"
            if job_id not in ledger.jobs:
                raise Violation(f"P1: {self.name} is told of {job_id}, which is not in the log")
            if not call.wants_result:
                self.world.after(self.world.between((0, 5 * SECOND_US)), lambda: self._ask_for(call))
        elif call.state == ENDED:
            outcome = call.outcome
            assert outcome is not None
            call.told = outcome.state
            self.oracle.final_received(job_id, outcome.state, outcome.result)
        elif call.state == GONE:
            call.told = "gone"
            self._is_gone(call, job_id)
        elif call.state == REFUSED:
            call.told = "refused"
            self.oracle.counts[f"refused {type(call.error).__name__}"] += 1
        else:
            assert call.state == UNKNOWN
            call.told = "unknown"
            self.oracle.counts["unknown to its client"] += 1

    def _is_gone(self, call: SimCall, job_id: str) -> None:
        """Its end is not kept any more; that it was accepted is never denied."""
        if isinstance(call.error, JobUnknown):
            raise Violation(f"P1: {self.name} asks for {job_id}, which was accepted, and it is unknown")
        if not isinstance(call.error, ResultExpired):
            raise Violation(f"{self.name} asks for {job_id}: {call.error!r}")

    def _ask_for(self, call: SimCall) -> None:
        if self.is_alive:
            self.core.await_result(call, self.world.now_us)
            self.turn()

    # -- the accounts

    def waits_for(self) -> list[str]:
        """What should have been answered by now, in a calm."""
        jobs = self.oracle.ledger.jobs
        found = []
        for call in self.calls:
            job_id = call.job_id.hex()
            if not call.told and call.refused_count <= REFUSALS_ENOUGH:
                found.append(f"{self.name} waits for an answer to {job_id}")
            elif call.told == "accepted":
                known = jobs.get(job_id)
                if known is not None and known.finals and known.state != "queued":
                    found.append(f"{self.name} was not told that {job_id} is {known.state}")
        return found

    def check(self, ids_by_payload: dict[bytes, list[str]]) -> None:
        """Hold what it was told against the whole log."""
        jobs = self.oracle.ledger.jobs
        is_sure = self.swarm.net.is_orderly
        for call in self.calls:
            job_id = call.job_id.hex()
            if (
                call.told in ("accepted", "done", "dead", "cancelled", "dropped", "gone")
                and job_id not in jobs
            ):
                raise Violation(f"P1: {job_id} was told to be {call.told} and is lost")
            if call.key or call.is_copied or not is_sure:
                continue
            ids = ids_by_payload.get(call.text, [])
            if call.told == "refused" and ids:
                raise Violation(f"{self.name}: {ids} was refused and is in the log: {call.error}")
            if len(ids) > 1:
                raise Violation(f"{self.name}: one submit is in the log twice: {ids}")
