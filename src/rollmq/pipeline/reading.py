"""One piece of a segment's file to batches of rows, verified. Runs on executors.

A whole segment is proved by the digest in its marker before a row of it is given; where that fails, and for
parts of a segment, each line's crc is looked at. Of several copies the first sound one is read. What
cannot be read is a row that says so, or an error: never nothing.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing
from typing import IO, Any, Final

from rollmq.core.line import LineDamaged
from rollmq.core.segment_digest import SegmentProof
from rollmq.pipeline.lines import LineParser, Reject
from rollmq.pipeline.places import HEADER_BYTES_MAX, open_url, read_header
from rollmq.pipeline.planning import Missing, Part, Piece

BLOCK_BYTES: Final = 4 << 20
"""Lines parsed at once: some ten thousand, so that the cost per block is nothing and memory stays small."""

VERIFY_DIGEST: Final = "digest"
VERIFY_CRC: Final = "crc"
VERIFY_NONE: Final = "none"
VERIFY_CHOICES: Final = (VERIFY_DIGEST, VERIFY_CRC, VERIFY_NONE)


def read_part(part: Part, parser: LineParser, *, verify: str = VERIFY_DIGEST) -> Iterator[Any]:
    """Batches of the rows of one part."""
    if isinstance(part, Missing):
        yield parser.rejected(Reject(part.kind, part.reason, "", 0, part.first, part.last))
        return
    failed: list[str] = []
    for url in part.urls:
        is_last = url == part.urls[-1]
        try:
            with closing(_local(url)) as file:
                problem = _problem(file) if verify != VERIFY_NONE else None
                if problem is not None and not is_last:
                    failed.append(f"{url}: {problem}")
                    continue  # another copy may be sound
                yield from _rows(file, url, part, parser, verify=verify, problem=problem)
                return
        except OSError as error:
            failed.append(f"{url}: {error}")
    yield parser.rejected(Reject("missing", "; ".join(failed), part.urls[-1], 0, part.first, part.last))


def _local(url: str) -> IO[bytes]:
    """The file, fetched whole when it is far away: it is read twice."""
    file = open_url(url)
    if "://" not in url:
        return file
    with closing(file):
        copy = tempfile.TemporaryFile()  # noqa: SIM115 - whoever reads closes it
        shutil.copyfileobj(file, copy, BLOCK_BYTES)
    copy.seek(0)
    return copy


def _problem(file: IO[bytes]) -> str | None:
    """Why the file is not the segment that its marker describes; null when it is."""
    file.seek(0)
    proof = SegmentProof()
    while block := file.read(BLOCK_BYTES):
        proof.add(block)
    return proof.problem()


def _rows(
    file: IO[bytes], url: str, piece: Piece, parser: LineParser, *, verify: str, problem: str | None
) -> Iterator[Any]:
    file.seek(0)
    header = file.readline(HEADER_BYTES_MAX)
    try:
        found = read_header(header)
    except LineDamaged as error:
        kind = "version" if "format version" in str(error) else "crc"
        if kind == "version":
            yield parser.rejected(Reject(kind, str(error), url, 1, piece.first, piece.last))
            return
        problem = problem or f"the header is damaged: {error}"
    else:
        if (found.first_index, found.group) != (piece.segment_first, piece.group):
            reason = f"it is of group {found.group} from entry {found.first_index}, not what its name says"
            yield parser.rejected(Reject("index", reason, url, 1, piece.first, piece.last))
            return
    checks_crc = verify == VERIFY_CRC or problem is not None or (verify != VERIFY_NONE and not piece.is_whole)
    next_index = piece.segment_first
    rejected_before = parser.rejected_count
    for block in _blocks(file):
        count = block.count(b"\n") or 1
        wanted, skipped = _within(block, next_index, count, piece)
        if wanted:
            yield from parser.parse(
                wanted,
                first_index=next_index + skipped,
                place=url,
                first_line=next_index + skipped - piece.segment_first + 2,
                checks_crc=checks_crc,
            )
        next_index += count
        if next_index > piece.last:
            break
    if next_index <= piece.last:
        reason = f"the file ends before entry {next_index}"
        yield parser.rejected(Reject("missing", reason, url, 0, max(next_index, piece.first), piece.last))
    elif problem is not None and parser.rejected_count == rejected_before:
        yield parser.rejected(Reject("digest", problem, url, 0, piece.last, piece.last))


def _within(block: bytes, first: int, count: int, piece: Piece) -> tuple[bytes, int]:
    """The lines of a block that belong to the piece, and how many before them do not."""
    skipped = max(0, piece.first - first)
    beyond = max(0, first + count - 1 - piece.last)
    if skipped >= count or beyond >= count:
        return b"", 0
    if not skipped and not beyond:
        return block, 0
    lines = block.splitlines(keepends=True)
    return b"".join(lines[skipped : count - beyond]), skipped


def _blocks(file: IO[bytes]) -> Iterator[bytes]:
    """Blocks of whole lines; the last one may lack its newline."""
    while block := file.read(BLOCK_BYTES):
        yield block if block.endswith(b"\n") else block + file.readline()
