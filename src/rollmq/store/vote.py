"""Term and vote in one record, durable before anything that reveals them leaves (Raft paper, figure 2).

One record with one crc: a term without its vote could vote twice. It decides nothing.
"""

import msgspec

from rollmq.core.raft_ready import HardState
from rollmq.store.disk import Disk
from rollmq.store.layout import VOTE_FILE
from rollmq.store.sealed_file import read_value, write_value


class VoteRecord(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """What the file says."""

    term: int
    voted_for: str | None


_decoder = msgspec.json.Decoder(VoteRecord)


def read_vote(disk: Disk) -> HardState | None:
    """What was saved; None if there is no such file. Raises StateDamaged."""
    record = read_value(disk, VOTE_FILE, _decoder)
    return None if record is None else HardState(term=record.term, voted_for=record.voted_for)


def write_vote(disk: Disk, hard_state: HardState) -> None:
    """Save it; durable on return."""
    write_value(disk, VOTE_FILE, VoteRecord(term=hard_state.term, voted_for=hard_state.voted_for))
