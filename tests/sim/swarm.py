"""Which faults a seed has, and how strong: every run is another mixture.

A run with all faults at once finds less than many runs with some of them: one fault often hides what
another would have shown. Drawn from the seed alone; it simulates nothing.
"""

from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

from rollmq.core.events import Settings
from rollmq.core.raft_ready import RaftSettings
from tests.sim.world import SECOND_US

T = TypeVar("T")
MS = 1_000
HOUR_US = 3_600 * SECOND_US
YEAR_US = 366 * 24 * HOUR_US


@dataclass(slots=True)
class NetFaults:
    """What a connection suffers."""

    latency_us: tuple[int, int] = (100, 2 * MS)
    break_every_us: int = 0
    """Of each connection, on average; 0: never."""
    half_open: float = 0.0
    """That one side of a broken connection is not told."""
    split: float = 0.05
    """That a piece arrives in two."""
    lose: float = 0.0
    """That a frame vanishes and the connection goes on. No TCP does that: every message must still be
    harmless when others are missing, repeated or late."""
    repeat: float = 0.0
    delay: float = 0.0
    """That a frame is overtaken by later ones."""
    delay_us: int = 2 * SECOND_US

    @property
    def is_orderly(self) -> bool:
        """Whether it behaves as TCP does."""
        return not (self.lose or self.repeat or self.delay)


@dataclass(slots=True)
class NodeFaults:
    """What a node and its disk suffer."""

    sync_us: tuple[int, int] = (100, 3 * MS)
    stall: float = 0.0
    """That an operation of the disk takes seconds."""
    crash_every_us: int = 0
    power_cut: float = 0.5
    """Share of the crashes that take the machine; the others only the process."""
    in_call: float = 0.5
    """Share of the crashes that come within a call of the store, not between two."""
    drain_every_us: int = 0
    sync_error_every_us: int = 0
    full_every_us: int = 0
    step_every_us: int = 0
    """Of the wall clock."""
    step_us: int = 0
    """How far, at most, in either direction."""
    believe: float = 0.0
    """That an operator tells the leader to believe its wall clock."""
    helper_dies: float = 0.0
    boot_crash: float = 0.0
    """That the power goes again during recovery."""
    down_us: tuple[int, int] = (50 * MS, 5 * SECOND_US)


@dataclass(slots=True)
class WorkerFaults:
    """What workers do."""

    run_us: tuple[int, int] = (1 * MS, 2 * SECOND_US)
    die_every_us: int = 0
    silent: float = 0.5
    """Share of the deaths that nobody is told of: the connection hangs."""
    hang: float = 0.0
    drain_every_us: int = 0
    hand_back: float = 0.0
    repeat_ack: float = 0.0
    late_ack: float = 0.0
    ignores_stop: float = 0.3
    """That a handler which is to stop runs on, as threads do."""
    drop_started: float = 0.0
    """That the message of a start is never written."""


@dataclass(slots=True)
class Traffic:
    """What clients ask for."""

    clients: int = 1
    sessions: int = 1
    workers: int = 1
    execs: int = 1
    jobs_max: int = 300
    submit_every_us: int = 50 * MS
    burst: int = 4
    kinds: dict[str, float] = field(default_factory=lambda: {"ok": 1.0})
    keyed: float = 0.0
    delayed: float = 0.0
    expiring: float = 0.0
    prioritised: float = 0.0
    capped: float = 0.0
    short_timeout: float = 0.1
    resend: float = 0.02
    cancel: float = 0.0
    operate_every_us: int = 0
    """Pauses, redrives, drops, caps and settings."""
    unmatched: float = 0.0
    """That a worker has only some of the execs."""
    payload_bytes: int = 40


@dataclass(slots=True)
class Swarm:
    """All of it."""

    storm_us: int
    net: NetFaults
    node: NodeFaults
    workers: WorkerFaults
    traffic: Traffic
    settings: Settings
    mark_every_us: int
    snapshot_every_entries: int
    keep_history_bytes: int
    tick_us: int
    raft: RaftSettings
    turn_us: int
    """How long a node gathers what arrives before it decides."""


def draw(random: Random) -> Swarm:
    """A mixture: each fault is on in about half of the runs."""

    def maybe(values: list[T], off: T, share: float = 0.5) -> T:
        return random.choice(values) if random.random() < share else off

    storm_us = random.choice([20, 60, 120, 300]) * SECOND_US
    net = NetFaults(
        latency_us=random.choice([(50, 500), (100, 5 * MS), (1 * MS, 200 * MS), (100, 3 * SECOND_US)]),
        break_every_us=maybe([5 * SECOND_US, 20 * SECOND_US, 60 * SECOND_US], 0),
        half_open=maybe([0.1, 0.5], 0.0),
        split=random.choice([0.0, 0.05, 0.5]),
    )
    if random.random() < 0.25:
        net.lose, net.repeat, net.delay = (maybe([0.01, 0.05, 0.2], 0.0) for _ in range(3))
    swarm = Swarm(
        storm_us=storm_us,
        net=net,
        node=_node(random),
        workers=_workers(random),
        traffic=_traffic(random),
        settings=_settings(random),
        mark_every_us=random.choice([SECOND_US, 5 * SECOND_US, 20 * SECOND_US, HOUR_US]),
        snapshot_every_entries=random.choice([1, 50, 500, 1_000_000]),
        keep_history_bytes=random.choice([0, 50_000, 1 << 40, 1 << 40]),
        tick_us=random.choice([50 * MS, 100 * MS, 250 * MS]),
        turn_us=random.choice([0, 200, 5 * MS]),
        raft=_raft(random),
    )
    return swarm


def _raft(random: Random) -> RaftSettings:
    """Writes so small that a turn's lines need several, and so little room that submits wait."""
    if random.random() < 0.6:
        return RaftSettings()
    return RaftSettings(
        write_bytes_max=random.choice([1, 500, 5_000]),
        uncommitted_bytes_max=random.choice([1, 3_000, 1 << 26]),
        tail_bytes_max=random.choice([0, 3_000]),
    )


def _node(random: Random) -> NodeFaults:
    def every(values: list[int], share: float = 0.5) -> int:
        return random.choice(values) * SECOND_US if random.random() < share else 0

    return NodeFaults(
        sync_us=random.choice([(50, 500), (200, 5 * MS), (1 * MS, 60 * MS)]),
        stall=random.choice([0.0, 0.0, 0.002, 0.02]),
        crash_every_us=every([3, 10, 30], 0.7),
        power_cut=random.choice([0.0, 0.5, 0.9, 1.0]),
        in_call=random.choice([0.0, 0.5, 0.9]),
        drain_every_us=every([10, 40], 0.25),
        sync_error_every_us=every([10, 40], 0.25),
        full_every_us=every([15, 40], 0.25),
        step_every_us=every([5, 20], 0.35),
        step_us=random.choice([SECOND_US, 60 * SECOND_US, HOUR_US, 3 * YEAR_US]),
        believe=random.choice([0.0, 0.0, 0.5]),
        helper_dies=random.choice([0.0, 0.2]),
        boot_crash=random.choice([0.0, 0.3]),
        down_us=random.choice([(10 * MS, SECOND_US), (50 * MS, 20 * SECOND_US)]),
    )


def _workers(random: Random) -> WorkerFaults:
    def maybe(values: list[float], share: float = 0.5) -> float:
        return random.choice(values) if random.random() < share else 0.0

    return WorkerFaults(
        run_us=random.choice([(100, 5 * MS), (1 * MS, SECOND_US), (10 * MS, 20 * SECOND_US)]),
        die_every_us=int(maybe([10.0, 60.0]) * SECOND_US),
        silent=maybe([0.3, 1.0]),
        hang=maybe([0.005, 0.03], 0.3),
        drain_every_us=int(maybe([15.0, 60.0], 0.3) * SECOND_US),
        hand_back=maybe([0.01, 0.1], 0.3),
        repeat_ack=maybe([0.05, 0.3]),
        late_ack=maybe([0.02, 0.2]),
        ignores_stop=random.choice([0.0, 0.5, 1.0]),
        drop_started=maybe([0.05], 0.2),
    )


KINDS = ("ok", "flaky", "failing", "rejecting", "snoozing", "poison", "slow", "patient")


def _traffic(random: Random) -> Traffic:
    def maybe(values: list[float], share: float = 0.5) -> float:
        return random.choice(values) if random.random() < share else 0.0

    kinds = {"ok": 1.0}
    for kind in KINDS[1:]:
        kinds[kind] = maybe([0.02, 0.1, 0.3], 0.4)
    return Traffic(
        clients=random.choice([1, 2, 5]),
        sessions=random.choice([1, 1, 3]),
        workers=random.choice([1, 2, 4, 8]),
        execs=random.choice([1, 2, 6]),
        jobs_max=random.choice([40, 120, 400]),
        submit_every_us=random.choice([10 * MS, 100 * MS, 500 * MS]),
        burst=random.choice([1, 4, 20]),
        kinds=kinds,
        keyed=maybe([0.1, 0.6]),
        delayed=maybe([0.1, 0.4]),
        expiring=maybe([0.05, 0.3]),
        prioritised=maybe([0.2, 0.8]),
        capped=maybe([0.5, 1.0]),
        short_timeout=maybe([0.1, 0.5]),
        resend=maybe([0.02, 0.2]),
        cancel=maybe([0.02, 0.15]),
        operate_every_us=int(maybe([5.0, 20.0]) * SECOND_US),
        unmatched=maybe([0.3], 0.3),
        payload_bytes=random.choice([0, 40, 40, 3000]),
    )


def _settings(random: Random) -> Settings:
    """Bounds so tight, in some runs, that each of them is reached."""
    if random.random() < 0.4:
        return Settings(0, 0, 0)

    def tight(values: list[int], default: int, share: float = 0.3) -> int:
        return random.choice(values) if random.random() < share else default

    return Settings(
        0,
        0,
        0,
        results_keep_us=tight([5 * SECOND_US, 60 * SECOND_US], 24 * HOUR_US),
        results_max=tight([0, 3, 30], 1_000_000),
        results_bytes_max=tight([0, 500], 1 << 28),
        finished_max=tight([1, 10, 100], 1_000_000),
        keys_keep_us=tight([2 * SECOND_US, 60 * SECOND_US], 24 * HOUR_US),
        keys_per_client_max=tight([3, 20], 1_000_000),
        queued_max=tight([5, 50], 10_000_000),
        queued_bytes_max=tight([400, 5000], 1 << 33),
        dlq_max=tight([0, 3, 20], 100_000),
        dlq_bytes_max=tight([0, 2_000], 1 << 31),
        errors_kept=tight([0, 1], 5),
        crashes_max=tight([1, 2], 3),
        starts_max=tight([1, 3, 10], 100),
        ageing_us=tight([200 * MS, 3 * SECOND_US], 60 * SECOND_US),
        cap_default=tight([1, 3], 100_000),
        clients_max=tight([1, 3], 100_000),
        workers_max=tight([0, 1, 3], 10_000),
    )
