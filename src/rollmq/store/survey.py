"""Reads a damaged state directory and says what of it is sound: for repair from peers, and for serving them.

    sound lines, segment by segment; the newest sound state; what the mark and the vote are worth

It changes nothing, and raises only what no peer can repair: another format, no access, no identity.
Files that did not change are not read again.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from rollmq.core.events import AnyEvent, Members
from rollmq.core.line import LineDamaged, decode_line, decode_part
from rollmq.core.members import configuration_of
from rollmq.core.raft_ready import HardState, SnapshotFacts
from rollmq.core.state import MembersRecord
from rollmq.core.survey import Survey, TermRange, joined
from rollmq.errors import StateDamaged
from rollmq.store import layout
from rollmq.store.disk import Disk, DiskFile
from rollmq.store.gaps import Gap, Gaps, read_gaps
from rollmq.store.layout import SegmentName
from rollmq.store.mark import Mark, read_mark
from rollmq.store.node_file import Identity
from rollmq.store.recovery import is_torn_tail
from rollmq.store.segment import Blocks, SegmentScan, scan_segment
from rollmq.store.snapshot import StateFile, check_state, read_state_lines
from rollmq.store.vote import read_vote

_MEMBERS_START = b'"kind":"members"'
_members_decoder = msgspec.json.Decoder(MembersRecord)


@dataclass(slots=True)
class Extent:
    """A segment's file and what of it is sound."""

    name: str
    first_index: int
    last_index: int | None
    """Which entries belong to it, as far as that is known: of the newest one nothing says where it ends."""
    is_sealed: bool
    scan: SegmentScan
    ranges: list[TermRange]
    members: list[Members]
    is_torn: bool = False
    """What is bad in it is what a power cut left of the last batch: a start cuts it."""

    @property
    def is_damaged(self) -> bool:
        """A start would refuse it."""
        return bool(self.scan.damages) and not self.is_torn


@dataclass(slots=True)
class Surveyed:
    """A directory as it is."""

    survey: Survey
    extents: list[Extent]
    state: StateFile | None
    mark: Mark | None
    is_in_order: bool
    """All the small files are sound too: nothing but a plain start is left to do."""
    places: list[str] = field(default_factory=list)
    """Every damage that was met, for people."""

    @property
    def snapshot(self) -> SnapshotFacts | None:
        """The newest sound snapshot, for a peer that needs one."""
        state = self.state
        if state is None or not state.name.startswith(layout.SNAPSHOTS):
            return None
        return SnapshotFacts(state.last_index, state.last_term, state.digest, state.size_bytes)


class _Sound:
    """Collects the sound lines of one file, as `scan_segment` shows them."""

    def __init__(self, segment: SegmentName, limit: int | None, term: int, at_us: int) -> None:
        self.ranges: list[TermRange] = []
        self.members: list[Members] = []
        self._expected = segment.first_index
        self._limit = limit
        self._term = term
        self._at_us = at_us
        self._is_wrong = False
        self._run: list[int] = []

    def visit(self, event: AnyEvent, _line: bytes) -> None:
        is_inside = self._limit is None or event.index <= self._limit
        is_next = event.index >= self._expected and event.term >= self._term and event.at_us >= self._at_us
        self._is_wrong = self._is_wrong or not is_inside or not is_next
        if self._is_wrong:
            return  # a whole line that says what cannot be: nothing from it on is trusted
        run = self._run
        if run and run[1] + 1 == event.index and run[2] == event.term:
            run[1] = event.index
        else:
            self._end_run()
            self._run = [event.index, event.index, event.term]
        self._expected, self._term, self._at_us = event.index + 1, event.term, event.at_us
        if type(event) is Members:
            self.members.append(event)

    def _end_run(self) -> None:
        if self._run:
            self.ranges.append(TermRange(*self._run))
            self._run = []

    def finish(self, until_index: int | None) -> list[TermRange]:
        """What was found, up to this entry."""
        self._end_run()
        if until_index is None:
            return self.ranges
        return [
            TermRange(each.first_index, min(each.last_index, until_index), each.term)
            for each in self.ranges
            if each.first_index <= until_index
        ]


class Surveyor:
    """Looks at one directory, again and again while it is repaired."""

    def __init__(self, disk: Disk, identity: Identity) -> None:
        self._disk = disk
        self._identity = identity
        self._extents: dict[tuple[str, int, int | None], Extent] = {}
        self._states: dict[str, StateFile | None] = {}
        self._distrusted: set[str] = set()

    def forget(self, *names: str) -> None:
        """These files have changed."""
        for name in names:
            self._states.pop(name, None)
            self._distrusted.discard(name)
            for key in [key for key in self._extents if key[0] == name]:
                del self._extents[key]

    def distrust(self, name: str) -> bool:
        """Each of its lines is whole, and yet they are not what its marker says: none counts. Whether that
        was known before."""
        is_known = name in self._distrusted
        self._distrusted.add(name)
        return is_known

    def look(self) -> Surveyed:
        """What is sound now. Raises WrongFormatVersion and PermissionError."""
        disk, places = self._disk, list[str]()
        gaps, gaps_are_sound = self._gaps(places)
        mark = self._mark(places)
        hard_state = self._vote(places)
        state = self._state(places)
        is_end_lost = disk.exists(layout.REPAIRING_FILE)
        extents = self._scan(mark if not is_end_lost else None, places)
        gone_index = max((gap.last for gap in gaps.gaps if gap.first == 1), default=0)
        survey = self._survey(extents, state, gone_index)
        survey.is_end_sure = not is_end_lost and _is_end_sure(extents, survey, mark)
        if not survey.is_end_sure and not is_end_lost:
            places.append(f"{disk.path_of(layout.WAL)}: what was synced at the end of the log is not there")
        if hard_state is not None and hard_state.term < survey.last_term:
            places.append(f"{disk.path_of(layout.VOTE_FILE)}: it is older than the log")
            hard_state = None
        survey.hard_state = hard_state
        for hole in survey.holes():
            places.append(
                f"{disk.path_of(layout.WAL)}: entries {hole.first_index} to {hole.last_index} are missing"
            )
        is_in_order = gaps_are_sound and mark is not None and not is_end_lost
        return Surveyed(survey, extents, state, mark, is_in_order, places)

    # -- the small files

    def _gaps(self, places: list[str]) -> tuple[Gaps, bool]:
        """What is declared to be gone. A base says the same: everything before it is."""
        try:
            return read_gaps(self._disk), True
        except StateDamaged as error:
            places.append(str(error.places[0]))
            bases = layout.bases(self._disk)
            return Gaps((Gap(1, bases[0].last_index, "repair"),)) if bases else Gaps(), False

    def _mark(self, places: list[str]) -> Mark | None:
        try:
            mark = read_mark(self._disk)
        except StateDamaged as error:
            places.append(error.places[0])
            return None
        if mark is None:
            places.append(f"{self._disk.path_of(layout.SYNCED_FILE)}: the file is missing")
        return mark

    def _vote(self, places: list[str]) -> HardState | None:
        try:
            vote = read_vote(self._disk)
        except StateDamaged as error:
            places.append(error.places[0])
            return None
        if vote is None:
            places.append(f"{self._disk.path_of(layout.VOTE_FILE)}: the file is missing")
        return vote

    # -- states

    def _state(self, places: list[str]) -> StateFile | None:
        """The newest sound snapshot or base."""
        for candidate in [*layout.snapshots(self._disk), *layout.bases(self._disk)]:
            if candidate.name not in self._states:
                try:
                    self._states[candidate.name] = check_state(self._disk, candidate)
                except PermissionError:
                    raise
                except (LineDamaged, OSError) as error:
                    self._states[candidate.name] = None
                    places.append(f"{self._disk.path_of(candidate.name)}: {error}")
            state = self._states[candidate.name]
            if state is not None:
                return state
        return None

    def _members_in(self, state: StateFile) -> Members | None:
        """The members as of a sound state."""
        for line in read_state_lines(self._disk, state.name):
            if _MEMBERS_START in line[:60]:
                record: MembersRecord = decode_part(line, _members_decoder)
                return record.event
        return None

    # -- segments

    def _scan(self, mark: Mark | None, places: list[str]) -> list[Extent]:
        disk = self._disk
        sealed = layout.sealed_segments(disk)
        taken = {each.first_index for each in sealed}
        segments = sorted([*sealed, *(each for each in layout.open_segments(disk) if each[0] not in taken)])
        extents: list[Extent] = []
        for number, segment in enumerate(segments):
            following = segments[number + 1].first_index - 1 if number + 1 < len(segments) else None
            limit = segment.last_index if segment.last_index is not None else following
            extents.append(self._extent(segment, limit, extents[-1] if extents else None, mark, places))
        return extents

    def _extent(
        self,
        segment: SegmentName,
        limit: int | None,
        before: Extent | None,
        mark: Mark | None,
        places: list[str],
    ) -> Extent:
        key = (segment.name, segment.first_index, limit)
        known = self._extents.get(key)
        if known is None:
            last = before.ranges[-1] if before is not None and before.ranges else None
            sound = _Sound(segment, limit, last.term if last is not None else 0, 0)
            scan = scan_segment(
                self._disk,
                segment.name,
                group=self._identity.group,
                first_index=segment.first_index,
                visit=sound.visit,
            )
            is_open = segment.last_index is None
            is_torn = is_open and limit is None and mark is not None and _is_torn(scan, mark)
            ranges = sound.finish(scan.last_index if is_torn else None)
            if any("the header names" in damage.reason for damage in scan.damages):
                ranges = []  # another group's file, or another place's
            members = [event for event in sound.members if any(_is_in(event.index, each) for each in ranges)]
            known = Extent(
                segment.name, segment.first_index, limit, not is_open, scan, ranges, members, is_torn
            )
            if not is_torn:
                places += [
                    f"{self._disk.path_of(each.name)}:{each.line}: {each.reason}" for each in scan.damages
                ]
            self._extents[key] = known
        if segment.name in self._distrusted:
            known.ranges = []
        return known

    def _survey(self, extents: list[Extent], state: StateFile | None, gone_index: int) -> Survey:
        ranges = joined(
            TermRange(max(each.first_index, gone_index + 1), each.last_index, each.term)
            for extent in extents
            for each in extent.ranges
            if each.last_index > gone_index
        )
        sealed = [each.last_index for each in extents if each.is_sealed and each.last_index is not None]
        state_index = state.last_index if state is not None else 0
        sealed_index = max([*sealed, state_index])
        members_index, voters = self._voters(extents, state)
        return Survey(
            state_index=state_index,
            state_term=state.last_term if state is not None else 0,
            gone_index=gone_index,
            sealed_index=sealed_index,
            last_index=max(ranges[-1].last_index if ranges else 0, sealed_index),
            members_index=members_index,
            voters=voters,
            ranges=ranges,
        )

    def _voters(self, extents: list[Extent], state: StateFile | None) -> tuple[int, frozenset[str]]:
        """The newest members that are seen; else the founders; else nobody is known."""
        found = [event for extent in extents for event in extent.members]
        in_state = self._members_in(state) if state is not None else None
        newest = max([*found, *([in_state] if in_state is not None else [])], key=_index_of, default=None)
        if newest is not None:
            return newest.index, configuration_of(newest).voters
        return 0, frozenset(self._identity.founders)

    # -- reading

    def lines(self, surveyed: Surveyed, first_index: int, last_index: int) -> Iterator[tuple[int, bytes]]:
        """The sound lines among these, each checked once more. It ends where the disk gives no more."""
        for extent in surveyed.extents:
            wanted = [
                each
                for each in extent.ranges
                if each.last_index >= first_index and each.first_index <= last_index
            ]
            if wanted:
                yield from self._lines_of(extent, wanted, first_index, last_index)

    def _lines_of(
        self, extent: Extent, wanted: list[TermRange], first_index: int, last_index: int
    ) -> Iterator[tuple[int, bytes]]:
        file = self._disk.open(extent.name, "read")
        try:
            # Before the first damage it is known where lines begin; behind it the file is read through.
            is_near = extent.scan.first_index <= first_index <= extent.scan.last_index
            offset = extent.scan.offsets.before(first_index)[1] if is_near else 0
            # What the disk no longer gives was sound a moment ago: the next look says so.
            with contextlib.suppress(OSError):
                for index, term, line in _whole_lines(file, offset):
                    if index > last_index:
                        return
                    is_known = any(_is_in(index, each) and each.term == term for each in wanted)
                    if index >= first_index and is_known:
                        yield index, line
        finally:
            file.close()


def _whole_lines(file: DiskFile, offset: int) -> Iterator[tuple[int, int, bytes]]:
    """(index, term, line) of every line from here on that is whole."""
    for pieces in Blocks(file, offset=offset):
        for piece in pieces:
            with contextlib.suppress(LineDamaged):  # that is what is being repaired
                event = decode_line(piece + b"\n")
                yield event.index, event.term, piece + b"\n"


def _index_of(event: Members) -> int:
    return event.index


def _is_in(index: int, entries: TermRange) -> bool:
    return entries.first_index <= index <= entries.last_index


def _is_torn(scan: SegmentScan, mark: Mark) -> bool:
    return bool(scan.damages) and is_torn_tail(scan, mark)


def _is_end_sure(extents: list[Extent], survey: Survey, mark: Mark | None) -> bool:
    """Whether everything that the mark says was synced is there, or has something sound behind it."""
    if mark is None or survey.last_index < mark.index:
        return False
    newest = extents[-1] if extents else None
    if newest is None:
        return mark.first == 0 or mark.index <= survey.state_index
    if newest.first_index < mark.first:
        return False  # the file that was being written is not there
    scan = newest.scan
    if not scan.damages or newest.is_sealed or _is_torn(scan, mark):
        return True
    return scan.sound_end == scan.size_bytes
