"""What fuzzing found, each as the shortest story that shows it. See docs/track-record.md."""

from typing import Any

import msgspec
import pytest

from rollmq.core.events import Cancel, Dlq, Enqueue, Settings
from rollmq.core.line import open_line, seal
from rollmq.core.machine import Machine
from rollmq.core.state import StateDamaged, dump_state, load_state


class _Replicas:
    """One log, applied by every replica there is by then."""

    def __init__(self) -> None:
        self.machines = [Machine()]

    def apply(self, kind: type[Any], *, at_us: int = 0, **fields: Any) -> None:
        last = self.machines[0]
        event = kind(last.last_index + 1, 1, max(at_us, last.last_at_us), **fields)
        for machine in self.machines:
            machine.apply(event)

    def run(self, number: int, client_id: str, **fields: Any) -> None:
        """A job from beginning to end: its client is idle afterwards."""
        self.apply(Enqueue, job_id=_id(number), client_id=client_id, exec="e", **fields)
        self.apply(Cancel, job_id=_id(number))

    def restart_one(self) -> None:
        self.machines.append(load_state(dump_state(self.machines[0])))

    def dumps(self) -> list[list[bytes]]:
        return [list(dump_state(machine)) for machine in self.machines]


def _id(number: int) -> str:
    return f"{number:032x}"


def test_a_dead_letter_of_a_forgotten_client_is_in_a_snapshot_that_loads() -> None:
    replicas = _Replicas()
    replicas.apply(Settings, clients_max=1)
    replicas.apply(Enqueue, job_id=_id(1), client_id="a", exec="e")
    replicas.apply(Dlq, job_id=_id(1), reason="expired")
    replicas.apply(Enqueue, job_id=_id(2), client_id="b", exec="e")
    assert "a" not in replicas.machines[0].clients.by_id
    replicas.restart_one()
    assert replicas.dumps()[0] == replicas.dumps()[1]


def test_a_restarted_replica_forgets_the_same_clients_as_one_that_ran_through() -> None:
    replicas = _Replicas()
    replicas.apply(Settings, clients_max=3, keys_keep_us=100)
    replicas.run(1, "a", key="k", content_digest="d")
    replicas.run(2, "c")
    replicas.run(3, "e")
    replicas.run(4, "f")  # one too many: a has a key and is passed over, c is forgotten
    replicas.restart_one()
    replicas.apply(Enqueue, at_us=1000, job_id=_id(5), client_id="f", exec="e")  # a's key is too old now
    replicas.apply(Enqueue, at_us=1001, job_id=_id(6), client_id="g", exec="e")  # one too many again
    assert replicas.dumps()[0] == replicas.dumps()[1]


@pytest.mark.parametrize("priority", [-2, 77])
def test_a_state_with_an_impossible_priority_is_called_damaged(priority: int) -> None:
    replicas = _Replicas()
    replicas.apply(Enqueue, job_id=_id(1), client_id="a", exec="e", priority=3)
    bodies = [msgspec.json.decode(open_line(line)) for line in replicas.dumps()[0]]
    for body in bodies:
        if body["kind"] == "job":
            body["priority"] = priority
    with pytest.raises(StateDamaged, match="priority"):
        load_state(seal(msgspec.json.encode(body)) for body in bodies)
