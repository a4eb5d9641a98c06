"""`rollmq serve` (or `rollmq leader`): run a node in the foreground."""

import sys
from pathlib import Path

import click

from rollmq import limits
from rollmq.cli.connecting import SERVER_ENV, as_name
from rollmq.core.raft_ready import RaftSettings
from rollmq.errors import RollmqError
from rollmq.library.operator import server_text
from rollmq.node.archive_check import problem_with
from rollmq.node.archive_place import is_url, without_secrets
from rollmq.store.opening import StoreOptions

MIB = 1024 * 1024
PORT = click.IntRange(1, 65535)
PATH = click.Path(path_type=Path)
EVERY_ADDRESS = ("0.0.0.0", "::")


class ServeRefused(RollmqError):
    """The node was not started, because the options do not fit together or to the directory."""


def as_host(value: str) -> str:
    """What to listen at. Nothing would be everything, and nobody means that."""
    if not value.strip():
        raise click.BadParameter("it is empty; 0.0.0.0 is every address of this machine.")
    return value


def as_address(value: str) -> str:
    """Where others are sent; empty stays empty."""
    host, _, port = value.rpartition(":")
    is_host = host.isprintable() and bool(host) and not {" ", ","} & set(host)
    if value and not (is_host and port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise click.BadParameter(f"{value!r} is no HOST:PORT.")
    return value


def as_addresses(value: str) -> list[str]:
    """Several, with commas between them."""
    return [as_address(each.strip()) for each in value.split(",") if each.strip()]


@click.command(
    epilog="""\b
Examples:
  rollmq serve 5000                                  a node alone, its state in ./state
  rollmq serve 5001 --state node1 --peers 127.0.0.1:5001,127.0.0.1:5002,127.0.0.1:5003    one of three
  rollmq serve 5000 --host 0.0.0.0 --state /var/lib/rollmq --token-file /etc/rollmq.token
  rollmq serve 5001 --role follower --leader 10.0.0.1:5000   only redirects

It logs `event=ready` to stderr when it accepts connections, and stops politely on SIGTERM and SIGINT.
Exit codes: 0 stopped politely, 1 it failed (the message says why), 2 wrong usage."""
)
@click.argument("port", type=PORT)
@click.option(
    "--host", default="127.0.0.1", show_default=True, type=as_host, metavar="H", help="Address to listen at."
)
@click.option("--state", default=Path("state"), show_default=True, type=PATH, help="Directory of its state.")
@click.option(
    "--role",
    type=click.Choice(["auto", "leader", "follower"]),
    default="auto",
    show_default=True,
    help="auto: alone, or with --peers in a group, which elects its leader. leader: a group of one. "
    "follower: stores nothing, sends everybody to --leader.",
)
@click.option(
    "--group", default="default", show_default=True, type=as_name, metavar="NAME", help="The group's name."
)
@click.option(
    "--peers",
    default="",
    type=as_addresses,
    metavar="H:P,…",
    help="Where all nodes of the group are; itself may be among them.",
)
@click.option(
    "--heartbeat-ms",
    type=click.IntRange(10, 10_000),
    metavar="MS",
    default=limits.HEARTBEAT_US // 1000,
    show_default=True,
    help="Between two signs of life of the leader.",
)
@click.option(
    "--election-ms",
    type=(int, int),
    default=(limits.ELECTION_US_MIN // 1000, limits.ELECTION_US_MAX // 1000),
    show_default=True,
    metavar="MIN MAX",
    help="Silence of the leader before an election, by chance between these.",
)
@click.option(
    "--leader", default="", type=as_address, metavar="H:P", help="Of a static follower: where the leader is."
)
@click.option(
    "--advertise", default="", type=as_address, metavar="H:P", help="What others are told, if not HOST:PORT."
)
@click.option(
    "--assign",
    type=click.Choice(["strict", "eager"]),
    default="strict",
    show_default=True,
    help="eager sends an assign before it is on disk: one fsync faster; a crash may run a job twice.",
)
@click.option(
    "--token-file", type=PATH, help="Ask clients, workers and operators for the token in this file."
)
@click.option(
    "--disk-free-min",
    type=click.IntRange(0),
    default=limits.DISK_FREE_BYTES_MIN // MIB,
    show_default=True,
    metavar="MIB",
    help="Below this free space submits are refused; acks go on.",
)
@click.option(
    "--keep-history",
    type=click.IntRange(0),
    metavar="MIB",
    help="Sealed history to keep at most.  [default: 20 % of the disk]",
)
@click.option(
    "--keep-history-days",
    type=click.IntRange(1),
    metavar="DAYS",
    default=30,
    show_default=True,
    help="Sealed history to keep at most for so long.",
)
@click.option(
    "--archive",
    default="",
    metavar="DIR|URL",
    help="Ship sealed segments there: a directory, or any URL that fsspec knows.",
)
@click.option(
    "--snapshot-every",
    type=click.IntRange(1000),
    default=limits.SNAPSHOT_EVERY_ENTRIES,
    show_default=True,
    metavar="ENTRIES",
    help="At most so many entries to replay at a restart.",
)
def serve(
    port: int,
    host: str,
    state: Path,
    role: str,
    group: str,
    peers: list[str],
    heartbeat_ms: int,
    election_ms: tuple[int, int],
    leader: str,
    advertise: str,
    assign: str,
    token_file: Path | None,
    disk_free_min: int,
    keep_history: int | None,
    keep_history_days: int,
    archive: str,
    snapshot_every: int,
) -> None:
    """Run a node at PORT in the foreground."""
    from rollmq.node.serve import ServeOptions
    from rollmq.node.serve import serve as run_node

    if (role == "follower") != bool(leader):
        raise click.UsageError("--role follower and --leader H:P go together")
    if leader and leader in (f"{host}:{port}", advertise):
        raise click.UsageError(f"--leader {leader} is this very node: it would send everybody to itself")
    if peers and host in EVERY_ADDRESS and not advertise:
        raise click.UsageError(f"--host {host} is no place to send others to: give --advertise HOST:PORT too")
    if leader and archive:
        raise click.UsageError("--archive: a static follower has no history to ship")
    raft = _raft_settings(heartbeat_ms, *election_ms)
    if role == "leader" and peers:
        raise click.UsageError("--role leader is a group of one; with --peers use --role auto")
    store = StoreOptions(
        disk_free_bytes_min=disk_free_min * MIB,
        snapshot_every_entries=snapshot_every,
        keep_history_bytes=keep_history * MIB if keep_history is not None else None,
        keep_history_us=keep_history_days * 86_400_000_000,
    )
    if sys.stderr.isatty():
        click.echo(hint(host, port, state), err=True)
    run_node(
        ServeOptions(
            port=port,
            host=host,
            state=state,
            advertise=advertise,
            leader=leader,
            group=group,
            peers=tuple(peers),
            raft=raft,
            is_alone=role == "leader",
            token=_token(token_file),
            archive=_archive(archive),
            is_eager=assign == "eager",
            store=store,
        )
    )


def hint(host: str, port: int, state: Path) -> str:
    """For a person who starts a node by hand: a log line says nothing of what to do next."""
    here = server_text(({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port))
    return (
        f"The node's state is in {state}; Ctrl-C stops it. In another terminal:\n"
        f"  export {SERVER_ENV}={here}\n"
        f"  rollmq status"
    )


def _raft_settings(heartbeat_ms: int, election_min_ms: int, election_max_ms: int) -> RaftSettings:
    if not heartbeat_ms < election_min_ms <= election_max_ms:
        raise click.UsageError("--election-ms MIN MAX: MIN above --heartbeat-ms, and not above MAX")
    return RaftSettings(
        heartbeat_us=heartbeat_ms * 1000,
        election_us_min=election_min_ms * 1000,
        election_us_max=election_max_ms * 1000,
    )


def _archive(archive: str) -> str:
    """A directory as an absolute path, or a URL. A place that can never work is refused before anything is
    begun; one that is only out of reach must not keep the queue from starting."""
    if not archive:
        return ""
    place = archive if is_url(archive) else str(Path(archive.removeprefix("file://")).absolute())
    problem = problem_with(place)
    if problem:
        text = f"--archive {without_secrets(archive)}: nothing can ever be shipped there: {problem}"
        raise click.UsageError(f"{text}. The node was not started, nothing was changed.")
    return place


def _token(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        token = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ServeRefused(
            f"cannot read the token file {path}: {error}. The node was not started."
        ) from error
    if not 0 < len(token) <= limits.TOKEN_CHARS_MAX:
        raise ServeRefused(
            f"{path} must hold one token of 1 to {limits.TOKEN_CHARS_MAX} characters. "
            f"The node was not started."
        )
    return token
