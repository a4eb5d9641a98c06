"""The `rollmq` command: a group of command families, one file each.

Exit codes: 0 done, 1 it went wrong, 2 it was called wrongly. An error is one line that says what to do;
a traceback is never shown for what a user can meet. No command's work is done here.
"""

from typing import Any

import click

from rollmq import __version__
from rollmq.cli.log import log
from rollmq.errors import RollmqError


class Commands(click.Group):
    """A group in which every error of ours becomes a line and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except RollmqError as error:
            raise click.ClickException(str(error)) from error


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="rollmq")
def main() -> None:
    """A replicated job queue: one log is its state, its replication and its history."""


main.add_command(log)
