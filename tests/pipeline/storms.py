"""Whole logs from the simulator: the real node, decisions and apply, with crashes and power cuts in them."""

from dataclasses import dataclass
from functools import cache
from random import Random

from rollmq.core.events import Members, SnapshotMarker
from rollmq.core.line import decode_line, encode_line
from rollmq.core.segment_digest import SegmentDigest
from tests.sim.check import Run
from tests.sim.swarm import draw

SEEDS = (7, 8, 12, 16, 19, 21)
"""Short ones which together have every kind of event."""


@dataclass(frozen=True)
class Storm:
    """One group's committed log; it ends with a marker."""

    group: str
    lines: tuple[bytes, ...]


@cache
def storm(seed: int) -> Storm:
    run = Run(seed, draw(Random(f"swarm/{seed}")))
    try:
        run.storm()
        run.calm()
        lines = list(run.oracle.lines[: run.oracle.committed_index])
        counts = run.oracle.twin.counts()
    finally:
        run.dispose()
    members = next(event for event in map(decode_line, lines) if isinstance(event, Members))
    digest = SegmentDigest(group=members.group, first_index=1)
    digest.add_all(lines)
    if digest.next_index > digest.first_index:
        last = decode_line(lines[-1])
        lines.append(
            encode_line(
                SnapshotMarker(
                    last.index + 1, last.term, last.at_us, segment_digest=digest.hexdigest(), counts=counts
                )
            )
        )
    return Storm(members.group, tuple(lines))
