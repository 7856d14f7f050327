"""The tables of `seen_images`, in pieces: Parquet, CSV, or a JSON array of objects.

JSON may also be as MLflow's server answers it. A piece is in memory at a time, with the columns
that are needed.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from train_pytorch_model.formats.reading import (
    MAX_JSON_BYTES,
    NOT_JSON,
    MalformedFileError,
    one_line,
    read_bounded,
)

if TYPE_CHECKING:
    import pandas as pd

ROWS_AT_ONCE = 1 << 16
BLOCK_BYTES = 4 << 20  # of CSV; no row may be longer

# From the names of all columns, those that are needed, texts first. Raises `MalformedFileError`.
Choose = Callable[[Sequence[str]], tuple[Sequence[str], Sequence[str]]]
_Rows = list[dict[str, Any]]


class _MlflowAnswer(msgspec.Struct):
    """What MLflow's server answers."""

    predictions: _Rows


def read_pieces(path: Path, choose: Choose) -> Iterator["pd.DataFrame"]:
    """Yield the rows of a table, so many at a time. Raises `MalformedFileError`."""
    readers = {".parquet": _parquet, ".csv": _csv, ".json": _json}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise MalformedFileError("it is neither a directory nor a table: .parquet, .csv or .json.")
    try:
        yield from reader(path, choose)
    except MalformedFileError:
        raise
    except (*NOT_JSON, OSError, ValueError, pa.ArrowException) as error:
        raise MalformedFileError(f"{path.name} cannot be read: {one_line(error)}.") from error


def _parquet(path: Path, choose: Choose) -> Iterator["pd.DataFrame"]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        schema = file.schema_arrow
        texts, numbers = choose(schema.names)
        _check_values(schema, [*texts, *numbers])
    # Equal texts, of which a small file may have gigabytes, are in memory once.
    with pq.ParquetFile(path, read_dictionary=list(texts)) as file:
        for batch in file.iter_batches(ROWS_AT_ONCE, columns=[*texts, *numbers]):
            yield batch.to_pandas()


def _check_values(schema: pa.Schema, names: Sequence[str]) -> None:
    """Raise `MalformedFileError` for a column of lists and the like."""
    for name in names:
        kind = schema.field(name).type
        if pa.types.is_nested(kind):
            raise MalformedFileError(
                f"its column {name!r} holds {kind} where a text or a number is expected."
            )


def _csv(path: Path, choose: Choose) -> Iterator["pd.DataFrame"]:
    from pyarrow import csv

    reading = csv.ReadOptions(block_size=BLOCK_BYTES, use_threads=False)
    parsing = csv.ParseOptions(newlines_in_values=True)
    with csv.open_csv(path, reading, parsing) as table:
        texts, numbers = choose(table.schema.names)
    columns = [*texts, *numbers]
    # Numbers are read as texts, too: what is none of them is not known.
    converting = csv.ConvertOptions(
        include_columns=columns,
        column_types=dict.fromkeys(columns, pa.string()),
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=True,
    )
    with csv.open_csv(path, reading, parsing, converting) as table:
        for batch in table:
            yield batch.to_pandas()


def _json(path: Path, choose: Choose) -> Iterator["pd.DataFrame"]:
    import pandas as pd

    data = read_bounded(path, MAX_JSON_BYTES)
    answer = msgspec.json.decode(data, type=_Rows | _MlflowAnswer)
    table = pd.DataFrame(answer.predictions if isinstance(answer, _MlflowAnswer) else answer)
    texts, numbers = choose(table.columns.tolist())
    yield table[[*texts, *numbers]]
