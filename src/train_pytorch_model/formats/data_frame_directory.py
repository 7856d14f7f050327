"""Tables as Parquet files: DataFrameDirectory, as written by Score Image Model, and embeddings.

    _meta.yaml             type: DataFrameDirectory
                           extension: {}
                           format: Parquet
                           data: _data.parquet
                           samples: _samples.json
                           schema: schema/_schema.json
    _data.parquet          the rows
    schema/_schema.json    the columns, and which of them are the label and the scores
    _samples.json          the first rows

Columns of a scored dataset: those of the input rows, alphabetically; `Scored
Probabilities_<category>` for each category in the order of class indices, float64; `Scored Labels`.

    embeddings.parquet     the features of images before the last layer of a network
                           file_name    string, as in scores.csv
                           embedding    fixed_size_list<float32 or float16>, one size for all rows
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path
from typing import Any, Self, TextIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from train_pytorch_model.formats.reading import MalformedFileError
from train_pytorch_model.formats.schema import (
    CATEGORY_COLUMN,
    NUM_SAMPLES,
    SAMPLES,
    column_attributes,
)
from train_pytorch_model.formats.writing import write_json, write_rows
from train_pytorch_model.image_classifier.predictions import (
    LABEL_COLUMN,
    PROBABILITY_PREFIX,
    UNKNOWN_LABEL,
)

META_CONTENT: Mapping[str, Any] = {
    "type": "DataFrameDirectory",
    "extension": {},
    "format": "Parquet",
    "data": "_data.parquet",
    "samples": SAMPLES,
    "schema": "schema/_schema.json",
}
CSV = "scores.csv"
EMBEDDINGS = "embeddings.parquet"
FILE_NAME = "file_name"
ORIGINAL = "original"
# With a row group per batch and 1,000 categories, a million images would take 14 GB.
ROW_GROUP_BYTES = 64 << 20
EMBEDDINGS_GROUP_BYTES = 8 << 20  # which wait in memory; two columns cost little in each of many
_KINDS: Mapping[pa.DataType, tuple[str, str]] = {
    pa.int64(): ("Numeric", "int64"),
    pa.float64(): ("Numeric", "float64"),
    pa.bool_(): ("Binary", "bool"),
    pa.string(): ("String", "str"),
}


class RowGroups:
    """A Parquet file for a `with`, in row groups of a size in bytes; no file if nothing is written."""

    def __init__(self, path: Path, num_bytes: int) -> None:
        self._path, self._num_bytes = path, num_bytes
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.Table] = []
        self._waiting_bytes = 0

    def __enter__(self) -> Self:
        return self

    def write(self, table: pa.Table) -> None:
        self._waiting.append(table)
        self._waiting_bytes += table.nbytes
        if self._waiting_bytes >= self._num_bytes:
            self._flush()

    def _flush(self) -> None:
        if self._writer is None:
            schema = self._waiting[0].schema
            # Numbers that hardly repeat would fill a dictionary first.
            texts = [field.name for field in schema if field.type == pa.string()]
            self._writer = pq.ParquetWriter(self._path, schema, use_dictionary=texts)
        self._writer.write_table(pa.concat_tables(self._waiting))
        self._waiting, self._waiting_bytes = [], 0

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        try:
            if self._waiting and error is None:
                self._flush()
        finally:
            if self._writer is not None:
                self._writer.close()


@contextmanager
def writing_scores(
    root: Path,
    columns: Sequence[str],
    categories: Sequence[str],
    top_k: int | None = None,
    has_originals: bool = False,
) -> "Iterator[ScoreWriter]":
    """Open the Parquet file and `scores.csv` for batches of scored rows; then write schema and
    samples.

    With `top_k`, the CSV has only that many most probable categories per row, and if it
    `has_originals`, the files' names before they were copied. Columns named like scores, of an
    earlier scoring, are left out.
    """
    with (
        (root / CSV).open("w", newline="", encoding="utf-8", errors="surrogateescape") as csv_file,
        RowGroups(root / META_CONTENT["data"], ROW_GROUP_BYTES) as row_groups,
    ):
        writer = ScoreWriter(columns, categories, top_k, has_originals, csv_file, row_groups)
        yield writer
    (root / "schema").mkdir()
    scores = {name: name for name in writer.probabilities}
    has_label = CATEGORY_COLUMN in writer.columns
    content = {
        "columnAttributes": [
            column_attributes(field.name, *_KINDS[field.type], is_feature=field.name == "id")
            for field in writer.schema
        ],
        "featureChannels": [],
        "labelColumns": {"True Labels": CATEGORY_COLUMN} if has_label else {},
        "scoreColumns": scores | {"Multi Class Assigned Labels": LABEL_COLUMN},
    }
    write_json(root / META_CONTENT["schema"], content)
    write_json(root / META_CONTENT["samples"], writer.samples)


class ScoreWriter:
    """Writes batches of scored rows to the Parquet file and to `scores.csv`."""

    def __init__(
        self,
        columns: Sequence[str],
        categories: Sequence[str],
        top_k: int | None,
        has_originals: bool,
        csv_file: TextIO,
        row_groups: RowGroups,
    ) -> None:
        self.samples: list[dict[str, Any]] = []
        self.columns = sorted(
            name
            for name in columns
            if name != LABEL_COLUMN and not name.startswith(PROBABILITY_PREFIX)
        )
        self._categories, self._top_k, self._has_originals = categories, top_k, has_originals
        self._csv_file, self._row_groups = csv_file, row_groups
        self.schema = pa.schema([])  # of the first rows, which have the types
        scores = self.probabilities = [PROBABILITY_PREFIX + name for name in categories]
        if top_k is not None:
            places = range(1, min(top_k, len(categories)) + 1)
            scores = [
                name for place in places for name in (f"Top {place}", f"Top {place} Probability")
            ]
        names = [FILE_NAME, ORIGINAL] if has_originals else [FILE_NAME]
        write_rows(csv_file, [[*names, *self.columns, *scores, LABEL_COLUMN]])

    def write(
        self,
        file_names: Sequence[str],
        rows: Sequence[Mapping[str, Any]],
        probabilities: np.ndarray,
        originals: Sequence[str] = (),
        is_unknown: np.ndarray | None = None,
    ) -> None:
        """Write a batch of scored rows: their files, their other columns, (B, categories)
        probabilities.

        The label of rows that are unknown, (B,), bool, is `unknown`. Raises `MalformedFileError` if
        a column starts with numbers or booleans and later has another type.
        """
        labels = [self._categories[index] for index in probabilities.argmax(axis=1)]
        for place in () if is_unknown is None else np.flatnonzero(is_unknown):
            labels[place] = UNKNOWN_LABEL
        values = {name: [row.get(name) for row in rows] for name in self.columns}
        if not len(self.schema):
            kinds = [(name, _type_of(column)) for name, column in values.items()]
            kinds += [(name, pa.float64()) for name in self.probabilities]
            self.schema = pa.schema([*kinds, (LABEL_COLUMN, pa.string())])
        columns = [
            _array(name, values[name], self.schema.field(name).type) for name in self.columns
        ]
        scores = (pa.array(column) for column in probabilities.T)
        table = pa.table([*columns, *scores, pa.array(labels)], schema=self.schema)
        self._row_groups.write(table)
        self.samples += table.slice(0, NUM_SAMPLES - len(self.samples)).to_pylist()
        others = (
            zip(*(column.to_pylist() for column in columns), strict=True) if columns else repeat(())
        )
        names = zip(file_names, originals, strict=True) if self._has_originals else zip(file_names)
        each = zip(names, others, self._csv_scores(probabilities), labels, strict=bool(columns))
        write_rows(
            self._csv_file, ([*name, *other, *score, label] for name, other, score, label in each)
        )

    def _csv_scores(self, probabilities: np.ndarray) -> list[list[str]]:
        """Return the cells of each row. Six digits are enough to read; the Parquet file has all."""
        if self._top_k is None:
            return [[f"{value:.6f}" for value in row] for row in probabilities.tolist()]
        places = np.argsort(-probabilities, axis=1, kind="stable")[:, : self._top_k]
        return [
            [text for index in row for text in (self._categories[index], f"{scores[index]:.6f}")]
            for row, scores in zip(places, probabilities, strict=True)
        ]


def _type_of(values: Sequence[Any]) -> pa.DataType:
    """Return the type of a column, from its first rows: a string unless all are numbers, or all
    booleans.
    """
    kinds = {type(value) for value in values}
    if kinds == {bool}:
        return pa.bool_()
    if kinds == {int}:
        return pa.int64()
    return pa.float64() if kinds and kinds <= {int, float} else pa.string()


def _array(name: str, values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if kind == pa.string():
        texts = [
            value if value is None or isinstance(value, str) else json.dumps(value)
            for value in values
        ]
        return pa.array(texts, kind)
    # Arrow itself would truncate 2.5 to 2 if the first rows were integers.
    allowed = {pa.int64(): (int,), pa.float64(): (int, float), pa.bool_(): (bool,)}[kind]
    stranger = next(
        (value for value in values if value is not None and type(value) not in allowed), None
    )
    try:
        if stranger is None:
            return pa.array(values, kind)
    except (pa.ArrowException, OverflowError):
        stranger = "a number too large"
    raise MalformedFileError(f"column {name!r} starts as {kind} but has {stranger!r} later.")


def write_embeddings(
    groups: RowGroups, file_names: Sequence[str], features: np.ndarray, dtype: str
) -> None:
    """Write (B, F), float32, clipped to the range of the dtype; invalid UTF-8 in names becomes
    U+FFFD.
    """
    names = [name.encode(errors="surrogateescape").decode(errors="replace") for name in file_names]
    largest = np.finfo(dtype).max
    values = pa.array(features.clip(-largest, largest).astype(dtype).ravel())
    embeddings = pa.FixedSizeListArray.from_arrays(values, features.shape[1])
    groups.write(pa.table({"file_name": names, "embedding": embeddings}))
