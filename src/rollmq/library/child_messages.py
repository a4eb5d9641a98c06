"""What a worker and its child processes say to each other, over a pair of sockets that nobody else has.

MessagePack of these structs and never pickle: what goes through is a job and its outcome, not code.
"""

from typing import Final, TypeAlias

import msgspec

from rollmq.library.held_job import Outcome
from rollmq.wire.job_headers import AssignJobHeader


class Setup(msgspec.Struct, tag=True):
    """To a new child: where its function is."""

    module: str
    name: str
    main_name: str = ""
    """If the function is in the main module: how Python was told to run that, a module's name …"""
    main_path: str = ""
    """… or a file's."""


class Run(msgspec.Struct, tag=True):
    """To a child: run this job."""

    job_id: bytes
    exec: str
    header: AssignJobHeader
    payload: bytes


class Leave(msgspec.Struct, tag=True):
    """To a child: there are no more jobs."""


class Ready(msgspec.Struct, tag=True):
    """From a child: the function is there; or: the job is, and begins."""


class Problem(msgspec.Struct, tag=True):
    """From a child: it cannot be used, and this is why."""

    text: str


class Progress(msgspec.Struct, tag=True):
    """From a child: something for the client."""

    data: bytes


class Extend(msgspec.Struct, tag=True):
    """From a child: the job's time ends so much later from now."""

    extend_us: int


class Done(msgspec.Struct, tag=True):
    """From a child: how the job ended."""

    outcome: Outcome


ToChild: TypeAlias = Setup | Run | Leave
FromChild: TypeAlias = Ready | Problem | Progress | Extend | Done

encode: Final = msgspec.msgpack.Encoder().encode
read_to_child: Final = msgspec.msgpack.Decoder(ToChild).decode
read_from_child: Final = msgspec.msgpack.Decoder(FromChild).decode
