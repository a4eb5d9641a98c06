"""Who asked, and what is said to him: values that wait, in effects, until what they say is committed.

They stand apart from the code that uses them, because that is compiled in an optional build and a msgspec
struct cannot be (docs/decisions/0011-compiled-core.md).
"""

from typing import TYPE_CHECKING

import msgspec

from rollmq.node.conn import Conn

if TYPE_CHECKING:
    from rollmq.node.door import Door


class Asker(msgspec.Struct, eq=False, gc=False):
    """Whom an answer is for: what the core hands around as `to`. A plain submit's is the connection alone."""

    conn: Conn
    msg_id: bytes
    job_id: str = ""
    """Of the job that a command is about."""


class Pages(msgspec.Struct, gc=False):
    """An answer that is too long for one frame: parts, each a Reply of its own."""

    parts: list[object]


class Outcome(msgspec.Struct, gc=False):
    """The answer to `result`: the state, and behind it the Result itself when there is one.

    Without a question (`msg_id` of the Asker is empty) only the Result is sent."""

    state: str
    result: bytes = b""
    """The header of the Result; empty: none follows."""
    payload: bytes = b""


class Greeting(msgspec.Struct, eq=False, gc=False):
    """A hello that is answered when what was decided before it is committed."""

    door: "Door"
    conn: Conn
    kind: int
    msg_id: bytes
    cap: int = 0


class ResultArguments(msgspec.Struct, frozen=True):
    """Of the query `result`."""

    job_id: str
