"""Which faults a seed of a group has, and how strong. Ranges as wide as TigerBeetle's simulator's, or wider.

Smaller in traffic than the seeds of one node: a group's run costs several nodes' work. It simulates nothing.
"""

from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

from rollmq.core.raft_ready import RaftSettings
from tests.groupsim.peer_net import PeerFaults
from tests.sim.swarm import MS, Swarm, draw
from tests.sim.world import SECOND_US

T = TypeVar("T")

PARTITIONS = ("one", "halves", "one-way", "ring", "bridge", "flapping", "leader", "deaf leader", "clients")


@dataclass(slots=True)
class GroupFaults:
    """What befalls the group as a whole."""

    partition_every_us: int = 0
    partition_us: tuple[int, int] = (100 * MS, 10 * SECOND_US)
    partitions: tuple[str, ...] = PARTITIONS
    pause_every_us: int = 0
    pause_us: tuple[int, int] = (100 * MS, 10 * SECOND_US)
    blackout_every_us: int = 0
    """All nodes lose power at one instant."""
    reset_every_us: int = 0
    """A connection between two that live breaks."""
    transfer_every_us: int = 0
    hunt_every_us: int = 0
    """Whoever leads is killed, paused or cut off."""
    members_every_us: int = 0
    """An operator wishes to add, remove or replace a member, or a disk is emptied and its node replaced."""
    flip_every_us: int = 0
    """A bit flips in the memory of one node, while all others are as they should be."""
    clocks_every_us: int = 0
    """All wall clocks go ahead at once, as after a night in which the group was down."""
    rot_every_us: int = 0
    """Files of one node, or of all in different places, are damaged while they are down."""
    rot_all: float = 0.0
    repair_crash: float = 0.0
    """That a step of a repair is cut off by the power."""
    drift: float = 0.0
    """How far a monotonic clock may be too fast or too slow, as a share."""


@dataclass(slots=True)
class GroupSwarm(Swarm):
    """All of it."""

    size: int = 3
    peers: PeerFaults = field(default_factory=PeerFaults)
    group: GroupFaults = field(default_factory=GroupFaults)
    reset_told: float = 0.7
    """That a peer hears of it when the process at the other end of a connection is gone."""
    is_eager: bool = False
    minority_dead: float = 0.0
    """That a minority stays away until all jobs have ended."""


def draw_group(random: Random) -> GroupSwarm:
    """A mixture: each fault is on in about half of the runs."""
    one = draw(random)
    one.storm_us = random.choice([5, 10, 20, 40]) * SECOND_US
    _calm_the_traffic(one, random)
    one.snapshot_every_entries = random.choice([1, 20, 100, 1 << 30])
    one.keep_history_bytes = random.choice([0, 20_000, 1 << 40])
    one.mark_every_us = random.choice([SECOND_US, 5 * SECOND_US, 20 * SECOND_US])
    one.raft = _raft(random)
    one.node.believe = 0.0  # In a group no operator's word moves log time, but a majority's clocks.
    names = Swarm.__dataclass_fields__
    swarm = GroupSwarm(
        **{name: getattr(one, name) for name in names},
        size=random.choice([3, 3, 3, 5]),
        peers=_peers(random),
        group=_group(random),
        reset_told=random.choice([0.0, 0.7, 1.0]),
        minority_dead=random.choice([0.0, 0.0, 1.0]),
        is_eager=random.random() < 0.15,
    )
    if random.random() < 0.35:
        swarm.group.members_every_us = random.choice([1, 3, 8]) * SECOND_US
    if random.random() < 0.2:
        swarm.group.clocks_every_us = random.choice([3, 10]) * SECOND_US
    if random.random() < 0.3 and not swarm.group.members_every_us:
        swarm.group.rot_every_us = random.choice([2, 4, 8]) * SECOND_US
        swarm.group.rot_all = random.choice([0.0, 0.3, 1.0])
        swarm.group.repair_crash = random.choice([0.0, 0.0, 0.05])
    if random.random() < 0.2 and not swarm.group.rot_every_us:
        # An odd one may be out for long, so it is the only one that is.
        swarm.group.flip_every_us = random.choice([2, 6]) * SECOND_US
        swarm.minority_dead = 0.0
    return swarm


def _calm_the_traffic(one: Swarm, random: Random) -> None:
    """Few jobs and short delays: what is sought here is in the group, not in the queue."""
    traffic, node = one.traffic, one.node
    traffic.jobs_max = random.choice([10, 30, 60])
    traffic.clients, traffic.sessions = random.choice([1, 2]), random.choice([1, 2])
    traffic.workers = random.choice([1, 2, 3])
    traffic.burst = random.choice([1, 4, 10])
    traffic.delayed = traffic.expiring = 0.0
    traffic.short_timeout = random.choice([0.1, 1.0])
    one.workers.run_us = random.choice([(100, 5 * MS), (1 * MS, SECOND_US)])
    one.net.latency_us = random.choice([(50, 500), (100, 5 * MS), (1 * MS, 200 * MS)])
    node.crash_every_us = random.choice([0, 5, 10, 30]) * SECOND_US
    node.down_us = random.choice([(10 * MS, SECOND_US), (50 * MS, 5 * SECOND_US)])
    node.sync_us = random.choice([(50, 500), (200, 5 * MS), (1 * MS, 60 * MS)])
    node.stall = random.choice([0.0, 0.0, 0.002, 0.01])


def _raft(random: Random) -> RaftSettings:
    heartbeat_us = random.choice([50, 150, 150, 300]) * MS
    usual = RaftSettings(
        heartbeat_us=heartbeat_us, election_us_min=2 * heartbeat_us, election_us_max=4 * heartbeat_us
    )
    if random.random() < 0.4:
        return usual
    return RaftSettings(
        heartbeat_us=heartbeat_us,
        election_us_min=2 * heartbeat_us,
        election_us_max=random.choice([2, 4, 8]) * heartbeat_us,
        write_bytes_max=random.choice([1, 500, 5_000, 1 << 23]),
        append_bytes_max=random.choice([1, 1_000, 1 << 20]),
        append_lines_max=random.choice([1, 5, 8192]),
        appends_inflight_max=random.choice([1, 2, 64]),
        appends_inflight_bytes_max=random.choice([1, 2_000, 1 << 24]),
        uncommitted_bytes_max=random.choice([1, 3_000, 1 << 26]),
        tail_bytes_max=random.choice([0, 3_000, 1 << 26]),
        chunk_bytes_max=random.choice([100, 5_000, 1 << 20]),
    )


def _peers(random: Random) -> PeerFaults:
    def maybe(values: list[T], off: T, share: float = 0.5) -> T:
        return random.choice(values) if random.random() < share else off

    return PeerFaults(
        latency_us=random.choice([(20, 200), (50, 5 * MS), (1 * MS, 40 * MS), (100, 100 * MS)]),
        lose=maybe([0.01, 0.1, 0.3], 0.0),
        repeat=maybe([0.01, 0.1, 0.5], 0.0),
        overtake=maybe([0.01, 0.1, 0.5], 0.0),
        overtake_us=random.choice([5 * MS, 100 * MS, 3 * SECOND_US]),
        clog_every_us=maybe([2 * SECOND_US, 10 * SECOND_US], 0),
        coded=random.choice([0.02, 0.2]),
    )


def _group(random: Random) -> GroupFaults:
    def every(values: list[int], share: float = 0.5) -> int:
        return random.choice(values) * SECOND_US if random.random() < share else 0

    count = random.choice([1, 3, len(PARTITIONS)])
    return GroupFaults(
        partition_every_us=every([2, 5, 15], 0.7),
        partition_us=random.choice([(50 * MS, 2 * SECOND_US), (100 * MS, 10 * SECOND_US)]),
        partitions=tuple(random.sample(PARTITIONS, count)),
        pause_every_us=every([3, 10], 0.4),
        blackout_every_us=every([5, 20], 0.25),
        reset_every_us=every([2, 10], 0.3),
        transfer_every_us=every([2, 10], 0.3),
        hunt_every_us=every([2, 6], 0.4),
        drift=random.choice([0.0, 0.0, 0.01, 0.3]),
    )
