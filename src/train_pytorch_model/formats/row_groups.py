"""Tables of one schema, written to a Parquet file as they come."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


class RowGroups:
    """Collects tables until they fill a row group; the first one has the schema of the file."""

    def __init__(self, path: Path, num_bytes: int) -> None:
        self._path, self._num_bytes = path, num_bytes
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.Table] = []
        self._waiting_bytes = 0

    def write(self, table: pa.Table) -> None:
        self._waiting.append(table)
        self._waiting_bytes += table.nbytes
        if self._waiting_bytes >= self._num_bytes:
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
def writing_row_groups(path: Path, num_bytes: int) -> Iterator[RowGroups]:
    """Open a Parquet file for a `with`, with row groups of that size; there is none if nothing is written.

    Each costs a kilobyte of memory per column until the file is closed.
    """
    groups = RowGroups(path, num_bytes)
    try:
        yield groups
        groups.flush()
    finally:
        groups.close()
