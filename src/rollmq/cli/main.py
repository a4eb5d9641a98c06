"""The `rollmq` command: a group of command families, one file each.

Exit codes are `ExitCode`. An error is one line that says what to do; a traceback is never shown for what a
user can meet. No command's work is done here.
"""

import sys
from typing import Any, Final

import click

from rollmq import __version__
from rollmq.cli.control import cancel, drain, pause, resume, seal, step_time
from rollmq.cli.demo.command import demo
from rollmq.cli.dlq import dlq
from rollmq.cli.exit_codes import ExitCode, code_of
from rollmq.cli.history import history
from rollmq.cli.jobs import explain, jobs
from rollmq.cli.log import log
from rollmq.cli.members import members
from rollmq.cli.parties import clients, settings, workers
from rollmq.cli.recover import recover
from rollmq.cli.serve import serve
from rollmq.cli.status import status
from rollmq.cli.submit import submit
from rollmq.cli.top import top
from rollmq.cli.worker import worker
from rollmq.errors import RollmqError


class Failed(click.ClickException):
    """An error of ours as click prints it, with the exit code that belongs to it."""

    def __init__(self, text: str, code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(text)
        self.exit_code: int = code  # type: ignore[misc]


SECTIONS: Final = (
    ("Begin", ("demo", "serve", "worker", "submit")),
    ("Look", ("status", "top", "jobs", "explain", "workers")),
    ("Steer", ("pause", "resume", "cancel", "dlq", "clients", "settings", "drain")),
    ("Look back", ("history",)),
    ("Look after nodes", ("members", "seal", "log", "recover", "step-time")),
)
"""How the help is laid out. What is in none of these comes last."""


class Commands(click.Group):
    """A group in which every error of ours, and of the system, becomes a line and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except RollmqError as error:
            raise Failed(str(error), code_of(error)) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """By what they are for, and not by the alphabet."""
        left = [name for name in self.list_commands(ctx) if name == self.commands[name].name]
        width = max(map(len, left))
        for title, names in (*SECTIONS, ("More", tuple(left))):
            found = [name for name in names if name in left]
            left = [name for name in left if name not in found]
            room = formatter.width - 6 - width
            rows = [(name.ljust(width), self.commands[name].get_short_help_str(room)) for name in found]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def main(self, *args: Any, **options: Any) -> Any:
        """A system error that no command foresaw (the disk under our output is full, say) is a line too."""
        try:
            return super().main(*args, **options)
        except OSError as error:
            place = f"{error.filename}: " if error.filename else ""
            Failed(f"{place}{error.strerror or error}").show()
            sys.exit(ExitCode.FAILED)


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="""\b
Examples:
  rollmq demo                                        see it work, and survive
  rollmq serve 5000                                  a node, in one terminal
  rollmq worker --server 127.0.0.1:5000 --exec count='wc -c'        in another
  rollmq submit --server 127.0.0.1:5000 count 'hello world' --wait  in a third

ROLLMQ_SERVER stands for --server. `rollmq COMMAND --help` has examples and exit codes.""",
)
@click.version_option(__version__, prog_name="rollmq")
def main() -> None:
    """A replicated job queue: one log is its state, its replication and its history."""


main.add_command(demo)
main.add_command(serve)
main.add_command(serve, name="leader")
main.add_command(worker)
main.add_command(submit)
main.add_command(status)
main.add_command(top)
main.add_command(explain)
main.add_command(jobs)
main.add_command(dlq)
main.add_command(pause)
main.add_command(resume)
main.add_command(cancel)
main.add_command(drain)
main.add_command(workers)
main.add_command(clients)
main.add_command(settings)
main.add_command(seal)
main.add_command(step_time)
main.add_command(members)
main.add_command(recover)
main.add_command(log)
main.add_command(history)
