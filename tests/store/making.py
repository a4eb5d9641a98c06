"""Lines of a plausible log, and a store to put them into: what every test of the store begins with."""

from collections.abc import Sequence
from random import Random

from rollmq.core.events import AnyEvent, Enqueue, Members, Noop, SnapshotMarker
from rollmq.core.line import decode_line, encode_line
from rollmq.core.machine import Machine
from rollmq.core.raft_ready import HardState
from rollmq.core.segment_digest import SegmentDigest
from rollmq.core.state import dump_state, load_state
from rollmq.store.opening import Recovered, StoreOptions
from rollmq.store.store import Store
from tests.sim.sim_disk import SimDisk

GROUP = "aa" * 16
NODE = "bb" * 16
SMALL = StoreOptions(disk_free_bytes_min=0, ballast_bytes=0)


class LogMaker:
    """Makes the next line, as a leader would: indexes in a row, time moving, markers with their digest."""

    def __init__(self, *, term: int = 1, behind: int = 0) -> None:
        """`behind` an entry it goes on with a log that somebody else has written, and makes no markers."""
        self.term = term
        self.lines: list[bytes] = [b""] * behind
        self._digest = SegmentDigest(group=GROUP, first_index=1)
        self.machine = Machine(is_indexed=False)
        self.machine.last_index = behind

    @property
    def next_index(self) -> int:
        return len(self.lines) + 1

    def _add(self, event: AnyEvent) -> bytes:
        line = encode_line(event)
        self.lines.append(line)
        self._digest.add(line)
        self.machine.apply(event)
        return line

    def _stamp(self) -> tuple[int, int, int]:
        return self.next_index, self.term, 1_000_000 * self.next_index

    def noop(self) -> bytes:
        return self._add(Noop(*self._stamp()))

    def members(self) -> bytes:
        return self._add(Members(*self._stamp(), group=GROUP))

    def enqueue(self, payload_bytes: int = 10) -> bytes:
        index, term, at_us = self._stamp()
        # The id depends on the term too: what is written anew after a cut is another job.
        job_id = f"{term:08x}{index:024x}"
        payload = Random(index).randbytes(payload_bytes)
        return self._add(
            Enqueue(
                index,
                term,
                at_us,
                job_id=job_id,
                client_id="c1",
                exec="image.resize",
                payload=payload,
                payload_bytes=payload_bytes,
            )
        )

    def enqueues(self, count: int, payload_bytes: int = 10) -> list[bytes]:
        return [self.enqueue(payload_bytes) for _ in range(count)]

    def marker(self) -> bytes:
        digest, counts = self._digest.hexdigest(), self.machine.counts()
        return self._add(SnapshotMarker(*self._stamp(), segment_digest=digest, counts=counts))

    def cut(self, from_index: int) -> None:
        """Forget the lines from this one on, and go on in the next term."""
        kept = self.lines[: from_index - 1]
        self.lines = []
        self._digest = SegmentDigest(group=GROUP, first_index=1)
        self.machine = Machine(is_indexed=False)
        for line in kept:
            self.lines.append(line)
            self._digest.add(line)
            self.machine.apply(decode_line(line))
        self.term += 1


def open_store(disk: SimDisk, options: StoreOptions = SMALL) -> tuple[Store, Recovered]:
    return Store.open(disk, fresh_node_id=NODE, options=options)


def new_store(disk: SimDisk, options: StoreOptions = SMALL) -> Store:
    """A store that has its group and may vote in term 1."""
    store, _ = open_store(disk, options)
    store.set_group(GROUP)
    store.save_vote(HardState(term=1, voted_for=NODE))
    return store


def filled_store(disk: SimDisk, batches: Sequence[Sequence[bytes]]) -> Store:
    """A new store into which these batches were written."""
    store = new_store(disk)
    for batch in batches:
        store.write(batch, store.next_index)
    return store


def lines_of(recovered: Recovered) -> list[bytes]:
    return [entry.line for entry in recovered.entries()]


def state_of(recovered: Recovered) -> bytes:
    """The bytes of the state after loading the snapshot and applying the log after it."""
    machine = load_state(recovered.state_lines()) if recovered.state else Machine()
    for entry in recovered.entries():
        machine.apply(entry.event)
    return b"".join(dump_state(machine))
