"""Where history lies: directories, archives at any URL, and which sealed segments are in there.

    segments = find_segments(["state-1", "s3://bucket/archive"])

Names, sizes and headers only: it parses no event. Sealed segments hold committed entries alone, so nothing
that is found here can be taken back. Open segments of a state directory are left out for that reason.
"""

import json
import os
import posixpath
import re
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import IO, Any, Final, cast

from rollmq.core.events import FORMAT_VERSION
from rollmq.core.line import LineDamaged, decode_part
from rollmq.core.segment_digest import SegmentHeader
from rollmq.pipeline.errors import BadOption, SourceUnreadable

HISTORY: Final = "history"
GAPS_FILE: Final = "gaps.json"
HEADER_BYTES_MAX: Final = 4096

_SEALED = re.compile(r"events-(\d+)-(\d+)\.jsonl")
_BASE = re.compile(r"base-(\d+)\.jsonl")
_GROUP = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True, order=True)
class Segment:
    """A sealed segment's file."""

    group: str
    first: int
    last: int
    url: str
    size_bytes: int = 0


@dataclass(frozen=True, slots=True, order=True)
class DeclaredGap:
    """Entries that a directory says are gone on purpose."""

    group: str
    first: int
    last: int
    reason: str


@dataclass(frozen=True, slots=True)
class Found:
    """What lies in the places that were looked at."""

    segments: tuple[Segment, ...]
    gaps: tuple[DeclaredGap, ...]
    bases: tuple[Segment, ...]
    """States from which a shortened history goes on; `first` and `last` are the index."""


class Place:
    """A folder, here or at a URL."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/") or url
        self._remote: Any = None
        if "://" in url and not url.startswith("file://"):
            import fsspec

            self._remote, self.path = fsspec.core.url_to_fs(self.url)
        else:
            self.path = os.path.abspath(self.url.removeprefix("file://"))

    def names(self, folder: str = "") -> list[tuple[str, int]]:
        """(name, size) of what is in there; nothing when there is no such folder."""
        path = posixpath.join(self.path, folder) if folder else self.path
        if self._remote is not None:
            try:
                found = self._remote.ls(path, detail=True, refresh=True)
            except FileNotFoundError:
                return []
            return [(posixpath.basename(each["name"].rstrip("/")), each.get("size") or 0) for each in found]
        try:
            with os.scandir(path) as entries:
                return [(each.name, each.stat().st_size) for each in entries]
        except FileNotFoundError:
            return []

    def url_of(self, name: str) -> str:
        """A file in there, as `open_url` takes it."""
        return posixpath.join(self.url if self._remote is not None else self.path, name)


def open_url(url: str) -> IO[bytes]:
    """A file to be read, here or anywhere."""
    if "://" not in url:
        return open(url, "rb")
    import fsspec

    return cast("IO[bytes]", fsspec.open(url, "rb").open())


def find_segments(places: Sequence[str], *, group: str = "") -> Found:
    """All sealed segments in these places, in the order of the log. Raises SourceUnreadable."""
    segments: list[Segment] = []
    gaps: list[DeclaredGap] = []
    bases: list[Segment] = []
    for url in places:
        try:
            looked = _look(Place(url))
        except (OSError, ValueError, ImportError) as error:
            raise SourceUnreadable(place=url, reason=str(error)) from error
        if looked is None:
            raise SourceUnreadable(place=url, reason="there is no history in it")
        segments += looked.segments
        gaps += looked.gaps
        bases += looked.bases
    groups = {each.group for each in segments}
    if group and groups and group not in groups:
        raise BadOption(name="group", value=group, expected=f"one that is there: {', '.join(sorted(groups))}")
    wanted = (lambda each: each.group == group) if group else (lambda _each: True)
    return Found(
        tuple(sorted(filter(wanted, segments))),
        tuple(sorted(set(filter(wanted, gaps)))),
        tuple(sorted(filter(wanted, bases))),
    )


def _look(place: Place) -> Found | None:
    """What is in one place: a state directory, its history/, an archive, or one group's part of an archive.

    Null: it is none of these. A place that may come to hold history later is an empty one.
    """
    names = dict(place.names())
    if HISTORY in names:
        return _look_in(place, HISTORY, "")
    groups = sorted(name for name in names if _GROUP.fullmatch(name))
    if groups:
        return _joined([_look_in(place, group, group) for group in groups])
    if any(_SEALED.fullmatch(name) for name in names):
        return _look_in(place, "", "")
    return Found((), (), ()) if not names and _exists(place) else None


def _exists(place: Place) -> bool:
    return "://" in place.url or os.path.isdir(place.path)


def _look_in(place: Place, folder: str, group: str) -> Found:
    named = sorted(
        (int(match[1]), int(match[2]), name, size)
        for name, size in place.names(folder)
        if (match := _SEALED.fullmatch(name))
    )
    bases = sorted(
        (int(match[1]), name, size) for name, size in place.names(folder) if (match := _BASE.fullmatch(name))
    )
    if not named and not bases:
        return Found((), (), ())
    if not group and named:
        group = _group_of(place.url_of(posixpath.join(folder, named[0][2])))
    segments = tuple(
        Segment(group, first, last, place.url_of(posixpath.join(folder, name)), size)
        for first, last, name, size in named
    )
    gaps: tuple[DeclaredGap, ...] = ()
    if GAPS_FILE in dict(place.names(folder)):
        gaps = tuple(_gaps_of(place.url_of(posixpath.join(folder, GAPS_FILE)), group))
    found = tuple(
        Segment(group, index, index, place.url_of(posixpath.join(folder, name)), size)
        for index, name, size in bases
    )
    return Found(segments, gaps, found)


def _joined(parts: Iterable[Found]) -> Found:
    all_of = list(parts)
    return Found(
        tuple(each for part in all_of for each in part.segments),
        tuple(each for part in all_of for each in part.gaps),
        tuple(each for part in all_of for each in part.bases),
    )


def _group_of(url: str) -> str:
    """The group that a segment's first line names; empty when it is damaged, which its reader tells."""
    try:
        with closing(open_url(url)) as file:
            return str(read_header(file.readline(HEADER_BYTES_MAX)).group)
    except LineDamaged:
        return ""


def read_header(line: bytes) -> SegmentHeader:
    """A segment's first line. Raises LineDamaged."""
    import msgspec

    header: SegmentHeader = decode_part(line, msgspec.json.Decoder(SegmentHeader))
    if header.format_version != FORMAT_VERSION:
        raise LineDamaged(
            f"format version {header.format_version}, and this release reads version {FORMAT_VERSION}"
        )
    return header


def _gaps_of(url: str, group: str) -> list[DeclaredGap]:
    with closing(open_url(url)) as file:
        value = json.loads(file.read())
    return [DeclaredGap(group, each["first"], each["last"], each["reason"]) for each in value.get("gaps", [])]
