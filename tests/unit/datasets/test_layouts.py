"""Folders as people have them: which image is in which part, and of which category."""

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest
from tests.painting import encode, paint

from train_pytorch_model.config.table_options import TableOptions
from train_pytorch_model.datasets.one_folder import open_parts
from train_pytorch_model.datasets.split_table import write_split
from train_pytorch_model.errors import InvalidDatasetError

Rows = Iterable[Sequence[object]]
PARTS = {"train": "training", "valid": "validation", "test": "test"}


def draw(root: Path, names: Iterable[str]) -> None:
    """Write images, each another one, for open_parts compares them."""
    for number, name in enumerate(names):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(paint("red", number, size=(9, 9))))


def table(path: Path, rows: Rows, delimiter: str = ",", encoding: str = "utf-8") -> None:
    with path.open("w", newline="", encoding=encoding) as file:
        csv.writer(file, delimiter=delimiter).writerows(rows)


def split_of(root: Path, **columns: str) -> dict[str, tuple[str, str]]:
    """Return the category and the part of each file, as `split.csv` tells them."""
    root.with_suffix(".out").mkdir(exist_ok=True)
    path = root.with_suffix(".out") / "split.csv"
    write_split(path, open_parts(root, 1, TableOptions(**columns)))
    with path.open(newline="") as file:
        return {name: (category, part) for name, category, part in list(csv.reader(file))[1:]}


def said(root: Path, **columns: str) -> str:
    parts = open_parts(root, 1, TableOptions(**columns))
    return "\n".join(text for images in parts.by_name().values() for text in images.warnings())


def refused(root: Path, **columns: str) -> str:
    with pytest.raises(InvalidDatasetError) as raised:
        open_parts(root, 1, TableOptions(**columns))
    return str(raised.value)


def category(number: int) -> str:
    return "cat" if number % 2 else "dog"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "set").mkdir()
    return tmp_path / "set"


def parts_and_names() -> dict[str, tuple[str, str]]:
    """Return the category and the part of each image of three folders."""
    return {
        f"{part}/{part}{number}.jpg": (category(number), PARTS[part])
        for part in PARTS
        for number in range(6)
    }


# ── Parts in folders ─────────────────────────────────────────────────────────────────────────────


def test_one_table_of_hugging_face_for_three_folders(root: Path) -> None:
    expected = parts_and_names()
    draw(root, expected)
    rows = [{"file_name": name, "label": label} for name, (label, _) in expected.items()]
    (root / "metadata.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert split_of(root) == expected


def test_a_table_of_hugging_face_in_each_folder(root: Path) -> None:
    expected = parts_and_names()
    draw(root, expected)
    for part in PARTS:
        inside = [
            (name.partition("/")[2], label) for name, (label, _) in expected.items() if part in name
        ]
        table(root / part / "metadata.csv", [("file_name", "label"), *inside])
    assert split_of(root) == expected


def test_roboflow_has_a_column_for_each_category(root: Path) -> None:
    expected = parts_and_names()
    draw(root, expected)
    for part in PARTS:
        marks = [
            (name.partition("/")[2], int(label == "cat"), int(label == "dog"))
            for name, (label, _) in expected.items()
            if part in name
        ]
        table(root / part / "_classes.csv", [("filename", " cat", " dog"), *marks])
    assert split_of(root) == expected
    table(root / "test" / "_classes.csv", [("filename", "cat", "dog"), ("test1.jpg", 1, 1)])
    # One row with both makes all parts lists.
    split = split_of(root)
    assert split["test/test1.jpg"] == ("cat; dog", "test")
    assert split["train/train0.jpg"] == expected["train/train0.jpg"]
    parts = open_parts(root, 1, TableOptions())
    assert parts.training.is_multi_label
    assert parts.validation.is_multi_label


def test_roboflow_has_folders_of_categories_in_folders_of_parts(root: Path) -> None:
    expected = {
        f"{part}/{category(number)}/{part}{number}.jpg": (category(number), PARTS[part])
        for part in PARTS
        for number in range(6)
    }
    draw(root, expected)
    assert split_of(root) == expected


@pytest.mark.parametrize(
    ("training", "validation", "test"),
    [
        ("train_set", "valid_set", "test_set"),
        ("Trainingsdaten", "Validierungsdaten", "Testdaten"),
        ("training_images", "eval", "holdout"),
        ("train2017", "val2017", "test2017"),
        ("01_train", "02_dev", "03_eval"),
    ],
)
def test_parts_have_names_of_many_kinds(
    root: Path, training: str, validation: str, test: str
) -> None:
    expected = {
        f"{folder}/{category(number)}/{folder}{number}.jpg": (category(number), part)
        for folder, part in ((training, "training"), (validation, "validation"), (test, "test"))
        for number in range(4)
    }
    draw(root, expected)
    assert split_of(root) == expected


# ── Tables beside folders ────────────────────────────────────────────────────────────────────────


def test_kaggle_has_a_table_for_the_training_and_a_test_without_categories(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    names = [f"train/{number:03}.jpg" for number in range(20)]
    draw(root, [*names, "test/100.jpg", "test/101.jpg"])
    ids = [(f"{number:03}", category(number)) for number in range(20)]
    table(root / "train.csv", [("id", "label"), *ids])
    table(root / "test.csv", [("id",), ("100",), ("101",)])
    table(root / "sample_submission.csv", [("id", "label"), ("100", "cat"), ("101", "cat")])
    found = split_of(root)
    assert {name: label for name, (label, _) in found.items()} == {
        name: category(number) for number, name in enumerate(names)
    }
    assert {part for _, part in found.values()} == set(PARTS.values())
    assert f"{root / 'test'}: 2 images without a category" in caplog.text


def test_a_table_for_each_part_and_one_folder_of_images(root: Path) -> None:
    files = {
        f"images/{part}{n}.jpg": (category(n), PARTS[part]) for part in PARTS for n in range(4)
    }
    draw(root, files)
    for part, name in (("train", "train.csv"), ("valid", "val.csv"), ("test", "Test.CSV")):
        rows = [
            (file.partition("/")[2], label) for file, (label, _) in files.items() if part in file
        ]
        table(root / name, [("image", "species"), *rows])
    assert split_of(root) == files


@pytest.mark.parametrize("name", ["Labels.CSV", "annotations.csv", "data.tsv", "birds 2024.csv"])
def test_any_single_table_beside_the_images_is_found(root: Path, name: str) -> None:
    names = [f"images/{number}.jpg" for number in range(20)]
    draw(root, names)
    rows = [(f"{number}.JPG", category(number)) for number in range(20)]
    table(root / name, [("File", "Class"), *rows], delimiter="\t" if "tsv" in name else ",")
    found = split_of(root)
    assert {name: label for name, (label, _) in found.items()} == {
        name: category(number) for number, name in enumerate(names)
    }
    assert "20 images are called otherwise" in said(root)


def test_a_table_of_a_biologist_from_excel(root: Path) -> None:
    names = [f"IMG_{number}.jpg" for number in range(20)]
    draw(root, names)
    rows: Rows = [
        ("Nr", "Foto", "Species", "Fundort", "Bemerkung"),
        *((n, name, category(n), f"Höhle {n % 3}", "") for n, name in enumerate(names)),
    ]
    table(root / "Bestimmungen.csv", rows, delimiter=";", encoding="utf-8-sig")
    found = split_of(root)
    assert {name: label for name, (label, _) in found.items()} == {
        name: category(number) for number, name in enumerate(names)
    }


def test_a_spreadsheet_is_to_be_saved_as_csv(root: Path) -> None:
    draw(root, [f"{number}.jpg" for number in range(4)])
    (root / "labels.xlsx").write_bytes(b"PK")
    with pytest.raises(Exception, match=r"'labels.xlsx' is a spreadsheet.*Save it as CSV"):
        open_parts(root, 1)


def test_images_without_a_category_are_left_out(root: Path) -> None:
    draw(root, [f"{number}.jpg" for number in range(42)])
    rows = [(f"{n}.jpg", "" if n < 4 else category(n)) for n in range(42)]
    table(root / "labels.csv", [("image", "label"), *rows])
    assert len(split_of(root)) == 38
    assert "without a category in their row ('0.jpg', '1.jpg', '2.jpg', …): 4" in said(root)


# ── A table beside folders of categories ─────────────────────────────────────────────────────────


@pytest.fixture
def folders(root: Path) -> Path:
    draw(root, [f"{kind}/{kind}{number}.jpg" for kind in ("bird", "dog") for number in range(10)])
    return root


def images_in(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.glob("*/*.jpg"))


def test_other_categories_beside_folders_count_only_if_the_user_names_them(folders: Path) -> None:
    rows = [
        (name, "Canon" if number % 2 else "Nikon") for number, name in enumerate(images_in(folders))
    ]
    table(folders / "metadata.csv", [("file_name", "camera"), *rows])
    by_folder = {name: name.partition("/")[0] for name in images_in(folders)}
    assert {name: label for name, (label, _) in split_of(folders).items()} == by_folder
    text = said(folders)
    assert "column 'camera' of metadata.csv is not used" in text
    assert "`--label-column camera`" in text
    named = {name: label for name, (label, _) in split_of(folders, label_column="camera").items()}
    assert named == dict(rows)


def test_corrections_of_the_folders_in_a_table_count(folders: Path) -> None:
    rows = [(name, name.partition("/")[0]) for name in images_in(folders)]
    table(folders / "labels.csv", [("file", "label"), *rows])
    assert "labels.csv" not in said(folders).replace("(.csv)", "")
    rows[0] = (rows[0][0], "dog")
    table(folders / "labels.csv", [("file", "label"), *rows[:15]])
    found = split_of(folders)
    assert found[rows[0][0]][0] == "dog"
    assert len(found) == 20
    assert "1 image has another category in labels.csv" in said(folders)


def test_a_table_may_tell_only_the_parts_of_folders(folders: Path) -> None:
    rows = [(name, "holdout" if name.endswith("9.jpg") else "train") for name in images_in(folders)]
    table(folders / "split.tsv", [])
    table(folders / "photos.csv", [("file", "subset"), *rows])
    found = split_of(folders)
    assert {name for name, (_, part) in found.items() if part == "test"} == {
        "bird/bird9.jpg",
        "dog/dog9.jpg",
    }


# ── A column of parts ────────────────────────────────────────────────────────────────────────────


COLUMNS: Mapping[str, tuple[Mapping[str, Sequence[object]], Mapping[str, str]]] = {
    "split": ({"split": ["train", "val", "test"]}, {}),
    "subset": ({"Subset": ["Training", "development", "Holdout"]}, {}),
    "yes and no": ({"is_valid": [False, True, False], "is_test": [0, 0, 1]}, {}),
    "training": ({"is_train": ["1", "0", "0"], "is_val": ["0", "1", "0"]}, {}),
    "usage": ({"Usage": ["Training", "PublicTest", "PrivateTest"]}, {}),
    "folds": ({"fold": [0, 1, 2]}, {"split_column": "fold"}),
    "other name": ({"wofür": ["train", "valid", "test"]}, {"split_column": "wofür"}),
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_a_column_of_parts_is_followed(root: Path, kind: str) -> None:
    columns, options = COLUMNS[kind]
    names = [f"{number}.jpg" for number in range(18)]
    draw(root, names)
    rows = [
        (name, category(n // 3), *(values[n % 3] for values in columns.values()))
        for n, name in enumerate(names)
    ]
    table(root / "labels.csv", [("file_name", "label", *columns), *rows])
    found = split_of(root, **options)
    parts = ("training", "validation", "test")
    assert found == {name: (category(n // 3), parts[n % 3]) for n, name in enumerate(names)}


def test_a_part_that_a_column_does_not_name_is_split_off(root: Path) -> None:
    draw(root, [f"{number}.jpg" for number in range(40)])
    rows = [(f"{n}.jpg", category(n), n >= 30) for n in range(40)]
    table(root / "labels.csv", [("file_name", "label", "is_valid"), *rows])
    found = split_of(root)
    assert {name for name, (_, part) in found.items() if part == "validation"} == {
        f"{n}.jpg" for n in range(30, 40)
    }
    assert sum(part == "test" for _, part in found.values()) > 0


def test_what_a_column_of_parts_says_has_to_be_understood(root: Path) -> None:
    draw(root, [f"{number}.jpg" for number in range(20)])
    rows = [(f"{n}.jpg", category(n), "train" if n < 9 else "spare", n % 5) for n in range(20)]
    table(root / "labels.csv", [("file_name", "label", "split", "fold"), *rows])
    text = refused(root)
    assert "column 'split' of labels.csv" in text
    assert "it also holds 'spare'" in text
    table(
        root / "labels.csv", [("file_name", "label", "fold"), *((a, b, d) for a, b, _, d in rows)]
    )
    assert "`--split-column fold`" in said(root)
    assert "has no column 'what'" in refused(root, split_column="what")


# ── Which column ─────────────────────────────────────────────────────────────────────────────────


def test_of_two_columns_of_categories_none_is_guessed(root: Path) -> None:
    draw(root, [f"{number}.jpg" for number in range(24)])
    rows = [(f"{n}.jpg", "Aves" if n % 3 else "Mammalia", category(n)) for n in range(24)]
    table(root / "labels.csv", [("file_name", "class", "species"), *rows])
    text = refused(root)
    assert "'class' (2 different values), 'species' (2 different values)" in text
    assert "with --label-column" in text
    found = split_of(root, label_column="species")
    assert {name: label for name, (label, _) in found.items()} == {
        f"{n}.jpg": category(n) for n in range(24)
    }


def test_columns_that_tell_the_same_are_one(root: Path) -> None:
    draw(root, [f"{number}.jpg" for number in range(24)])
    rows = [(f"{n}.jpg", n % 2, category(n), n) for n in range(24)]
    table(root / "labels.csv", [("file_name", "label", "class_name", "target"), *rows])
    assert {label for label, _ in split_of(root).values()} == {"cat", "dog"}


def test_a_column_of_no_table_is_told(folders: Path) -> None:
    text = refused(folders, label_column="species")
    assert "no table in it that could have a column 'species'. Put one into the folder" in text


def test_of_several_tables_the_user_names_one(root: Path) -> None:
    draw(root, [f"{number}.jpg" for number in range(20)])
    for name in ("a.csv", "b.csv"):
        table(
            root / name,
            [("image", "label"), *((f"{n}.jpg", name[0] + str(n % 2)) for n in range(20))],
        )
    assert (
        f"'a.csv', 'b.csv'. Name one of them instead of the folder, such as {root}/a.csv"
        in refused(root)
    )
    assert open_parts(root / "b.csv", 1).training.categories == ("b0", "b1")
