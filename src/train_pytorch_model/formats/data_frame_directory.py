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
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from train_pytorch_model.formats import schema
from train_pytorch_model.formats.csv_rows import write_rows
from train_pytorch_model.formats.reading import MalformedFileError
from train_pytorch_model.formats.writing import write_json
from train_pytorch_model.image_classifier.scored_columns import LABEL_COLUMN, PROBABILITY_PREFIX

META_CONTENT: Mapping[str, Any] = {
    "type": "DataFrameDirectory",
    "extension": {},
    "format": "Parquet",
    "data": "_data.parquet",
    "samples": schema.SAMPLES,
    "schema": "schema/_schema.json",
}
CSV = "scores.csv"
# Each row group costs a kilobyte of memory per column until the file is closed: with one per batch and 1,000
# categories, a million images would take 14 GB.
ROW_GROUP_BYTES = 64 << 20
_KINDS: Mapping[pa.DataType, tuple[str, str]] = {
    pa.int64(): ("Numeric", "int64"),
    pa.float64(): ("Numeric", "float64"),
    pa.bool_(): ("Binary", "bool"),
    pa.string(): ("String", "str"),
}


class ScoreWriter:
    """Writes batches of scored rows to the Parquet file and to `scores.csv`.

    With `top_k`, the CSV has only that many most probable categories per row. Input columns with the names of
    scores, from an earlier scoring, are left out.
    """

    def __init__(
        self,
        root: Path,
        columns: Sequence[str],
        categories: Sequence[str],
        top_k: int | None = None,
    ) -> None:
        self._root = root
        self._columns = sorted(
            name for name in columns if name != LABEL_COLUMN and not name.startswith(PROBABILITY_PREFIX)
        )
        self._categories = categories
        self._probabilities = [PROBABILITY_PREFIX + name for name in categories]
        self._top_k = top_k
        self._schema: pa.Schema | None = None
        self._parquet: pq.ParquetWriter | None = None
        self._waiting: list[pa.Table] = []  # until they fill a row group
        self._waiting_bytes = 0
        self._csv_file = (root / CSV).open("w", newline="", encoding="utf-8", errors="surrogateescape")
        write_rows(self._csv_file, [["file_name", *self._columns, *self._csv_score_columns(), LABEL_COLUMN]])
        self._samples: list[dict[str, Any]] = []

    def write(
        self,
        file_names: Sequence[str],
        rows: Iterable[Mapping[str, Any]],
        probabilities: np.ndarray,
    ) -> None:
        """Write a batch of scored rows: their files, their other columns, (B, categories) probabilities.

        Raises `MalformedFileError` if a column starts with numbers or booleans and later has another type.
        """
        rows = list(rows)
        labels = [self._categories[index] for index in probabilities.argmax(axis=1)]
        values = {name: [row.get(name) for row in rows] for name in self._columns}
        if self._schema is None:
            self._schema = pa.schema(
                [(name, _type_of(column)) for name, column in values.items()]
                + [(name, pa.float64()) for name in self._probabilities]
                + [(LABEL_COLUMN, pa.string())]
            )
            self._parquet = pq.ParquetWriter(self._root / META_CONTENT["data"], self._schema)
        columns = [_array(name, values[name], self._schema.field(name).type) for name in self._columns]
        table = pa.table(
            [*columns, *(pa.array(column) for column in probabilities.T), pa.array(labels)],
            schema=self._schema,
        )
        self._waiting.append(table)
        self._waiting_bytes += table.nbytes
        if self._waiting_bytes >= ROW_GROUP_BYTES:
            self._write_row_group()
        self._samples += table.slice(0, schema.NUM_SAMPLES - len(self._samples)).to_pylist()
        others = (
            zip(*(column.to_pylist() for column in columns), strict=True) if columns else ((),) * len(rows)
        )
        scores = self._csv_scores(probabilities)
        write_rows(
            self._csv_file,
            (
                [name, *other, *score, label]
                for name, other, score, label in zip(file_names, others, scores, labels, strict=True)
            ),
        )

    def _write_row_group(self) -> None:
        """Write the waiting tables, if any."""
        if self._parquet is not None and self._waiting:
            self._parquet.write_table(pa.concat_tables(self._waiting))
            self._waiting, self._waiting_bytes = [], 0

    def _csv_score_columns(self) -> list[str]:
        if self._top_k is None:
            return self._probabilities
        places = range(1, min(self._top_k, len(self._categories)) + 1)
        return [name for place in places for name in (f"Top {place}", f"Top {place} Probability")]

    def _csv_scores(self, probabilities: np.ndarray) -> list[list[Any]]:
        if self._top_k is None:
            scores: list[list[Any]] = probabilities.tolist()
            return scores
        places = np.argsort(-probabilities, axis=1, kind="stable")[:, : self._top_k]
        return [
            [text for index in row for text in (self._categories[index], float(scores[index]))]
            for row, scores in zip(places, probabilities, strict=True)
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close both files and, unless an error occurred, write the schema and the samples."""
        self._csv_file.close()
        try:
            if kind is None:
                self._write_row_group()
        finally:
            if self._parquet is not None:
                self._parquet.close()
        if kind is not None:
            return
        (self._root / "schema").mkdir()
        write_json(self._root / META_CONTENT["schema"], self._describe())
        write_json(self._root / META_CONTENT["samples"], self._samples)

    def _describe(self) -> dict[str, Any]:
        attributes = [
            schema.column(field.name, *_KINDS[field.type], is_feature=field.name == "id")
            for field in self._schema or ()
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
    """The type of a column, from its first rows: a string unless all are numbers, or all booleans."""
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
