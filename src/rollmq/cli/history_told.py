"""What `rollmq history` says of a run and of an audit. It runs nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import click
from msgspec.structs import replace
from rich.console import Console
from rich.markup import escape

from rollmq.cli.describe import describe, one_line, time_of
from rollmq.core.events import AnyEvent, Drop, Redrive

if TYPE_CHECKING:
    from rollmq.pipeline.auditing import AuditReport
    from rollmq.pipeline.runs import Report


def report_json(report: "Report") -> dict[str, Any]:
    """A run, for programs."""
    return {
        "run": report.run,
        "seconds": round(report.seconds, 3),
        "read": report.read,
        "rejected": report.rejected,
        "written": report.written,
        "ranges": report.ranges,
        "missing": [asdict(hole) for hole in report.holes],
        "reached": {
            name: {"bronze_index": each.bronze_index, "silver_index": each.silver_index, "at_us": each.at_us}
            for name, each in report.reached.items()
        },
    }


def print_report(report: "Report", confirmed: int | None) -> None:
    """What a run read, wrote and rejected."""
    for group, (first, last) in sorted(report.ranges.items()):
        click.echo(f"read group {group}: entries {first:,} to {last:,}")
    if not report.ranges:
        click.echo("nothing new to read")
    elif report.seconds:
        click.echo(f"in {report.seconds:.1f} s: {report.read / report.seconds:,.0f} entries a second")
    for name, count in report.written.items():
        click.echo(f"  {name:<12} {count:>12,} rows")
    for hole in report.holes:
        click.echo(
            f"stopped: group {hole.group}: entries {hole.first:,} to {hole.last:,} are missing. They may be "
            f"shipped later; to go on without them: --skip-missing",
            err=True,
        )
    if report.rejected:
        click.echo(f"rejected: {report.rejected:,} rows; see the table rejects", err=True)
    if confirmed is not None:
        click.echo(f"confirmed up to entry {confirmed:,}")


_STATES: Final[Mapping[str, str]] = {
    "ack": "done",
    "cancel": "cancelled",
    "drop": "dropped",
    "dlq": "dead",
    "assign": "in flight",
}


def print_life(events: Sequence[AnyEvent], job_id: str) -> None:
    """A job's events, and how it stands after them."""
    names = [type(event).__struct_config__.tag for event in events]
    first_us, last_us = events[0].at_us, events[-1].at_us
    click.echo(f"job {job_id}")
    for event, name in zip(events, names, strict=True):
        since = f"+{(event.at_us - first_us) / 1_000_000:.3f} s"
        # Of what names many jobs at once, this one is meant.
        text = describe(replace(event, job_ids=[]) if isinstance(event, Redrive | Drop) else event).strip()
        click.echo(f"{event.index:>12,}  {time_of(event.at_us)}  {since:>14}  {name:<19}  {text}")
    attempts, lives = names.count("assign"), 1 + names.count("redrive")
    told = f"{_STATES.get(str(names[-1]), 'queued')} after {attempts:,} attempt{'s' * (attempts != 1)}"
    more = f" in {lives} lives" if lives > 1 else ""
    click.echo(f"{told}{more}, {(last_us - first_us) / 1_000_000:,.3f} s from its first event to its last")


def print_audit(report: "AuditReport") -> None:
    """What was proved, or what was found."""
    click.echo(f"{report.events:,} events, {report.jobs:,} jobs")
    if not report.violations:
        for line in report.proved:
            click.echo(f"  proved  {line}")
        if report.receipts_undecided:
            click.echo(
                f"  open    {report.receipts_undecided:,} receipts are newer than the history that was taken"
            )
        return
    console = Console(stderr=True, soft_wrap=True)
    for promise, count in report.by_promise.items():
        console.print(f"  {escape(promise):<7} {count:,} violations")
    for row in report.first:
        where = f"{row['group'] or '-'}:{row['index'] or '-'}"
        console.print(escape(f"    {row['promise']} {where} {row['job_id'] or ''} {one_line(row['what'])}"))
