"""Applying events: as a follower does, as a leader does, as a restart does; and what a job weighs."""

import gc
import time
from pathlib import Path

from bench.history import START_US, Busy, busy_log, job_id
from bench.machine_limits import Row, rate
from rollmq.core.events import Enqueue
from rollmq.core.line import decode_line, encode_line
from rollmq.core.machine import Machine
from rollmq.core.state import dump_state, load_state

QUEUED_JOBS = 1_000_000
PAYLOAD_BYTES = 100


def run() -> list[Row]:
    """All figures of this part."""
    gc.disable()  # as on a node
    return [*_lines(), *_apply(), *_decide(), *_million()]


def _lines() -> list[Row]:
    event = Enqueue(42, 3, START_US, "0" * 32, "client", "exec", b"p" * PAYLOAD_BYTES, PAYLOAD_BYTES)
    line = encode_line(event)
    both = rate(lambda: decode_line(encode_line(event)), 100_000)
    return [
        (f"encode + crc of an enqueue ({len(line)} bytes)", rate(lambda: encode_line(event), 100_000), "/s"),
        ("check crc + decode of the same", rate(lambda: decode_line(line), 100_000), "/s"),
        ("encode + crc + decode", both, "/s"),
    ]


def _apply() -> list[Row]:
    lines = [line for batch in busy_log(100_000) for line in batch]
    rows: list[Row] = []
    for name, is_indexed in (
        ("decode + apply, as a follower (150,000 wanted)", True),
        ("decode + apply, unindexed, as in folding", False),
    ):
        best = 0.0
        for _ in range(3):
            machine = Machine(is_indexed=is_indexed)
            begin = time.perf_counter()
            for line in lines:
                machine.apply(decode_line(line))
            best = max(best, len(lines) / (time.perf_counter() - begin))
        rows.append((name, best, "events/s"))
    return rows


def _decide() -> list[Row]:
    busy = Busy()
    begin = time.perf_counter()
    for _ in range(300):
        busy.submit(200)
        busy.work()
        busy.lines()
    seconds = time.perf_counter() - begin
    return [
        ("leader: submit, assign, start, ack, decided and encoded", busy.submitted_count / seconds, "jobs/s")
    ]


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def _million() -> list[Row]:
    machine = Machine()
    before = _resident_bytes()
    for number in range(QUEUED_JOBS):
        at_us = START_US + number
        event = Enqueue(
            number + 1, 1, at_us, job_id(number, at_us), f"client-{number % 100}", "exec",
            b"p" * PAYLOAD_BYTES + b"%08d" % number, PAYLOAD_BYTES + 8,
        )  # fmt: skip
        machine.apply(decode_line(encode_line(event)))
    weight = (_resident_bytes() - before) / QUEUED_JOBS - PAYLOAD_BYTES - 8
    begin = time.perf_counter()
    lines = list(dump_state(machine))
    dumped = time.perf_counter()
    loaded = load_state(lines)
    seconds = time.perf_counter() - dumped
    assert loaded.counts() == machine.counts()
    for done in (machine, loaded):
        if done.queues is not None:
            done.queues.dispose()
    return [
        ("memory per queued job, besides the payload (at most 700)", weight, "bytes"),
        ("dump of 1,000,000 queued jobs", dumped - begin, "s"),
        ("load of 1,000,000 queued jobs from memory (part of a start)", seconds, "s"),
    ]
