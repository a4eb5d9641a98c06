"""Lists for operators, page by page, a bounded number of looks each: jobs, dead letters, clients, workers.

A cursor is a place in an ordered collection and the id that stood there, so that a page finds its place again
although others came and went. It reads only, and never walks a whole backlog in one turn.
"""

from collections.abc import Callable, Iterable
from itertools import chain, islice
from operator import attrgetter
from typing import Final, Generic, NamedTuple, TypeVar

from rollmq.core.job import INFLIGHT, Job
from rollmq.core.leader import Leader
from rollmq.core.liveness import Presence
from rollmq.core.parties import ClientState
from rollmq.core.queues import ExecQueue
from rollmq.limits import QUERY_LOOKS_MAX, QUERY_PLACE_MAX
from rollmq.node.query_status import exec_status
from rollmq.wire import query as q

LOOK_BACK: Final = 2_000
"""Those before the cursor may have gone meanwhile, and what follows has moved up by as many."""
ERROR_CHARS: Final = 200
PATTERNS_SHOWN: Final = 8
COUNT_DIGITS_MAX: Final = 17

T = TypeVar("T")


class Walked(NamedTuple, Generic[T]):
    """What one walk found."""

    found: list[T]
    after: str
    """The next walk's cursor; empty: the end was reached."""
    may_miss: bool


def walk(
    items: Iterable[T],
    after: str,
    *,
    limit: int,
    name_of: Callable[[T], str],
    order_of: Callable[[T], int] | None = None,
    is_wanted: Callable[[T], bool] = lambda _item: True,
) -> Walked[T]:
    """The next wanted items behind a cursor, at most `limit` of them, at most QUERY_LOOKS_MAX looked at.
    `order_of` hardly ever falls along the collection."""
    cursor, rest, may_miss = _behind(items, Cursor.read(after), name_of, order_of)
    found: list[T] = []
    place = cursor.place
    for looked, item in enumerate(rest, 1):
        if is_wanted(item):
            found.append(item)
        if place + looked >= QUERY_PLACE_MAX:
            return Walked(found, "", may_miss=True)
        if len(found) >= limit or looked >= QUERY_LOOKS_MAX:
            order = order_of(item) if order_of is not None else 0
            return Walked(found, Cursor(place + looked, order, name_of(item)).text(), may_miss)
    return Walked(found, "", may_miss)


class Cursor(NamedTuple):
    """Behind which item to go on. Its text is opaque to whoever hands it in again."""

    place: int = 0
    order: int = 0
    name: str = ""

    def text(self) -> str:
        """As it stands in a page."""
        return f"{self.place}:{self.order}:{self.name}"

    @classmethod
    def read(cls, text: str) -> "Cursor":
        """A cursor that nobody gave out begins at the beginning."""
        place, _, rest = text.partition(":")
        order, _, name = rest.partition(":")
        if not (is_count(place) and is_count(order)):
            return cls()
        return cls(min(int(place), QUERY_PLACE_MAX), int(order), name)


def is_count(text: str) -> bool:
    """Whether it is a number that a cursor may hold."""
    return text.isascii() and text.isdecimal() and len(text) <= COUNT_DIGITS_MAX


def _behind(
    items: Iterable[T],
    cursor: Cursor,
    name_of: Callable[[T], str],
    order_of: Callable[[T], int] | None,
) -> tuple[Cursor, Iterable[T], bool]:
    """What comes behind the item that the cursor names, looked for at its place and shortly before."""
    if not cursor.place:
        return cursor, items, False
    first = max(0, cursor.place - LOOK_BACK)
    rest = islice(items, first, None)
    window = list(islice(rest, cursor.place - first))
    for number in range(len(window) - 1, -1, -1):
        if name_of(window[number]) == cursor.name:
            return Cursor(first + number + 1), chain(window[number + 1 :], rest), False
    # It is gone itself, and with it perhaps more than the window: go on behind all that came before it.
    if order_of is None:
        return cursor, rest, True
    behind = [item for item in window if order_of(item) >= cursor.order]
    return Cursor(cursor.place - len(behind)), chain(behind, rest), True


# --- jobs -------------------------------------------------------------------------------------------


def jobs(leader: Leader, arguments: q.JobsArguments) -> q.JobsPage:
    """Open jobs (or dead ones), in the order of the log."""
    machine, now_us, state = leader.desk.machine, leader.desk.now_us, arguments.state
    if arguments.exec and state != "dead" and arguments.exec not in leader.desk.queues.execs:
        return q.JobsPage(jobs=[], after="")

    def is_wanted(job: Job) -> bool:
        return (
            (not arguments.exec or job.exec == arguments.exec)
            and (not arguments.client_id or job.client_id == arguments.client_id)
            and (not state or state == "dead" or state_of(job, now_us) == state)
        )

    items: Iterable[Job] = machine.jobs.values()
    order_of: Callable[[Job], int] | None = attrgetter("enqueued_index")
    if state == "dead":
        items, order_of = machine.dead.values(), attrgetter("dead_us")
    elif state == INFLIGHT:
        items = chain.from_iterable(held.values() for held in machine.inflight.by_worker.values())
        order_of = None
    walked = walk(
        items,
        arguments.after,
        limit=arguments.limit,
        name_of=attrgetter("id"),
        order_of=order_of,
        is_wanted=is_wanted,
    )
    return _page_of_jobs(walked, now_us)


def dead_letters(leader: Leader, arguments: q.DlqArguments) -> q.JobsPage:
    """The DLQ, those that died first on top."""

    def is_wanted(job: Job) -> bool:
        last = job.errors[-1].type if job.errors else ""
        return (
            (not arguments.exec or job.exec == arguments.exec)
            and (not arguments.client_id or job.client_id == arguments.client_id)
            and (not arguments.error or last == arguments.error)
            and (not arguments.reason or job.dead_reason == arguments.reason)
        )

    walked = walk(
        leader.desk.machine.dead.values(),
        arguments.after,
        limit=arguments.limit,
        name_of=attrgetter("id"),
        order_of=attrgetter("dead_us"),
        is_wanted=is_wanted,
    )
    return _page_of_jobs(walked, leader.desk.now_us)


def _page_of_jobs(walked: Walked[Job], now_us: int) -> q.JobsPage:
    rows = [job_row(job, now_us) for job in walked.found]
    return q.JobsPage(jobs=rows, after=walked.after, may_miss=walked.may_miss, at_us=now_us)


def state_of(job: Job, now_us: int) -> str:
    """queued, delayed, inflight or dead."""
    is_delayed = job.state == "queued" and job.lane is None and job.place_us > now_us
    return "delayed" if is_delayed else job.state


def job_row(job: Job, now_us: int) -> q.JobRow:
    """One job, without its payload."""
    state = state_of(job, now_us)
    last = job.errors[-1] if job.errors else None
    until_us = job.place_us if state == "delayed" else job.deadline_us if state == INFLIGHT else 0
    return q.JobRow(
        job_id=job.id,
        exec=job.exec,
        client_id=job.client_id,
        state=state,
        priority=job.priority,
        life=job.life,
        attempt=job.attempt,
        tries=job.tries,
        tries_max=job.tries_max,
        enqueued_us=job.enqueued_us,
        until_us=until_us,
        worker_id=job.worker_id,
        is_started=state == INFLIGHT and job.is_started,
        payload_bytes=len(job.payload),
        key=job.key,
        error_type=last.type[:ERROR_CHARS] if last is not None else "",
        error_message=last.message[:ERROR_CHARS] if last is not None else "",
        errors_count=len(job.errors or ()),
        dead_us=job.dead_us,
        dead_reason=job.dead_reason,
    )


# --- parties ----------------------------------------------------------------------------------------


def clients(leader: Leader, arguments: q.PageArguments) -> q.ClientsPage:
    """Clients that are remembered."""
    machine = leader.desk.machine
    walked = walk(
        machine.clients.by_id.values(),
        arguments.after,
        limit=arguments.limit,
        name_of=lambda client: client.client_id,
    )
    rows = [_client_row(client, machine.settings.cap_default) for client in walked.found]
    return q.ClientsPage(clients=rows, after=walked.after, may_miss=walked.may_miss)


def _client_row(client: ClientState, cap_default: int) -> q.ClientRow:
    return q.ClientRow(
        client.client_id,
        client.cap,
        client.cap or cap_default,
        client.weight,
        client.by,
        client.open_count - client.inflight_count,
        client.inflight_count,
        client.key_count,
    )


def workers(leader: Leader, arguments: q.PageArguments) -> q.WorkersPage:
    """Workers that are connected, or were a moment ago."""
    walked = walk(
        leader.liveness.present.values(),
        arguments.after,
        limit=arguments.limit,
        name_of=lambda presence: presence.hello.worker_id,
    )
    rows = [_worker_row(leader, presence) for presence in walked.found]
    return q.WorkersPage(workers=rows, after=walked.after, may_miss=walked.may_miss)


def _worker_row(leader: Leader, presence: Presence) -> q.WorkerRow:
    hello, slot = presence.hello, presence.slot
    state = "away" if slot is None else "draining" if presence.is_draining else "ready"
    return q.WorkerRow(
        hello.worker_id,
        state,
        hello.hands,
        len(leader.desk.machine.inflight.held_by(hello.worker_id)),
        slot.credit if slot is not None else 0,
        max(0, leader.desk.now_us - presence.last_heard_us),
        hello.host,
        hello.release,
        hello.patterns[:PATTERNS_SHOWN],
        len(hello.patterns),
    )


def execs(leader: Leader, arguments: q.PageArguments) -> q.ExecsPage:
    """Execs that have jobs or are paused."""
    walked = walk(
        leader.desk.queues.execs.values(),
        arguments.after,
        limit=arguments.limit,
        name_of=lambda queue: queue.name,
    )
    rows = [_exec_row(leader, queue) for queue in walked.found]
    return q.ExecsPage(execs=rows, after=walked.after, may_miss=walked.may_miss)


def _exec_row(leader: Leader, queue: ExecQueue) -> q.ExecRow:
    now = exec_status(queue)
    reach = leader.desk.scheduler.reach(queue.name)
    return q.ExecRow(
        now.queued,
        now.inflight,
        now.delayed,
        now.paused,
        now.refuses_submits,
        queue.name,
        reach.worker_count,
        reach.credit,
    )
