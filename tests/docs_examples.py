"""One literal event of every type, told as one story, for docs/log-format.md and its test.

A job to resize an image fails once, runs over its time, loses its worker, is buried, redriven and
finished, while operators and a new leader do their part. Made up, but each line is one that the real
encoder writes. STORY is one whole segment but for its marker. Nothing here may
come from a clock or from chance: the page must not change by itself.
"""

from rollmq.core.events import (
    Ack,
    AnyEvent,
    Assign,
    Backoff,
    Cancel,
    Client,
    Counts,
    Dlq,
    Drop,
    Enqueue,
    ExecCensus,
    FailRequeue,
    Member,
    Members,
    Noop,
    Pause,
    Pipeline,
    Redrive,
    Resume,
    Settings,
    SnapshotMarker,
    TimeoutRequeue,
    Worker,
    WorkerDownRequeue,
)
from rollmq.core.line import encode_line
from rollmq.core.segment_digest import SegmentDigest

START_US = 1_763_490_000_123_456
SECOND_US = 1_000_000
JOB = "019a982c8e3b7a51b2c04d5e6f708192"
OTHER_JOB = "019a982c8e3b7a52a1b2c3d4e5f60718"
THIRD_JOB = "019a982c8e3b7a53b0c1d2e3f4051627"
NODES = (
    "0b7c2f54e1d84f0f9a3d5c6b7a891011",
    "5d1e2f3a4b5c4d6e8f70818293a4b5c6",
    "c3d4e5f60718493aabbccddeeff00112",
)
GROUP = "7f3a9d20c4b84e15a6d7e8f901122334"


def at(index: int) -> int:
    """Log time of the story: one event a second."""
    return START_US + index * SECOND_US


STORY: tuple[AnyEvent, ...] = (
    Noop(index=1, term=1, at_us=at(1)),
    Members(index=2, term=1, at_us=at(2), group=GROUP, members=[Member(node_id=node) for node in NODES]),
    Settings(index=3, term=1, at_us=at(3), starts_max=50, by="olga"),
    Client(index=4, term=1, at_us=at(4), client_id="webshop", cap=200, weight=3, by="olga"),
    Enqueue(
        index=5,
        term=1,
        at_us=at(5),
        job_id=JOB,
        client_id="webshop",
        exec="image.resize",
        payload=b'{"url":"cat.png","width":300}',
        payload_bytes=29,
        content_type="application/json",
        content_digest="0f2a",
        key="cat-300",
        headers={"trace": "7d1c"},
        priority=5,
        tries_max=3,
        backoff=Backoff(first_us=2_000_000),
    ),
    Worker(
        index=6,
        term=1,
        at_us=at(6),
        worker_id="w1",
        instance="9e107d9d",
        host="box-7",
        release="2026.11",
        patterns=["job.assign.image.*"],
        hands=4,
    ),
    Assign(
        index=7, term=1, at_us=at(7), job_id=JOB, worker_id="w1", attempt=1, ready_us=at(5), credit_left=7
    ),
    FailRequeue(
        index=8,
        term=1,
        at_us=at(8),
        job_id=JOB,
        fence=(1, 7),
        attempt=1,
        worker_id="w1",
        started=True,
        tries=1,
        held_us=1_000_000,
        run_us=981_220,
        error_type="FileNotFoundError",
        error_message="cat.png",
        not_before_us=at(10),
    ),
    Worker(
        index=9,
        term=1,
        at_us=at(10),
        worker_id="w2",
        instance="1a79a4d6",
        host="box-8",
        release="2026.11",
        patterns=["job.assign.>"],
        hands=1,
    ),
    Assign(
        index=10, term=1, at_us=at(10), job_id=JOB, worker_id="w2", attempt=2, ready_us=at(10), credit_left=1
    ),
    TimeoutRequeue(
        index=11,
        term=1,
        at_us=at(610),
        job_id=JOB,
        fence=(1, 10),
        attempt=2,
        worker_id="w2",
        started=True,
        tries=2,
        held_us=600_000_000,
        run_us=None,
        not_before_us=at(614),
    ),
    Noop(index=12, term=2, at_us=at(612)),
    Assign(
        index=13,
        term=2,
        at_us=at(614),
        job_id=JOB,
        worker_id="w1",
        attempt=3,
        ready_us=at(614),
        credit_left=7,
    ),
    WorkerDownRequeue(
        index=14,
        term=2,
        at_us=at(615),
        job_id=JOB,
        fence=(2, 13),
        attempt=3,
        worker_id="w1",
        started=False,
        tries=2,
        held_us=1_000_000,
        run_us=None,
        reason="gone",
    ),
    Assign(
        index=15,
        term=2,
        at_us=at(615),
        job_id=JOB,
        worker_id="w2",
        attempt=4,
        ready_us=at(615),
        credit_left=1,
    ),
    Dlq(
        index=16,
        term=2,
        at_us=at(617),
        job_id=JOB,
        fence=(2, 15),
        attempt=4,
        worker_id="w2",
        started=True,
        tries=3,
        held_us=2_000_000,
        run_us=1_870_004,
        reason="tries",
        error_type="FileNotFoundError",
        error_message="cat.png",
    ),
    Pause(index=17, term=2, at_us=at(700), exec="image.resize", submits=True, by="olga", why="storage moves"),
    Resume(index=18, term=2, at_us=at(900), exec="image.resize", by="olga", why="storage is back"),
    Redrive(index=19, term=2, at_us=at(901), job_ids=[JOB], by="olga", why="storage is back"),
    Assign(
        index=20,
        term=2,
        at_us=at(901),
        job_id=JOB,
        worker_id="w2",
        attempt=5,
        ready_us=at(901),
        credit_left=1,
    ),
    Ack(
        index=21,
        term=2,
        at_us=at(902),
        job_id=JOB,
        fence=(2, 20),
        attempt=5,
        worker_id="w2",
        started=True,
        tries=1,
        held_us=1_000_000,
        run_us=940_113,
        result=b"cat-300.png",
        result_bytes=11,
        content_type="text/plain",
    ),
    Enqueue(index=22, term=2, at_us=at(903), job_id=OTHER_JOB, client_id="webshop", exec="mail.send"),
    Cancel(index=23, term=2, at_us=at(904), job_id=OTHER_JOB, by="webshop", why="order withdrawn"),
    Enqueue(
        index=24,
        term=2,
        at_us=at(905),
        job_id=THIRD_JOB,
        client_id="webshop",
        exec="mail.send",
        expires_at_us=at(910),
    ),
    Dlq(
        index=25,
        term=2,
        at_us=at(910),
        job_id=THIRD_JOB,
        reason="expired",
        error_type="Expired",
        error_message="not run in time",
    ),
    Drop(index=26, term=2, at_us=at(950), job_ids=[THIRD_JOB], by="olga", why="too old to matter"),
    Pipeline(index=27, term=2, at_us=at(955), name="nightly", confirmed_index=21),
)


def _marker() -> SnapshotMarker:
    """The marker that seals the segment of the story: it says what the segment's bytes really are."""
    digest = SegmentDigest(group=GROUP, first_index=1)
    digest.add_all(map(encode_line, STORY))
    return SnapshotMarker(
        index=28,
        term=2,
        at_us=at(960),
        segment_digest=digest.hexdigest(),
        counts=Counts(finished=3, results=1, keys=1, clients=1, workers=2),
        execs=[ExecCensus(exec="image.resize", free_credit=8)],
        workers=["w1", "w2"],
    )


EXAMPLES: tuple[AnyEvent, ...] = (*STORY, _marker())
