"""A machine that seems to have no Java, and a Spark cluster on it: processes of their own, on loopback."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pyspark

from rollmq.pipeline.java import java_home
from tests.group.real_group import wait_for

SPARK_HOME = Path(pyspark.__file__).parent
START_S = 120.0


def environ_without_java(folder: Path) -> dict[str, str]:
    """This environment with every program on its PATH but those of Java, and no JAVA_HOME."""
    programs = folder / "bin"
    programs.mkdir(parents=True)
    for place in os.environ["PATH"].split(os.pathsep):
        if os.path.isdir(place):
            for name in os.listdir(place):
                if not name.startswith("java") and not (programs / name).is_symlink():
                    (programs / name).symlink_to(os.path.join(place, name))
    kept = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "SPARK_HOME")}
    return kept | {
        "PATH": str(programs),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def bare_python(folder: Path) -> Path:
    """A Python with all installed packages but ours: what an executor somewhere else has."""
    script = folder / "bare-python"
    packages = SPARK_HOME.parent
    script.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec "{sys.executable}" -S "$@"\n')
    script.chmod(0o755)
    return script


def children_of(pid: int) -> list[int]:
    """The processes that a process has started and that run."""
    found = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # the thread has ended
            found += [int(each) for each in path.read_text().split()]
    return found


class Cluster:
    """A Standalone master and two workers of one core each."""

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        self.folder = folder
        home = java_home({name: environ[name] for name in ("PATH", "XDG_CACHE_HOME")})
        self.java = home
        options = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
        self.environ = {name: value for name, value in environ.items() if name != "PYTHONPATH"} | {
            "JAVA_HOME": str(home),
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_DAEMON_JAVA_OPTS": options,
        }
        self.workers: list[subprocess.Popen[bytes]] = []
        self.url = ""

    def start(self, stack: ExitStack) -> None:
        """Both workers have registered when it returns."""
        self._process(stack, "master", "master.Master", "--host", "127.0.0.1", "--port", "0")
        self.url = wait_for(self._url_in_log, "the master listens", limit_s=START_S)
        for number in (1, 2):
            work = self.folder / f"work{number}"
            options = ["--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--work-dir", str(work)]
            self.workers.append(self._process(stack, f"worker{number}", "worker.Worker", *options, self.url))
        wait_for(
            lambda: self._log("master").count("Registering worker") == 2,
            "both workers are registered",
            limit_s=START_S,
        )

    def executors(self) -> list[int]:
        """The processes of executors."""
        return [pid for worker in self.workers for pid in children_of(worker.pid)]

    def executor_folders(self) -> list[Path]:
        """What each executor that there ever was has left."""
        return sorted(self.folder.glob("work?/app-*/*"), key=lambda path: int(path.name))

    def _process(self, stack: ExitStack, name: str, what: str, *options: str) -> "subprocess.Popen[bytes]":
        command = [SPARK_HOME / "bin" / "spark-class", f"org.apache.spark.deploy.{what}", *options]
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [*command[:2], "--webui-port", "0", *command[2:]], env=self.environ, stdout=log, stderr=log
            )
        stack.callback(process.wait)
        stack.callback(process.kill)
        return process

    def _log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def _url_in_log(self) -> str:
        for line in self._log("master").splitlines():
            if "Starting Spark master at " in line:
                return line.rpartition(" ")[2]
        return ""


@contextmanager
def running_cluster(folder: Path, environ: dict[str, str]) -> Iterator[Cluster]:
    """It ends with the block."""
    cluster = Cluster(folder, environ)
    with ExitStack() as stack:
        cluster.start(stack)
        yield cluster
