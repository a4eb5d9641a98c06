"""A damaged file is found, told apart from a torn one, and never served."""

import hashlib
from collections.abc import Callable

import msgspec
import pytest

from rollmq.core.events import Noop, SnapshotMarker
from rollmq.core.line import encode_line, seal
from rollmq.core.segment_digest import header_line
from rollmq.errors import StateDamaged, StateError, WalCorrupt, WrongFormatVersion
from rollmq.limits import WAL_BATCH_BYTES_MAX
from rollmq.store import layout
from rollmq.store.fold import fold_base, fold_snapshot
from rollmq.store.mark import Mark
from rollmq.store.verify import verify_directory
from tests.sim.sim_disk import SimDisk
from tests.store.making import GROUP, NODE, LogMaker, lines_of, new_store, open_store, state_of

NEWEST = layout.open_name(13)


def furnished() -> tuple[SimDisk, LogMaker]:
    """Two sealed segments with a snapshot each, a complete open one, and the newest with four entries."""
    disk, log = SimDisk(), LogMaker()
    store = new_store(disk)
    for _ in range(2):
        store.write([*log.enqueues(3), log.marker()], store.next_index)
        store.seal(store.next_index - 1)
        result = fold_snapshot(disk)
        assert result is not None
        store.adopt_snapshot(result)
    store.write([*log.enqueues(3), log.marker()], store.next_index)
    store.write(log.enqueues(4), store.next_index)
    store.close()
    return disk, log


FURNISHED = furnished()[0].files()
FILES = sorted(name for name, content in FURNISHED.items() if content)


def refused(disk: SimDisk) -> StateError:
    """What a start says; it must leave every file as it was."""
    before = disk.files()
    with pytest.raises(StateError) as caught:
        open_store(disk)
    assert disk.files() == before
    assert not verify_directory(disk).is_clean
    return caught.value


def stale_mark(disk: SimDisk, first: int = 13) -> None:
    """As after a power cut: the newest segment is known to be synced only to its header."""
    header = header_line(group=GROUP, first_index=first)
    mark = Mark(first, len(header), first - 1)
    disk.replace(layout.SYNCED_FILE, seal(msgspec.json.encode(mark)))


def line_start(disk: SimDisk, name: str, number: int) -> int:
    """Where a line of a file begins; lines count from 1."""
    return sum(len(line) for line in disk.content(name).splitlines(keepends=True)[: number - 1])


@pytest.mark.parametrize("name", FILES)
def test_no_flipped_byte_of_any_file_goes_unseen_or_is_served(name: str) -> None:
    """Length, crc, body, newline, header, last batch, marker, snapshot, vote, identity, mark: every byte."""
    disk, log = furnished()
    expected = state_of(open_store(disk.copy())[1])
    before = disk.files()
    for offset in range(len(FURNISHED[name])):
        damaged = disk.copy()
        damaged.rot(name, offset, mask=1 << (offset % 8))
        assert not verify_directory(damaged).is_clean, f"{name} byte {offset} was not found"
        try:
            _, recovered = open_store(damaged)
        except StateError:
            files = damaged.files()
            assert files == {**before, name: files[name]}, "a refused start changed a file"
        else:
            # Only what a start does not need may be damaged: then the state is as it was.
            assert name.startswith(("history/", "snapshots/"))
            assert state_of(recovered) == expected
    assert log.lines


@pytest.mark.parametrize("name", FILES)
def test_no_missing_file_goes_unseen(name: str) -> None:
    disk, _ = furnished()
    expected = state_of(open_store(disk.copy())[1])
    disk.remove(name)
    if name.startswith("snapshots/"):
        assert state_of(open_store(disk)[1]) == expected
        return
    error = refused(disk)
    assert "missing" in str(error)


@pytest.mark.parametrize("name", [name for name in FILES if name.startswith(("wal/", "history/"))])
def test_no_missing_end_of_a_segment_goes_unseen(name: str) -> None:
    disk, _ = furnished()
    content = disk.content(name)
    for size_bytes in (0, 1, len(content) // 2, len(content) - 1, line_start(disk, name, 3)):
        damaged = disk.copy()
        damaged.replace(name, content[:size_bytes])
        assert not verify_directory(damaged).is_clean
        if name.startswith("wal/"):
            assert isinstance(refused(damaged), WalCorrupt)


# -- torn or corrupt


def test_a_bad_line_behind_the_mark_is_torn_and_is_cut_with_a_copy() -> None:
    """Pitfall 8: the tail of a batch that nobody was told about."""
    disk, log = furnished()
    stale_mark(disk)
    content = disk.content(NEWEST)
    at = line_start(disk, NEWEST, 3)
    disk.rot(NEWEST, at + 40)
    assert verify_directory(disk).is_clean
    store, recovered = open_store(disk)
    assert recovered.torn is not None
    assert (recovered.torn.index, recovered.torn.offset) == (14, at)
    assert disk.content(NEWEST) == content[:at]
    assert disk.content(recovered.torn.copy_name)[41:] == content[at + 41 :]
    assert lines_of(recovered) == log.lines[8:13]
    store.write([log.lines[13]], 14)


def test_good_lines_behind_a_torn_one_are_cut_too() -> None:
    """Pages of one batch reach the disk in any order: a good line behind a bad one was not acknowledged."""
    disk, log = furnished()
    stale_mark(disk)
    disk.rot(NEWEST, line_start(disk, NEWEST, 2) + 30)
    _, recovered = open_store(disk)
    assert recovered.last_index == 12
    assert lines_of(recovered) == log.lines[8:12]


def test_a_bad_line_before_the_mark_is_damage_even_in_the_last_batch() -> None:
    """Pitfall 8: it had been synced, so it is no torn write."""
    disk, _ = furnished()
    disk.rot(NEWEST, line_start(disk, NEWEST, 5) + 30)
    error = refused(disk)
    assert isinstance(error, WalCorrupt)
    assert (error.path, error.line) == (disk.path_of(NEWEST), 5)
    assert "crc" in error.reason


def test_a_bad_line_further_from_the_end_than_one_batch_is_damage_even_behind_the_mark() -> None:
    disk = SimDisk()
    log = LogMaker()
    store = new_store(disk)
    chunk = 1024 * 1024
    while sum(map(len, log.lines)) <= WAL_BATCH_BYTES_MAX + 2 * chunk:
        store.write([log.enqueue(chunk)], store.next_index)
    store.close()
    stale_mark(disk, first=1)
    name = layout.open_name(1)
    torn = disk.copy()
    torn.rot(name, len(torn.content(name)) - WAL_BATCH_BYTES_MAX + 2 * chunk)
    assert open_store(torn)[1].torn is not None
    disk.rot(name, line_start(disk, name, 2) + 100)
    assert isinstance(refused(disk), WalCorrupt)


def test_a_bad_line_in_a_file_that_is_not_the_newest_is_damage_even_behind_the_mark() -> None:
    disk, _ = furnished()
    stale_mark(disk, first=9)
    disk.rot(layout.open_name(9), line_start(disk, layout.open_name(9), 4) + 30)
    assert isinstance(refused(disk), WalCorrupt)


def test_a_new_file_without_its_header_is_torn_if_no_mark_names_it() -> None:
    for content in (b"", b'{"crc":"00', bytes(100)):
        disk, log = furnished()
        stale_mark(disk, first=9)
        disk.replace(NEWEST, content)
        store, recovered = open_store(disk)
        assert recovered.torn is not None
        assert recovered.last_index == 12
        assert NEWEST not in disk.files()
        store.write([log.lines[12]], 13)
        assert disk.content(NEWEST).endswith(log.lines[12])


def test_a_file_without_its_header_is_damage_if_the_mark_names_it() -> None:
    disk, _ = furnished()
    stale_mark(disk)
    disk.replace(NEWEST, b"")
    assert isinstance(refused(disk), WalCorrupt)


def test_the_copies_of_torn_tails_are_bounded() -> None:
    disk, log = furnished()
    for at in range(12):
        stale_mark(disk)
        disk.rot(NEWEST, line_start(disk, NEWEST, 3) + 30 + at)
        store, recovered = open_store(disk)
        assert recovered.torn is not None
        store.write(log.lines[13:16], 14)
        store.close()
    assert len(layout.torn_copies(disk)) == 8
    assert layout.torn_copies(disk)[-1][0] == 12


def test_the_same_torn_bytes_are_kept_once_and_other_bytes_beside_them() -> None:
    """A start that was killed between the copy and the cut makes no second copy; the first is never lost."""
    disk, log = furnished()
    kept: list[bytes] = []
    for at in (0, 0, 7, 7, 0):
        stale_mark(disk)
        disk.rot(NEWEST, line_start(disk, NEWEST, 3) + 30 + at)
        store, recovered = open_store(disk)
        assert recovered.torn is not None
        copy = disk.content(recovered.torn.copy_name)
        kept += [copy] if copy not in kept[-1:] else []
        assert [disk.content(name) for _, name in layout.torn_copies(disk)] == kept
        store.write(log.lines[13:16], 14)
        store.close()
    assert len(kept) == 3


# -- sound lines that say the wrong thing: damage wherever they stand


def _replaced(number: int, line: bytes) -> Callable[[list[bytes]], list[bytes]]:
    return lambda lines: [*lines[: number - 1], line, *lines[number:]]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_replaced(1, header_line(group="cc" * 16, first_index=13)), "group"),
        (_replaced(1, header_line(group=GROUP, first_index=14)), "first entry"),
        (_replaced(3, encode_line(Noop(15, 1, 15_000_000))), "follows where 14 belongs"),
        (_replaced(3, encode_line(Noop(14, 0, 14_000_000))), "term falls"),
        (_replaced(3, encode_line(Noop(14, 1, 1))), "log time falls"),
        (_replaced(3, seal(b'{"type":"from_the_future","index":14,"term":1,"at_us":14000000}')), "no event"),
        (_replaced(3, seal(b'{"type":"noop","index":14,"term":1,"at_us":14000000,"more":1}')), "no event"),
        (lambda lines: [*lines[:3], *lines[4:]], "follows where 15 belongs"),
        (lambda lines: [*lines[:3], *lines[2:]], "follows where 15 belongs"),
    ],
)
def test_a_sound_line_that_says_the_wrong_thing_is_damage_even_behind_the_mark(
    change: Callable[[list[bytes]], list[bytes]], reason: str
) -> None:
    disk, _ = furnished()
    stale_mark(disk)
    disk.replace(NEWEST, b"".join(change(disk.content(NEWEST).splitlines(keepends=True))))
    error = refused(disk)
    assert isinstance(error, WalCorrupt)
    assert reason in error.reason


def test_a_line_behind_the_marker_is_damage() -> None:
    disk, _ = furnished()
    name = layout.open_name(9)
    disk.remove(NEWEST)
    stale_mark(disk, first=9)
    disk.replace(name, disk.content(name) + encode_line(Noop(13, 1, 13_000_000)))
    assert "follows the marker" in str(refused(disk))


def test_every_damaged_place_is_listed() -> None:
    disk, _ = furnished()
    for number in (2, 4):
        disk.rot(NEWEST, line_start(disk, NEWEST, number) + 30)
    disk.rot(layout.open_name(9), line_start(disk, layout.open_name(9), 3) + 30)
    error = refused(disk)
    assert isinstance(error, WalCorrupt)
    assert [place.split(": ")[0] for place in error.places] == [
        f"{disk.path_of(layout.open_name(9))}:3",
        f"{disk.path_of(NEWEST)}:2",
        f"{disk.path_of(NEWEST)}:4",
    ]
    assert all(place in str(error) for place in error.places)


def test_a_sealed_segment_that_was_put_together_anew_is_found_by_its_digest() -> None:
    """Every crc is right, and yet it is another file."""
    disk, log = furnished()
    name = layout.sealed_name(1, 4)
    lines = disk.content(name).splitlines(keepends=True)
    lines[1] = encode_line(Noop(1, 1, 1_000_000))
    disk.replace(name, b"".join(lines))
    verdict = verify_directory(disk)
    assert [damage.reason.split(" is ")[0] for damage in verdict.damages] == ["the segment's digest"]
    assert log.lines


def test_a_line_that_the_disk_does_not_give_is_damage() -> None:
    disk, _ = furnished()
    disk.unreadable.add(NEWEST)
    assert "does not give" in str(refused(disk))


# -- snapshots


def test_a_damaged_snapshot_is_set_aside_and_the_older_one_serves() -> None:
    disk, _ = furnished()
    expected = state_of(open_store(disk.copy())[1])
    disk.rot(layout.snapshot_name(8), 200)
    store, recovered = open_store(disk)
    assert recovered.state is not None
    assert recovered.state.last_index == 4
    assert [note.name for note in recovered.notes] == [layout.snapshot_name(8)]
    assert state_of(recovered) == expected
    assert layout.snapshot_name(8) not in disk.files()
    result = fold_snapshot(disk)
    assert result is not None
    assert result.last_index == 8
    store.adopt_snapshot(result)
    assert disk.content(layout.snapshot_name(8)) == FURNISHED[layout.snapshot_name(8)]


def test_a_snapshot_without_its_end_is_damaged() -> None:
    disk, _ = furnished()
    content = disk.content(layout.snapshot_name(8))
    disk.replace(layout.snapshot_name(8), b"".join(content.splitlines(keepends=True)[:-1]))
    _, recovered = open_store(disk)
    assert recovered.state_index == 4


def test_a_snapshot_that_lacks_a_line_is_damaged_although_each_line_is_sound() -> None:
    disk, _ = furnished()
    lines = disk.content(layout.snapshot_name(8)).splitlines(keepends=True)
    disk.replace(layout.snapshot_name(8), b"".join([*lines[:2], *lines[3:]]))
    assert "counts" in verify_directory(disk).damages[0].reason
    assert open_store(disk)[1].state_index == 4


def test_a_snapshot_under_the_name_of_another_is_damaged() -> None:
    disk, _ = furnished()
    disk.replace(layout.snapshot_name(8), disk.content(layout.snapshot_name(4)))
    assert "its name says 8" in verify_directory(disk).damages[0].reason
    assert open_store(disk)[1].state_index == 4


def test_without_a_sound_snapshot_a_whole_log_serves() -> None:
    disk, log = furnished()
    expected = state_of(open_store(disk.copy())[1])
    for index in (4, 8):
        disk.rot(layout.snapshot_name(index), 200)
    _, recovered = open_store(disk)
    assert recovered.state is None
    assert lines_of(recovered) == log.lines
    assert state_of(recovered) == expected


def test_without_a_sound_snapshot_a_shortened_log_is_refused() -> None:
    disk, _ = furnished()
    store, _ = open_store(disk)
    fold_base(disk, until_index=4)
    store.drop_history(4)
    store.close()
    for index in (4, 8):
        disk.rot(layout.snapshot_name(index), 200)
    expected = state_of(open_store(disk.copy())[1])  # the base serves
    assert expected
    disk.rot(layout.base_name(4), 200)
    assert "no sound snapshot" in str(refused(disk))


def test_a_snapshot_of_another_state_than_the_marker_says_is_found() -> None:
    disk, log = furnished()
    other = SimDisk()
    other_log = LogMaker()
    store = new_store(other)
    store.write([*other_log.enqueues(2), other_log.noop(), other_log.marker()], 1)
    store.seal(4)
    fold_snapshot(other)
    digest = hashlib.sha256(disk.content(layout.snapshot_name(4))).hexdigest()
    disk.replace(layout.snapshot_name(4), other.content(layout.snapshot_name(4)))
    assert verify_directory(disk).is_clean, "no marker has named this snapshot yet"
    marker = SnapshotMarker(17, 1, 17_000_000, snapshot_index=4, snapshot_digest=digest)
    store, _ = open_store(disk)
    store.write([encode_line(marker)], 17)
    assert [damage.name for damage in verify_directory(disk).damages] == [layout.snapshot_name(4)]
    assert log.lines


# -- vote, identity, mark


def test_a_vote_older_than_the_log_is_damage() -> None:
    """Pitfall 7: an old copy of vote.json would let the node vote twice in a term."""
    disk, _ = furnished()
    vote = seal(b'{"term":0,"voted_for":null}')
    disk.replace(layout.VOTE_FILE, vote)
    assert "old copy" in str(refused(disk))


def test_files_of_another_format_version_are_named_and_refused() -> None:
    disk, _ = furnished()
    identity = {"node_id": NODE, "group": GROUP, "format_version": 2, "what": "a newer field"}
    disk.replace(layout.NODE_FILE, seal(msgspec.json.encode(identity)))
    with pytest.raises(WrongFormatVersion) as caught:
        open_store(disk)
    assert caught.value.found == 2
    assert str(disk.path_of(layout.NODE_FILE)) in str(caught.value)


def test_an_empty_node_id_is_damage() -> None:
    disk, _ = furnished()
    disk.replace(layout.NODE_FILE, seal(msgspec.json.encode({"node_id": "", "group": GROUP})))
    assert isinstance(refused(disk), StateDamaged)


# -- while running


def test_a_line_that_rots_while_the_node_runs_is_not_served() -> None:
    disk, log = furnished()
    store, _ = open_store(disk)
    for name, first, line in ((layout.sealed_name(1, 4), 1, 3), (NEWEST, 13, 4)):
        assert store.read_lines(first, 10_000) == log.lines[first - 1 : first + 3]
        disk.rot(name, line_start(disk, name, line) + 30)
        with pytest.raises(WalCorrupt, match=f"entry {first + line - 2}"):
            store.read_lines(first, 10_000)


@pytest.mark.parametrize("name", [NEWEST, layout.sealed_name(1, 4)])
def test_a_file_that_the_disk_no_longer_gives_is_not_served(name: str) -> None:
    disk, _ = furnished()
    store, _ = open_store(disk)
    disk.unreadable.add(name)
    with pytest.raises(WalCorrupt, match="does not give"):
        store.read_lines(13 if name == NEWEST else 1, 10_000)
