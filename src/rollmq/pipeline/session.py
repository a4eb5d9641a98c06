"""Getting Spark up: quietly, with a Java that works, embedded by default and unchanged on a cluster.

    with SparkRun(master="local[2]", conf={"spark.driver.memory": "2g"}) as run:
        run.spark.read.format("rollmq").load("archive").show()

It knows nothing of the log; it starts, shows progress and stops.
"""

import os
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from rollmq.pipeline.errors import ExtraMissing, SparkNotStarted, SparkWrongVersion
from rollmq.pipeline.java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK_VERSION: Final = "4.3"
MASTER_DEFAULT: Final = "local[*]"
DRIVER_MEMORY: Final = "2g"
"""Enough for every table we build, whatever the length of the history: a test of ours measures it."""
JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
LIGHT_COMPILER: Final = "-XX:TieredStopAtLevel=1"
"""Java's optimizing compiler keeps a core busy for the first half minute: in a run that is over by then it
costs more than it saves."""
PROGRESS_EVERY_S: Final = 0.5
STDERR: Final = 2

Progress = Callable[[int, int], None]
"""Told now and then: how many tasks of the running stages are done, and how many there are."""


def check_extra() -> None:
    """Raise ExtraMissing or SparkWrongVersion unless the packages are here, in versions that fit."""
    for package in ("pyspark", "pyarrow", "pandas", "deltalake", "fsspec"):
        try:
            found = metadata.version(package)
        except metadata.PackageNotFoundError as error:
            raise ExtraMissing(missing=package) from error
        if package == "pyspark" and not found.startswith(f"{SPARK_VERSION}."):
            raise SparkWrongVersion(found=found, expected=SPARK_VERSION)


class SparkRun:
    """One Spark session, and how it is started and stopped."""

    def __init__(
        self,
        *,
        master: str = MASTER_DEFAULT,
        conf: Mapping[str, str] | None = None,
        on_progress: Progress | None = None,
        environ: Mapping[str, str] | None = None,
        is_short: bool = False,
    ) -> None:
        """`is_short`: it will be over in seconds. Raises ExtraMissing, SparkWrongVersion, NoJava and
        SparkNotStarted."""
        check_extra()
        self._ended = threading.Event()
        java = java_home(os.environ if environ is None else environ)
        self._watcher: threading.Thread | None = None
        with tempfile.TemporaryFile() as output:
            self.spark, self._package = _started(
                master, _settings(master, conf or {}, is_short=is_short), java, output
            )
        self.spark.sparkContext.setLogLevel("ERROR")
        if on_progress is not None:
            self._watcher = threading.Thread(target=self._watch, args=(on_progress,), daemon=True)
            self._watcher.start()

    def __enter__(self) -> "SparkRun":
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop Spark and its Java."""
        self._ended.set()
        if self._watcher is not None:
            self._watcher.join()  # it would ask a Spark that is gone
        self.spark.stop()
        if self._package is not None:
            self._package.cleanup()

    def _watch(self, on_progress: Progress) -> None:
        tracker = self.spark.sparkContext.statusTracker()
        while not self._ended.wait(PROGRESS_EVERY_S):
            stages = [tracker.getStageInfo(each) for each in tracker.getActiveStageIds()]
            known = [stage for stage in stages if stage is not None]
            if known:
                on_progress(
                    sum(each.numCompletedTasks for each in known), sum(each.numTasks for each in known)
                )


def _started(
    master: str, conf: Mapping[str, str], java: Path, output: IO[bytes]
) -> "tuple[SparkSession, tempfile.TemporaryDirectory[str] | None]":
    from py4j.protocol import Py4JError
    from pyspark import SparkConf
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    os.environ["JAVA_HOME"] = str(java)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    settings = SparkConf(loadDefaults=False).setMaster(master).setAppName("rollmq history")
    settings.setAll(list(conf.items()))
    try:
        with _StderrTo(output):
            spark = SparkSession.builder.config(conf=settings).getOrCreate()
            package = None if _is_local(master) else _ship_package(spark)
    except (Py4JError, PySparkException, RuntimeError, OSError) as error:
        output.seek(0)
        said = output.read().decode(errors="replace")
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise SparkNotStarted(master=master, java=str(java), reason=reason, output=said) from error
    return spark, package


def _settings(master: str, conf: Mapping[str, str], *, is_short: bool) -> dict[str, str]:
    """Ours, beaten by the user's; what he gives Java comes behind what keeps it quiet."""
    ours = _defaults(master)
    if is_short and _is_local(master):
        ours[JAVA_OPTIONS] += f" {LIGHT_COMPILER}"
    java = " ".join(each[JAVA_OPTIONS] for each in (ours, conf) if JAVA_OPTIONS in each)
    return {**ours, **conf, JAVA_OPTIONS: java}


def _defaults(master: str) -> dict[str, str]:
    """What every session of ours has; whoever passes --conf beats it."""
    log_file = Path(__file__).with_name("log4j2.properties")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": DRIVER_MEMORY,
        JAVA_OPTIONS: f"-Dlog4j2.configurationFile=file:{log_file}",
        "spark.sql.session.timeZone": "UTC",
        # Without it a reader that takes filters is refused.
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Job ids and numbers, not words: what is not asked for should not be read.
        "spark.sql.parquet.filterPushdown": "true",
        "spark.sql.parquet.compression.codec": "zstd",
        # A job's events arrive sorted: gathering them needs no hash table that would only be sorted again.
        "spark.sql.execution.useObjectHashAggregateExec": "false",
        "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    }
    if _is_local(master):
        settings |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    return settings


def _is_local(master: str) -> bool:
    return master.startswith("local")


def _ship_package(spark: "SparkSession") -> "tempfile.TemporaryDirectory[str]":
    """Give executors this package as a file that they can import: they read the archive with the very same
    code. They fetch it from the folder that is returned, as long as Spark runs."""
    source = Path(__file__).resolve().parents[1]
    folder = tempfile.TemporaryDirectory(prefix="rollmq-package-")
    target = Path(folder.name) / "rollmq-package.zip"
    with zipfile.ZipFile(target, "w") as package:
        for path in sorted(source.rglob("*.py")):
            package.write(path, path.relative_to(source.parent))
    spark.sparkContext.addPyFile(str(target))
    return folder


class _StderrTo:
    """What a process that begins in here says on stderr goes to a file: Java's own greetings among it.

    Java keeps the file as its stderr for its whole life, and the file goes with it.
    """

    def __init__(self, output: IO[bytes]) -> None:
        self._output = output

    def __enter__(self) -> None:
        sys.stderr.flush()
        self._kept = os.dup(STDERR)
        os.dup2(self._output.fileno(), STDERR)

    def __exit__(self, *_exc: object) -> None:
        sys.stderr.flush()
        os.dup2(self._kept, STDERR)
        os.close(self._kept)
