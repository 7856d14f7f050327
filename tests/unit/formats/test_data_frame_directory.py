"""The scored dataset: its table, CSV, schema and samples."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from train_pytorch_model.formats import data_frame_directory
from train_pytorch_model.formats.data_frame_directory import META_CONTENT, writing_scores
from train_pytorch_model.formats.reading import MalformedFileError
from train_pytorch_model.formats.writing import write_yaml

CATEGORIES = ("größe", "b")
ROWS = [{"id": 7, "category": "b"}, {"id": 8, "category": "größe"}]
PROBABILITIES = np.asarray([[0.25, 0.75], [0.5, 0.5]])


def write(
    root: Path,
    columns: tuple[str, ...] = ("id", "category"),
    rows: list[dict[str, Any]] = ROWS,
) -> Path:
    with writing_scores(root, columns, CATEGORIES) as writer:
        for number, row in enumerate(rows):
            writer.write([f"image/{number}.png"], [row], PROBABILITIES[number % 2 : number % 2 + 1])
    return root


def test_the_table_has_the_columns_of_the_rows_then_probabilities_then_labels(
    tmp_path: Path,
) -> None:
    table = pq.read_table(write(tmp_path) / "_data.parquet")
    assert [(field.name, str(field.type)) for field in table.schema] == [
        ("category", "string"),
        ("id", "int64"),
        ("Scored Probabilities_größe", "double"),
        ("Scored Probabilities_b", "double"),
        ("Scored Labels", "string"),
    ]
    assert table.to_pylist() == [
        {
            "category": "b",
            "id": 7,
            "Scored Probabilities_größe": 0.25,
            "Scored Probabilities_b": 0.75,
            "Scored Labels": "b",
        },
        {
            "category": "größe",
            "id": 8,
            "Scored Probabilities_größe": 0.5,
            "Scored Probabilities_b": 0.5,
            "Scored Labels": "größe",
        },
    ]


def test_the_csv_has_the_file_names_too(tmp_path: Path) -> None:
    assert (write(tmp_path) / "scores.csv").read_text("utf-8") == (
        "file_name,category,id,Scored Probabilities_größe,Scored Probabilities_b,Scored Labels\n"
        "image/0.png,b,7,0.250000,0.750000,b\n"
        "image/1.png,größe,8,0.500000,0.500000,größe\n"
    )


def test_the_meta_file_equals_the_classic_one_byte_for_byte(tmp_path: Path) -> None:
    write_yaml(tmp_path / "_meta.yaml", META_CONTENT)
    assert (tmp_path / "_meta.yaml").read_bytes() == (
        b"type: DataFrameDirectory\n"
        b"extension: {}\n"
        b"format: Parquet\n"
        b"data: _data.parquet\n"
        b"samples: _samples.json\n"
        b"schema: schema/_schema.json\n"
    )


def attribute(name: str, kind: str, type_name: str, is_feature: bool) -> dict[str, Any]:
    return {
        "name": name,
        "type": kind,
        "isFeature": is_feature,
        "elementType": {"typeName": type_name, "isNullable": False},
    }


def test_the_schema_names_labels_and_scores_as_the_classic_one_does(tmp_path: Path) -> None:
    schema = json.loads((write(tmp_path) / "schema/_schema.json").read_bytes())
    assert schema == {
        "columnAttributes": [
            attribute("category", "String", "str", False),
            attribute("id", "Numeric", "int64", True),
            attribute("Scored Probabilities_größe", "Numeric", "float64", False),
            attribute("Scored Probabilities_b", "Numeric", "float64", False),
            attribute("Scored Labels", "String", "str", False),
        ],
        "featureChannels": [],
        "labelColumns": {"True Labels": "category"},
        "scoreColumns": {
            "Scored Probabilities_größe": "Scored Probabilities_größe",
            "Scored Probabilities_b": "Scored Probabilities_b",
            "Multi Class Assigned Labels": "Scored Labels",
        },
    }
    assert list(schema) == ["columnAttributes", "featureChannels", "labelColumns", "scoreColumns"]
    assert list(schema["columnAttributes"][0]) == ["name", "type", "isFeature", "elementType"]


def test_json_of_a_scored_dataset_is_ascii(tmp_path: Path) -> None:
    write(tmp_path)
    assert (tmp_path / "schema/_schema.json").read_bytes().isascii()
    assert b'"Scored Probabilities_gr\\u00f6\\u00dfe"' in (tmp_path / "_samples.json").read_bytes()


def test_samples_are_the_first_three_rows(tmp_path: Path) -> None:
    rows = [{"id": number, "category": "b"} for number in range(5)]
    samples = json.loads((write(tmp_path, rows=rows) / "_samples.json").read_bytes())
    assert [sample["id"] for sample in samples] == [0, 1, 2]
    assert list(samples[0]) == [
        "category",
        "id",
        "Scored Probabilities_größe",
        "Scored Probabilities_b",
        "Scored Labels",
    ]


def test_many_batches_share_a_row_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row group costs memory for every column until the file is closed."""
    rows = [{"id": number, "category": "b"} for number in range(7)]
    whole = pq.read_table(write_whole(tmp_path / "whole", rows) / "_data.parquet")
    monkeypatch.setattr(data_frame_directory, "ROW_GROUP_BYTES", 100)  # a row takes about 40
    file = pq.ParquetFile(write_whole(tmp_path / "parts", rows) / "_data.parquet")
    assert [file.metadata.row_group(place).num_rows for place in range(file.num_row_groups)] == [
        3,
        3,
        1,
    ]
    assert file.read().equals(whole)
    assert pq.ParquetFile(tmp_path / "whole/_data.parquet").num_row_groups == 1


def write_whole(root: Path, rows: list[dict[str, Any]]) -> Path:
    root.mkdir()
    return write(root, rows=rows)


def test_without_a_category_column_there_is_no_true_label(tmp_path: Path) -> None:
    write(tmp_path, ("id",), [{"id": 1}])
    schema = json.loads((tmp_path / "schema/_schema.json").read_bytes())
    assert schema["labelColumns"] == {}
    assert [column["name"] for column in schema["columnAttributes"]][0:2] == [
        "id",
        "Scored Probabilities_größe",
    ]


def test_nested_and_missing_values_are_written(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"id": 1, "boxes": [{"bbox": [1, 2]}], "flag": True}, {"id": 2}]
    table = pq.read_table(write(tmp_path, ("id", "boxes", "flag"), rows) / "_data.parquet")
    assert table.column("boxes").to_pylist() == ['[{"bbox": [1, 2]}]', None]
    assert table.column("flag").to_pylist() == [True, None]
    schema = json.loads((tmp_path / "schema/_schema.json").read_bytes())
    kinds = {column["name"]: column["type"] for column in schema["columnAttributes"]}
    assert (kinds["boxes"], kinds["flag"]) == ("String", "Binary")


def test_file_names_that_are_not_utf8_are_written_to_the_csv_as_bytes(tmp_path: Path) -> None:
    with writing_scores(tmp_path, ("id",), CATEGORIES) as writer:
        writer.write(["caf\udce9.png"], [{"id": 1}], PROBABILITIES[:1])
    assert b"caf\xe9.png,1,0.250000,0.750000,b\n" in (tmp_path / "scores.csv").read_bytes()


def test_file_names_with_line_breaks_stay_one_cell(tmp_path: Path) -> None:
    names = ["a\rb.png", "a\nb.png", "a\r\nb.png"]
    with writing_scores(tmp_path, ("id",), CATEGORIES) as writer:
        writer.write(names, [{"id": 1}] * 3, np.tile(PROBABILITIES[:1], (3, 1)))
    with (tmp_path / "scores.csv").open(newline="", encoding="utf-8") as file:
        assert [row[0] for row in csv.reader(file)] == ["file_name", *names]


def test_after_an_error_neither_schema_nor_samples_are_written(tmp_path: Path) -> None:
    def write_and_fail() -> None:
        with writing_scores(tmp_path, ("id",), CATEGORIES) as writer:
            writer.write(["a.png"], [{"id": 1}], PROBABILITIES[:1])
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_and_fail()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["scores.csv"]


def test_the_csv_can_have_the_most_probable_categories_only(tmp_path: Path) -> None:
    with writing_scores(tmp_path, ("id",), ("a", "b", "c"), top_k=2) as writer:
        writer.write(["x.png"], [{"id": 1}], np.asarray([[0.2, 0.5, 0.3]]))
        writer.write(["y.png"], [{"id": 2}], np.asarray([[0.25, 0.25, 0.5]]))
    assert (tmp_path / "scores.csv").read_text() == (
        "file_name,id,Top 1,Top 1 Probability,Top 2,Top 2 Probability,Scored Labels\n"
        "x.png,1,b,0.500000,c,0.300000,b\n"
        "y.png,2,c,0.500000,a,0.250000,c\n"  # the first one on a tie
    )
    assert pq.read_table(tmp_path / "_data.parquet").num_columns == 5


def test_the_csv_has_original_names_and_six_digits(tmp_path: Path) -> None:
    with writing_scores(tmp_path, ("id",), ("a", "b"), has_originals=True) as writer:
        writer.write(["x.png"], [{"id": 1}], np.asarray([[1 / 3, 2 / 3]]), ["b/daisy.png"])
    assert (tmp_path / "scores.csv").read_text().splitlines() == [
        "file_name,original,id,Scored Probabilities_a,Scored Probabilities_b,Scored Labels",
        "x.png,b/daisy.png,1,0.333333,0.666667,b",
    ]
    assert (
        pq.read_table(tmp_path / "_data.parquet").to_pylist()[0]["Scored Probabilities_a"] == 1 / 3
    )


def test_a_top_k_above_the_number_of_categories_lists_all(tmp_path: Path) -> None:
    with writing_scores(tmp_path, (), ("a", "b"), top_k=9) as writer:
        writer.write(["x.png"], [{}], np.asarray([[0.25, 0.75]]))
    assert (tmp_path / "scores.csv").read_text().splitlines() == [
        "file_name,Top 1,Top 1 Probability,Top 2,Top 2 Probability,Scored Labels",
        "x.png,b,0.750000,a,0.250000,b",
    ]


def test_columns_of_an_earlier_scoring_are_left_out(tmp_path: Path) -> None:
    columns = ("id", "Scored Labels", "Scored Probabilities_b")
    write(tmp_path, columns, [{"id": 1, "Scored Labels": "old", "Scored Probabilities_b": 9.0}])
    assert pq.read_table(tmp_path / "_data.parquet").column_names == [
        "id",
        "Scored Probabilities_größe",
        "Scored Probabilities_b",
        "Scored Labels",
    ]


@pytest.mark.parametrize(
    ("first", "second", "kept"),
    [
        (None, 3, [None, "3"]),
        ("a", 3, ["a", "3"]),
        (True, False, [True, False]),
        (1.5, 2, [1.5, 2.0]),
        ({"a": 1}, [2], ['{"a": 1}', "[2]"]),
    ],
)
def test_a_column_keeps_the_type_of_its_first_rows(
    tmp_path: Path, first: object, second: object, kept: list[object]
) -> None:
    write(tmp_path, ("x",), [{"x": first}, {"x": second}])
    assert pq.read_table(tmp_path / "_data.parquet")["x"].to_pylist() == kept


@pytest.mark.parametrize(
    ("second", "named"),
    [(2.5, "2.5"), ("text", "'text'"), (True, "True"), (2**63, "'a number too large'")],
)
def test_an_integer_column_with_other_values_later_is_refused(
    tmp_path: Path, second: object, named: str
) -> None:
    with pytest.raises(
        MalformedFileError, match=f"column 'x' starts as int64 but has {named} later."
    ):
        write(tmp_path, ("x",), [{"x": 1}, {"x": second}])
