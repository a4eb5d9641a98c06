"""`rollmq log`: look into a state directory. Reads only, needs no running node and disturbs none."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

from rollmq.cli.describe import describe, one_line, time_of
from rollmq.core.events import AnyEvent
from rollmq.errors import NotAStateDirectory, StateNotAccessible
from rollmq.store.disk import OsDisk
from rollmq.store.listing import LogListing
from rollmq.store.segment import Damage
from rollmq.store.verify import Verdict, bytes_to_verify, verify_directory

DIRECTORY = click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


@click.group()
def log() -> None:
    """Look into a state directory.

    Nothing is changed, and a node may be running on it.
    """


@log.command(
    epilog="""\b
Examples:
  rollmq log verify ./state
  rollmq log verify --json /backup/node1 | jq .damages

Exit codes: 0 all is sound, 1 damage was found, 2 DIR is no state directory."""
)
@DIRECTORY
@AS_JSON
@click.pass_context
def verify(ctx: click.Context, directory: Path, as_json: bool) -> None:
    """Read everything in DIR and say whether it is what was written.

    Every line's crc, the order of entries, terms and times, the digests of sealed segments and snapshots,
    the vote, the identity. An unfinished end of the log is told, and is no damage: a start cuts it.
    """
    disk = OsDisk(directory)
    with _told(directory), _progress(disk, is_shown=not as_json) as advance:
        verdict = verify_directory(disk, on_bytes=advance)
    if as_json:
        click.echo(json.dumps(_verdict_json(disk, verdict), indent=2))
    else:
        _print_verdict(disk, verdict)
    ctx.exit(0 if verdict.is_clean else 1)


@log.command(
    epilog="""\b
Examples:
  rollmq log show ./state --from 1000 --to 1020
  rollmq log show ./state --job 0192f0c1a3b47def8123456789abcdef
  rollmq log show ./state --json | jq 'select(.type == "dlq")'

Exit codes: 0 done, 1 damage was met or the job is not there, 2 DIR is no state directory."""
)
@DIRECTORY
@click.option("--job", "job_id", metavar="ID", help="Only what happened to this job: its whole life.")
@click.option("--from", "first", metavar="N", type=click.IntRange(min=1), help="From this entry on.")
@click.option("--to", "last", metavar="N", type=click.IntRange(min=1), help="Up to this entry.")
@AS_JSON
@click.pass_context
def show(
    ctx: click.Context,
    directory: Path,
    job_id: str | None,
    first: int | None,
    last: int | None,
    as_json: bool,
) -> None:
    """Print the events in DIR, one line each.

    What is behind the last commit is shown too: only a majority of the group knows where that is.
    """
    if last is not None and last < (first or 1):
        raise click.UsageError(f"--to {last} lies before --from {first or 1}.")
    disk = OsDisk(directory)
    shown = 0
    with _told(directory):
        listing = LogListing(disk, first=first or 1, last=last)
        for event, line in listing.events(containing=job_id):
            if job_id is not None and not is_about(event, job_id):
                continue
            shown += 1
            click.echo(line.decode().rstrip("\n") if as_json else _row(event, with_job=job_id is None))
    for damage in listing.damages:
        click.echo(f"damaged: {_place(disk, damage)}", err=True)
    if listing.damages:
        click.echo(f"Run `rollmq log verify {directory}` to see all of it.", err=True)
    if job_id is not None and not shown:
        click.echo(f"Job {one_line(job_id)} is not in this log, {_held(listing)}.", err=True)
    elif not shown and not listing.damages:
        click.echo(f"No entry of that range is in this log, {_held(listing)}.", err=True)
    ctx.exit(1 if listing.damages or (job_id is not None and not shown) else 0)


def _held(listing: LogListing) -> str:
    """What the log holds, as far as it was read."""
    if not listing.first_index:
        return "which is empty"
    if not listing.last_index:
        return f"which begins with entry {listing.first_index}"
    return f"which holds entries {listing.first_index} to {listing.last_index}"


def is_about(event: AnyEvent, job_id: str) -> bool:
    """Whether the event is part of this job's life."""
    return getattr(event, "job_id", None) == job_id or job_id in getattr(event, "job_ids", ())


@contextmanager
def _told(directory: Path) -> Iterator[None]:
    """Errors about DIR itself are errors of the call: exit code 2."""
    try:
        yield
    except NotAStateDirectory as error:
        raise click.UsageError(str(error)) from error
    except BrokenPipeError:
        raise  # whoever read our output has enough: no word about DIR
    except OSError as error:
        place = Path(error.filename) if error.filename else directory
        told = StateNotAccessible(path=place, reason=error.strerror or str(error))
        raise click.UsageError(str(told)) from error


@contextmanager
def _progress(disk: OsDisk, *, is_shown: bool) -> Iterator[Any]:
    """A bar on a terminal, on stderr; nothing anywhere else."""
    console = Console(stderr=True)
    columns = ("verifying", BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not (is_shown and console.is_terminal)
    ) as bar:
        task = bar.add_task("verifying", total=bytes_to_verify(disk))
        yield lambda size_bytes: bar.advance(task, size_bytes)


def _row(event: AnyEvent, *, with_job: bool) -> str:
    job = f"{getattr(event, 'job_id', '') or '-':32}  " if with_job else ""
    kind = type(event).__struct_config__.tag
    return f"{event.index:>10}  {time_of(event.at_us)}  {kind!s:<20}  {job}{describe(event)}"


def _place(disk: OsDisk, damage: Damage) -> str:
    line = f":{damage.line}" if damage.line else ""
    return f"{disk.path_of(damage.name)}{line}: {damage.reason}"


def _verdict_json(disk: OsDisk, verdict: Verdict) -> dict[str, Any]:
    unfinished = verdict.unfinished
    return {
        "is_clean": verdict.is_clean,
        "directory": str(disk.path_of(".")),
        "node_id": verdict.identity.node_id if verdict.identity else None,
        "group": verdict.identity.group if verdict.identity else None,
        "term": verdict.hard_state.term if verdict.hard_state else None,
        "first_index": verdict.first_index,
        "last_index": verdict.last_index,
        "entries": verdict.entries_count,
        "segments": verdict.segments_count,
        "segments_proven_by_digest": verdict.digests_count,
        "snapshots": verdict.states_count,
        "bytes": verdict.size_bytes,
        "gaps": [{"first": gap.first, "last": gap.last, "reason": gap.reason} for gap in verdict.gaps.gaps],
        "unfinished": _damage_json(disk, unfinished) if unfinished else None,
        "damages_count": verdict.damages_count,
        "damages": [_damage_json(disk, damage) for damage in verdict.damages],
    }


def _damage_json(disk: OsDisk, damage: Damage) -> dict[str, Any]:
    return {
        "path": str(disk.path_of(damage.name)),
        "line": damage.line,
        "offset": damage.offset,
        "reason": damage.reason,
    }


def _entries(verdict: Verdict) -> str:
    """How many, and which: behind damage the numbers are not sure."""
    if not verdict.segments_count:
        return "none yet"
    if verdict.is_clean:
        return f"{verdict.entries_count:,} ({verdict.first_index:,} to {verdict.last_index:,})"
    return f"{verdict.entries_count:,} sound lines"


def _print_verdict(disk: OsDisk, verdict: Verdict) -> None:
    console = Console(highlight=False, soft_wrap=True)
    identity = verdict.identity
    if identity is not None:
        console.print(
            f"node      {escape(identity.node_id)}, group {escape(identity.group) or 'not formed yet'}"
        )
    if verdict.hard_state is not None:
        console.print(f"term      {verdict.hard_state.term}")
    console.print(f"entries   {_entries(verdict)}")
    console.print(
        f"segments  {verdict.segments_count:,}, {verdict.size_bytes:,} bytes; "
        f"{verdict.digests_count:,} proven by the digest in their marker"
    )
    console.print(f"states    {verdict.states_count:,} snapshots and bases")
    for gap in verdict.gaps.gaps:
        console.print(f"gap       entries {gap.first:,} to {gap.last:,} ({escape(gap.reason)}), declared")
    if verdict.unfinished is not None:
        console.print(
            f"[yellow]unfinished[/] {escape(_place(disk, verdict.unfinished))}. "
            f"No damage: the last batch was not synced. A start cuts it off and keeps a copy."
        )
    for damage in verdict.damages:
        console.print(f"[red]damaged[/] {escape(_place(disk, damage))}")
    if verdict.damages_count > len(verdict.damages):
        console.print(f"[red]damaged[/] and {verdict.damages_count - len(verdict.damages):,} more lines")
    if verdict.is_clean:
        console.print("[green]sound[/]")
    else:
        console.print(
            "A node that is alone: restore the directory from a backup; what came after it is lost.\n"
            "A member of a group: start it, it repairs itself from the others. "
            "Never an old copy: it could vote twice."
        )
