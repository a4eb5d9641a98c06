"""What an operator should know of a member and its group: nobody leads, a clock is off, replicas differ.

It reads only; `status` shows it.
"""

from collections.abc import Mapping

from rollmq.core.replica import Replica


def problems_of(replica: Replica, *, addresses: Mapping[str, str], why_no_leader: str) -> tuple[str, ...]:
    """Each as a sentence; none when all is well."""
    found = [why_no_leader] if why_no_leader else []
    raft, log_time = replica.raft, replica.log_time
    if raft.node_id not in raft.log.membership.current.all:
        found.append("this node is no member of the group (any more): it learns nothing and may be stopped")
    if log_time is not None and log_time.step_wanted_us:
        found.append(
            f"this node's clock is {log_time.step_wanted_us // 1_000_000:,} s ahead of log time, and no "
            f"majority of clocks confirms that: set the clocks right; alone: `rollmq step-time`"
        )
    if replica.doubt:
        found.append(
            f"{replica.doubt}: a leader was wrong about its state there, or this node is. `rollmq log "
            f"verify` proves the files; the other members' digests say who it is"
        )
    differing = replica.agreement.differing if replica.leader is not None else {}
    for node_id, index in differing.items():
        found.append(
            f"the state of {addresses.get(node_id, node_id)} was not this leader's at the marker {index}: "
            f"whoever of them differs from a majority stops"
        )
    return tuple(found)
