"""Many submits at once: so many under way, the next as soon as one is through, no future for each.

`submit_many` takes the calls when they are accepted, `map` when they have ended.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Final

import msgspec

from rollmq.errors import CodecFailed, RollmqError
from rollmq.library.call import ENDED, GONE, UNKNOWN, Call, Outcome
from rollmq.library.client_job import decode_outcome
from rollmq.library.client_session import ClientSession
from rollmq.library.payload_codec import Codec

_WORDS: Final = {GONE: "gone", UNKNOWN: "unknown"}


class Stream:
    """Calls under way, and those that are through and not yet taken.

    Invariant: `_under_way_count` calls were submitted by this stream and are neither in `_ready` nor taken.
    """

    def __init__(self, session: ClientSession, outstanding: int) -> None:
        if outstanding < 1:
            raise ValueError(f"outstanding is 1 or more, not {outstanding}")
        self._session = session
        self._outstanding = outstanding
        self._under_way_count = 0
        self._ready: list[Call] = []
        self._waiter: asyncio.Future[None] | None = None
        self.is_stopped = False
        """Nothing more is taken from the source; what is under way is still waited for."""

    def through(self, call: Call) -> None:
        """Called by a call of this stream when it has reached what the stream waits for."""
        self._under_way_count -= 1
        self._ready.append(call)
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def batches(self, source: Iterator[Call]) -> AsyncIterator[list[Call]]:
        """The calls of the source, each once it is through, in the order in which they come to be."""
        session = self._session
        loop = session.check()
        is_more = self._fill(source)
        while self._ready or self._under_way_count or is_more:
            if not self._ready:
                if self._under_way_count:
                    self._waiter = loop.create_future()
                    await self._waiter
                    self._waiter = None
                else:
                    await session.room()
            batch, self._ready = self._ready, []
            is_more = is_more and self._fill(source)
            if batch:
                yield batch

    def _fill(self, source: Iterator[Call]) -> bool:
        """Submit as many as may be under way. Whether the source may have more."""
        session = self._session
        core = session.core
        while self._under_way_count < self._outstanding and core.has_room:
            call = None if self.is_stopped else next(source, None)
            if call is None:
                return False
            if call.error is None:
                self._under_way_count += 1
                session.submit(call)
            else:
                self._ready.append(call)
        return True


def outcome_of(call: Call, codec: Codec | None) -> Outcome:
    """What `map` says of a call that is through, also when it has no end to tell of."""
    outcome = call.outcome
    if outcome is None:
        assert call.error is not None
        return _without_end(call, call.error)
    assert call.state == ENDED
    if codec is not None:
        try:
            outcome = decode_outcome(codec, outcome)
        except CodecFailed as error:
            return _without_end(call, error)
    return msgspec.structs.replace(outcome, position=call.position)


def _without_end(call: Call, error: RollmqError) -> Outcome:
    state = _WORDS.get(call.state, "gone" if call.state == ENDED else "refused")
    return Outcome(
        state, "" if state == "refused" else call.job_id.hex(), error=str(error), position=call.position
    )
