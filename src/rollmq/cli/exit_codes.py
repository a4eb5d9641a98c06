"""What exit codes mean, the same for every command."""

from enum import IntEnum

from rollmq.errors import (
    AnswerUnknown,
    NoLeader,
    RequestUnknown,
    RollmqError,
    ServerUnreachable,
    SubmitRefused,
    SubmitUnknown,
)


class ExitCode(IntEnum):
    """What every command's exit code means."""

    DONE = 0
    FAILED = 1
    """Refused, failed, or what was looked for is not there. The message says whether anything changed."""
    USAGE = 2
    """Called wrongly; nothing was done."""
    NO_LEADER = 3
    """No node that leads could be reached. Nothing was changed; it may be tried again."""
    UNKNOWN = 4
    """A command was sent and not answered: it may have been carried out. Repeating it is safe."""
    ENDED_BADLY = 5
    """A job was accepted and waited for, and ended without success: dead or cancelled."""
    NOT_ENDED = 6
    """A job was accepted and waited for, and had not ended in time. It goes on."""


def code_of(error: RollmqError) -> ExitCode:
    """The exit code for an error."""
    if isinstance(error, SubmitRefused) and error.code == "no_leader":
        return ExitCode.NO_LEADER
    if isinstance(error, ServerUnreachable | NoLeader):
        return ExitCode.NO_LEADER
    is_unknown = isinstance(error, SubmitUnknown | RequestUnknown)
    if is_unknown or (isinstance(error, AnswerUnknown) and error.is_command):
        return ExitCode.UNKNOWN
    return ExitCode.FAILED
