"""Segments on disk, as a node seals them: what every test of the history begins with."""

from collections.abc import Iterable
from pathlib import Path

from rollmq.core.events import AnyEvent, SnapshotMarker
from rollmq.core.line import encode_line
from rollmq.core.segment_digest import SegmentDigest, header_line, is_marker_line
from tests.docs_examples import EXAMPLES, GROUP


def segment_name(first: int, last: int) -> str:
    return f"events-{first:016}-{last:016}.jsonl"


def write_segments(folder: Path, lines: Iterable[bytes], *, group: str = GROUP, first: int = 1) -> list[Path]:
    """Write lines as sealed segments; each ends with a marker, and so must the last line."""
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    held: list[bytes] = []
    for line in lines:
        held.append(line)
        if is_marker_line(line):
            last = first + len(held) - 1
            path = folder / segment_name(first, last)
            path.write_bytes(header_line(group=group, first_index=first) + b"".join(held))
            written.append(path)
            first, held = last + 1, []
    assert not held, "the last line is no marker: the segment is not sealed"
    return written


def lines_of(events: Iterable[AnyEvent], *, group: str = GROUP, first: int = 1) -> list[bytes]:
    """The lines of these events; every marker gets the digest of what is before it."""
    digest = SegmentDigest(group=group, first_index=first)
    lines: list[bytes] = []
    for event in events:
        if isinstance(event, SnapshotMarker):
            event = SnapshotMarker(
                event.index, event.term, event.at_us, segment_digest=digest.hexdigest(), counts=event.counts
            )
        lines.append(encode_line(event))
        digest.add(lines[-1])
    return lines


def story(folder: Path) -> Path:
    """The documented story of all kinds of events, as one sealed segment."""
    return write_segments(folder, [encode_line(event) for event in EXAMPLES])[0]


def two_segments(folder: Path, *, group: str = GROUP) -> list[Path]:
    """The story and, after it, entries 29 to 32: three no-ops and a marker."""
    marker = EXAMPLES[-1]
    assert isinstance(marker, SnapshotMarker)
    noops = [type(EXAMPLES[0])(index, marker.term, marker.at_us + index) for index in (29, 30, 31)]
    last = SnapshotMarker(32, marker.term, marker.at_us + 32, segment_digest="", counts=marker.counts)
    return write_segments(folder / group, lines_of([*EXAMPLES, *noops, last], group=group), group=group)
