"""Client: submits jobs and hears how they end. The public face of the library's client half.

    async with Client("127.0.0.1:5000,127.0.0.1:5001") as client:
        job = await client.submit("image.resize", b"...")      # returns when it is committed
        outcome = await job.result(timeout=60)

It holds options; the conversation is in library/client_core, its connection in library/link.
"""

import os
import zlib
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Unpack

import msgspec

from rollmq import __version__
from rollmq.errors import JobUnknown
from rollmq.library.call import REFUSED, Call, Outcome
from rollmq.library.client_core import ClientProfile
from rollmq.library.client_job import Job, known_job
from rollmq.library.client_session import ClientSession
from rollmq.library.making import Item, Maker, ManyJob, options_of, placed
from rollmq.library.payload_codec import Codec
from rollmq.library.stream import Stream, outcome_of
from rollmq.library.submit_options import SubmitOptions
from rollmq.wire.headers import HelloClientHeader
from rollmq.wire.query import Status

OUTSTANDING: Final = 1024
"""Submits or jobs of a stream under way: enough to keep a node busy, little to repeat."""
PATIENCE_S: Final = 60.0
CLIENT_ID: Final = "default"
CLOSE_S: Final = 5.0
ID_BYTES: Final = 16

_decode_status = msgspec.json.Decoder(Status).decode


class Client:
    """One session of a client. Enter it with `async with`; use it on that loop only.

    `servers` is `host:port`, several with commas, of any nodes of the group; without it ROLLMQ_SERVER.
    `client_id` is the tenant, by which jobs take turns; many sessions may share it. `cap` is the most of its
    jobs in flight that it wishes for (0: the group's default), `weight` its wished share; an operator's
    settings win. `codec` compresses, encrypts or signs payloads and results; workers need the same.
    `patience` is how many seconds a submit or question may go without an answer.

    It connects, and reconnects, by itself for as long as it takes, and sends again what was not answered.
    Entering does not wait for a server. Raises BadServerList for servers that cannot be read, and ValueError
    for options that make no client.
    """

    def __init__(
        self,
        servers: str | None = None,
        *,
        client_id: str = CLIENT_ID,
        cap: int = 0,
        weight: int = 1,
        codec: Codec | None = None,
        token: str | None = None,
        patience: float = PATIENCE_S,
    ) -> None:
        profile = ClientProfile(
            client_id=client_id,
            cap=cap,
            weight=weight,
            token=os.environ.get("ROLLMQ_TOKEN", "") if token is None else token,
            release=f"rollmq {__version__}",
            patience_us=int(patience * 1e6),
        )
        _check_profile(profile)
        servers = os.environ.get("ROLLMQ_SERVER", "") if servers is None else servers
        self.session = ClientSession(servers, profile, codec)
        """What jobs and streams speak through; of no interest to users."""
        self.codec = codec
        self.maker = Maker(self.session, codec)

    async def __aenter__(self) -> "Client":
        self.session.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self, timeout: float = CLOSE_S) -> None:
        """Wait, for up to so many seconds, for answers that are due; then everybody who still waits hears
        ClientClosed, or SubmitUnknown for what was sent and not answered. Accepted jobs go on."""
        await self.session.close(timeout)

    # -- submitting

    async def submit(self, exec: str, payload: bytes = b"", **options: Unpack[SubmitOptions]) -> Job:
        """Submit a job. Returns when it is committed: from then on it cannot get lost.

        `key`: accepted once per key, client and exec within the group's window (24 h); a repeat returns the
        first job (`job.is_repeat`). `headers`: labels for the handler. `priority`: 0 to 9, higher first.
        `delay` in seconds or `not_before` (datetime with a zone, or seconds since 1970). `expires_in`: dead
        if it has not started by then. `timeout` per try (600 s), `tries_max` (5), `backoff`: a Backoff, or a
        constant pause in seconds. `content_type` of the payload.

        Raises SubmitRefused (nothing was queued; `code` says why and `retryable` whether later may help),
        KeyConflict (the key was used with another payload), SubmitUnknown (no answer within `patience`: it
        may have been accepted; with a key repeating it is safe), CodecFailed and ClientClosed (nothing was
        sent). Cancelled while it waits, it is unknown.
        """
        job = self.maker.job(Job, exec, payload, options_of(options))
        session = self.session
        session.check()
        if not session.core.has_room:
            await session.room()
        session.submit(job)
        return await job.accepted()

    async def submit_many(
        self, items: Iterable[Item], *, outstanding: int = OUTSTANDING
    ) -> AsyncIterator[Job]:
        """Submit many jobs, pipelined, and yield each Job once it is accepted: in any order, `position` says
        which. Items are `(exec, payload)` or `(exec, payload, {option: value})`, taken as they are needed.

        A refusal that may pass (a full queue) is waited out, however long. At the first item that is refused
        for good, or unknown, no more are sent; those under way are yielded, then its error is raised, with
        the item's place as `error.position`.
        """
        stream = Stream(self.session, outstanding)
        failed: Call | None = None
        async for batch in stream.batches(self.maker.many(stream, items)):
            for call in batch:
                assert isinstance(call, ManyJob)
                if call.state < REFUSED:
                    yield call
                else:
                    failed = failed or call
                    stream.is_stopped = True
        if failed is not None:
            raise placed(failed)

    async def map(
        self,
        exec: str,
        payloads: Iterable[bytes],
        *,
        outstanding: int = OUTSTANDING,
        **options: Unpack[SubmitOptions],
    ) -> AsyncIterator[Outcome]:
        """Run a job per payload and yield the Outcomes as they come; `position` says of which payload.

        At most `outstanding` jobs are under way. Nothing is raised for a job: one that was refused, or whose
        end is not known, is an Outcome too, with the state "refused", "unknown" or "gone" and `ok` false. A
        refusal that may pass is waited out. Options are those of `submit`, for every job (a `key` makes
        little sense here). Leaving the loop early leaves the jobs that are under way to run.
        """
        stream, chosen = Stream(self.session, outstanding), options_of(options)
        codec = self.codec
        async for batch in stream.batches(self.maker.each(stream, exec, payloads, chosen)):
            for call in batch:
                yield outcome_of(call, codec)

    # -- asking

    def job(self, job_id: str) -> Job:
        """A handle of a job that was submitted before, by whomever: for `result`, `cancel`, `explain`.
        Nothing is asked yet. Raises JobUnknown for what is no id."""
        try:
            raw = bytes.fromhex(job_id)
        except ValueError:
            raw = b""
        if len(raw) != ID_BYTES:
            raise JobUnknown(job_id=job_id, why="this is no job id, those have 32 hex digits")
        return known_job(self.session, raw)

    async def result(self, job_id: str, timeout: float | None = None) -> Outcome:
        """How a job ended: `job(job_id).result(timeout)`."""
        return await self.job(job_id).result(timeout)

    async def status(self) -> Status:
        """The leader's status: what is queued, in flight, dead, per exec too. Raises RequestUnknown when no
        answer came."""
        (answer,) = await self.session.ask("status")
        return _decode_status(answer)


class ClientMulti:
    """Several groups as one: each exec has its group, by a hash that stays the same, so capacity grows.

    `groups` are the servers of each group, as for Client, or a mapping of names to them: give names when
    addresses may change, for the hash is of the names. With one group more, only its share of the execs
    moves there; jobs that are queued stay where they are. Everything else is as in Client.
    """

    def __init__(self, groups: Sequence[str] | Mapping[str, str], **options: Any) -> None:
        named = groups if isinstance(groups, Mapping) else {servers: servers for servers in groups}
        if not named:
            raise ValueError("at least one group is needed")
        self.clients: dict[str, Client] = {
            name: Client(servers, **options) for name, servers in named.items()
        }

    async def __aenter__(self) -> "ClientMulti":
        for client in self.clients.values():
            await client.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None
    ) -> None:
        for client in self.clients.values():
            await client.close()

    def client_of(self, exec: str) -> Client:
        """The client of the group that this exec belongs to."""
        return self.clients[
            max(self.clients, key=lambda name: (zlib.crc32(f"{name}\n{exec}".encode()), name))
        ]

    async def submit(self, exec: str, payload: bytes = b"", **options: Unpack[SubmitOptions]) -> Job:
        """As Client.submit, to the group of the exec."""
        return await self.client_of(exec).submit(exec, payload, **options)

    def map(
        self,
        exec: str,
        payloads: Iterable[bytes],
        *,
        outstanding: int = OUTSTANDING,
        **options: Unpack[SubmitOptions],
    ) -> AsyncIterator[Outcome]:
        """As Client.map, in the group of the exec."""
        return self.client_of(exec).map(exec, payloads, outstanding=outstanding, **options)


def _check_profile(profile: ClientProfile) -> None:
    said = {
        "version": 1,
        "client_id": profile.client_id,
        "cap": profile.cap,
        "weight": profile.weight,
        "token": profile.token,
    }
    try:
        msgspec.convert(said, HelloClientHeader)
    except msgspec.ValidationError as error:
        raise ValueError(f"these options make no client: {error}") from error
    if profile.patience_us <= 0:
        raise ValueError("patience is more than 0 seconds")
