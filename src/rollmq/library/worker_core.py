"""The worker's end of the conversation: which jobs it holds, which may begin, which outcomes are confirmed.

    core.opened / feed / lost / tick         # as every Dialog; then write `take_out`, and only then
    for held in core.take_starts(): ...      # run these handlers: the node was told
    for held in core.take_stops(): ...       # stop these, if they can be stopped
    core.finished(held, outcome)             # a handler ended, stopped ones too; then once for all of them
    core.settle()                            # acks, starts, credit: again write `out` and take

Sans-IO: it runs no handler and reads no clock. It never starts more than `hands`, never asks for more than
its credit, and forgets no outcome before AckDone.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Final

from rollmq import limits
from rollmq.library.dialog import NEVER_US, Dialog, hello_frame
from rollmq.library.held_job import (
    ENDED,
    RUNNING,
    VOID,
    WAITING,
    HeldJob,
    Outcome,
    exec_of_subject,
)
from rollmq.library.together import ack_frames, held_jobs_of
from rollmq.wire.codec import encode_frame, encode_header, encode_payload, header_of
from rollmq.wire.headers import (
    ErrorHeader,
    Fence,
    Held,
    HeldList,
    HeldOutcome,
    HelloAnswerHeader,
    HelloWorkerHeader,
)
from rollmq.wire.job_headers import (
    AckDoneHeader,
    AssignJobHeader,
    CancelHeader,
    CreditHeader,
    HandBackReason,
    ResultHeader,
    StartedHeader,
    StartedJob,
)
from rollmq.wire.message import NO_ID, PROTOCOL_VERSION, PROTOCOL_VERSION_MIN, Frame, MsgType

LONG_JOB_US: Final = 1_000_000
"""Jobs that run longer gain nothing from being prefetched: they would only wait here instead of elsewhere."""
LOOK_EVERY_US: Final = 500_000
"""How often running jobs are looked at for their deadlines."""
OVERTIME_US: Final = 2_000_000
"""The node ends attempts that are over their time. Only when it has not been heard for so long behind the
deadline is a handler stopped without it: else every timeout would be told as a failure of the handler."""
AVERAGE_OF: Final = 8
"""Jobs that the average run time looks back on."""


@dataclass(frozen=True, slots=True)
class WorkerProfile:
    """Who a worker is and how much it takes."""

    worker_id: str
    instance: str
    patterns: tuple[str, ...]
    hands: int = 8
    credit: int | None = None
    """Jobs that it holds at most, running ones included; None: twice the hands, and the hands alone once
    jobs run longer than a second."""
    host: str = ""
    release: str = ""
    token: str = ""


class WorkerCore(Dialog):
    """One worker process as the node sees it, over all of its connections.

    Invariants: the handlers that run are at most `hands`; a job is in `held` until it has an outcome and
    then in `outcomes` until AckDone; both together are at most WORKER_HELD_MAX.
    """

    def __init__(self, profile: WorkerProfile, *, takes: Callable[[str], bool] = lambda _exec: True) -> None:
        super().__init__()
        assert 1 <= profile.hands <= limits.WORKER_HANDS_MAX
        assert profile.credit is None or 1 <= profile.credit <= limits.WORKER_HELD_MAX
        self.profile = profile
        self.held: dict[Fence, HeldJob] = {}
        """Without an outcome: waiting, running, or void and still in its hand."""
        self.outcomes: dict[Fence, HeldJob] = {}
        """Ended and not confirmed."""
        self.is_draining = False
        self.is_drained = False
        """Nothing is held and nothing unconfirmed: the process may go."""
        self.complaints: list[str] = []
        """What the node did not like about our messages; the host takes and reports them."""
        self._takes = takes
        self._waiting: deque[HeldJob] = deque()
        """In the order in which they came; those that do not wait any more are skipped."""
        self._running_count = 0
        self._starts: list[HeldJob] = []
        self._stops: list[HeldJob] = []
        self._to_ack: list[HeldJob] = []
        self._sent: deque[HeldJob] = deque()
        """Acks of this connection that are not confirmed; the first has the number _done_seq + 1."""
        self._done_seq = 0
        self._seen_seq = 0
        self._granted = 0
        """How many more jobs the node may send, as far as it was told."""
        self._progress_seq = 0
        self._average_us = 0
        self._look_us = NEVER_US

    # -- what the host does

    def feed(self, data: bytes, now_us: int) -> None:
        """Bytes came; what follows from all of them goes out together."""
        super().feed(data, now_us)
        self.settle()

    def take_starts(self) -> list[HeldJob]:
        """Handlers to run, once `out` has been written: not before, for a job that kills its worker must
        have been told as started."""
        starts, self._starts = self._starts, []
        return starts

    def take_stops(self) -> list[HeldJob]:
        """Handlers to stop where that is possible. They end by `finished` like any other."""
        stops, self._stops = self._stops, []
        return stops

    def finished(self, held: HeldJob, outcome: Outcome) -> None:
        """A handler ended. `settle` tells it."""
        self._running_count -= 1
        assert self._running_count >= 0
        del self.held[held.header.fence]
        if held.state == VOID:
            held.state = ENDED
            return
        assert held.state == RUNNING
        if outcome.run_us is not None:
            self._average_us += (outcome.run_us - self._average_us) // AVERAGE_OF
        self._end(held, outcome)

    def settle(self) -> None:
        """Tell what has ended, start what there are hands for, and say how much more is taken."""
        if self.is_ready and not self.is_over:
            if self._to_ack:
                self._say_acks()
            if self._waiting and not self.is_draining:
                self._start_more()
            if self._room() != self._granted:
                self._say_credit()
        if self.is_draining and not self.held and not self.outcomes:
            self.is_drained = True
            if not self.is_over:
                self.end("drained")

    def drain(self) -> None:
        """Take nothing more: hand back what has not begun, finish what runs, wait until all is confirmed."""
        if self.is_draining:
            return
        self.is_draining = True
        for held in [held for held in self.held.values() if held.state == WAITING]:
            self._hand_back(held, "drained")
        self.say_goodbye()
        self.settle()

    def progress(self, held: HeldJob, data: bytes, *, key_id: str = "") -> None:
        """Something for the client while the job runs; dropped when nobody listens."""
        if held.state == RUNNING and self.can_say(MsgType.RESULT):
            self._progress_seq += 1
            self._say_result(held, data, seq=self._progress_seq, key_id=key_id)

    def extend(self, held: HeldJob, extend_us: int) -> None:
        """Its time ends so much later from now. Without a connection the next hello says it."""
        if held.state != RUNNING:
            return
        held.deadline_us = self.now_us + extend_us
        if self.can_say(MsgType.RESULT):
            self._say_result(held, b"", extend_us=extend_us)

    def say_outcomes_again(self) -> None:
        """Send every unconfirmed outcome once more: what comes twice counts once."""
        self._to_ack = list(self.outcomes.values())
        self.settle()

    @property
    def next_us(self) -> int:
        """When to tick at the latest."""
        return min(super().next_us, self._look_us)

    # -- the connection

    def make_hello(self) -> Frame:
        """Who this is, how much it takes, and the exhaustive list of what it holds."""
        for held in [held for held in self.outcomes.values() if _is_handed_back(held)]:
            # What is not listed goes back to the queue at once: all that handing it back would do.
            del self.outcomes[held.header.fence]
        self._granted = self._room()
        header = self._hello_header(credit=self._granted)
        payload = encode_payload(HeldList(self._list_held(), self._list_outcomes()))
        return hello_frame(MsgType.HELLO_WORKER, self.next_request_id(), header, payload)

    def make_watch_hello(self) -> Frame:
        """The second connection, which hears of new leaders."""
        header = self._hello_header(watches=True)
        return hello_frame(MsgType.HELLO_WORKER, self.next_request_id(), header)

    def _hello_header(self, *, credit: int = 0, watches: bool = False) -> HelloWorkerHeader:
        profile = self.profile
        return HelloWorkerHeader(
            version=PROTOCOL_VERSION,
            version_min=PROTOCOL_VERSION_MIN,
            worker_id=profile.worker_id,
            instance=profile.instance,
            patterns=profile.patterns,
            hands=profile.hands,
            credit=credit,
            host=profile.host,
            release=profile.release,
            token=profile.token,
            watches=watches,
            many=not watches,
        )

    def _list_held(self) -> tuple[Held, ...]:
        return tuple(self._list_one(held) for held in self.held.values() if held.state != VOID)

    def _list_one(self, held: HeldJob) -> Held:
        if held.state == WAITING:
            return Held(held.job_id.hex(), held.header.fence)
        run_us, left_us = self.now_us - held.started_us, held.deadline_us - self.now_us
        return Held(held.job_id.hex(), held.header.fence, True, max(run_us, 0), max(left_us, 0))

    def _list_outcomes(self) -> tuple[HeldOutcome, ...]:
        return tuple(HeldOutcome(held.job_id.hex(), fence) for fence, held in self.outcomes.items())

    def on_ready(self, answer: HelloAnswerHeader) -> None:
        """Numbers begin anew, and every outcome is told again."""
        del answer
        self._seen_seq = self._done_seq = 0
        self._sent.clear()
        self._to_ack = list(self.outcomes.values())
        if self.is_draining:
            self.say_goodbye()

    def on_lost(self) -> None:
        """What was under way is told again on the next connection."""
        self._sent.clear()
        self._to_ack.clear()
        starts, self._starts = self._starts, []
        for held in reversed(starts):
            self._take_start_back(held)

    def _take_start_back(self, held: HeldJob) -> None:
        """Nobody was told of this start, and its handler was not run: as if it had not been."""
        self._running_count -= 1
        if held.state == RUNNING:
            held.state = WAITING
            self._waiting.appendleft(held)
        else:
            assert held.state == VOID
            held.state = ENDED
            del self.held[held.header.fence]

    def lost(self, now_us: int) -> None:
        """The connection is gone; a drained worker has nothing to come back for."""
        super().lost(now_us)
        self.settle()

    def _on_goodbye(self) -> None:
        # The node answers our Goodbye at once, but confirms what runs here only when it has ended.
        if not self.is_draining:
            super()._on_goodbye()

    def on_tick(self) -> None:
        """Stop what is over its time while no node says so."""
        if self.now_us < self._look_us:
            return
        self._look_us = NEVER_US
        for held in self.held.values():
            if held.state == RUNNING:
                self._look_us = self.now_us + LOOK_EVERY_US
                if self.now_us >= held.deadline_us + OVERTIME_US:
                    self._stop(held)

    # -- frames in

    def on_frame(self, frame: Frame) -> None:
        """What a node says to a worker."""
        if frame.type == MsgType.ASSIGN_JOBS:
            self._on_assigns(frame)
        elif frame.type == MsgType.ASSIGN_JOB:
            self._on_assign(frame)
        elif frame.type == MsgType.ACK_DONE:
            self._on_ack_done(header_of(frame, AckDoneHeader))
        elif frame.type == MsgType.CANCEL:
            self._on_cancel(frame, header_of(frame, CancelHeader))
        elif frame.type == MsgType.ERROR:
            error = header_of(frame, ErrorHeader)
            self.complaints.append(f"{error.code}: {error.text}")

    def _on_assign(self, frame: Frame) -> None:
        exec_name = exec_of_subject(frame.subject, self.profile.worker_id)
        self._take(HeldJob(frame.msg_id, exec_name, header_of(frame, AssignJobHeader), frame.payload))

    def _on_assigns(self, frame: Frame) -> None:
        for held in held_jobs_of(frame, self.profile.worker_id):
            self._take(held)

    def _take(self, held: HeldJob) -> None:
        header = held.header
        if header.seq <= self._seen_seq or header.fence in self.held or header.fence in self.outcomes:
            return  # repeated, or overtaken: what it began may be over already, so it is none
        self._granted -= header.seq - self._seen_seq
        self._seen_seq = header.seq
        self.held[header.fence] = held
        if self.is_draining:
            self._hand_back(held, "drained")
        elif self._takes(held.exec):
            self._waiting.append(held)
        else:
            job = held.job_id.hex()
            self.complaints.append(f"there is no handler for {held.exec!r}: job {job} goes back")
            self._hand_back(held, "refused")

    def _on_ack_done(self, header: AckDoneHeader) -> None:
        while self._done_seq < header.seq and self._sent:
            self._done_seq += 1
            self.outcomes.pop(self._sent.popleft().header.fence, None)

    def _on_cancel(self, frame: Frame, header: CancelHeader) -> None:
        if header.fence is None or header.fence in self.outcomes:
            return  # its outcome is on the way: AckDone will say whether it came too late
        held = self.held.get(header.fence)
        if header.what == "take_back":
            self._take_back(frame, header.fence, held)
        elif held is None or held.state == VOID:
            return
        elif held.state == RUNNING:
            self._stop(held)
            held.state = VOID
        else:
            del self.held[header.fence]
            held.state = ENDED

    def _take_back(self, frame: Frame, fence: Fence, held: HeldJob | None) -> None:
        if held is None:
            # Its assign never arrived, or what became of it was confirmed: then this changes nothing.
            held = HeldJob(frame.corr_id, "", AssignJobHeader(0, fence, 0), b"")
            self.held[fence] = held
        if held.state == WAITING:
            self._hand_back(held, "taken back")

    # -- jobs

    def _hand_back(self, held: HeldJob, reason: HandBackReason) -> None:
        del self.held[held.header.fence]
        self._end(held, Outcome(what="hand_back", reason=reason))

    def _end(self, held: HeldJob, outcome: Outcome) -> None:
        held.state = ENDED
        held.outcome = outcome
        held.payload = b""
        self.outcomes[held.header.fence] = held
        if self.is_ready:
            self._to_ack.append(held)

    def _stop(self, held: HeldJob) -> None:
        if not held.is_stopped:
            held.is_stopped = True
            self._stops.append(held)

    def _start_more(self) -> None:
        begun = len(self._starts)
        while self._running_count < self.profile.hands and self._waiting:
            held = self._waiting.popleft()
            if held.state != WAITING:
                continue
            held.state = RUNNING
            held.started_us = self.now_us
            held.deadline_us = self.now_us + held.header.timeout_us
            self._running_count += 1
            self._starts.append(held)
        if len(self._starts) > begun:
            self._look_us = min(self._look_us, self.now_us + LOOK_EVERY_US)
            self._say_started(self._starts[begun:])

    def _room(self) -> int:
        """How many more jobs it will take now."""
        if self.is_draining:
            return 0
        hands, credit = self.profile.hands, self.profile.credit
        if credit is None:
            credit = hands if self._average_us > LONG_JOB_US else min(2 * hands, limits.WORKER_HELD_MAX)
        held_count = len(self.held)
        room = min(credit - held_count, limits.WORKER_HELD_MAX - held_count - len(self.outcomes))
        return room if room > 0 else 0

    # -- frames out

    def _say_acks(self) -> None:
        room = self._room()
        credit = (self._seen_seq, room) if room != self._granted and not self.is_draining else None
        seq = self._done_seq + len(self._sent) + 1
        self.out += ack_frames(self._to_ack, seq, credit, may_say_many=self.may_say_many)
        self._sent += self._to_ack
        self._to_ack = []
        if credit is not None:
            self._granted = room

    def _say_started(self, starts: list[HeldJob]) -> None:
        rest = iter(starts)
        while jobs := list(islice(rest, limits.JOBS_PER_MESSAGE_MAX)):
            header = StartedHeader(
                tuple(StartedJob(held.job_id.hex(), held.header.fence) for held in jobs),
            )
            self.put(encode_frame(MsgType.STARTED, header=encode_header(header)))

    def _say_credit(self) -> None:
        if self.can_say(MsgType.CREDIT):
            self._granted = self._room()
            header = CreditHeader(self._seen_seq, self._granted)
            self.put(encode_frame(MsgType.CREDIT, header=encode_header(header)))

    def _say_result(
        self, held: HeldJob, data: bytes, *, seq: int = 0, extend_us: int = 0, key_id: str = ""
    ) -> None:
        header = ResultHeader(
            final=False,
            state="running",
            key_id=key_id,
            fence=held.header.fence,
            seq=seq,
            extend_us=extend_us,
        )
        self.put(encode_frame(MsgType.RESULT, NO_ID, held.job_id, header=encode_header(header), payload=data))


def _is_handed_back(held: HeldJob) -> bool:
    return held.outcome is not None and held.outcome.what == "hand_back"
