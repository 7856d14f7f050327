"""Tables of one schema, written to a Parquet file as they come."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

# Each row group costs a kilobyte of memory per column until the file is closed: with one per batch and 1,000
# categories, a million images would take 14 GB.
ROW_GROUP_BYTES = 64 << 20


class RowGroups:
    """Collects tables until they fill a row group; the first one has the schema of the file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.Table] = []
        self._waiting_bytes = 0

    def write(self, table: pa.Table) -> None:
        self._waiting.append(table)
        self._waiting_bytes += table.nbytes
        if self._waiting_bytes >= ROW_GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the waiting tables, if any."""
        if not self._waiting:
            return
        if self._writer is None:
            schema = self._waiting[0].schema
            # Numbers that hardly repeat would fill a dictionary first.
            texts = [field.name for field in schema if field.type == pa.string()]
            self._writer = pq.ParquetWriter(self._path, schema, use_dictionary=texts)
        self._writer.write_table(pa.concat_tables(self._waiting))
        self._waiting, self._waiting_bytes = [], 0

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


@contextmanager
def writing_row_groups(path: Path) -> Iterator[RowGroups]:
    """Open a Parquet file for a `with`; there is none if nothing is written."""
    groups = RowGroups(path)
    try:
        yield groups
        groups.flush()
    finally:
        groups.close()
