"""A place that can never be an archive is refused; one that may come back keeps nobody from starting."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from rollmq.cli.exit_codes import ExitCode
from rollmq.node import archive_check
from rollmq.node.archive_check import look, problem_with
from tests.cli.running import free_port, rollmq


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a file in it."""
    (tmp_path / "file").write_text("somebody's")
    return tmp_path


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("{folder}/file", "/file is no directory. Move it away"),
        ("{folder}/file/archive", "/file is no directory. Move it away"),
        ("{folder}/file/far/below", "/file is no directory. Move it away"),
        ("nope://bucket/archive", "Protocol not known: nope. Give a directory, or a URL that fsspec knows"),
        ("simplecache::nope://bucket/archive", "Protocol not known: nope"),
        ("{folder}/file://archive", "Protocol not known: "),
    ],
)
def test_what_can_never_work_is_told_with_what_to_do(place: str, says: str, folder: Path) -> None:
    assert says in look(place.format(folder=folder))


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(archive_check.sys.modules, "s3fs", None)
    assert "a package is missing, Install s3fs to access S3. Install it" in look("s3://bucket/archive")
    monkeypatch.setitem(archive_check.sys.modules, "fsspec", None)
    assert "pip install 'rollmq[archive]'" in look("s3://bucket/archive")


@pytest.mark.parametrize(
    "place",
    [
        "{folder}",
        "{folder}/archive",
        "{folder}/not-mounted/archive",
        "ftp://127.0.0.1:1/archive",
        "memory://archive",
    ],
)
def test_what_works_or_may_do_so_later_is_not_refused(place: str, folder: Path) -> None:
    before = sorted(folder.rglob("*"))
    assert look(place.format(folder=folder)) == ""
    assert sorted(folder.rglob("*")) == before


def test_a_disk_that_has_become_read_only_may_be_writable_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_check.os, "access", lambda _path, _how: False)
    assert "may not write in" in look(str(folder))
    monkeypatch.setattr(archive_check.os, "statvfs", lambda _path: SimpleNamespace(f_flag=os.ST_RDONLY))
    assert look(str(folder)) == ""


def test_a_look_that_takes_too_long_keeps_nobody_from_starting(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = str(folder / "file")
    assert "is no directory" in problem_with(place)
    monkeypatch.setattr(archive_check, "ARCHIVE_CHECK_US", 1)
    assert problem_with(place) == ""


def test_serve_refuses_such_a_place_before_it_begins_anything(folder: Path) -> None:
    state = folder / "state"
    refused = rollmq("serve", free_port(), "--state", state, "--archive", f"file://{folder}/file")
    assert refused.returncode == ExitCode.USAGE
    assert f"Error: --archive file://{folder}/file: nothing can ever be shipped there: " in refused.stderr
    assert "The node was not started, nothing was changed." in refused.stderr
    assert not state.exists()
    secret = rollmq("serve", free_port(), "--state", state, "--archive", "nope://me:s3cret@bucket/archive")
    assert secret.returncode == ExitCode.USAGE
    assert "--archive nope://bucket/archive: nothing" in secret.stderr
    assert "s3cret" not in secret.stderr
    assert not state.exists()
