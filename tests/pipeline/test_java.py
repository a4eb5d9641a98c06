"""Which Java is taken, and what is said when there is none."""

import subprocess
from pathlib import Path

import pytest

from rollmq.pipeline import java
from rollmq.pipeline.errors import NoJava


def fake_java(home: Path, version: str) -> Path:
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    (home / "bin" / "java").chmod(0o755)
    return home


@pytest.mark.parametrize(("text", "version"), [("1.8.0_402", 8), ("11.0.2", 11), ("17", 17), ("25.0.2", 25)])
def test_the_version_of_every_kind_of_java_is_understood(tmp_path: Path, text: str, version: int) -> None:
    assert java.java_version(fake_java(tmp_path / "jdk", text)) == version


def test_a_real_java_that_is_new_enough_is_taken(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jdk", "21.0.1")
    assert java.java_home({"JAVA_HOME": str(home), "PATH": ""}) == home


def test_an_old_java_gives_way_to_a_newer_one_on_the_path(tmp_path: Path) -> None:
    old, new = fake_java(tmp_path / "old", "11.0.2"), fake_java(tmp_path / "new", "17.0.1")
    assert java.java_home({"JAVA_HOME": str(old), "PATH": str(new / "bin")}) == new


def test_without_a_real_java_the_packaged_one_runs_behind_the_shim(tmp_path: Path) -> None:
    home = java.java_home({"PATH": "", "XDG_CACHE_HOME": str(tmp_path)})
    assert home.is_relative_to(tmp_path)
    answer = subprocess.run(
        [home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "version" in answer.stderr
    assert java.java_home({"PATH": "", "XDG_CACHE_HOME": str(tmp_path)}) == home


def test_the_shim_passes_every_other_argument_on_as_it_is(tmp_path: Path) -> None:
    packaged = tmp_path / "runtime"
    (packaged / "bin").mkdir(parents=True)
    (packaged / "lib").mkdir()
    (packaged / "bin" / "java").write_text('#!/bin/sh\nfor each do echo "[$each]"; done\n')
    (packaged / "bin" / "java").chmod(0o755)
    home = java.shim_home(packaged, tmp_path / "cache")
    given = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "--add-modules=other", "$HOME", ""]
    said = subprocess.run([home / "bin" / "java", *given], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == ["[-Xmx1g]", "[a b]", "[--add-modules=other]", "[$HOME]", "[]"]
    assert (home / "lib").is_symlink()


def test_when_there_is_no_java_the_message_names_what_was_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java, "_packaged_home", lambda: None)
    old = fake_java(tmp_path / "old", "11.0.2")
    with pytest.raises(NoJava, match=r"old \(Java 11\).*rollmq\[spark\]"):
        java.java_home({"JAVA_HOME": str(old), "PATH": ""})
