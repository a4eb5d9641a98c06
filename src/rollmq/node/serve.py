"""`rollmq serve`, without its options: open the state, listen, run until a signal, stop politely.

The process' own matters are here: signals, the collector, file limits, the log. What a node does is in
`cluster_node`.
"""

import asyncio
import contextlib
import errno
import gc
import resource
import secrets
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

import uvloop

from rollmq import __version__
from rollmq.core.raft_ready import RaftSettings
from rollmq.errors import GroupOfSeveral, PortNotUsable, RollmqError, StateDamaged
from rollmq.node.cluster_node import ClusterNode
from rollmq.node.connection import Connection
from rollmq.node.door import Door
from rollmq.node.forming_host import FormingNode
from rollmq.node.logs import EventLog
from rollmq.node.peer_hello import PeerIdentity
from rollmq.node.redirect import StaticFollower
from rollmq.node.repairing import Repairing
from rollmq.node.repairing_host import RepairingNode
from rollmq.node.starting import (
    DamagedState,
    OpenedState,
    Started,
    be_alone,
    mono_us,
    open_damaged,
    open_state,
    start,
)
from rollmq.node.waiting_host import WaitingNode
from rollmq.store.node_file import Identity
from rollmq.store.opening import StoreOptions

BACKLOG: Final = 1024
"""Connections that the system may hold before they are accepted: a crowd that comes back at once."""
SWITCH_S: Final = 0.0005
"""How long the loop may go on while the store thread wants to run: the default, 5 ms, is longer than a write,
and every commit would wait for it."""
REPAIRS_MAX: Final = 3
"""In a row: a directory that is refused again and again although it was repaired is for an operator."""
ROUND_BITS: Final = 48
"""Of the random number with which the rounds of a repair begin."""
QUIET_S: Final = 5.0
"""How long a polite stop waits for what was decided to be on disk and said."""
QUIET_LOOK_S: Final = 0.01
LISTEN_PROBLEMS: Final[Mapping[int, str]] = {
    errno.EADDRINUSE: "another process listens there",
    errno.EADDRNOTAVAIL: "this machine has no such address",
    errno.EACCES: "permission denied; ports below 1024 need a privilege",
}
HAND_OVER_S: Final = 2.0
"""How long another node may take to lead in this one's place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """What an operator may choose."""

    port: int
    host: str = "127.0.0.1"
    state: Path = Path("state")
    advertise: str = ""
    group: str = "default"
    peers: tuple[str, ...] = ()
    """Where the other nodes of the group are."""
    leader: str = ""
    """Of a static follower: where it sends everybody."""
    is_alone: bool = False
    """`--role leader`: it must lead, so nobody else may have a vote."""
    token: str = ""
    archive: str = ""
    """A directory or URL that sealed segments are shipped to; empty: none."""
    is_eager: bool = False
    store: StoreOptions = field(default_factory=StoreOptions)
    raft: RaftSettings = field(default_factory=RaftSettings)
    life: str = field(default_factory=lambda: secrets.token_hex(8))
    """Names this process to the others, in each of its hellos: while it waits for its group, repairs, serves.
    Two names of one process would make each the other's forerunner, whose messages are dropped."""

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"{self.host}:{self.port}"

    @property
    def has_no_peers(self) -> bool:
        """Nobody but itself is named."""
        return set(self.peers) <= {self.address, self.advertise}


class Stop:
    """The wish to stop: a signal's, an operator's, or a failure's. The first one counts."""

    def __init__(self) -> None:
        self._asked = asyncio.Event()
        self.why = ""
        self.failure: BaseException | None = None

    def ask(self, why: str) -> None:
        """Stop politely."""
        if not self._asked.is_set():
            self.why = why
            self._asked.set()

    def fail(self, failure: BaseException) -> None:
        """Stop at once: a polite end would need what has failed."""
        self.failure = self.failure or failure
        self.ask(f"{type(failure).__name__}")

    @property
    def is_asked(self) -> bool:
        """Whether somebody has asked."""
        return self._asked.is_set()

    async def wait(self) -> None:
        """Until somebody asks."""
        await self._asked.wait()


def serve(options: ServeOptions) -> None:
    """Run a node in the foreground. Returns after a polite stop; raises RollmqError for what stopped it."""
    log = EventLog()
    try:
        if options.leader:
            _prepare_process()
            uvloop.run(_redirect(options, log))
            return
        found = _open(options, log)
        started: Started | None = None
        if isinstance(found, OpenedState):
            if options.has_no_peers:
                be_alone(found.store)
            if found.store.identity.group:
                started = _load(options, found, log)
        if options.is_alone and started is not None:
            _check_alone(started, options.state)
        _prepare_process()
        uvloop.run(_run(options, found, started, log))
    finally:
        log.close()


def _open(options: ServeOptions, log: EventLog) -> OpenedState | DamagedState:
    """Raises StateError for what peers cannot repair, or if there are none."""
    try:
        return open_state(options.state, options=options.store)
    except StateDamaged as error:
        if options.is_alone:
            raise
        damaged = open_damaged(options.state, error, has_peers=not options.has_no_peers)
        for place in error.places:
            log("damage_found", node=damaged.identity.node_id, place=place)
        return damaged


def _load(options: ServeOptions, opened: OpenedState, log: EventLog) -> Started:
    started = start(
        opened,
        raft_settings=options.raft,
        is_eager=options.is_eager,
        on_progress=lambda index: log("state_loading", index=index),
    )
    _tell_start(log, started)
    return started


def _check_alone(started: Started, directory: Path) -> None:
    """A member of a group of several that led by itself would be a second leader."""
    voters = started.replica.raft.log.membership.current.voters
    if voters != {started.store.identity.node_id}:
        started.store.close()
        raise GroupOfSeveral(path=directory, voters=sorted(voters))


def _tell_start(log: EventLog, started: Started) -> None:
    recovered = started.recovered
    log(
        "state_loaded",
        node=started.store.identity.node_id,
        group=started.store.identity.group,
        last_index=recovered.last_index,
        snapshot_index=recovered.state_index,
        seconds=round(started.load_us / 1e6, 3),
    )
    if recovered.torn is not None:
        log(
            "torn_tail_cut",
            copy=recovered.torn.copy_name,
            reason="a power cut left it; nobody was told of it",
        )
    if recovered.is_ballast_spent:
        log("disk_full", action="the ballast was given back; free some space, submits are refused until then")
    for note in recovered.notes:
        log("damage_noted", place=note)
    if started.replica.doubt:
        log("counts_differ", reason=started.replica.doubt)


def _prepare_process() -> None:
    """No collector pauses (a full collection over a million jobs takes longer than an election), a store
    thread that need not wait, and as many files as the system allows: each connection is one."""
    gc.collect()
    gc.freeze()
    gc.disable()
    sys.setswitchinterval(SWITCH_S)
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _new_stop() -> Stop:
    """Ready to be asked by signals, and by whatever is raised in a callback."""
    loop, stop = asyncio.get_running_loop(), Stop()
    loop.set_exception_handler(_stops_the_node(stop))
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.ask, signal.Signals(number).name)
    return stop


async def _run(
    options: ServeOptions, found: OpenedState | DamagedState, started: Started | None, log: EventLog
) -> None:
    stop = _new_stop()
    way_in = WayIn()
    server = await _listen(options, way_in)
    if isinstance(found, DamagedState):
        started = await _repair(options, found, way_in, stop, log)
    elif started is None:
        started = await _form(options, found, way_in, stop, log)
        if started is None:
            found.store.close()
    if started is None:
        server.close()
        log("stopped", reason=stop.why)
        return
    node = ClusterNode(
        started,
        options.state,
        log=log,
        me=_identity(options, started.store.identity),
        peers=options.peers,
        archive=options.archive,
        on_stop=stop.ask,
        on_failure=stop.fail,
    )
    way_in.door = node.door
    await _until_it_leads(node, stop)
    if not stop.is_asked:
        log("ready", address=options.address, node=node.node_id, version=__version__)
    await stop.wait()
    server.close()
    if stop.failure is None:
        log("stopping", reason=stop.why)
        await _drain(node, stop)
    if stop.failure is not None:
        log("stopped", reason=stop.failure)
        raise stop.failure
    node.close()
    log("stopped", reason=stop.why)


async def _until_it_leads(node: ClusterNode, stop: Stop) -> None:
    """A node alone is ready once it leads, some milliseconds after it was opened: a script that waits for
    that must not be told of a candidate. In a group nobody can say how long an election takes."""
    while node.is_alone and not stop.is_asked and not (node.is_leading and node.is_quiet):
        await asyncio.sleep(QUIET_LOOK_S)


async def _form(
    options: ServeOptions, opened: OpenedState, way_in: "WayIn", stop: Stop, log: EventLog
) -> Started | None:
    """Wait until the group is there (rule 8). None: somebody asked to stop before."""
    me = _identity(options, opened.store.identity)
    forming = FormingNode(me, options.peers, log=log, on_stop=stop.ask)
    if not await _wait(forming, forming.formed, way_in, stop):
        return None
    formed = forming.formed.result()
    opened.store.set_group(formed.group, formed.founders)
    log("group_formed", group=formed.group, founders=",".join(formed.founders))
    return _load(options, opened, log)


async def _repair(
    options: ServeOptions, damaged: DamagedState, way_in: "WayIn", stop: Stop, log: EventLog
) -> Started | None:
    """Repair the directory from its peers, then start as ever (rule 7). None: somebody asked to stop."""
    for _ in range(REPAIRS_MAX):
        try:
            repairing = Repairing(
                damaged.disk,
                damaged.identity,
                first_round=secrets.randbits(ROUND_BITS),
                now_us=mono_us(),
                log=log,
            )
            me = _identity(options, damaged.identity)
            node = RepairingNode(repairing, me, options.peers, log=log, on_stop=stop.ask)
            log("ready", address=options.address, node=node.node_id, version=__version__, role=node.role)
            is_repaired = await _wait(node, node.repaired, way_in, stop)
        finally:
            damaged.close()
        if stop.failure is not None:
            raise stop.failure
        if not is_repaired:
            return None
        found = _open(options, log)
        if isinstance(found, OpenedState):
            return _load(options, found, log)
        damaged = found
    damaged.close()
    raise damaged.error


async def _wait(node: WaitingNode, ended: "asyncio.Future[Any]", way_in: "WayIn", stop: Stop) -> bool:
    """Until it has what it waits for; False: somebody asked to stop before."""
    way_in.door = node.door
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait({stopping, ended}, return_when=asyncio.FIRST_COMPLETED)
    way_in.door = None
    node.close()
    stopping.cancel()
    return ended.done()


def _identity(options: ServeOptions, identity: Identity) -> PeerIdentity:
    return PeerIdentity(
        node_id=identity.node_id,
        group=identity.group,
        group_name=options.group,
        address=options.advertise or options.address,
        token=options.token,
        founders=identity.founders,
        life=options.life,
    )


class WayIn:
    """Whose connections those are that come in now: a node's that waits for its group, then a member's."""

    def __init__(self) -> None:
        self.door: Door | None = None

    def connection(self) -> asyncio.Protocol:
        """For the one who dialed."""
        return Connection(self.door) if self.door is not None else Nobody()


class Nobody(asyncio.Protocol):
    """Between the two nobody is served: he dials again."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).close()


async def _redirect(options: ServeOptions, log: EventLog) -> None:
    stop = _new_stop()
    follower = StaticFollower(options.leader, token=options.token, on_stop=stop.ask)
    way_in = WayIn()
    way_in.door = follower.door
    server = await _listen(options, way_in)
    log("ready", address=options.address, leader=options.leader, version=__version__)
    await stop.wait()
    server.close()
    follower.close()
    log("stopped", reason=stop.why)
    if stop.failure is not None:
        raise stop.failure


async def _listen(options: ServeOptions, way_in: "WayIn") -> asyncio.Server:
    try:
        return await asyncio.get_running_loop().create_server(
            way_in.connection, options.host, options.port, backlog=BACKLOG
        )
    except OSError as error:
        reason = LISTEN_PROBLEMS.get(error.errno or 0, str(error.strerror))
        raise PortNotUsable(address=options.address, reason=reason) from error


def _stops_the_node(stop: Stop) -> Callable[[asyncio.AbstractEventLoop, dict[str, object]], None]:
    """Whatever is raised in a callback is a bug or the disk's failure: this node stops, the others go on."""

    def handle(_loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        error = context.get("exception")
        if isinstance(error, OSError) and not isinstance(error, RollmqError):
            return  # of a connection that broke: its protocol is told
        stop.fail(error if isinstance(error, BaseException) else RuntimeError(str(context.get("message"))))

    return handle


async def _drain(node: ClusterNode, stop: Stop) -> None:
    """Hand the leadership over; wait until everything decided is committed and said, for a while."""
    if node.hand_over():
        for _ in range(int(HAND_OVER_S / QUIET_LOOK_S)):
            if not node.is_leading:
                break
            await asyncio.sleep(QUIET_LOOK_S)
    node.drain()
    for _ in range(int(QUIET_S / QUIET_LOOK_S)):
        await asyncio.sleep(QUIET_LOOK_S)
        if node.is_quiet or stop.failure is not None:
            return
