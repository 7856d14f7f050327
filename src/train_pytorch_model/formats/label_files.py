"""The images of an image directory once more, as the lists that other tools read.

    csv             labels.csv: file_name,label; or file_name,labels with cells such as cat;dog
    hugging-face    metadata.jsonl: {"file_name": "image/0_1.jpg", "label": "cat"}, or "labels": […]
    automl          annotations.jsonl: {"image_url": "image/0_1.jpg", "label": "cat"}, or a list,
                    and the MLTable that names it

They lie beside `images.lst`, whose readers ignore them. An image without a category has none here.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from train_pytorch_model.config.wording import parameter
from train_pytorch_model.formats.automl_list import MLTABLE
from train_pytorch_model.formats.label_kinds import CATEGORIES_COLUMN, CATEGORY_COLUMN
from train_pytorch_model.formats.reading import MalformedFileError
from train_pytorch_model.formats.schema import IMAGE_REFERENCE
from train_pytorch_model.formats.table_columns import SEPARATORS
from train_pytorch_model.formats.writing import write_csv, write_yaml

LabelFile = Literal["csv", "hugging-face", "automl"]
ANNOTATIONS = "annotations.jsonl"
MLTABLE_CONTENT: Mapping[str, Any] = {
    "type": "mltable",
    "paths": [{"file": f"./{ANNOTATIONS}"}],
    "transformations": [
        {
            "read_json_lines": {
                "encoding": "utf8",
                "invalid_lines": "error",
                "include_path_column": False,
            }
        },
        {"convert_column_types": [{"columns": "image_url", "column_type": "stream_info"}]},
    ],
}


def write_label_files(root: Path, image_list: Path, kinds: Iterable[LabelFile]) -> None:
    """Write these lists of the rows of an image list that is complete.

    Raises `MalformedFileError` for names of categories that CSV cannot separate.
    """
    writers = {"csv": _write_csv, "hugging-face": _write_metadata, "automl": _write_automl}
    for kind in dict.fromkeys(kinds):
        writers[kind](root, image_list)


def _rows(image_list: Path) -> Iterator[tuple[str, str | list[str] | None]]:
    """Yield the file and the label of each row: a category, a list of them, or None."""
    with image_list.open(encoding="ascii") as lines:
        for line in lines:
            row = json.loads(line)
            label = row.get(CATEGORIES_COLUMN, row.get(CATEGORY_COLUMN))
            yield row[IMAGE_REFERENCE]["file_name"], label


def _write_csv(root: Path, image_list: Path) -> None:
    has_lists = any(isinstance(label, list) for _, label in _rows(image_list))
    if has_lists:
        _check_names({tuple(_as_list(label)) for _, label in _rows(image_list)})
    header = ["file_name", "labels" if has_lists else "label"]
    rows = ([file, SEPARATORS[0].join(_as_list(label))] for file, label in _rows(image_list))
    write_csv(root / "labels.csv", (row for part in ([header], rows) for row in part))


def _check_names(lists: Collection[Sequence[str]]) -> None:
    """Raise `MalformedFileError` if a name would be read as several: by the first mark there is."""
    has_mark = any(len(names) > 1 for names in lists)
    marks = SEPARATORS[0] if has_mark else SEPARATORS
    wrong = sorted(name for names in lists for name in names if set(marks) & set(name))
    if wrong:
        mark = next(mark for mark in marks if mark in wrong[0])
        raise MalformedFileError(
            f"a cell of a CSV cannot have the category {wrong[0]!r}, which would be read as several"
            f" that {mark!r} separates. Name another list than csv by {parameter('label_files')}."
        )


def _write_metadata(root: Path, image_list: Path) -> None:
    rows = (
        {"file_name": file, "labels" if isinstance(label, list) else "label": label}
        for file, label in _rows(image_list)
    )
    _write_lines(root / "metadata.jsonl", rows)


def _write_automl(root: Path, image_list: Path) -> None:
    rows = ({"image_url": file, "label": label} for file, label in _rows(image_list))
    _write_lines(root / ANNOTATIONS, rows)
    write_yaml(root / MLTABLE, MLTABLE_CONTENT)


def _write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write a JSON object per line, without labels that are None."""
    with path.open("w", encoding="ascii") as file:
        for row in rows:
            known = {name: value for name, value in row.items() if value is not None}
            file.write(json.dumps(known) + "\n")


def _as_list(label: str | list[str] | None) -> Sequence[str]:
    if label is None:
        return ()
    return label if isinstance(label, list) else [label]
