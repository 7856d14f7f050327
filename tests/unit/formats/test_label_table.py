"""Categories from a table: columns, delimiters, how it names the images, and rows that cannot be
used.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.logs import warnings_in
from tests.painting import paint_folders

from train_pytorch_model.config.table_options import TableOptions
from train_pytorch_model.datasets.conversion import Labels, convert, open_source
from train_pytorch_model.formats.image_directory import open_image_directory
from train_pytorch_model.formats.label_table import read_table
from train_pytorch_model.formats.reading import MalformedFileError

LABELS = {"train/1.jpg": "cat", "train/2.jpg": "dog", "more/3.png": "cat"}


@pytest.fixture
def images(tmp_path: Path) -> Path:
    root = tmp_path / "images"
    for name in LABELS:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def table(root: Path, *lines: str, name: str = "labels.csv", encoding: str = "utf-8") -> Path:
    (root / name).write_text("\n".join(lines), encoding=encoding)
    return root / name


def options(file_column: str = "", label_column: str = "") -> TableOptions:
    return TableOptions(file_column=file_column or None, label_column=label_column or None)


def labels_of(path: Path, images: Path, *columns: str) -> dict[str, str]:
    listing = read_table(path, images, options(*columns)).listing
    return {
        name: listing.categories[index]
        for name, index in zip(listing.file_names, listing.class_indices.tolist(), strict=True)
    }


def refused(path: Path, images: Path, *columns: str) -> str:
    with pytest.raises(MalformedFileError) as raised:
        read_table(path, images, options(*columns))
    return str(raised.value)


# ── What is understood ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "lines",
    [
        ["image,label", "train/1.jpg,cat", "train/2.jpg,dog", "more/3.png,cat"],
        ["id,breed", "1,cat", "2,dog", "3,cat"],
        ["Breed;ignored;File Name", "cat;x;1.jpg", "dog;x;2.jpg", "cat;x;3.png"],
        ["path\tclass", r"C:\set\train\1.jpg" + "\tcat", "/data/train/2\tdog", "./more/3.png\tcat"],
        ["train/1.jpg, cat", "train/2.jpg, dog", "more/3.png, cat"],
        ["what,which", "1.jpg,cat", '"2.jpg","dog"', "", "3.png,cat"],
    ],
    ids=[
        "paths",
        "stems",
        "names and semicolons",
        "paths from elsewhere",
        "no header",
        "two unknown columns",
    ],
)
def test_columns_delimiters_and_names_are_found(images: Path, lines: Sequence[str]) -> None:
    assert labels_of(table(images, *lines), images) == LABELS
    assert labels_of(table(images, *lines, encoding="utf-8-sig"), images) == LABELS


def test_columns_can_be_given(images: Path) -> None:
    path = table(images, "a,b,label", "1,cat,x", "2,dog,y", "3,cat,z")
    assert labels_of(path, images, "a", "b") == LABELS
    assert labels_of(path, images) == {name: "xyz"[n] for n, name in enumerate(LABELS)}
    assert "has no column 'c'; it has 'a', 'b', 'label'" in refused(path, images, "c")


def test_the_metadata_of_a_hugging_face_image_folder_is_read(images: Path) -> None:
    lines = [json.dumps({"file_name": name, "label": label}) for name, label in LABELS.items()]
    assert labels_of(table(images, *lines, name="metadata.jsonl"), images) == LABELS


def test_rows_without_a_file_and_files_without_a_row_are_named(images: Path) -> None:
    path = table(images, "image,label", "1,cat", "2,dog", "4,dog", "5,dog")
    assert read_table(path, images).listing.ignored == {
        "rows without an image file ('4', '5')": 2,
        "images without a row ('more/3.png')": 1,
    }


# ── What is refused ──────────────────────────────────────────────────────────────────────────────


def test_a_table_that_cannot_be_used_says_why(images: Path) -> None:
    (images / "more/1.jpg").touch()
    text = refused(table(images, "image,label", "1.jpg,cat", "2,dog", "2.jpg,cat", "3,"), images)
    assert "2 rows of labels.csv cannot be used" in text
    assert "labels.csv:2: image '1.jpg' may be any of 2 files: 'more/1.jpg', 'train/1.jpg'" in text
    assert "labels.csv:4: image 'train/2.jpg' has label 'dog' in another row and 'cat' here" in text
    assert "labels.csv:1: image '1.jpg' may be" in refused(
        table(images, "1.jpg,cat", "2,dog"), images
    )
    assert "none of the images" in refused(table(images, "image,label", "9,cat"), images)
    assert "no rows" in refused(table(images), images)
    latin = table(images, "image,label", "1,größe", encoding="latin-1")
    assert "labels.csv:2 is not UTF-8" in refused(latin, images)


def test_links_to_files_outside_are_not_images(images: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.jpg").touch()
    (images / "linked.jpg").symlink_to(tmp_path / "secret.jpg")
    path = table(images, "image,label", "linked,cat", "../secret.jpg,cat", "1,dog")
    assert (
        read_table(path, images).listing.ignored[
            "rows without an image file ('linked', '../secret.jpg')"
        ]
        == 2
    )


# ── Converting ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_folder_with_a_table_that_is_named_becomes_an_image_directory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, elsewhere: bool
) -> None:
    photos = paint_folders(tmp_path / "photos", 2)
    lines = [
        "image,label",
        *(f"{colour}/{n},{colour}ish" for colour in ("blue", "red") for n in (0, 1)),
    ]
    named = options("image", "label")
    labels = Labels(images=photos) if elsewhere else Labels(columns=named)
    path = table(tmp_path if elsewhere else photos, *lines)
    with open_source(path if elsewhere else photos, tmp_path / "out", labels) as source:
        assert convert(source, tmp_path / "out") == 4
    written = open_image_directory(tmp_path / "out", "Dataset")
    assert written.categories == ("blueish", "redish")
    assert written.class_counts().tolist() == [2, 2]
    assert any(
        "images without a row ('green/0.png', 'green/1.png'): 2" in each
        for each in warnings_in(caplog)
    )


@pytest.mark.parametrize("through", ["train.jsonl", "."])
def test_an_automl_data_set_may_name_images_of_another_folder(tmp_path: Path, through: str) -> None:
    photos = paint_folders(tmp_path / "photos", 1)
    url = "azureml://subscriptions/s/resourcegroups/r/workspaces/w/datastores/blob/paths/a/b"
    rows = [{"image_url": f"{url}/{colour}/0.png", "label": colour} for colour in ("blue", "red")]
    (tmp_path / "table").mkdir()
    table(tmp_path / "table", *map(json.dumps, rows), name="train.jsonl")
    (tmp_path / "table" / "MLTable").write_text("paths: [{file: ./train.jsonl}]")
    with open_source(
        tmp_path / "table" / through, tmp_path / "out", Labels(images=photos)
    ) as source:
        assert convert(source, tmp_path / "out") == 2
