"""Images with any number of categories, in tables, lists and image directories."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.painting import encode, paint

from train_pytorch_model.config.table_options import TableOptions
from train_pytorch_model.datasets.conversion import Labels, convert, merge_copies, open_source
from train_pytorch_model.errors import InvalidDatasetError
from train_pytorch_model.formats import label_sets
from train_pytorch_model.formats.automl_list import annotations_of, read_annotations
from train_pytorch_model.formats.image_directory import ImageDirectory, images_of
from train_pytorch_model.formats.image_directory import open_image_directory as open_directory
from train_pytorch_model.formats.label_files import LabelFile
from train_pytorch_model.formats.label_sets import LabelSets
from train_pytorch_model.formats.label_table import read_table
from train_pytorch_model.formats.labelled_folder import open_labelled
from train_pytorch_model.formats.listing import Listing
from train_pytorch_model.formats.reading import MalformedFileError

NAMES = ("1.png", "2.png", "3.png")
PORT = "Dataset"


@pytest.fixture
def images(tmp_path: Path) -> Path:
    root = tmp_path / "images"
    root.mkdir()
    for index, name in enumerate(NAMES):
        (root / name).write_bytes(encode(paint("blue", index, (8, 8))))
    return root


def lists_of(listing: Listing, root: Path) -> dict[str, list[str] | str]:
    """The label of each image."""
    opened = images_of(listing, root, PORT)
    return {name: opened.label_of(index) for index, name in enumerate(opened.file_names)}


def lists_in(images: Path, *lines: str, name: str = "labels.csv") -> dict[str, list[str] | str]:
    (images / name).write_text("\n".join(lines), encoding="utf-8")
    return lists_of(read_table(images / name, images).listing, images)


EXPECTED = {"1.png": ["bird", "nice"], "2.png": ["bird"], "3.png": []}


@pytest.mark.parametrize("separator", [";", "|", ",", " ; "])
def test_a_column_of_labels_may_have_lists_whose_separator_is_found(
    images: Path, separator: str
) -> None:
    rows = [f'1.png,"bird{separator}nice"', "2.png,bird", "3.png,"]
    assert lists_in(images, "file_name,labels", *rows) == EXPECTED


def test_the_origin_says_how_lists_are_separated(images: Path) -> None:
    table = images / "labels.csv"
    table.write_text("file,labels\n1.png,bird;nice\n2.png,bird\n")
    listing = read_table(table, images).listing
    assert listing.origin == "column 'labels' of labels.csv, lists separated by ';'"


def test_without_any_list_each_image_has_one_category(images: Path) -> None:
    assert lists_in(images, "file_name,labels", "1.png,bird", "2.png,nice") == {
        "1.png": "bird",
        "2.png": "nice",
    }


def test_columns_of_marks_are_lists_if_any_row_has_two(images: Path) -> None:
    rows = ["1.png,1,1", "2.png,1,0", "3.png,0,0"]
    assert lists_in(images, "file_name,bird,nice", *rows) == EXPECTED


def test_json_rows_have_lists(images: Path) -> None:
    rows = [{"file_name": name, "labels": EXPECTED[name]} for name in NAMES]
    lines = [json.dumps(row) for row in rows]
    assert lists_in(images, *lines, name="metadata.jsonl") == EXPECTED


def test_a_list_for_one_image_makes_all_labels_lists(images: Path) -> None:
    rows = ['{"image_url": "1.png", "label": ["bird", "nice"]}']
    rows += ['{"image_url": "2.png", "label": "bird"}', '{"image_url": "3.png", "label": []}']
    (images / "list.jsonl").write_text("\n".join(rows))
    listing = read_annotations(images / "list.jsonl")
    assert lists_of(listing, images) == EXPECTED
    assert listing.notes == ("1 image has no category in list.jsonl: none of them applies.",)


def test_custom_visions_tagged_images_are_found_by_id_or_address(images: Path) -> None:
    tagged = [
        {"id": "1", "tags": [{"tagId": "x", "tagName": "bird"}, {"tagName": "nice"}], "width": 8},
        {
            "id": "unknown",
            "originalImageUri": "https://host/i-7/o-2?sv=1&sig=2",
            "tags": [{"tagName": "bird"}],
        },
        {"id": "3", "tags": None},
    ]
    (images / "tagged.json").write_text(json.dumps(tagged))
    opened = open_labelled(images / "tagged.json", PORT).images
    assert {name: opened.label_of(index) for index, name in enumerate(opened.file_names)} == (
        EXPECTED
    )


def test_json_that_custom_vision_does_not_write_is_refused(images: Path) -> None:
    (images / "other.json").write_text('{"images": []}')
    with pytest.raises(MalformedFileError, match=r"other\.json is not what Custom Vision returns"):
        read_table(images / "other.json", images)


def test_a_cell_that_looks_like_a_list_is_no_category_without_a_word(images: Path) -> None:
    (images / "labels.csv").write_text("file,label\n1.png,birds;nice\n2.png,birds\n")
    listing = read_table(images / "labels.csv", images).listing
    assert listing.categories == ("birds", "birds;nice")
    assert listing.notes == (
        "cells of the column 'label' of labels.csv, such as 'birds;nice', look like lists, and are"
        " taken for categories of their own. If images have several categories, call the column"
        " 'labels'.",
    )


def test_a_comma_in_a_category_is_no_list_unless_its_parts_are_categories(images: Path) -> None:
    (images / "a.csv").write_text('file,label\n1.png,"Paris, France"\n2.png,Rome\n')
    assert not read_table(images / "a.csv", images).listing.notes


def test_an_image_in_two_rows_of_one_category_each_is_told_how_to_have_both(images: Path) -> None:
    (images / "labels.csv").write_text("file,label\n1.png,a\n1.png,b\n2.png,a\n")
    with pytest.raises(MalformedFileError, match="give them in one row, such as 'cat;dog'"):
        read_table(images / "labels.csv", images, TableOptions())


def test_boxes_are_refused(images: Path) -> None:
    (images / "metadata.jsonl").write_text('{"file_name": "1.png", "label": [{"box": [1, 2]}]}\n')
    with pytest.raises(MalformedFileError, match="boxes and other objects are not supported"):
        read_table(images / "metadata.jsonl", images)


def converted(images: Path, tmp_path: Path) -> ImageDirectory:
    with open_source(images, tmp_path / "converted") as source:
        convert(source, tmp_path / "converted")
    return open_directory(tmp_path / "converted", PORT)


def test_an_image_directory_keeps_lists(images: Path, tmp_path: Path) -> None:
    rows = ["1.png,bird;nice", "2.png,bird", "3.png,"]
    (images / "labels.csv").write_text("\n".join(["file_name,labels", *rows]))
    opened = converted(images, tmp_path)
    originals = opened.original_names(np.arange(3))
    lists = [opened.label_of(index) for index in range(3)]
    assert dict(zip(originals, lists, strict=True)) == EXPECTED
    assert opened.class_counts().tolist() == [2, 1]
    rows_of_list = [row["categories"] for _, row in opened.read_rows()]
    assert rows_of_list == lists
    targets = opened.targets(np.arange(3))
    assert targets.dtype == np.float32
    assert targets.tolist() == [[1, 1], [1, 0], [0, 0]]


def test_rows_of_an_image_directory_name_declared_categories(images: Path, tmp_path: Path) -> None:
    (images / "labels.csv").write_text("file_name,labels\n1.png,bird;nice\n2.png,bird\n")
    root = converted(images, tmp_path).root
    text = (root / "images.lst").read_text()
    (root / "images.lst").write_text(text.replace('["bird"]', '["fish"]'))
    with pytest.raises(InvalidDatasetError, match="category 'fish' is not declared"):
        open_directory(root, PORT)


def test_categories_in_another_order_move_the_marks(images: Path, tmp_path: Path) -> None:
    (images / "labels.csv").write_text("file_name,labels\n1.png,bird;nice\n2.png,bird\n")
    opened = converted(images, tmp_path)
    moved = opened.with_categories(("nice", "fish", "bird"))
    assert [moved.label_of(index) for index in range(2)] == [["nice", "bird"], ["bird"]]
    assert moved.fingerprint() != opened.fingerprint()
    assert opened.label_with(1, opened.categories.index("nice")) == "bird; nice"
    assert opened.label_with(0, opened.categories.index("bird")) == "nice"


def test_copies_in_two_folders_become_one_image_with_both_categories(tmp_path: Path) -> None:
    for name in ("a/1.png", "b/copy.png", "b/2.png"):
        (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        content = paint("blue", "2" in name, (8, 8))
        (tmp_path / "data" / name).write_bytes(encode(content))
    with open_source(tmp_path / "data", tmp_path / "merged") as source:
        assert convert(merge_copies(source), tmp_path / "merged") == 2
    opened = open_directory(tmp_path / "merged", PORT)
    assert [opened.label_of(index) for index in range(2)] == [["a", "b"], ["b"]]


def test_equal_sets_have_one_number(monkeypatch: pytest.MonkeyPatch) -> None:
    sets = LabelSets()
    assert [sets.number_of(members) for members in ([0, 2], [], [2, 0, 0])] == [0, 1, 0]
    assert sets.matrix(3).tolist() == [[True, False, True], [False, False, False]]
    monkeypatch.setattr(label_sets, "MAX_BYTES", 5)
    with pytest.raises(MalformedFileError, match="2 different lists of 3 categories"):
        sets.matrix(3)


def test_labels_are_written_as_other_tools_read_them(images: Path, tmp_path: Path) -> None:
    rows = ["1.png,bird;nice", "2.png,bird", "3.png,"]
    (images / "labels.csv").write_text("\n".join(["file_name,labels", *rows]))
    kinds: tuple[LabelFile, ...] = ("csv", "hugging-face", "automl")
    output = tmp_path / "converted"
    with open_source(images, output) as source:
        convert(source, output, label_files=kinds)
    opened = open_directory(output, PORT)
    expected = {name: opened.label_of(index) for index, name in enumerate(opened.file_names)}
    for name in ("labels.csv", "metadata.jsonl"):
        assert lists_of(read_table(output / name, output).listing, output) == expected
    annotations = annotations_of(output)
    assert lists_of(read_annotations(annotations), output) == expected
    again = tmp_path / "again"
    with open_source(output, again, Labels(label_files=("csv",))) as source:
        assert convert(source, again, label_files=("csv",)) == 3
    assert [len(row["categories"]) for _, row in open_directory(again, PORT).read_rows()] == [
        len(expected[name]) for name in opened.file_names
    ]


@pytest.mark.parametrize("labels", [["a;b", "c"], ["a,b"]])
def test_a_csv_is_not_written_that_would_be_read_otherwise(
    labels: list[str], images: Path, tmp_path: Path
) -> None:
    listed = [{"file_name": "1.png", "labels": labels}, {"file_name": "2.png", "labels": []}]
    (images / "metadata.jsonl").write_text("\n".join(map(json.dumps, listed)))
    output = tmp_path / "converted"
    with open_source(images, output) as source:
        with pytest.raises(InvalidDatasetError, match=r"'a[;,]b', .* '[;,]' .*--label-files"):
            convert(source, output, label_files=("csv",))
        convert(source, output, label_files=("hugging-face",))
    listing = read_table(output / "metadata.jsonl", output).listing
    assert labels in lists_of(listing, output).values()


def test_single_categories_are_written_as_such(images: Path, tmp_path: Path) -> None:
    (images / "labels.csv").write_text("file_name,label\n1.png,a\n2.png,b\n")
    with open_source(images, tmp_path / "converted") as source:
        convert(source, tmp_path / "converted", label_files=("csv", "automl"))
    text = (tmp_path / "converted" / "labels.csv").read_text()
    assert text == "file_name,label\nimage/0_0.png,a\nimage/1_1.png,b\n"
    row = json.loads((tmp_path / "converted" / "annotations.jsonl").read_text().split("\n")[0])
    assert row == {"image_url": "image/0_0.png", "label": "a"}


def test_a_column_of_marks_without_any_is_no_category_and_that_is_said(images: Path) -> None:
    table = images / "labels.csv"
    table.write_text("file_name,bird,nice,fox\n1.png,1,1,0\n2.png,1,0,0\n3.png,0,0,0\n")
    listing = read_table(table, images).listing
    assert listing.categories == ("bird", "nice")
    assert "columns of labels.csv without any 1 are no categories: 'fox'." in listing.notes


def test_the_way_to_write_lists_is_that_of_the_table(images: Path) -> None:
    rows = [{"image_url": f"{number}.png", "label": "bird;nice"} for number in (1, 2, 3)]
    table = images / "list.jsonl"
    table.write_text("\n".join(map(json.dumps, rows)))
    (note,) = read_table(table, images).listing.notes
    assert note.endswith('write them as lists, such as ["cat", "dog"].')
