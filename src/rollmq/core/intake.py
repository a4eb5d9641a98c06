"""Submits: accepted once, or refused with a reason. It writes `enqueue`, and `client` before it at need."""

from operator import attrgetter
from typing import Final

from rollmq.core.dedup import ID_TIME_DIGITS
from rollmq.core.desk import Desk
from rollmq.core.effects import Accepted, Refused
from rollmq.core.events import Backoff, Client, Enqueue
from rollmq.core.record import KeyScope
from rollmq.core.requests import Submit as Submit
from rollmq.core.requests import Wish as Wish
from rollmq.core.sanity import is_number, is_text
from rollmq.core.subject import BadSubject, check_subject
from rollmq.limits import (
    HEADER_VALUE_CHARS_MAX,
    ID_AHEAD_MAX_US,
    ID_CHARS_MAX,
    KEY_CHARS_MAX,
    PAYLOAD_BYTES_MAX,
    PRIORITY_MAX,
    TIMEOUT_MAX_US,
    TRIES_MAX_MAX,
    USER_HEADERS_MAX,
    WEIGHT_MAX,
)

HEX_DIGITS: Final = "0123456789abcdef"
ID_DIGITS: Final = 32


NO_WISH: Final = Wish()


class Intake:
    """Decides about submits."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.is_disk_low = False
        """Told by the host. Submits are refused, acks go on."""
        self.is_draining = False
        self.is_overloaded = False
        """Told by the replica: as many bytes as may be uncommitted are. What ends jobs still goes on."""
        self._wishes: dict[str, Wish] = {}
        self._ahead_us = -1
        self._ahead_prefix = ""
        """The latest time prefix that an id may have, as of log time `_ahead_us`."""

    def hello(self, client_id: str, wish: Wish) -> str | None:
        """A client connected. Returns why not, or null. Nothing is written before its first submit."""
        if not client_id or not is_text(client_id, ID_CHARS_MAX):
            return f"a client id has 1 to {ID_CHARS_MAX} characters"
        if not is_number(wish.cap) or not 1 <= wish.weight <= WEIGHT_MAX:
            return f"a cap is 0 (the group's default) or more, a weight 1 to {WEIGHT_MAX}"
        if wish != NO_WISH:
            self._wishes[client_id] = wish
        return None

    def goodbye(self, client_id: str) -> None:
        """Its last session is gone; what it wished is in the log if it submitted anything."""
        self._wishes.pop(client_id, None)

    def submit(self, submit: Submit, to: object) -> None:
        """Accept a job, repeat an earlier answer, or refuse. The answer waits for its entry's commit."""
        desk, machine = self._desk, self._desk.machine
        owner = machine.client_of(submit.job_id)
        if owner is not None and owner != submit.client_id:
            text = "this id belongs to another client's job; ids are drawn at random, draw another"
            desk.say(Refused(desk.last_index, to, submit.job_id, "bad_job", text))
            return
        if owner is not None:
            desk.say(Accepted(desk.last_index, to, submit.job_id, submit.job_id, is_repeat=True))
            return
        lasting = self._lasting_reason(submit, to)
        if lasting is not None:
            desk.say(lasting)
            return
        if submit.key:
            scope = KeyScope(submit.client_id, submit.exec, submit.key)
            first = machine.keys.find(scope, desk.now_us, machine.settings)
            if first is not None:
                # Answered also when new jobs are refused: a repeat adds nothing.
                self._repeat_key(submit, to, first.job_id, is_equal=first.digest == submit.content_digest)
                return
        passing = self._passing_reason(submit)
        if passing is not None:
            desk.say(Refused(desk.last_index, to, submit.job_id, *passing, is_retryable=True))
            return
        if self._wishes:
            self._log_wish(submit.client_id)
        event = _plain_enqueue(submit, desk) if submit.is_plain else _enqueue(submit, desk)
        desk.decide(event)
        desk.say(Accepted(event.index, to, submit.job_id, submit.job_id))

    def _repeat_key(self, submit: Submit, to: object, first_id: str, *, is_equal: bool) -> None:
        desk = self._desk
        if is_equal:
            desk.say(Accepted(desk.last_index, to, submit.job_id, first_id, is_repeat=True))
        else:
            text = f"key {submit.key!r} was used for job {first_id} with other content; nothing was changed"
            desk.say(Refused(desk.last_index, to, submit.job_id, "key_conflict", text))

    def _log_wish(self, client_id: str) -> None:
        """An operator's setting beats a client's wish; an unchanged wish is not written again."""
        wish = self._wishes.get(client_id)
        if wish is None:
            return
        desk = self._desk
        client = desk.machine.clients.by_id.get(client_id)
        if client is None or (not client.by and (client.cap, client.weight) != (wish.cap, wish.weight)):
            desk.decide(Client(desk.next_index, desk.term, desk.now_us, client_id, wish.cap, wish.weight))

    # -- reasons to refuse

    def _lasting_reason(self, submit: Submit, to: object) -> Refused | None:
        """Reasons that lie in the submit itself."""
        index = self._desk.last_index
        problem = problem_of(submit, is_exec_known=submit.exec in self._desk.queues.execs)
        if problem is not None:
            return Refused(index, to, submit.job_id, *problem)
        if self._desk.machine.finished.is_too_old_to_tell(submit.job_id):
            text = "ids of that age are forgotten: whether this job was accepted cannot be told"
            return Refused(index, to, submit.job_id, "too_old_to_tell", text, is_unknown=True)
        if submit.job_id[:ID_TIME_DIGITS] > self._latest_prefix():
            text = "the id's time is ahead of the group's; draw ids by the log time of the hello's answer"
            return Refused(index, to, submit.job_id, "id_in_future", text, is_retryable=True)
        return None

    def _latest_prefix(self) -> str:
        """The latest time that an id may say, as its digits; they compare like times."""
        now_us = self._desk.now_us
        if self._ahead_us != now_us:
            self._ahead_us = now_us
            self._ahead_prefix = f"{(now_us + ID_AHEAD_MAX_US) // 1000:0{ID_TIME_DIGITS}x}"
        return self._ahead_prefix

    def _passing_reason(self, submit: Submit) -> tuple[str, str] | None:
        """Reasons that go away by themselves."""
        machine = self._desk.machine
        if self.is_draining:
            return "shutting_down", "this leader is shutting down; another takes over"
        if self.is_overloaded:
            return "overloaded", "the disks or the other nodes do not keep up; send fewer jobs at once"
        if self.is_disk_low:
            return "disk_low", "the leader's disk is nearly full; running jobs go on, new ones are refused"
        if machine.paused.get(submit.exec):
            return "paused", f"exec {submit.exec!r} is paused, for submits too"
        settings = machine.settings
        queued_count = len(machine.jobs) - machine.inflight.count
        if queued_count >= settings.queued_max:
            return "queue_full", f"{queued_count:,} jobs are queued, the most that is allowed"
        open_bytes = machine.queued_bytes + machine.inflight.size_bytes
        if open_bytes + len(submit.payload) > settings.queued_bytes_max:
            text = f"{open_bytes:,} bytes are queued or running, of {settings.queued_bytes_max:,}"
            return "queue_full", f"{text}; this job has {len(submit.payload):,}"
        if submit.key and self._is_key_window_full(submit.client_id):
            count = settings.keys_per_client_max
            return "keys_full", f"{count:,} keys of this client are remembered, the most allowed"
        return None

    def _is_key_window_full(self, client_id: str) -> bool:
        """Keys that have passed their age do not count, although only the next enqueue takes them away."""
        machine = self._desk.machine
        client = machine.clients.by_id.get(client_id)
        over = client.key_count - machine.settings.keys_per_client_max if client is not None else -1
        return over >= 0 and not machine.keys.has_aged(
            client_id, over + 1, self._desk.now_us, machine.settings
        )


def _plain_enqueue(submit: Submit, desk: Desk) -> Enqueue:
    """The event of a submit without options: most are, and naming each default costs more than all else."""
    payload = submit.payload
    return Enqueue(
        desk.next_index,
        desk.term,
        desk.now_us,
        submit.job_id,
        submit.client_id,
        submit.exec,
        payload,
        len(payload),
    )


def _enqueue(submit: Submit, desk: Desk) -> Enqueue:
    return Enqueue(
        desk.next_index,
        desk.term,
        desk.now_us,
        submit.job_id,
        submit.client_id,
        submit.exec,
        submit.payload,
        len(submit.payload),
        submit.content_type,
        submit.content_digest,
        submit.key_id,
        submit.key,
        submit.headers,
        submit.priority,
        submit.not_before_us,
        submit.expires_at_us,
        submit.timeout_us,
        float(submit.timeout_factor),
        submit.tries_max,
        _as_read(submit.backoff),
    )


_options_of = attrgetter(
    "content_type",
    "content_digest",
    "key_id",
    "key",
    "headers",
    "priority",
    "not_before_us",
    "expires_at_us",
    "timeout_us",
    "timeout_factor",
    "tries_max",
    "backoff",
)
NO_OPTIONS: Final[tuple[object, ...]] = _options_of(Submit("", "", ""))


def problem_of(submit: Submit, *, is_exec_known: bool = False) -> tuple[str, str] | None:
    """What is wrong with a submit whatever the state: code and text, or null. An exec that has a queue need
    not be looked at again, and most submits have no options."""
    if len(submit.payload) > PAYLOAD_BYTES_MAX:
        size = len(submit.payload)
        return (
            "payload_too_large",
            f"the payload has {size:,} bytes, at most {PAYLOAD_BYTES_MAX:,} are allowed",
        )
    if len(submit.job_id) != ID_DIGITS or submit.job_id.strip(HEX_DIGITS):
        return "bad_job", f"a job id is {ID_DIGITS} lower-case hex digits (a UUIDv7)"
    if not submit.client_id or not is_text(submit.client_id, ID_CHARS_MAX):
        return "bad_job", f"a client id has 1 to {ID_CHARS_MAX} characters"
    if not submit.is_plain and _options_of(submit) != NO_OPTIONS and (problem := _problem_of_options(submit)):
        return "bad_job", problem
    if is_exec_known:
        return None
    try:
        check_subject(submit.exec)
    except BadSubject as error:
        return "bad_job", f"exec {error}"
    return None


def _problem_of_options(submit: Submit) -> str | None:
    if not is_text(submit.key, KEY_CHARS_MAX):
        return f"a key has at most {KEY_CHARS_MAX} characters"
    if submit.key and not submit.content_digest:
        return "a keyed job needs its content's digest, so that a repeat can be compared"
    if not all(
        is_text(text, ID_CHARS_MAX) for text in (submit.content_type, submit.content_digest, submit.key_id)
    ):
        return f"content type, content digest and key id have at most {ID_CHARS_MAX} characters"
    if submit.headers is not None and not _are_headers(submit.headers):
        return f"headers are at most {USER_HEADERS_MAX}, each of {HEADER_VALUE_CHARS_MAX} characters"
    if not is_number(submit.not_before_us) or not is_number(submit.expires_at_us):
        return "not_before_us and expires_at_us are microseconds since 1970"
    if not 0 <= submit.priority <= PRIORITY_MAX:
        return f"priority is 0 to {PRIORITY_MAX}"
    if not 1 <= submit.tries_max <= TRIES_MAX_MAX:
        return f"tries_max is 1 to {TRIES_MAX_MAX}"
    if not 0 < submit.timeout_us <= TIMEOUT_MAX_US or not 1.0 <= submit.timeout_factor <= 10.0:
        return "timeout is more than 0 and at most a year, timeout_factor 1 to 10"
    if not _is_sane(submit.backoff):
        return "backoff needs 0 <= first <= max <= a year, factor 1 to 100, jitter 0 to 1"
    return None


def _are_headers(headers: dict[str, str]) -> bool:
    return len(headers) <= USER_HEADERS_MAX and all(
        is_text(text, HEADER_VALUE_CHARS_MAX) for pair in headers.items() for text in pair
    )


def _as_read(backoff: Backoff | None) -> Backoff | None:
    """As every replica reads it from the line: a caller's 2 is 2.0 there, and other bytes in the state."""
    if backoff is None:
        return None
    return Backoff(backoff.first_us, float(backoff.factor), backoff.max_us, float(backoff.jitter))


def _is_sane(backoff: Backoff | None) -> bool:
    return backoff is None or (
        0 <= backoff.first_us <= backoff.max_us <= TIMEOUT_MAX_US
        and 1.0 <= backoff.factor <= 100.0
        and 0.0 <= backoff.jitter <= 1.0
    )
