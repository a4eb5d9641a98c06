"""Random stories of one client and a node that keeps a log: what the client is told is what the log says.

The node may lose connections before or after it read them, and read the bytes of an old connection long after
a newer one was used; its refusals come and go.
"""

import random

import msgspec
import pytest

from rollmq.library.call import ACCEPTED, ENDED, GONE, REFUSED, UNKNOWN
from rollmq.wire.job_headers import SubmitJobHeader
from rollmq.wire.message import Frame, MsgType
from tests.library.desk import SECOND_US, Desk, Line, Noted

REFUSALS = (("paused", True), ("queue_full", True), ("shutting_down", True), ("overloaded", True))


def _is_resend(frame: Frame) -> bool:
    return msgspec.json.decode(frame.header, type=SubmitJobHeader).resend


class LogNode:
    """Accepts each id once, answers repeats, and refuses while it is told to."""

    def __init__(self) -> None:
        self.log: dict[bytes, bytes] = {}
        """Payload by job id: what was accepted."""
        self.ended: dict[bytes, bytes] = {}
        self.refusal: tuple[str, bool] | None = None

    def read(self, line: Line, frame: Frame, *, is_heard: bool) -> None:
        """Act on a frame; the answer gets lost unless it is heard."""
        if frame.type == MsgType.SUBMIT_JOB:
            if frame.msg_id in self.log:
                assert self.log[frame.msg_id] == frame.payload, "one id, two contents"
                assert not is_heard or _is_resend(frame)
            elif self.refusal is not None:
                if is_heard:
                    line.refuse(frame, self.refusal[0], retryable=self.refusal[1])
                return
            self.log[frame.msg_id] = frame.payload
            if is_heard:
                line.accept(frame)
                if frame.msg_id in self.ended:
                    line.end(frame.msg_id, self.ended[frame.msg_id])
        elif frame.type == MsgType.QUERY and is_heard:
            job_id = bytes.fromhex(msgspec.json.decode(frame.payload)["job_id"])
            assert job_id in self.log, "it asks for what was never accepted"
            line.reply(frame, {"state": "finished" if job_id in self.ended else "queued"})
            if job_id in self.ended:
                line.end(job_id, self.ended[job_id])


class Story:
    """One client, the node, the connection of now and bytes of old ones that were never read."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.desk = Desk(patience_us=20 * SECOND_US, seed=seed)
        self.node = LogNode()
        self.line: Line | None = None
        self.unread: list[tuple[Line, list[Frame]]] = []
        self.calls: list[Noted] = []
        self.written: list[Frame] = []
        """On the current connection, not read by the node."""

    def step(self) -> None:
        happens = self.random.random()
        if happens < 0.35:
            payload = str(len(self.calls)).encode()
            self.calls.append(self.desk.submit(Noted(payload, is_patient=self.random.random() < 0.3)))
        elif happens < 0.6:
            self.node_reads()
        elif happens < 0.7:
            self.node_ends_a_job()
        elif happens < 0.8:
            self.desk.wait(self.random.randrange(SECOND_US))
        elif happens < 0.86:
            self.node.refusal = self.random.choice((None, None, *REFUSALS))
        elif happens < 0.93:
            self.break_connection()
        else:
            self.node_reads_an_old_connection()
        if self.line is None and self.random.random() < 0.5:
            self.line = self.desk.connect()
        self.write()

    def write(self) -> None:
        if self.line is not None:
            self.written += self.line.take(self.desk.out())

    def node_reads(self) -> None:
        while self.line is not None and self.written and self.random.random() < 0.8:
            self.node.read(self.line, self.written.pop(0), is_heard=True)
            self.write()

    def node_ends_a_job(self) -> None:
        running = [job_id for job_id in self.node.log if job_id not in self.node.ended]
        if running:
            job_id = self.random.choice(running)
            self.node.ended[job_id] = b"result of " + self.node.log[job_id]
            if self.line is not None:
                self.line.end(job_id, self.node.ended[job_id])

    def break_connection(self) -> None:
        """Some of what was written was read, its answers got lost; the rest may be read some day."""
        if self.line is None:
            return
        read_count = self.random.randint(0, len(self.written))
        for frame in self.written[:read_count]:
            self.node.read(self.line, frame, is_heard=False)
        self.unread.append((self.line, self.written[read_count:]))
        self.written, self.line = [], None
        self.desk.lose()

    def node_reads_an_old_connection(self) -> None:
        if self.unread:
            line, frames = self.unread.pop(self.random.randrange(len(self.unread)))
            for frame in frames:
                self.node.read(line, frame, is_heard=False)

    def calm(self) -> None:
        """Nothing fails any more, and everything is read in the end."""
        self.node.refusal = None
        while self.unread:
            self.node_reads_an_old_connection()
        self.break_connection()
        self.unread.clear()
        self.line = self.desk.connect()
        for _ in range(40):
            self.write()
            while self.written:
                frame = self.written.pop(0)
                if frame.type == MsgType.PING:
                    self.line.say(MsgType.PONG)
                else:
                    self.node.read(self.line, frame, is_heard=True)
                self.write()
            for job_id in list(self.node.log):
                if job_id not in self.node.ended:
                    self.node.ended[job_id] = b"result of " + self.node.log[job_id]
                    self.line.end(job_id, self.node.ended[job_id])
            self.desk.wait(SECOND_US)


def check(story: Story) -> None:
    accepted_payloads = list(story.node.log.values())
    for number, call in enumerate(story.calls):
        payload = str(number).encode()
        assert accepted_payloads.count(payload) <= 1, "one submit, two jobs"
        if call.state in (ACCEPTED, ENDED, GONE):
            assert story.node.log[call.job_id] == payload
        if call.state == REFUSED:
            assert payload not in accepted_payloads, "told as refused, and it is in the log"
        if call.state == ENDED:
            assert call.outcome is not None
            assert call.outcome.result == b"result of " + payload
        lasting = [state for state in call.states if state in (ENDED, GONE, REFUSED, UNKNOWN)]
        assert len(lasting) <= 1, "a call ends once"


@pytest.mark.parametrize("seed", range(60))
def test_what_a_client_is_told_is_what_the_log_says(seed: int) -> None:
    story = Story(seed)
    for _ in range(30):
        for _ in range(10):
            story.step()
        check(story)
    story.calm()
    check(story)
    states = {call.state for call in story.calls}
    assert states <= {ENDED, REFUSED, UNKNOWN}, "when faults stop, every call has its end"
    assert story.desk.core.unanswered_count == 0
    assert story.desk.core.awaited_count == 0
    assert story.desk.core._submits._bytes == 0
