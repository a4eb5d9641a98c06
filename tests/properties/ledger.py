"""What the log says, recounted by hand: what is promised of jobs, caps and attempts.

It folds events one by one and knows nothing of the machine; whatever breaks a promise is an AssertionError.
"""

from collections import Counter
from dataclasses import dataclass, field

from rollmq.core.events import (
    Ack,
    AnyEvent,
    Assign,
    Cancel,
    Client,
    Dlq,
    Drop,
    Ending,
    Enqueue,
    FailRequeue,
    Fence,
    MaybeEnding,
    Pause,
    Redrive,
    Resume,
    Settings,
)

OPEN, RUNNING, DEAD, CLOSED = "open", "running", "dead", "closed"


@dataclass
class Card:
    """What is known of one job."""

    client_id: str
    exec: str
    tries_max: int
    expires_at_us: int
    not_before_us: int
    state: str = OPEN
    attempt: int = 0
    tries: int = 0
    fence: Fence | None = None
    late_fence: Fence | None = None
    """Of the attempt whose ack would still count."""
    finals_in_life: int = 0


@dataclass
class Ledger:
    """The fold."""

    knows_caps: bool = True
    """False when clients, and so their caps, may be forgotten between two entries."""
    cards: dict[str, Card] = field(default_factory=dict)
    caps: dict[str, int] = field(default_factory=dict)
    running: Counter[str] = field(default_factory=Counter)
    paused: set[str] = field(default_factory=set)
    settings: Settings = field(default_factory=lambda: Settings(0, 0, 0))
    last_at_us: int = 0

    def take(self, event: AnyEvent) -> None:
        """Fold one event in."""
        assert event.at_us >= self.last_at_us
        self.last_at_us = event.at_us
        if isinstance(event, Enqueue):
            self._enqueue(event)
        elif isinstance(event, Assign):
            self._assign(event)
        elif isinstance(event, Ending):
            self._end(event)
        elif isinstance(event, Dlq | Cancel):
            self._close_early(event)
        elif isinstance(event, Redrive | Drop):
            for job_id in event.job_ids:
                self._leave_dlq(self.cards[job_id], is_alive=isinstance(event, Redrive))
        elif isinstance(event, Client):
            self.caps[event.client_id] = event.cap
        elif isinstance(event, Settings):
            self.settings = event
        elif isinstance(event, Pause):
            self.paused.add(event.exec)
        elif isinstance(event, Resume):
            self.paused.discard(event.exec)

    def _enqueue(self, event: Enqueue) -> None:
        assert event.job_id not in self.cards, "an id was accepted twice"
        self.cards[event.job_id] = Card(
            event.client_id, event.exec, event.tries_max, event.expires_at_us, event.not_before_us
        )

    def _assign(self, event: Assign) -> None:
        card = self.cards[event.job_id]
        assert card.state == OPEN
        assert event.attempt == card.attempt + 1, "attempts count up by one, never restarting"
        assert card.exec not in self.paused, "an exec is paused"
        assert card.not_before_us <= event.at_us, "assigned before its time"
        assert not card.expires_at_us or event.at_us < card.expires_at_us, "assigned after its expiry"
        assert card.tries < card.tries_max
        self.running[card.client_id] += 1
        cap = self.caps.get(card.client_id) or self.settings.cap_default
        assert not self.knows_caps or self.running[card.client_id] <= cap, "more in flight than the cap"
        card.state, card.attempt = RUNNING, event.attempt
        card.fence, card.late_fence = (event.term, event.index), None

    def _end(self, event: Ending) -> None:
        card = self.cards[event.job_id]
        is_late = isinstance(event, Ack) and card.state == OPEN and event.fence == card.late_fence
        assert is_late or (card.state == RUNNING and event.fence == card.fence), "a stale answer counted"
        assert event.attempt == card.attempt
        self._count_tries(card, event)
        if not is_late:
            self.running[card.client_id] -= 1
        if isinstance(event, Ack):
            self._final(card, CLOSED)
            return
        card.state = OPEN
        card.late_fence = None if isinstance(event, FailRequeue) or not _may_be_late(event) else event.fence
        assert event.tries < card.tries_max, "all tries are used up, yet it goes on"
        if isinstance(event, FailRequeue):
            card.not_before_us = max(event.not_before_us, card.not_before_us)

    def _count_tries(self, card: Card, event: Ending | MaybeEnding) -> None:
        assert card.tries <= event.tries <= card.tries + 1
        assert event.tries <= card.tries_max, "more tries than allowed"
        assert event.started or event.tries == card.tries, "what did not start is no try"
        card.tries = event.tries

    def _close_early(self, event: Dlq | Cancel) -> None:
        card = self.cards[event.job_id]
        if event.fence is not None:
            assert card.state == RUNNING
            assert event.fence == card.fence
            self._count_tries(card, event)
            self.running[card.client_id] -= 1
        else:
            assert card.state == OPEN
        self._final(card, DEAD if isinstance(event, Dlq) else CLOSED)

    def _final(self, card: Card, state: str) -> None:
        card.finals_in_life += 1
        assert card.finals_in_life == 1, "a life ended twice"
        card.state = state

    def _leave_dlq(self, card: Card, *, is_alive: bool) -> None:
        assert card.state == DEAD
        if is_alive:
            card.state, card.tries, card.finals_in_life = OPEN, 0, 0
            card.expires_at_us = 0
            card.not_before_us = 0
            card.late_fence = None
        else:
            card.state = CLOSED


def _may_be_late(event: Ending) -> bool:
    reason = getattr(event, "reason", "")
    return reason in ("", "gone")
