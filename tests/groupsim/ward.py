"""A damaged node of a simulated group while it repairs itself: its ticks, its messages, its crashes.

Everything that it sends is looked at: it may not vote, confirm or lead, and what it gives to others must be
what some leader once decided (P8).
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from rollmq.core.line import decode_line
from rollmq.core.repair_messages import RepairAsk, RepairFetch, RepairHas, RepairMessage, RepairPiece
from rollmq.errors import StoreFailed
from rollmq.node.repair_source import RepairSource
from rollmq.node.repairing import Repairing
from rollmq.store.disk import GuardedDisk
from rollmq.store.node_file import read_identity
from tests.sim.sim_disk import PowerCut
from tests.sim.world import Violation

if TYPE_CHECKING:
    from tests.groupsim.node import GroupNode
    from tests.groupsim.oracle import GroupOracle

TICK_US: Final = 50_000
HELP_US: Final = (100, 20_000)


class Ward:
    """One process that repairs its directory."""

    def __init__(self, node: "GroupNode") -> None:
        self.node = node
        self._number = node.boot_number
        node.disk.lock("lock", "sim")
        disk = GuardedDisk(node.disk)
        identity = read_identity(disk)
        assert identity is not None
        self.repairing = Repairing(
            disk,
            identity,
            first_round=node.world.random.getrandbits(40),
            now_us=node.world.now_us,
            log=self._tell,
        )
        self.had_vote = self.repairing.plan.survey.hard_state is not None
        node.world.after(0, self._tick)

    @property
    def was_end_sure(self) -> bool:
        """Nothing was missing at its log's end, at any time."""
        return not self.repairing.has_lost_end

    @property
    def is_here(self) -> bool:
        """This process lives."""
        return self.node.ward is self and self._number == self.node.boot_number

    def _tell(self, event: str, **fields: object) -> None:
        self.node.world.say(self.node.name, " ".join([event, *(f"{k}={v}" for k, v in fields.items())]))
        self.node.oracle.counts[event.replace("_", " ")] += 1

    def _tick(self) -> None:
        if self.is_here:
            self.node.world.after(TICK_US, self._tick)
            self._do(lambda: self.repairing.tick(self.node.world.now_us))

    def take(self, message: RepairMessage) -> None:
        """A peer's message."""
        self._do(lambda: self.repairing.take(message))

    def _do(self, call: Callable[[], None]) -> None:
        """The power may go in any call of the disk, here too."""
        node = self.node
        if not node.world.is_calm and node.world.happens(node.swarm.group.repair_crash):
            node.disk.stop_at = node.disk.calls + node.world.random.randrange(30)
        try:
            call()
        except PowerCut as cut:
            node.world.say(node.name, f"stops in the middle of its repair, at {cut}")
            node.oracle.counts["repairs cut off"] += 1
            node.leave_ward(is_power_cut=True)
            return
        except StoreFailed as error:
            node.world.say(node.name, f"stops: {error.path}: {error.__cause__}")
            node.leave_ward(is_power_cut=False)
            return
        node.disk.stop_at = None
        messages, self.repairing.outbox = self.repairing.outbox, []
        for message in messages:
            check_sent(node.law, message)
            node.group.peers.send(message)
        if self.repairing.is_done:
            node.disk.kill()
            node.is_ill = False
            node.world.after(0, node.boot)
            node.ward, node.healed = None, self


def check_sent(law: "GroupOracle", message: object) -> None:
    """P8: a damaged node says nothing that counts; nobody gives a line that no leader decided."""
    if not isinstance(message, RepairAsk | RepairHas | RepairFetch | RepairPiece):
        raise Violation(f"P8: a damaged node sends {message}")
    if isinstance(message, RepairPiece) and message.first_index:
        for line in message.data.splitlines(keepends=True):
            event = decode_line(line)
            known = law.entries.get((event.index, event.term))
            if known is None or known[0] != line:
                raise Violation(f"P8: {message.source} gives another entry {event.index}")


def enter_ward(node: "GroupNode") -> Ward | None:
    """Begin to repair; the power may go, or a write fail, before it has begun."""
    try:
        return Ward(node)
    except PowerCut as cut:
        node.world.say(node.name, f"the power goes at {cut}")
        node.leave_ward(is_power_cut=True)
    except StoreFailed as failure:
        node.world.say(node.name, f"cannot repair: {failure.path}: {failure.__cause__}")
        node.leave_ward(is_power_cut=False)
    return None


def give_help(node: "GroupNode", message: RepairMessage) -> None:
    """A damaged peer asks a node that runs; what it is given is read beside everything else."""
    source = RepairSource(node.replica.raft, node.store)
    if isinstance(message, RepairAsk):
        node.group.peers.send(source.has(message))
    elif isinstance(message, RepairFetch):

        def give(fetch: RepairFetch = message, may: bool = source.may_send(message)) -> None:
            piece = source.piece(fetch, source.read(fetch) if may else None)
            check_sent(node.law, piece)
            node.group.peers.send(piece)

        node.later(node.world.between(HELP_US), give)
