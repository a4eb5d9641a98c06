"""Clients and workers as the log knows them, bounded: idle ones are forgotten oldest first.

A party is idle while it has no open job; the order of falling idle is part of the replicated state.
Operators' settings are never forgotten.
"""

from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from rollmq.core.record import ClientRecord

if TYPE_CHECKING:
    from rollmq.core.queues import Lane


class ClientState:
    """A client in memory. Invariant: inflight_count <= open_count."""

    __slots__ = (
        "by",
        "cap",
        "client_id",
        "idle_index",
        "inflight_count",
        "key_count",
        "open_count",
        "parked",
        "weight",
    )

    def __init__(self, record: ClientRecord) -> None:
        self.client_id = record.client_id
        self.cap = record.cap
        self.weight = record.weight
        self.by = record.by
        self.idle_index = record.idle_index
        self.inflight_count = 0
        self.open_count = 0
        self.key_count = 0
        self.parked: OrderedDict[Lane, None] = OrderedDict()
        """Lanes that were skipped because the client was at its cap, in the order of their turns."""

    def record(self) -> ClientRecord:
        """Its line in the canonical state."""
        return ClientRecord(self.client_id, self.cap, self.weight, self.by, self.idle_index)


class Clients:
    """All clients by id. A client exists from its first job or setting on."""

    def __init__(self) -> None:
        self.by_id: dict[str, ClientState] = {}
        self._idle: OrderedDict[str, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self.by_id)

    def get_or_add(self, client_id: str, index: int) -> ClientState:
        """The client, made on first sight; a new one is idle since this entry."""
        client = self.by_id.get(client_id)
        if client is None:
            client = ClientState(ClientRecord(client_id, idle_index=index))
            self.restore(client)
        return client

    def restore(self, client: ClientState) -> None:
        """Take over a client; from a snapshot the idle ones come in the order of `in_order`."""
        self.by_id[client.client_id] = client
        if client.idle_index:
            self._idle[client.client_id] = None

    def in_order(self) -> Iterator[ClientState]:
        """All, for the canonical state: busy ones by id, then idle ones in the order in which they will be
        forgotten. That order is not idle_index's: `forget_over` puts those that it passes over last."""
        yield from sorted(
            (client for client in self.by_id.values() if not client.idle_index),
            key=lambda client: client.client_id,
        )
        yield from (self.by_id[client_id] for client_id in self._idle)

    def job_opened(self, client: ClientState) -> None:
        """One more open job."""
        client.open_count += 1
        if client.idle_index:
            client.idle_index = 0
            del self._idle[client.client_id]

    def job_closed(self, client: ClientState, index: int) -> None:
        """One open job less; with the last one it falls idle."""
        client.open_count -= 1
        assert client.open_count >= 0
        if client.open_count == 0:
            client.idle_index = index
            self._idle[client.client_id] = None

    def forget_over(self, clients_max: int) -> None:
        """Forget the clients idle longest while there are too many; set by an operator, they stay."""
        kept = 0
        while len(self.by_id) > clients_max and kept < len(self._idle):
            client_id, _ = self._idle.popitem(last=False)
            client = self.by_id[client_id]
            if client.by or client.key_count:
                self._idle[client_id] = None
                kept += 1
                if kept >= FORGET_LOOKS_MAX:
                    return
            else:
                del self.by_id[client_id]


FORGET_LOOKS_MAX: Final = 8
"""How many that must stay are passed over at one entry, so that an entry's cost is bounded."""
