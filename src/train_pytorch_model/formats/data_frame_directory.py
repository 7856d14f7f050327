"""DataFrameDirectory: a table, as written by Score Image Model.

    _meta.yaml             type: DataFrameDirectory
                           extension: {}
                           format: Parquet
                           data: _data.parquet
                           samples: _samples.json
                           schema: schema/_schema.json
    _data.parquet          the rows
    schema/_schema.json    the columns, and which of them are the label and the scores
    _samples.json          the first rows

Columns of a scored dataset: those of the input rows, alphabetically; `Scored Probabilities_<category>` for
each category in the order of class indices, float64; `Scored Labels`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pyarrow as pa

from train_pytorch_model.formats import schema
from train_pytorch_model.formats.csv_rows import write_rows
from train_pytorch_model.formats.reading import MalformedFileError
from train_pytorch_model.formats.row_groups import RowGroups, writing_row_groups
from train_pytorch_model.formats.writing import write_json
from train_pytorch_model.image_classifier.scored_columns import LABEL_COLUMN, PROBABILITY_PREFIX
from train_pytorch_model.image_classifier.unknown import UNKNOWN_LABEL

META_CONTENT: Mapping[str, Any] = {
    "type": "DataFrameDirectory",
    "extension": {},
    "format": "Parquet",
    "data": "_data.parquet",
    "samples": schema.SAMPLES,
    "schema": "schema/_schema.json",
}
CSV = "scores.csv"
FILE_NAME = "file_name"
ORIGINAL = "original"
# With a row group per batch and 1,000 categories, a million images would take 14 GB.
ROW_GROUP_BYTES = 64 << 20
_KINDS: Mapping[pa.DataType, tuple[str, str]] = {
    pa.int64(): ("Numeric", "int64"),
    pa.float64(): ("Numeric", "float64"),
    pa.bool_(): ("Binary", "bool"),
    pa.string(): ("String", "str"),
}


@contextmanager
def writing_scores(
    root: Path,
    columns: Sequence[str],
    categories: Sequence[str],
    top_k: int | None = None,
    has_originals: bool = False,
) -> "Iterator[ScoreWriter]":
    """Open the Parquet file and `scores.csv` for batches of scored rows; then write schema and samples.

    With `top_k`, the CSV has only that many most probable categories per row, and if it `has_originals`, the
    files' names before they were copied. Input columns with the names of scores, from an earlier scoring, are
    left out.
    """
    with (
        (root / CSV).open("w", newline="", encoding="utf-8", errors="surrogateescape") as csv_file,
        writing_row_groups(root / META_CONTENT["data"], ROW_GROUP_BYTES) as row_groups,
    ):
        writer = ScoreWriter(columns, categories, top_k, has_originals, csv_file, row_groups)
        yield writer
    (root / "schema").mkdir()
    write_json(root / META_CONTENT["schema"], writer.describe())
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
        self._columns = sorted(
            name for name in columns if name != LABEL_COLUMN and not name.startswith(PROBABILITY_PREFIX)
        )
        self._categories = categories
        self._probabilities = [PROBABILITY_PREFIX + name for name in categories]
        self._top_k = top_k
        self._has_originals = has_originals
        self._csv_file, self._row_groups = csv_file, row_groups
        self._schema: pa.Schema | None = None  # of the first rows, which have the types
        scores = self._probabilities
        if top_k is not None:
            places = range(1, min(top_k, len(categories)) + 1)
            scores = [name for place in places for name in (f"Top {place}", f"Top {place} Probability")]
        names = [FILE_NAME, ORIGINAL] if has_originals else [FILE_NAME]
        write_rows(csv_file, [[*names, *self._columns, *scores, LABEL_COLUMN]])

    def write(
        self,
        file_names: Sequence[str],
        rows: Sequence[Mapping[str, Any]],
        probabilities: np.ndarray,
        originals: Sequence[str] = (),
        is_unknown: np.ndarray | None = None,
    ) -> None:
        """Write a batch of scored rows: their files, their other columns, (B, categories) probabilities.

        The label of rows that are unknown, (B,), bool, is `unknown`.

        Raises `MalformedFileError` if a column starts with numbers or booleans and later has another type.
        """
        labels = [self._categories[index] for index in probabilities.argmax(axis=1)]
        if is_unknown is not None:
            labels = [
                UNKNOWN_LABEL if unknown else label for label, unknown in zip(labels, is_unknown, strict=True)
            ]
        values = {name: [row.get(name) for row in rows] for name in self._columns}
        if self._schema is None:
            kinds = [(name, _type_of(column)) for name, column in values.items()]
            kinds += [(name, pa.float64()) for name in self._probabilities]
            self._schema = pa.schema([*kinds, (LABEL_COLUMN, pa.string())])
        columns = [_array(name, values[name], self._schema.field(name).type) for name in self._columns]
        scores = (pa.array(column) for column in probabilities.T)
        table = pa.table([*columns, *scores, pa.array(labels)], schema=self._schema)
        self._row_groups.write(table)
        self.samples += table.slice(0, schema.NUM_SAMPLES - len(self.samples)).to_pylist()
        others = zip(*(column.to_pylist() for column in columns), strict=True) if columns else repeat(())
        names = zip(file_names, originals, strict=True) if self._has_originals else zip(file_names)
        each = zip(names, others, self._csv_scores(probabilities), labels, strict=bool(columns))
        write_rows(self._csv_file, ([*name, *other, *score, label] for name, other, score, label in each))

    def _csv_scores(self, probabilities: np.ndarray) -> list[list[str]]:
        """Return the cells of each row. Six digits are enough to read; the Parquet file has all."""
        if self._top_k is None:
            return [[f"{value:.6f}" for value in row] for row in probabilities.tolist()]
        places = np.argsort(-probabilities, axis=1, kind="stable")[:, : self._top_k]
        return [
            [text for index in row for text in (self._categories[index], f"{scores[index]:.6f}")]
            for row, scores in zip(places, probabilities, strict=True)
        ]

    def describe(self) -> dict[str, Any]:
        """Return the content of `_schema.json`."""
        attributes = [
            schema.column(field.name, *_KINDS[field.type], is_feature=field.name == "id")
            for field in (self._schema if self._schema is not None else ())
        ]
        has_label = schema.CATEGORY_COLUMN in self._columns
        scores = {name: name for name in self._probabilities}
        return {
            "columnAttributes": attributes,
            "featureChannels": [],
            "labelColumns": {"True Labels": schema.CATEGORY_COLUMN} if has_label else {},
            "scoreColumns": scores | {"Multi Class Assigned Labels": LABEL_COLUMN},
        }


def _type_of(values: Sequence[Any]) -> pa.DataType:
    """Return the type of a column, from its first rows: a string unless all are numbers, or all booleans."""
    kinds = {type(value) for value in values}
    if kinds == {bool}:
        return pa.bool_()
    if kinds == {int}:
        return pa.int64()
    return pa.float64() if kinds and kinds <= {int, float} else pa.string()


def _array(name: str, values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if kind == pa.string():
        texts = [value if value is None or isinstance(value, str) else json.dumps(value) for value in values]
        return pa.array(texts, kind)
    # Arrow itself would truncate 2.5 to 2 if the first rows were integers.
    allowed = {pa.int64(): (int,), pa.float64(): (int, float), pa.bool_(): (bool,)}[kind]
    stranger = next((value for value in values if value is not None and type(value) not in allowed), None)
    try:
        if stranger is None:
            return pa.array(values, kind)
    except (pa.ArrowException, OverflowError):
        stranger = "a number too large"
    raise MalformedFileError(f"column {name!r} starts as {kind} but has {stranger!r} later.")
