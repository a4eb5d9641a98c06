"""Whether anything could ever be shipped to an archive: what is plain before a node starts is said then.

A place that is only out of reach (a disk that is not mounted, a server that does not answer) is none of
that: the queue does not wait for its archive. A process of its own looks, and is left alone when it hangs,
as it does on a dead network disk. It makes and changes nothing anywhere.
"""

import errno
import os
import stat
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from rollmq.limits import ARCHIVE_CHECK_US
from rollmq.node.archive_place import is_url

KILLED_S: Final = 1.0
"""How long the end of a process may take that can be ended."""


def problem_with(archive: str) -> str:
    """Why this place can never work and what to do; "" when it may, or when that cannot be told in time."""
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "rollmq.node.archive_check", archive],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.DEVNULL,
        )
        try:
            code = process.wait(ARCHIVE_CHECK_US / 1e6)
        except subprocess.TimeoutExpired:
            process.kill()
            with suppress(subprocess.TimeoutExpired):  # nobody can end what hangs in the kernel
                process.wait(KILLED_S)
            return ""
        said.seek(0)
        return said.read().decode("utf-8", "replace").strip() if code == 0 else ""


def look(archive: str) -> str:
    """The same, in this process and for as long as it takes."""
    return _problem_of_url(archive) if is_url(archive) else _problem_of_folder(Path(archive).absolute())


def _problem_of_folder(folder: Path) -> str:
    for place in (folder, *folder.parents):
        try:
            mode = place.stat().st_mode
        except OSError as error:
            if error.errno == errno.EACCES:
                return f"this user may not look at {place}. Give it the right, or another place"
            continue
        if not stat.S_ISDIR(mode):
            return f"{place} is no directory. Move it away, or give another place"
        is_read_only = bool(
            os.statvfs(place).f_flag & os.ST_RDONLY
        )  # as a disk is after an error, for a while
        if place in (folder, folder.parent) and not is_read_only and not os.access(place, os.W_OK | os.X_OK):
            return f"this user may not write in {place}. Give it the right, or another place"
        return ""
    return ""


def _problem_of_url(archive: str) -> str:
    try:
        import fsspec
    except ImportError:
        return "the package fsspec opens such places. Install it: pip install 'rollmq[archive]'"
    for link in archive.split("::"):
        try:
            fsspec.get_filesystem_class(link.partition("://")[0])
        except ValueError as error:
            return f"{error}. Give a directory, or a URL that fsspec knows"
        except ImportError as error:
            return f"a package is missing, {error}. Install it beside rollmq, or give another place"
    return ""


if __name__ == "__main__":
    print(look(sys.argv[1]))
