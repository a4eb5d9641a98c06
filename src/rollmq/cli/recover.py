"""`rollmq recover`: a new group from one node's directory, when a majority of the old one is lost."""

import os
import secrets
from pathlib import Path

import click
import msgspec

from rollmq.cli import looks
from rollmq.cli.describe import time_of
from rollmq.node.recovering import Recovery
from rollmq.node.recovering import force_new_group as force_new
from rollmq.node.starting import IDS_BYTES

PATH = click.Path(path_type=Path)


@click.command(
    short_help="The last resort when a majority of the nodes is lost for good.",
    epilog="""\b
Examples:
  rollmq log verify /var/lib/rollmq                 which of the directories that are left has the newest log
  rollmq recover /var/lib/rollmq --into /var/lib/rollmq-new --force-new-group
  rollmq serve 5000 --state /var/lib/rollmq-new     then add members with empty directories

Exit codes: 0 done, 1 failed (nothing was changed), 2 wrong usage.""",
)
@click.argument("directory", metavar="DIR", type=PATH)
@click.option(
    "--into", required=True, type=PATH, metavar="NEW", help="The directory to make; DIR is only read."
)
@click.option(
    "--force-new-group",
    is_flag=True,
    help="Yes: what only the lost nodes had is lost, and none of them may ever start again.",
)
@click.option("--yes", is_flag=True, help="Do not ask first.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def recover(directory: Path, into: Path, force_new_group: bool, yes: bool, as_json: bool) -> None:
    """Make a new group of one from DIR, the directory of a stopped node whose group has lost its majority.

    The last resort: as long as a majority can be brought back, bring it back. It may lose what the group had
    confirmed and this node did not have, and it may keep what this node had and the group never confirmed.
    """
    if not force_new_group:
        raise click.UsageError(
            "a new group may lose jobs that were accepted. If a majority of the old one is gone for good, "
            "say --force-new-group."
        )

    def agree(found: Recovery) -> None:
        """Before anything is written it is said what may be lost."""
        if not as_json:
            _tell(found)
        if yes:
            return
        if as_json or not looks.is_person_there():
            raise click.UsageError("nobody is there to be asked: add --yes. Nothing was changed.")
        click.confirm(f"Give up the old group, and make a new one in {into}?", abort=True, err=True)

    node_id, holder = secrets.token_hex(IDS_BYTES), str(os.getpid())
    found = force_new(directory, into, node_id=node_id, holder=holder, agree=agree)
    if as_json:
        looks.say_json(msgspec.to_builtins(found))
        return
    click.echo(f"done      {into} holds the new group {found.group} of one node, {found.node_id}")
    click.echo(f"next      rollmq serve PORT --state {into}; then `rollmq members add` for new, empty nodes.")
    click.echo("          Never start a directory of the old group again. Restart clients and workers.")


def _tell(found: Recovery) -> None:
    counts = found.counts
    click.echo(f"before    {found.old_group}, members {', '.join(found.members)}")
    click.echo(
        f"state     as of entry {found.last_index:,} of term {found.last_term}, {time_of(found.last_at_us)}"
    )
    click.echo(
        f"jobs      {counts.queued:,} queued, {counts.inflight:,} in flight, {counts.dlq:,} in the DLQ, "
        f"{counts.finished:,} finished"
    )
    certain, last = found.sealed_index, found.last_index
    click.echo(f"certain   entries up to {certain:,} were committed by the old group")
    if last > certain:
        click.echo(
            f"kept      entries {certain + 1:,} to {last:,} too; the last may never have been confirmed"
        )
    click.echo(
        f"lost      whatever the old group had committed after entry {last:,}: only its lost nodes know"
    )
    for place in found.damages:
        click.echo(f"damaged   {place}")
    if found.left_out:
        click.echo(f"left out  {found.left_out:,} entries behind the first that is damaged or missing")
