"""What a state directory holds after whatever happened to it: the state to start from, the log after it.

    newest sound snapshot, then the log after it; a torn tail is to be cut, anything else is damage

`inspect` only reads. It tells torn from corrupt (rule 7): a bad line behind the mark, so
near the end that one batch reaches it, in the newest file, is torn; every other one had been synced.
`repair` makes the changes that `inspect` found to be needed, and is never called when there is damage.
"""

from contextlib import suppress
from dataclasses import dataclass, field

from rollmq.core.line import LineDamaged
from rollmq.errors import WalCorrupt
from rollmq.limits import DAMAGES_LISTED_MAX, TORN_COPIES_MAX, WAL_BATCH_BYTES_MAX
from rollmq.store import layout
from rollmq.store.disk import Disk
from rollmq.store.gaps import Gap, Gaps, read_gaps, undeclared
from rollmq.store.layout import SegmentName, StateName
from rollmq.store.mark import Mark
from rollmq.store.sealed_file import set_aside
from rollmq.store.segment import Damage, SegmentScan, scan_segment
from rollmq.store.snapshot import StateFile, check_state


@dataclass(frozen=True, slots=True)
class TornTail:
    """The end of the newest segment that a power cut left unfinished. Nothing of it was acknowledged."""

    name: str
    index: int
    """The first entry that is cut."""
    offset: int
    """Where the cut is made; 0: the file never got a whole header and goes as a whole."""
    size_bytes: int
    copy_name: str
    """Where the copy of what is cut is kept."""


@dataclass(slots=True)
class Findings:
    """What `inspect` found.

    `damages` stop a node; `notes` do not: a damaged snapshot, for example, when an older one and the
    segments since make the same state.
    """

    state: StateFile | None = None
    sealed: list[SegmentName] = field(default_factory=list)
    scans: list[SegmentScan] = field(default_factory=list)
    """The segments after the state, sealed and open, in order."""
    open_names: list[SegmentName] = field(default_factory=list)
    torn: TornTail | None = None
    sealed_twice: list[SegmentName] = field(default_factory=list)
    """In wal/ although already sealed: a crash between the fsyncs of the two folders."""
    unsound_states: list[StateName] = field(default_factory=list)
    damages: list[Damage] = field(default_factory=list)
    notes: list[Damage] = field(default_factory=list)

    @property
    def last_index(self) -> int:
        """The last entry of the log, or of the state if no log follows it."""
        return self.scans[-1].last_index if self.scans else (self.state.last_index if self.state else 0)

    def kept_scans(self) -> list[SegmentScan]:
        """Those of the files that are there after the repair."""
        gone = self.torn.name if self.torn is not None and self.torn.offset == 0 else None
        return [scan for scan in self.scans if scan.name != gone]

    def damage(self, name: str, reason: str, line: int = 0) -> None:
        self.damages.append(Damage(name, line, 0, reason, could_be_torn=False))


def inspect(disk: Disk, *, group: str, mark: Mark) -> Findings:
    """Read and judge everything that a start needs. Changes nothing; raises WrongFormatVersion."""
    findings = Findings(sealed=layout.sealed_segments(disk), open_names=layout.open_segments(disk))
    _find_sealed_twice(disk, findings)
    segments = sorted([*findings.sealed, *findings.open_names])
    gaps = read_gaps(disk)
    for first, last in undeclared(segments, gaps):
        findings.damage(layout.WAL, f"entries {first} to {last} are missing: no segment holds them")
    _choose_state(disk, findings, segments)
    _scan(disk, findings, segments, group)
    _check_mark(disk, findings, segments, mark)
    _judge(disk, findings, mark)
    return findings


def raise_damage(disk: Disk, damages: list[Damage]) -> None:
    """Raise the first damage, with every place that was found; do nothing if there is none."""
    if not damages:
        return
    first = damages[0]
    places = [
        f"{disk.path_of(damage.name)}{f':{damage.line}' if damage.line else ''}: {damage.reason}"
        for damage in damages[:DAMAGES_LISTED_MAX]
    ]
    raise WalCorrupt(path=disk.path_of(first.name), line=first.line, reason=first.reason, places=places)


def repair(disk: Disk, findings: Findings) -> None:
    """Finish what a crash interrupted and cut a torn tail, keeping a copy. Each step can be repeated."""
    assert not findings.damages
    for segment in findings.sealed_twice:
        disk.unlink(segment.name)
    for state in findings.unsound_states:
        set_aside(disk, state)
    for folder in (layout.ROOT, *layout.FOLDERS):
        for name in disk.names_in(folder):
            if name.endswith(layout.TEMPORARY):
                disk.unlink(name if folder == layout.ROOT else f"{folder}/{name}")
        # Names that are seen may not be durable yet: the last process may have died before its fsync.
        disk.sync_folder(folder)
    if findings.torn is not None:
        _cut_torn(disk, findings.torn)


def _find_sealed_twice(disk: Disk, findings: Findings) -> None:
    sealed_by_first = {segment.first_index: segment for segment in findings.sealed}
    for segment in findings.open_names:
        twin = sealed_by_first.get(segment.first_index)
        if twin is None:
            continue
        findings.sealed_twice.append(segment)
        if _content_size(disk, segment.name) != _content_size(disk, twin.name):
            findings.damage(segment.name, f"it differs from {twin.name}, under which it was sealed")
    findings.open_names = [each for each in findings.open_names if each not in findings.sealed_twice]


def _content_size(disk: Disk, name: str) -> int:
    file = disk.open(name, "read")
    try:
        return file.size_bytes()
    finally:
        file.close()


def _choose_state(disk: Disk, findings: Findings, segments: list[SegmentName]) -> None:
    """The newest sound snapshot; then the older ones, the base, and at last the empty state.

    An older one serves only if every entry after it is there; what is not sound is noted.
    """
    for candidate in [*layout.snapshots(disk), *layout.bases(disk)]:
        try:
            state = check_state(disk, candidate)
        except PermissionError:
            raise  # it may be sound: this user may not look
        except (LineDamaged, OSError) as error:
            findings.notes.append(Damage(candidate.name, 0, 0, f"the state is damaged: {error}", False))
            findings.unsound_states.append(candidate)
            continue
        if not undeclared(_after(segments, state.last_index), _gone_until(state.last_index)):
            findings.state = state
            return
    if undeclared(segments, Gaps()):
        findings.damages += findings.notes
        findings.damage(
            layout.SNAPSHOTS, "no sound snapshot is left from which the log goes on without a gap"
        )


def _after(segments: list[SegmentName], index: int) -> list[SegmentName]:
    return [each for each in segments if each.last_index is None or each.last_index > index]


def _gone_until(index: int) -> Gaps:
    """As if everything up to this entry, which the state holds, were declared to be gone."""
    return Gaps((Gap(1, index, "state"),)) if index else Gaps()


def _scan(disk: Disk, findings: Findings, segments: list[SegmentName], group: str) -> None:
    """Read the log after the state; collect all damage, each segment checked against the one before."""
    start = findings.state
    last_term, last_at_us = (start.last_term, start.last_at_us) if start else (0, 0)
    for segment in _after(segments, start.last_index if start else 0):
        before = findings.scans[-1] if findings.scans else None
        if before is None and start is not None and segment.first_index <= start.last_index:
            last_term, last_at_us = 0, 0  # it begins before the state, and may begin with an older term
        scan = scan_segment(
            disk,
            segment.name,
            group=group,
            first_index=segment.first_index,
            last_term=last_term,
            last_at_us=last_at_us,
        )
        if before is not None and not before.damages:
            if segment.first_index != before.last_index + 1:
                findings.damage(
                    segment.name,
                    f"it begins with {segment.first_index}, the log before it ends with {before.last_index}",
                )
            elif before.marker is None:
                findings.damage(
                    before.name, "the marker that ends a segment is missing, and a newer one follows"
                )
        if segment.last_index is not None and not scan.damages:
            _check_sealed(findings, segment, scan)
        findings.scans.append(scan)
        last_term, last_at_us = scan.last_term, scan.last_at_us


def _check_sealed(findings: Findings, segment: SegmentName, scan: SegmentScan) -> None:
    if scan.last_index != segment.last_index:
        findings.damage(
            segment.name, f"it ends with entry {scan.last_index}, its name says {segment.last_index}"
        )
    elif scan.marker is None:
        findings.damage(segment.name, "a sealed segment without the marker that ends it")


def _check_mark(disk: Disk, findings: Findings, segments: list[SegmentName], mark: Mark) -> None:
    """What the mark names must be there: a file, or its end, can go missing without leaving a bad line."""
    if not mark.first:
        return
    segment = next((each for each in segments if each.first_index == mark.first), None)
    if segment is None:
        findings.damage(
            layout.open_name(mark.first), f"the file is missing; it was synced up to entry {mark.index}"
        )
        return
    size_bytes = _content_size(disk, segment.name)
    if size_bytes < mark.bytes:
        findings.damage(
            segment.name,
            f"the file ends at byte {size_bytes}, it was synced up to {mark.bytes} (entry {mark.index})",
        )


def is_torn_tail(scan: SegmentScan, mark: Mark) -> bool:
    """Whether the first bad line of the newest segment can be what a power cut left of the last batch."""
    first = scan.damages[0]
    synced_bytes = mark.bytes if mark.first == scan.first_index else 0
    return (
        first.could_be_torn
        and mark.first <= scan.first_index
        and first.offset >= synced_bytes
        and scan.size_bytes - first.offset <= WAL_BATCH_BYTES_MAX
    )


def _judge(disk: Disk, findings: Findings, mark: Mark) -> None:
    """Torn or corrupt? Only the newest file can be torn: a file begins once the one before it is durable."""
    for scan in findings.scans:
        if not scan.damages:
            continue
        is_newest = scan is findings.scans[-1] and scan.name.startswith(f"{layout.WAL}/")
        is_torn = is_newest and not findings.damages and is_torn_tail(scan, mark)
        if is_torn:
            findings.torn = TornTail(
                name=scan.name,
                index=scan.last_index + 1,
                offset=scan.good_bytes,
                size_bytes=scan.size_bytes - scan.good_bytes,
                copy_name=_copy_name(disk, scan),
            )
        else:
            findings.damages += scan.damages


def _copy_name(disk: Disk, scan: SegmentScan) -> str:
    """Where the copy of this torn tail goes: in place of the newest one if that holds nothing else, as after
    starts that failed on a full disk, again and again, or one that was killed before the cut."""
    index, copies = scan.last_index + 1, layout.torn_copies(disk)
    number, name = copies[-1] if copies else (0, "")
    with suppress(OSError):  # one that cannot be read may hold something else
        if name == layout.torn_name(index, number) and _begins_with(disk, scan, _content(disk, name)):
            return name
    return layout.torn_name(index, number + 1)


def _begins_with(disk: Disk, scan: SegmentScan, content: bytes) -> bool:
    file = disk.open(scan.name, "read")
    try:
        return file.read_at(scan.good_bytes, len(content)) == content
    finally:
        file.close()


def _content(disk: Disk, name: str) -> bytes:
    file = disk.open(name, "read")
    try:
        return file.read_at(0, file.size_bytes())
    finally:
        file.close()


def _cut_torn(disk: Disk, torn: TornTail) -> None:
    """Copy the tail beside, durably; then cut it off."""
    file = disk.open(torn.name, "edit")
    tail = file.read_at(torn.offset, torn.size_bytes)
    copy = disk.open(torn.copy_name, "create")
    copy.write_at(0, tail)
    copy.sync()
    copy.close()
    disk.sync_folder(layout.WAL)
    if torn.offset == 0:
        file.close()
        disk.unlink(torn.name)
        disk.sync_folder(layout.WAL)
    else:
        file.truncate(torn.offset)
        file.sync()
        file.close()
    for _, name in layout.torn_copies(disk)[:-TORN_COPIES_MAX]:
        disk.unlink(name)
