"""The node and its queues at a glance: what `status`, `members` and `settings` answer. It reads only."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from rollmq import __version__
from rollmq.core.events import Settings
from rollmq.core.leader import Leader
from rollmq.core.machine import Machine
from rollmq.core.operate import Refusal
from rollmq.core.queues import ExecQueue
from rollmq.limits import QUERY_ROWS_MAX
from rollmq.node.archive import ArchiveFacts
from rollmq.wire import query as q

DLQ_NEARLY_FULL: Final = 0.9
"""Of its bound: from here on `status` warns, because beyond it the oldest are dropped."""
NOT_SETTINGS: Final = frozenset({"index", "term", "at_us", "by", "machine_version"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """What a host knows of its node and the machine does not, and what it does for operators."""

    node_id: str
    group: str
    role: str
    """leader, follower or candidate."""
    leader: str | None
    """host:port."""
    term: int
    last_index: int
    commit_index: int
    applied_index: int
    machine: Machine | None
    """As of the applied index, or ahead of it on a leader. Null on a static follower."""
    uptime_us: int = 0
    connections_count: int = 0
    accepted_count: int = 0
    assigned_count: int = 0
    ended_count: int = 0
    """Since this process began, while it led."""
    is_disk_low: bool = False
    disk_free_bytes: int | None = None
    fold_failures_count: int = 0
    """In a row."""
    fold_failure: str = ""
    archive: ArchiveFacts | None = None
    """Null where nothing is shipped."""
    problems: tuple[str, ...] = ()
    """What else an operator should know."""
    addresses: Mapping[str, str] = field(default_factory=dict)
    """Where each node is, by its id."""
    behind: Mapping[str, int] = field(default_factory=dict)
    """On a leader: how many entries each member that answers has not confirmed."""
    asking: Mapping[str, str] = field(default_factory=dict)
    """New nodes that ask to be members, and where they are."""
    step_time: Callable[[], Refusal | bool] | None = None
    """Let log time go to this leader's wall clock; whether it was behind. Null where there is no log."""
    regroup: Callable[[str, str, str], Refusal | None] | None = None
    """Carry out members_add, members_remove or members_replace; null where there is no group."""
    drain_worker: Callable[[str], bool]
    """Ask a connected worker to finish what runs and hand back the rest; whether it is there."""
    stop: Callable[[str], None]
    """Stop this node politely; the text says who wants it and why."""
    mark: Callable[[], bool]
    """End the segment now; whether there was anything in it."""


def status(node: NodeFacts, leader: Leader | None) -> q.Status:
    """What scripts and people look at first. From a follower: as of what it has applied."""
    machine = node.machine
    counts = machine.counts() if machine is not None else None
    return q.Status(
        node=node.node_id,
        group=node.group,
        role=node.role,
        leader=node.leader,
        term=node.term,
        last_index=node.last_index,
        commit_index=node.commit_index,
        applied_index=node.applied_index,
        queued=counts.queued if counts is not None else None,
        inflight=counts.inflight if counts is not None else None,
        dlq=counts.dlq if counts is not None else None,
        finished=counts.finished if counts is not None else None,
        workers=len(leader.desk.scheduler.workers) if leader is not None else None,
        clients=counts.clients if counts is not None else None,
        members=members_of(machine, node),
        execs=_execs(machine),
        execs_count=len(machine.queues.execs) if machine is not None and machine.queues is not None else 0,
        queued_bytes=machine.queued_bytes if machine is not None else None,
        dlq_bytes=machine.dead_bytes if machine is not None else None,
        no_ops=counts.no_ops if counts is not None else None,
        at_us=leader.desk.now_us if leader is not None else machine.last_at_us if machine is not None else 0,
        uptime_us=node.uptime_us,
        version=__version__,
        connections=node.connections_count,
        accepted_count=node.accepted_count,
        assigned_count=node.assigned_count,
        ended_count=node.ended_count,
        is_disk_low=node.is_disk_low,
        disk_free_bytes=node.disk_free_bytes,
        fold_failures=node.fold_failures_count,
        fold_failure=node.fold_failure,
        archive=_archive(node.archive),
        warnings=_warnings(node),
    )


def _archive(facts: ArchiveFacts | None) -> q.ArchiveStatus | None:
    if facts is None:
        return None
    return q.ArchiveStatus(
        facts.place,
        facts.shipped_count,
        facts.waiting_count,
        facts.missed_count,
        facts.failures_count,
        facts.problem,
    )


def exec_status(queue: ExecQueue) -> q.ExecStatus:
    """One exec's numbers."""
    return q.ExecStatus(
        queue.queued_count,
        queue.inflight_count,
        queue.delayed_count,
        queue.is_paused,
        queue.refuses_submits,
    )


def _execs(machine: Machine | None) -> dict[str, q.ExecStatus]:
    if machine is None or machine.queues is None:
        return {}
    return {queue.name: exec_status(queue) for queue in islice(machine.queues.execs.values(), QUERY_ROWS_MAX)}


def _warnings(node: NodeFacts) -> list[str]:
    found = [*node.problems]
    if node.is_disk_low:
        found.append("the disk is nearly full: submits are refused, acks go on; make room")
    if node.fold_failures_count:
        found.append(
            f"making a snapshot failed {node.fold_failures_count} times in a row ({node.fold_failure}): "
            f"the log grows and a restart takes longer"
        )
    if node.archive is not None and node.archive.problem:
        found.append(
            f"shipping history to {node.archive.place} does not get on: {node.archive.problem}; "
            f"{node.archive.waiting_count:,} segments wait, and are kept as long as --keep-history allows"
        )
    machine = node.machine
    if machine is not None:
        settings = machine.settings
        is_full = len(machine.dead) >= settings.dlq_max * DLQ_NEARLY_FULL
        if is_full or machine.dead_bytes >= settings.dlq_bytes_max * DLQ_NEARLY_FULL:
            found.append("the DLQ is nearly full: beyond its bound the oldest are dropped; redrive or drop")
        if machine.no_ops:
            found.append(f"{machine.no_ops} stale events are in the log: a bug of rollmq, please report it")
    return found


def members_of(machine: Machine | None, node: NodeFacts) -> list[q.MemberStatus]:
    """Who is in the group, as the log says."""
    if machine is None or machine.members is None:
        return []
    return [
        q.MemberStatus(
            member.node_id,
            member.voter,
            node.addresses.get(member.node_id, ""),
            member.replaces,
            node.behind.get(member.node_id),
        )
        for member in machine.members.members
    ]


def members(node: NodeFacts, leader: Leader) -> q.MembersReply:
    """The group, and who wants to be in it."""
    asking = tuple(q.MemberStatus(node_id, False, address) for node_id, address in node.asking.items())
    known = members_of(leader.desk.machine, node)
    return q.MembersReply(node.group, node.node_id, node.leader, known, asking)


def settings_of(settings: Settings) -> dict[str, int]:
    """Every setting that an operator may change, with its value."""
    return {name: getattr(settings, name) for name in settings.__struct_fields__ if name not in NOT_SETTINGS}
