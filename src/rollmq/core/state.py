"""The canonical encoding of the state: lines that can be read one by one and compared byte for byte.

    {"crc":…,"kind":"state","format":1,…,"index":…}      first
    one line per setting, client, worker, job, dead letter, finished job and key
    {"crc":…,"kind":"end","counts":{…},"lines":…}        last

Two replicas that applied the same index give the same bytes. Every section is in an order that follows
from the log alone, mostly that of arrival, so loading and then dumping changes nothing.
It knows no files: `store.snapshot` writes and reads these lines.
"""

from collections.abc import Iterable, Iterator
from itertools import chain as join
from typing import TypeAlias
from zlib import crc32

import msgspec

from rollmq.core.events import (
    FORMAT_VERSION,
    MACHINE_VERSION,
    Counts,
    Members,
    Settings,
    SnapshotMarker,
)
from rollmq.core.job import DEAD, INFLIGHT, Finished, Job, JobRecord, job_of, record_of, weight_of
from rollmq.core.line import CRC_AT, CRC_END, LineDamaged, decode_part, seal
from rollmq.core.machine import Machine
from rollmq.core.parties import ClientState
from rollmq.core.record import ClientRecord, KeyRecord, Record, WorkerRecord
from rollmq.limits import PRIORITY_MAX


class StateHeader(Record, tag="state"):
    """The first line: as of which entry."""

    format: int
    machine_version: int
    index: int
    term: int
    at_us: int


class SettingsRecord(Record, tag="settings"):
    """The newest settings; absent while those of the version hold."""

    event: Settings


class MembersRecord(Record, tag="members"):
    """The newest members."""

    event: Members


class PipelineRecord(Record, tag="pipeline"):
    """How far a pipeline has confirmed."""

    name: str
    confirmed_index: int


class PauseRecord(Record, tag="pause"):
    """A paused exec."""

    exec: str
    submits: bool


class StateEnd(Record, tag="end"):
    """The last line: without it, or with other counts, the state is not whole."""

    counts: Counts
    lines: int
    chain: int
    """crc32 over the crcs of all lines before, so that lines put into another order are found too."""
    forgotten_id: str = ""


AnyRecord: TypeAlias = (
    StateHeader
    | SettingsRecord
    | MembersRecord
    | PipelineRecord
    | PauseRecord
    | ClientRecord
    | WorkerRecord
    | JobRecord
    | Finished
    | KeyRecord
    | StateEnd
)

_encode = msgspec.json.Encoder().encode
_decoder: "msgspec.json.Decoder[AnyRecord]" = msgspec.json.Decoder(AnyRecord)


class StateDamaged(ValueError):
    """The lines are not a whole state of this version."""


def dump_state(machine: Machine) -> Iterator[bytes]:
    """The state as lines. Read it to the end before the next apply."""
    header = StateHeader(
        FORMAT_VERSION, MACHINE_VERSION, machine.last_index, machine.last_term, machine.last_at_us
    )
    line_count, chain = 1, 0
    for record in join((header,), _records(machine)):
        line_count += 1
        line = seal(_encode(record))
        chain = _chained(line, chain)
        yield line
    yield seal(_encode(StateEnd(machine.counts(), line_count, chain, machine.finished.forgotten_id)))


def _chained(line: bytes, chain: int) -> int:
    """The crc over all lines' crcs, one line further."""
    return crc32(line[CRC_AT:CRC_END], chain)


def _records(machine: Machine) -> Iterator[AnyRecord]:
    if machine.is_settled:
        yield SettingsRecord(machine.settings)
    if machine.members is not None:
        yield MembersRecord(machine.members)
    for name, confirmed_index in machine.pipelines.items():
        yield PipelineRecord(name, confirmed_index)
    for exec_name, submits in machine.paused.items():
        yield PauseRecord(exec_name, submits)
    for client in machine.clients.in_order():
        yield client.record()
    yield from machine.workers.values()
    for job in machine.jobs.values():
        yield record_of(job)
    for job in machine.dead.values():
        yield record_of(job)
    yield from machine.finished.in_order()
    yield from machine.keys.in_order()


def load_state(lines: Iterable[bytes], *, is_indexed: bool = True) -> Machine:
    """The machine whose state the lines hold. Raises StateDamaged, never anything else."""
    machine = Machine(is_indexed=is_indexed)
    line_count = chain = 0
    end: StateEnd | None = None
    for line in lines:
        line_count += 1
        try:
            record: AnyRecord = decode_part(line, _decoder)
        except LineDamaged as error:
            raise StateDamaged(f"line {line_count}: {error}") from error
        if end is not None:
            raise StateDamaged(f"line {line_count}: something follows the end")
        if (line_count == 1) != isinstance(record, StateHeader):
            raise StateDamaged(f"line {line_count}: the header must be the first line, once")
        if isinstance(record, StateEnd):
            end = record
        else:
            chain = _chained(line, chain)
            _take(machine, record, line_count)
    if end is None:
        raise StateDamaged(f"the state ends after {line_count} lines, without its last")
    _connect(machine)
    machine.finished.forgotten_id = end.forgotten_id
    machine.no_ops = end.counts.no_ops
    if end.lines != line_count or machine.counts() != end.counts:
        raise StateDamaged(
            f"{machine.counts()} in {line_count} lines, but it says {end.counts} in {end.lines}"
        )
    if end.chain != chain:
        raise StateDamaged("the lines are not in the order in which they were written")
    return machine


def counts_doubt(machine: Machine, marker: SnapshotMarker) -> str:
    """What differs when the state as of a marker is not what its leader counted there; "" when it is.

    The leader may have been the odd one, and its marker is in the log for ever: so this is told, and refuses
    nothing. Whoever differs from a majority now is found by comparing with the others.
    """
    found = machine.counts()
    if found == marker.counts:
        return ""
    return f"as of entry {marker.index} the log comes to {found}, its marker says {marker.counts}"


def _take(machine: Machine, record: AnyRecord, line_count: int) -> None:
    """Put one record where it belongs."""
    if isinstance(record, JobRecord):
        # A dead job's client may have been forgotten; a redrive makes it anew.
        has_client = record.state == DEAD or record.client_id in machine.clients.by_id
        if machine.is_known(record.id) or not has_client:
            raise StateDamaged(f"line {line_count}: a job twice or without its client")
        if not 0 <= record.priority <= PRIORITY_MAX:
            raise StateDamaged(
                f"line {line_count}: priority {record.priority} is not one of 0 to {PRIORITY_MAX}"
            )
        (machine.dead if record.state == DEAD else machine.jobs)[record.id] = job_of(record)
    elif isinstance(record, Finished):
        if machine.is_known(record.id):
            raise StateDamaged(f"line {line_count}: a job twice")
        machine.finished.restore(record)
    elif isinstance(record, KeyRecord):
        machine.keys.restore(record)
    elif isinstance(record, ClientRecord):
        machine.clients.restore(ClientState(record))
    elif isinstance(record, WorkerRecord):
        machine.workers[record.worker_id] = record
    elif isinstance(record, PipelineRecord):
        machine.pipelines[record.name] = record.confirmed_index
    elif isinstance(record, PauseRecord):
        machine.paused[record.exec] = record.submits
    elif isinstance(record, SettingsRecord):
        machine.settings, machine.is_settled = record.event, True
    elif isinstance(record, MembersRecord):
        machine.members = record.event
    elif isinstance(record, StateHeader):
        _check_versions(record)
        machine.last_index, machine.last_term, machine.last_at_us = record.index, record.term, record.at_us


def _check_versions(header: StateHeader) -> None:
    if header.format != FORMAT_VERSION or header.machine_version != MACHINE_VERSION:
        raise StateDamaged(
            f"format {header.format}, machine version {header.machine_version}: this rollmq reads format "
            f"{FORMAT_VERSION}, machine version {MACHINE_VERSION}. Use the rollmq that wrote it"
        )


def _connect(machine: Machine) -> None:
    """Build what is derived from the records: counts, who holds what, who waits where."""
    clients = machine.clients.by_id
    queued: list[Job] = []
    inflight: list[Job] = []
    for job in machine.jobs.values():
        client = clients[job.client_id]
        client.open_count += 1
        job.client_id = client.client_id  # one string for all of a client's jobs
        (inflight if job.state == INFLIGHT else queued).append(job)
    for record in machine.keys.by_scope.values():
        client_of_key = clients.get(record.client_id)
        if client_of_key is None:
            raise StateDamaged(f"the key of job {record.job_id} is without its client")
        client_of_key.key_count += 1
    _put_in_flight(machine, inflight)
    _put_in_queues(machine, queued)


def _put_in_flight(machine: Machine, jobs: list[Job]) -> None:
    jobs.sort(key=lambda job: job.fence or (0, 0))
    for job in jobs:
        machine.inflight.begin(job)
        machine.clients.by_id[job.client_id].inflight_count += 1
        if machine.queues is not None:
            machine.queues.exec_queue(job.exec).inflight_count += 1


def _put_in_queues(machine: Machine, jobs: list[Job]) -> None:
    machine.queued_bytes = sum(weight_of(job) for job in jobs)
    machine.dead_bytes = sum(weight_of(job) for job in machine.dead.values())
    if machine.queues is None:
        return
    for exec_name, submits in machine.paused.items():
        machine.queues.pause(machine.queues.exec_queue(exec_name), submits=submits)
    # In the order in which they came to their levels each goes to the end of its lane: no search.
    queues, now_us = machine.queues, machine.last_at_us
    jobs.sort(key=lambda job: (queues.risen(job, now_us)[1], job.place_index))
    for job in jobs:
        queues.add(job, machine.clients.by_id[job.client_id], now_us)
