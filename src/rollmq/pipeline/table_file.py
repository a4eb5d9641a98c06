"""One Parquet file of a table, written batch by batch in row groups of about equal size.

Whoever looks for a job reads the row groups whose bounds hold it: they are not too large, and rows are
written in the order in which they come.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from rollmq.pipeline.tables import Table

GROUP_ROWS: Final = 131_072
"""Rows of a row group: few enough that a look at one job reads little, enough to compress well."""
DIFFERENT: Final = frozenset(
    {
        "index",
        "at_us",
        "at",
        "job_id",
        "fence_index",
        "ready_us",
        "held_us",
        "run_us",
        "payload",
        "result",
        "key",
    }
)
"""Columns whose values hardly repeat: a dictionary of them would be made in vain."""


class TableFile:
    """Without rows there is no file."""

    def __init__(self, table: Table, path: str | Path) -> None:
        self.path = path
        self._schema = table.arrow_in_files
        self._held: list[Any] = []
        self._count = 0
        self._writer: Any = None

    def add(self, batch: Any) -> None:
        """Take a batch of rows with the table's columns."""
        if not batch.num_rows:
            return
        self._held.append(batch)
        self._count += batch.num_rows
        if self._count >= GROUP_ROWS:
            self._write()

    def close(self) -> bool:
        """Whether there is a file."""
        if self._count:
            self._write()
        if self._writer is not None:
            self._writer.close()
        return self._writer is not None

    def _write(self) -> None:
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self.path,
                self._schema,
                compression="zstd",
                compression_level=1,
                write_page_index=True,
                use_dictionary=[name for name in self._schema.names if name not in DIFFERENT],
            )
        rows = pa.Table.from_batches(self._held).cast(self._schema)
        self._writer.write_table(rows, row_group_size=2 * GROUP_ROWS)
        self._held, self._count = [], 0


def merge_files(table: Table, sources: Iterable[Path], target: Path) -> None:
    """One file with the rows of these, in this order. Never more than a few row groups are in memory."""
    merged = TableFile(table, target)
    for source in sources:
        with pq.ParquetFile(source) as file:
            for batch in file.iter_batches(batch_size=GROUP_ROWS, columns=table.arrow_in_files.names):
                merged.add(batch)
    merged.close()
