"""A segment comes into an archive whole, once and proved, or not at all; nothing there is ever replaced."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from rollmq.limits import ARCHIVE_COMPARED_MAX
from rollmq.node import archive_place
from rollmq.node.archive_place import ArchivePlace, open_place, without_secrets
from rollmq.node.ship import Request, Told, ship
from rollmq.pipeline.places import find_segments
from tests.pipeline.archives import write_segments
from tests.store.making import GROUP, LogMaker

NODE = "cc" * 16


@pytest.fixture(params=["folder", "file://", "memory://"])
def archive(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "memory://":
        files = fsspec.filesystem("memory")
        yield "memory://archive"
        if files.exists("/archive"):
            files.rm("/archive", recursive=True)
    else:
        yield ("file://" if request.param == "file://" else "") + str(tmp_path / "archive")


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """Three sealed segments of four entries."""
    log = LogMaker()
    for _ in range(3):
        log.enqueues(3)
        log.marker()
    write_segments(tmp_path / "history", log.lines, group=GROUP)
    return tmp_path / "history"


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("events-*.jsonl"))


def request_of(history: Path, names: list[str] | None = None, **changes: Any) -> Request:
    fields = {
        "folder": str(history),
        "archive": "",
        "group": GROUP,
        "node": NODE,
        "names": tuple(names if names is not None else names_in(history)),
        "lists": True,
        "from_index": 1,
        "ahead": (),
        "parent": os.getppid(),
    }
    return Request(**fields | changes)


def told_by(place: ArchivePlace, request: Request) -> list[Told]:
    told: list[Told] = []
    ship(place, request, told.append)
    return [each for each in told if each.outcome != "moving"]


def outcomes(place: ArchivePlace, request: Request) -> list[str]:
    return [each.outcome for each in told_by(place, request)]


def contents(archive: str) -> dict[str, bytes]:
    """What readers of the archive see: whole names only."""
    files, path = fsspec.core.url_to_fs(archive)
    found = files.glob(f"{path}/{GROUP}/events-*.jsonl")
    return {Path(each).name: files.cat_file(each) for each in found}


def test_what_is_shipped_has_the_very_bytes_and_a_second_time_changes_nothing(
    archive: str, history: Path
) -> None:
    place = open_place(archive, GROUP)
    assert outcomes(place, request_of(history)) == ["shipped"] * 3
    assert contents(archive) == {path.name: path.read_bytes() for path in history.iterdir()}
    assert outcomes(place, request_of(history)) == ["present"] * 3
    assert outcomes(place, request_of(history, lists=False)) == ["present"] * 3
    assert set(place.sizes()) == set(names_in(history)), "nothing is left beside"


def test_the_archive_is_laid_out_as_its_readers_expect(archive: str, history: Path) -> None:
    ship(open_place(archive, GROUP), request_of(history), lambda _told: None)
    found = find_segments([archive]).segments
    assert [(each.group, each.first, each.last) for each in found] == [
        (GROUP, 1, 4),
        (GROUP, 5, 8),
        (GROUP, 9, 12),
    ]


@pytest.mark.parametrize("what", ["longer", "as long"])
@pytest.mark.parametrize("lists", [True, False])
def test_a_foreign_file_in_the_way_is_told_and_stays_as_it_is(
    archive: str, history: Path, what: str, lists: bool
) -> None:
    place = open_place(archive, GROUP)
    first, second, third = names_in(history)
    foreign = (history / second).read_bytes()
    foreign = foreign + b"\n" if what == "longer" else foreign[:-20] + b"#" + foreign[-19:]
    place.put(second, iter([foreign]), beside="x.tmp")
    told = told_by(place, request_of(history, lists=lists))
    conflict = next(each for each in told if each.outcome == "conflict")
    assert conflict.name == second
    assert ("bytes, this node's" if what == "longer" else "another marker") in conflict.reason
    assert contents(archive)[second] == foreign
    assert set(contents(archive)) == {first, second}, "nothing behind it is shipped"
    assert third not in [each.name for each in told]


def test_another_history_of_the_same_group_is_not_mixed_with_this_one(archive: str, history: Path) -> None:
    place = open_place(archive, GROUP)
    other = "events-0000000000000005-0000000000000020.jsonl"
    place.put(other, iter([b"of before the backup was put back\n"]), beside="x.tmp")
    told = told_by(place, request_of(history))
    assert [(each.outcome, each.name) for each in told][:2] == [
        ("ahead", other),
        ("shipped", names_in(history)[0]),
    ]
    assert told[2].outcome == "conflict"
    assert other in told[2].reason
    later = told_by(place, request_of(history, names_in(history)[1:], lists=False, ahead=(other,)))
    assert [each.outcome for each in later] == ["conflict"]


def test_a_segment_that_rots_on_the_nodes_disk_is_not_shipped(archive: str, history: Path) -> None:
    first, second, third = names_in(history)
    content = (history / second).read_bytes()
    (history / second).write_bytes(content.replace(b"image.resize", b"image.remove", 1))
    assert outcomes(open_place(archive, GROUP), request_of(history)) == ["shipped", "damaged", "shipped"]
    assert set(contents(archive)) == {first, third}


def test_a_segment_that_the_node_has_dropped_is_told(archive: str, history: Path) -> None:
    first, *others = names_in(history)
    names = [first, *others]
    (history / first).unlink()
    assert outcomes(open_place(archive, GROUP), request_of(history, names)) == ["gone", "shipped", "shipped"]


def test_a_library_that_finds_nothing_where_there_is_something_is_a_failure(
    archive: str, history: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node's own file is there, so what is missing is the archive's, and nothing is given up."""
    place = open_place(archive, GROUP)

    def vanished(*_args: object, **_options: object) -> None:
        raise FileNotFoundError("the bucket is gone")

    monkeypatch.setattr(place, "put", vanished)
    with pytest.raises(FileNotFoundError, match="bucket"):
        ship(place, request_of(history), lambda _told: None)


def test_old_segments_are_compared_by_size_and_new_ones_by_their_marker(tmp_path: Path) -> None:
    log = LogMaker()
    for _ in range(ARCHIVE_COMPARED_MAX + 2):
        log.noop()
        log.marker()
    history = tmp_path / "history"
    write_segments(history, log.lines, group=GROUP)
    place = open_place(str(tmp_path / "archive"), GROUP)
    ship(place, request_of(history), lambda _told: None)
    read: list[str] = []
    real = place.tail
    place.tail = lambda name, count: (read.append(name), real(name, count))[1]  # type: ignore[method-assign]
    ship(place, request_of(history), lambda _told: None)
    assert read == names_in(history)[2:]


class Died(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("die_at", range(1, 9))
def test_a_helper_that_dies_at_any_step_leaves_whole_files_and_the_next_one_goes_on(
    tmp_path: Path, history: Path, monkeypatch: pytest.MonkeyPatch, die_at: int
) -> None:
    archive = str(tmp_path / "archive")
    count = 0
    with monkeypatch.context() as patched:

        def counted(owner: Any, name: str) -> None:
            real = getattr(owner, name)

            def wrapper(*args: Any, **options: Any) -> Any:
                nonlocal count
                count += 1
                if count >= die_at:
                    raise Died
                return real(*args, **options)

            patched.setattr(owner, name, wrapper)

        counted(archive_place.os, "link")
        counted(archive_place.os, "fsync")
        counted(archive_place.Path, "unlink")  # the dead clear nothing away
        with contextlib.suppress(Died):
            ship(open_place(archive, GROUP), request_of(history), lambda _told: None)
        assert count >= die_at, "there were so many steps"
    for name, content in contents(archive).items():
        assert content == (history / name).read_bytes()
    ship(open_place(archive, GROUP), request_of(history), lambda _told: None)
    assert contents(archive) == {path.name: path.read_bytes() for path in history.iterdir()}
    assert set(open_place(archive, GROUP).sizes()) == set(names_in(history)), "what was left beside is gone"


def test_a_file_system_without_links_is_served_by_renames(
    tmp_path: Path, history: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_args: object) -> None:
        raise OSError(archive_place.NO_LINKS[0], "no links here")

    monkeypatch.setattr(archive_place.os, "link", refused)
    place = open_place(str(tmp_path / "archive"), GROUP)
    assert outcomes(place, request_of(history)) == ["shipped"] * 3
    with pytest.raises(FileExistsError):
        place.put(names_in(history)[0], iter([b"x"]), beside="x.tmp")


def test_a_directory_whose_disk_is_not_mounted_is_not_made_up(tmp_path: Path, history: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ship(open_place(str(tmp_path / "mnt" / "archive"), GROUP), request_of(history), lambda _told: None)


@pytest.mark.parametrize("is_same", [True, False])
def test_what_appears_while_a_segment_is_copied_is_not_replaced(
    archive: str, history: Path, is_same: bool
) -> None:
    one, other = open_place(archive, GROUP), open_place(archive, GROUP)
    name = names_in(history)[0]
    content = (history / name).read_bytes() if is_same else b"of somebody else"
    real = one.put

    def slower(*args: Any, **options: Any) -> None:
        other.put(name, iter([content]), beside="other.tmp")
        real(*args, **options)

    one.put = slower  # type: ignore[method-assign]
    assert outcomes(one, request_of(history, [name])) == ["present" if is_same else "conflict"]
    assert contents(archive) == {name: content}


def test_what_is_shown_of_an_archive_has_no_password_in_it() -> None:
    assert without_secrets("s3://key:secret@bucket/a/b?token=1") == "s3://bucket/a/b"
    assert without_secrets("/data/archive") == "/data/archive"
