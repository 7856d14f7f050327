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
The categories of an answer of any number are separated by semicolons.

    embeddings.parquet     the features of images before the last layer of a network
                           file_name    string, as in scores.csv
                           embedding    fixed_size_list<float32 or float16>, one size for all rows
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, TextIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from train_pytorch_model.formats.label_kinds import CATEGORIES_COLUMN, CATEGORY_COLUMN
from train_pytorch_model.formats.label_sets import text_of
from train_pytorch_model.formats.reading import MalformedFileError
from train_pytorch_model.formats.schema import (
    NUM_SAMPLES,
    SAMPLES,
    column_attributes,
)
from train_pytorch_model.formats.writing import write_json, write_rows
from train_pytorch_model.image_classifier.answers import Answers, OneCategory
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
ONE_CATEGORY = OneCategory()
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
    """A Parquet file for a `with`, in row groups of a size in bytes.

    Without rows there is no file.
    """

    def __init__(self, path: Path, num_bytes: int) -> None:
        self._path = path
        self._num_bytes = num_bytes
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.Table] = []
        self._waiting_bytes = 0

    def __enter__(self) -> Self:
        return self

    def write(self, table: pa.Table) -> None:
        """Add rows, which are written when there are enough for a group."""
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
        self._waiting = []
        self._waiting_bytes = 0

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
    answers: Answers = ONE_CATEGORY,
) -> "Iterator[ScoreWriter]":
    """Open the Parquet file and `scores.csv` for batches of rows; then write schema and samples.

    With `top_k`, the CSV has only that many most probable categories per row, and if it
    `has_originals`, the files' names before they were copied. Columns named like scores, of an
    earlier scoring, are left out.
    """
    with (
        (root / CSV).open("w", newline="", encoding="utf-8", errors="surrogateescape") as csv_file,
        RowGroups(root / META_CONTENT["data"], ROW_GROUP_BYTES) as row_groups,
    ):
        writer = ScoreWriter(
            columns, categories, top_k, has_originals, csv_file, row_groups, answers
        )
        yield writer
    (root / "schema").mkdir()
    scores = {name: name for name in writer.probabilities}
    known = (CATEGORY_COLUMN, CATEGORIES_COLUMN)
    labels = [name for name in known if name in writer.columns]
    true_labels = {"True Labels": labels[0]} if labels else {}
    assigned = "Multi Class Assigned Labels"
    if answers != ONE_CATEGORY:
        assigned = "Multi Label Assigned Labels"
    content = {
        "columnAttributes": [
            column_attributes(field.name, *_KINDS[field.type], is_feature=field.name == "id")
            for field in writer.schema
        ],
        "featureChannels": [],
        "labelColumns": true_labels,
        "scoreColumns": scores | {assigned: LABEL_COLUMN},
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
        answers: Answers = ONE_CATEGORY,
    ) -> None:
        self.samples: list[dict[str, Any]] = []
        self.columns = sorted(
            name
            for name in columns
            if name != LABEL_COLUMN and not name.startswith(PROBABILITY_PREFIX)
        )
        self.probabilities = [PROBABILITY_PREFIX + name for name in categories]
        self.schema = pa.schema([])  # of the first rows, which have the types
        self._categories = tuple(categories)
        self._answers = answers
        self._top_k = top_k
        self._has_originals = has_originals
        self._csv_file = csv_file
        self._row_groups = row_groups
        names = [FILE_NAME, ORIGINAL] if has_originals else [FILE_NAME]
        header = [*names, *self.columns, *self._csv_score_columns(), LABEL_COLUMN]
        write_rows(csv_file, [header])

    def write(
        self,
        file_names: Sequence[str],
        rows: Sequence[Mapping[str, Any]],
        probabilities: np.ndarray,
        originals: Sequence[str] = (),
        is_unknown: np.ndarray | None = None,
    ) -> None:
        """Write a batch of scored rows: their files, their other columns, (B, C) probabilities.

        The label of rows that are unknown, (B,), bool, is `unknown`. Raises `MalformedFileError` if
        a column starts with numbers or booleans and later has another type.
        """
        labels = self._answers.texts(probabilities, self._categories)
        if is_unknown is not None:
            for index in np.flatnonzero(is_unknown):
                labels[index] = UNKNOWN_LABEL
        columns = self._arrays(rows)
        scores = [pa.array(column) for column in probabilities.T]
        table = pa.table([*columns, *scores, pa.array(labels)], schema=self.schema)
        self._row_groups.write(table)
        self.samples += table.slice(0, NUM_SAMPLES - len(self.samples)).to_pylist()

        files: list[Sequence[str]] = [file_names]
        if self._has_originals:
            files.append(originals)
        others = [column.to_pylist() for column in columns]
        cells = zip(*files, *others, self._csv_scores(probabilities), labels, strict=True)
        write_rows(self._csv_file, ([*row, *score, label] for *row, score, label in cells))

    def _arrays(self, rows: Sequence[Mapping[str, Any]]) -> list[pa.Array]:
        """Return the other columns of rows; the first rows decide about their types."""
        values = {name: [row.get(name) for row in rows] for name in self.columns}
        if not len(self.schema):
            kinds = [(name, _type_of(column)) for name, column in values.items()]
            kinds += [(name, pa.float64()) for name in self.probabilities]
            self.schema = pa.schema([*kinds, (LABEL_COLUMN, pa.string())])
        return [_array(name, values[name], self.schema.field(name).type) for name in self.columns]

    def _csv_score_columns(self) -> list[str]:
        if self._top_k is None:
            return self.probabilities
        names = []
        for rank in range(1, min(self._top_k, len(self._categories)) + 1):
            names += [f"Top {rank}", f"Top {rank} Probability"]
        return names

    def _csv_scores(self, probabilities: np.ndarray) -> list[list[str]]:
        """Return the cells of each row. Six digits are enough to read; the Parquet file has all."""
        if self._top_k is None:
            return [[f"{value:.6f}" for value in row] for row in probabilities.tolist()]
        best = np.argsort(-probabilities, axis=1, kind="stable")[:, : self._top_k]
        return [
            [text for index in row for text in (self._categories[index], f"{scores[index]:.6f}")]
            for row, scores in zip(best, probabilities, strict=True)
        ]


def _type_of(values: Sequence[Any]) -> pa.DataType:
    """Return the type of a column by its first rows: a string unless all are numbers or bools."""
    kinds = {type(value) for value in values}
    if kinds == {bool}:
        return pa.bool_()
    if kinds == {int}:
        return pa.int64()
    return pa.float64() if kinds and kinds <= {int, float} else pa.string()


def _array(name: str, values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if kind == pa.string():
        return pa.array([_text_of(value) for value in values], kind)
    # Arrow itself would truncate 2.5 to 2 if the first rows were integers.
    allowed = {pa.int64(): (int,), pa.float64(): (int, float), pa.bool_(): (bool,)}[kind]
    strangers = (value for value in values if value is not None and type(value) not in allowed)
    stranger = next(strangers, None)
    try:
        if stranger is None:
            return pa.array(values, kind)
    except (pa.ArrowException, OverflowError):
        stranger = "a number too large"
    raise MalformedFileError(f"column {name!r} starts as {kind} but has {stranger!r} later.")


def _text_of(value: Any) -> str | None:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return text_of(value)
    return value if value is None or isinstance(value, str) else json.dumps(value)


def write_embeddings(
    groups: RowGroups, file_names: Sequence[str], features: np.ndarray, dtype: str
) -> None:
    """Write the features of images, (B, F), float32.

    They are clipped to the range of the dtype; invalid UTF-8 in names becomes U+FFFD.
    """
    names = [name.encode(errors="surrogateescape").decode(errors="replace") for name in file_names]
    largest = np.finfo(dtype).max
    values = pa.array(features.clip(-largest, largest).astype(dtype).ravel())
    embeddings = pa.FixedSizeListArray.from_arrays(values, features.shape[1])
    groups.write(pa.table({"file_name": names, "embedding": embeddings}))
