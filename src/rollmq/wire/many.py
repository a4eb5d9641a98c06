"""Many jobs in one frame: their ids and bytes put behind each other, and taken apart again.

A frame of many says exactly what as many single ones would, in its order; it costs both ends less. Jobs with
anything of their own to say (a key, an error, a repeated submit) go alone.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Final

from rollmq.compiled import mypyc_attr
from rollmq.limits import JOBS_PER_MESSAGE_MAX, MANY_BYTES_MAX
from rollmq.wire.error_codes import ErrorCode, violation
from rollmq.wire.message import Frame, type_name

ID_BYTES: Final = 16


@mypyc_attr(allow_interpreted_subclasses=True)
class Parts:
    """Ids of jobs, and what belongs to each, until they are a payload."""

    __slots__ = ("_byte_count", "_ids", "_parts")

    def __init__(self) -> None:
        self._ids: list[bytes] = []
        self._parts: list[bytes] = []
        self._byte_count = 0

    def __len__(self) -> int:
        return len(self._ids)

    def has_room(self, byte_count: int) -> bool:
        """Whether one more, with so many bytes, may go along."""
        return len(self._ids) < JOBS_PER_MESSAGE_MAX and self._byte_count + byte_count <= MANY_BYTES_MAX

    def add(self, job_id: bytes, part: bytes) -> None:
        """One more."""
        self._ids.append(job_id)
        self._parts.append(part)
        self._byte_count += len(part)

    def payload(self) -> bytes:
        """All of it."""
        return b"".join(self._ids) + b"".join(self._parts)


def ids_of(frame: Frame) -> list[bytes]:
    """The jobs of a frame that carries nothing but ids. Raises ProtocolError bad_payload."""
    payload = frame.payload
    if not payload or len(payload) % ID_BYTES:
        raise _refuse(frame, f"{len(payload)} bytes are no ids of {ID_BYTES} bytes each")
    return [payload[at : at + ID_BYTES] for at in range(0, len(payload), ID_BYTES)]


def parts_of(frame: Frame, sizes: Sequence[int]) -> Iterator[tuple[bytes, bytes]]:
    """Id and bytes of each job. Raises ProtocolError bad_payload, before the first one."""
    payload, ids_end = frame.payload, ID_BYTES * len(sizes)
    ends = list(accumulate(sizes, initial=ids_end))
    if ends[-1] != len(payload):
        text = f"its header tells of {len(sizes)} jobs and {ends[-1]:,} bytes, it has {len(payload):,}"
        raise _refuse(frame, text)
    ids = [payload[at : at + ID_BYTES] for at in range(0, ids_end, ID_BYTES)]
    return zip(ids, [payload[at:end] for at, end in pairwise(ends)], strict=True)


def _refuse(frame: Frame, text: str) -> Exception:
    return violation(ErrorCode.BAD_PAYLOAD, f"{type_name(frame.type)}: {text}", frame)
