"""The worker's end of the conversation, without sockets or clocks: what is told when, what is forgotten."""

from rollmq import limits
from rollmq.library.held_job import Outcome
from rollmq.library.worker_core import OVERTIME_US, WorkerCore, WorkerProfile
from rollmq.wire.codec import encode, encode_header, header_of, payload_of
from rollmq.wire.headers import HeldList, HelloAnswerHeader, HelloWorkerHeader
from rollmq.wire.job_headers import (
    AckDoneHeader,
    AckJobHeader,
    AssignJobHeader,
    CancelHeader,
    CreditHeader,
    StartedHeader,
)
from rollmq.wire.message import Frame, MsgType
from tests.wire.unfold import unfolded

SECOND_US = 1_000_000
M = MsgType


class Played:
    """A core, and the node that the test plays to it."""

    def __init__(self, *, hands: int = 2, credit: int | None = None) -> None:
        self.core = WorkerCore(WorkerProfile("w1", "i1", ("job.assign.>",), hands=hands, credit=credit))
        self.now_us = 0
        self.seq = 0
        self.hello = HelloWorkerHeader(version=1, worker_id="?", instance="?")
        self.listed = HeldList()

    def connect(self) -> None:
        """A connection whose hello is answered."""
        self.core.opened(self.now_us)
        (hello,) = self.said()
        self.hello, self.listed = header_of(hello, HelloWorkerHeader), payload_of(hello, HeldList)
        self.seq = 0
        answer = HelloAnswerHeader(version=1, group="g", term=1, log_at_us=1)
        self.say(Frame(M.HELLO_WORKER, corr_id=hello.msg_id, header=encode_header(answer)))

    def say(self, *frames: Frame) -> None:
        self.core.feed(b"".join(map(encode, frames)), self.now_us)

    def assign(self, number: int, *, timeout_us: int = 60 * SECOND_US) -> Frame:
        self.seq += 1
        header = AssignJobHeader(attempt=1, fence=(1, number), seq=self.seq, timeout_us=timeout_us)
        return Frame(
            M.ASSIGN_JOB, number.to_bytes(16, "big"), bytes(16), "job.assign.x.w1", encode_header(header)
        )

    def cancel(self, number: int, what: str = "stop") -> Frame:
        header = CancelHeader(what=what, fence=(1, number))  # type: ignore[arg-type]
        return Frame(M.CANCEL, corr_id=number.to_bytes(16, "big"), header=encode_header(header))

    def confirm(self, seq: int) -> Frame:
        return Frame(M.ACK_DONE, header=encode_header(AckDoneHeader(seq=seq)))

    def said(self) -> list[Frame]:
        """What it has said since the last look."""
        return unfolded(self.core.take_out())

    def end(self, *numbers: int, what: str = "") -> None:
        """These handlers have ended."""
        held = {job.fence[1]: job for job in self.core.held.values()}
        for number in numbers:
            self.core.finished(held[number], Outcome(b"done", run_us=1_000, what=what))
        self.core.settle()

    def starts(self) -> list[int]:
        return [held.fence[1] for held in self.core.take_starts()]


def connected(*, hands: int = 2, credit: int | None = None) -> Played:
    played = Played(hands=hands, credit=credit)
    played.connect()
    return played


def kinds(frames: list[Frame]) -> list[MsgType]:
    return [MsgType(frame.type) for frame in frames]


def test_started_is_said_before_a_start_can_be_taken_and_once_for_a_whole_batch() -> None:
    played = connected(hands=2)
    played.say(played.assign(1), played.assign(2), played.assign(3))
    frames = played.said()
    started = [header_of(frame, StartedHeader) for frame in frames if frame.type == M.STARTED]
    assert [job.fence[1] for header in started for job in header.jobs] == [1, 2]
    assert len(started) == 1
    assert played.starts() == [1, 2]


def test_one_turn_tells_acks_then_starts_with_the_credit_in_the_last_ack() -> None:
    played = connected(hands=2)
    assert played.hello.credit == 4
    played.say(*(played.assign(number) for number in range(1, 5)))
    played.said()
    played.starts()
    played.end(1, 2)
    frames = played.said()
    assert kinds(frames) == [M.ACK_JOB, M.ACK_JOB, M.STARTED]
    acks = [header_of(frame, AckJobHeader) for frame in frames[:2]]
    assert [(ack.seq, ack.credit) for ack in acks] == [(1, None), (2, (4, 2))]
    assert played.starts() == [3, 4]


def test_an_outcome_is_kept_until_it_is_confirmed_and_told_again_on_every_connection() -> None:
    played = connected()
    played.say(played.assign(1), played.assign(2))
    played.starts()
    played.end(1, 2)
    played.said()
    played.say(played.confirm(1))
    played.core.lost(played.now_us)
    played.connect()
    assert [outcome.fence for outcome in played.listed.outcomes] == [(1, 2)]
    (ack,) = (header_of(frame, AckJobHeader) for frame in played.said() if frame.type == M.ACK_JOB)
    assert (ack.fence, ack.seq) == ((1, 2), 1)
    played.say(played.confirm(1))
    assert not played.core.outcomes


def test_a_start_that_nobody_was_told_of_is_taken_back_when_the_connection_is_lost() -> None:
    played = connected(hands=1)
    played.say(played.assign(1), played.assign(2))
    played.said()
    assert played.starts() == [1]
    played.end(1)  # 2 would begin, but what says so is never written
    played.core.lost(played.now_us)
    assert played.starts() == []
    played.connect()
    assert [(held.fence, held.started) for held in played.listed.held] == [((1, 2), False)]
    assert played.starts() == [2]
    assert M.STARTED in kinds(played.said())


def test_a_start_that_was_voided_before_it_was_taken_is_forgotten_with_the_connection() -> None:
    played = connected(hands=1)
    played.say(played.assign(1))
    played.say(played.cancel(1))
    played.core.lost(played.now_us)
    assert played.starts() == []
    assert not played.core.held
    played.connect()
    played.say(played.assign(2))
    assert played.starts() == [2], "its hand is free again"


def test_nothing_of_a_voided_job_is_told_and_its_hand_is_free_when_its_handler_has_ended() -> None:
    played = connected(hands=1)
    played.say(played.assign(1), played.assign(2))
    assert played.starts() == [1]
    played.say(played.cancel(1))
    assert [held.fence[1] for held in played.core.take_stops()] == [1]
    played.said()
    assert played.starts() == []
    played.end(1)
    assert M.ACK_JOB not in kinds(played.said())
    assert played.starts() == [2]


def test_a_job_over_its_time_is_stopped_here_only_when_no_node_has_said_so_for_a_while() -> None:
    played = connected()
    played.say(played.assign(1, timeout_us=SECOND_US))
    played.starts()
    played.core.lost(played.now_us)
    played.core.tick(SECOND_US + OVERTIME_US - 1)
    assert played.core.take_stops() == []
    assert played.core.next_us < SECOND_US + 2 * OVERTIME_US
    played.core.tick(SECOND_US + OVERTIME_US + SECOND_US)
    assert [held.fence[1] for held in played.core.take_stops()] == [1]


def test_only_the_handler_moves_its_deadline() -> None:
    played = connected()
    played.say(played.assign(1, timeout_us=SECOND_US))
    (held,) = played.core.take_starts()
    played.core.extend(held, 30 * SECOND_US)
    played.core.tick(20 * SECOND_US)
    assert played.core.take_stops() == []


def test_jobs_that_run_longer_than_a_second_are_not_prefetched() -> None:
    played = connected(hands=2)
    assert played.hello.credit == 4
    for number in range(1, 40):
        played.say(played.assign(number))
        (held,) = played.core.take_starts()
        played.core.finished(held, Outcome(run_us=5 * SECOND_US))
        played.core.settle()
        played.say(played.confirm(number))
    pairs = [
        header_of(frame, AckJobHeader).credit if frame.type == M.ACK_JOB else _pair(frame)
        for frame in played.said()
        if frame.type in (M.ACK_JOB, M.CREDIT)
    ]
    assert [pair for pair in pairs if pair][-1] == (39, 2)


def _pair(frame: Frame) -> tuple[int, int]:
    header = header_of(frame, CreditHeader)
    return header.seen, header.more


def test_what_it_holds_and_what_is_unconfirmed_never_exceed_what_a_hello_may_list() -> None:
    played = connected(hands=limits.WORKER_HANDS_MAX)
    assert played.hello.credit == limits.WORKER_HELD_MAX
    for number in range(1, 200):
        played.say(played.assign(number))
    played.starts()
    played.end(*range(1, 100))
    held, unconfirmed = len(played.core.held), len(played.core.outcomes)
    assert held + unconfirmed == 199
    last = [header_of(frame, AckJobHeader).credit for frame in played.said() if frame.type == M.ACK_JOB][-1]
    assert last is None or last[1] <= limits.WORKER_HELD_MAX - held - unconfirmed


def test_a_drained_worker_is_over_once_everything_is_confirmed_and_not_before() -> None:
    played = connected(hands=1)
    played.say(played.assign(1), played.assign(2))
    played.said()
    played.starts()
    played.core.drain()
    frames = played.said()
    assert M.GOODBYE in kinds(frames)
    (handed,) = (header_of(frame, AckJobHeader) for frame in frames if frame.type == M.ACK_JOB)
    assert (handed.fence, handed.what, handed.reason) == ((1, 2), "hand_back", "drained")
    played.say(played.confirm(1))
    assert not played.core.is_drained
    played.end(1)
    assert kinds(played.said()) == [M.ACK_JOB]
    assert not played.core.is_drained
    played.say(played.confirm(2))
    assert played.core.is_drained
    assert played.core.is_over
