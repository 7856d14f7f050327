"""Image directories: opening, checks, selections and fingerprints."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.image_directories import PORT, open_three, write_three
from tests.painting import paint_folders

from train_pytorch_model.formats.image_directory import image_row, open_image_directory
from train_pytorch_model.formats.plain_folders import SUFFIXES
from train_pytorch_model.formats.schema import image_schema
from train_pytorch_model.words.errors import InvalidDatasetError, NotLabeledDatasetError

# ── Opening ──────────────────────────────────────────────────────────────────────────────────────


def empty(root: Path) -> None:
    root.mkdir()


def a_file(root: Path) -> None:
    root.touch()


def nothing(root: Path) -> None:
    assert not root.exists()


def unfinished(root: Path) -> None:
    write_three(root)
    (root / "_incomplete").touch()


def without_meta(root: Path) -> None:
    write_three(root)
    (root / "_meta.yaml").unlink()


def without_meta_and_list(root: Path) -> None:
    without_meta(root)
    (root / "images.lst").unlink()


def with_a_broken_meta(root: Path) -> None:
    write_three(root)
    (root / "_meta.yaml").write_text("type: [")


def without_rows(root: Path) -> None:
    write_three(root)
    (root / "images.lst").write_text("")


def without_images(root: Path) -> None:
    (root / "a").mkdir(parents=True)
    (root / "a/x.txt").touch()
    (root / "a/y.gif").touch()
    (root / "a/z.txt").touch()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (nothing, "there is no such directory. An image directory holds one folder per category with"),
        (a_file, "it is a file, not a directory. An image directory holds"),
        (empty, "it is empty. An image directory holds"),
        (
            unfinished,
            "it is incomplete: _meta.yaml is not written yet. Run the program that writes it again.",
        ),
        (
            without_meta,
            "it is incomplete: _meta.yaml is not written yet. Run the program that writes it again.",
        ),
        (without_meta_and_list, "it is incomplete: _meta.yaml is not written yet."),
        (with_a_broken_meta, "_meta.yaml is not valid YAML: while parsing a flow node"),
        (
            without_rows,
            f"no image in it ({' '.join(sorted(SUFFIXES))}). An image",
        ),
        (
            without_images,
            f"no image in it ({' '.join(sorted(SUFFIXES))}). An image",
        ),
    ],
)
def test_invalid_image_directories_are_refused(
    tmp_path: Path, make: Callable[[Path], None], message: str
) -> None:
    root = tmp_path / "data"
    make(root)
    with pytest.raises(InvalidDatasetError) as raised:
        open_image_directory(root, PORT)
    assert str(raised.value).startswith(f'Training dataset "{root}" is not valid, reason: {message}')


def test_files_of_other_kinds_are_counted_if_there_are_no_images(tmp_path: Path) -> None:
    without_images(tmp_path / "data")
    with pytest.raises(InvalidDatasetError) as raised:
        open_image_directory(tmp_path / "data", PORT)
    found = str(raised.value).partition(" Found instead:")[2].splitlines()
    assert sorted(found) == [
        "",
        "  files of another kind (.gif): 1",
        "  files of another kind (.txt): 2",
    ]


def test_a_directory_that_cannot_be_listed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Path) -> None:
        raise PermissionError(13, "Permission denied")  # tests may run as root, which may list anything

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(InvalidDatasetError, match=r"reason: it cannot be listed: Permission denied\.$"):
        open_image_directory(tmp_path, PORT)


def test_rows_without_a_category_are_refused_as_unlabelled(tmp_path: Path) -> None:
    root = write_three(tmp_path / "data")
    lines = (root / "images.lst").read_text().replace('"category": "b", ', "")
    (root / "images.lst").write_text(lines)
    with pytest.raises(NotLabeledDatasetError) as raised:
        open_image_directory(root, PORT)
    assert str(raised.value).startswith(
        f'There is no label column in "Training dataset {root}". 1 rows lack it:'
        "\n  images.lst:2: image 'image/1_1.png' has no category."
        "\nTraining needs a category for every image:"
    )


def test_an_unlabelled_directory_opens_and_is_refused_where_labels_are_required(tmp_path: Path) -> None:
    (tmp_path / "a.png").touch()
    directory = open_image_directory(tmp_path, PORT)
    assert len(directory) == 1
    with pytest.raises(NotLabeledDatasetError, match=r"There is no label column in .*: one folder per categ"):
        directory.require_labels()


def test_a_labelled_directory_passes_the_label_check(tmp_path: Path) -> None:
    open_three(tmp_path).require_labels()


def test_plain_folders_open_as_an_image_directory(tmp_path: Path) -> None:
    directory = open_image_directory(paint_folders(tmp_path / "data", per_category=2), PORT)
    assert directory.categories == ("blue", "green", "red")
    assert directory.class_counts().tolist() == [2, 2, 2]
    assert directory.path(3) == tmp_path / "data/green/1.png"
    assert list(directory.read_rows())[3] == {"category": "green", "id": 3}
    assert directory.title == f'Training dataset "{tmp_path / "data"}"'


def test_rows_of_unlabelled_files_have_only_an_id(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        (tmp_path / name).touch()
    assert list(open_image_directory(tmp_path, PORT).read_rows()) == [{"id": 0}, {"id": 1}]


# ── Selections, rows and fingerprints ────────────────────────────────────────────────────────────


def test_a_selection_keeps_names_classes_and_rows_together(tmp_path: Path) -> None:
    selected = open_three(tmp_path).select(np.asarray([1, 2]))
    assert list(selected.file_names) == ["image/1_1.png", "image/0_2.png"]
    assert selected.class_indices.tolist() == [1, 0]
    assert list(selected.read_rows()) == [{"id": 1, "category": "b"}, {"id": 2, "category": "große"}]
    assert list(selected.select(np.asarray([1])).read_rows()) == [{"id": 2, "category": "große"}]
    assert list(selected.select(np.asarray([], dtype=np.int64)).read_rows()) == []


def test_a_selection_of_plain_folders_keeps_its_ids(tmp_path: Path) -> None:
    directory = open_image_directory(paint_folders(tmp_path / "data", per_category=2), PORT)
    rows = list(directory.select(np.asarray([1, 4])).read_rows())
    assert rows == [{"category": "blue", "id": 1}, {"category": "red", "id": 4}]


def test_columns_missing_from_a_row_are_none(tmp_path: Path) -> None:
    root = write_three(tmp_path / "data")
    lines = (root / "images.lst").read_text().replace(', "id": 1', "")
    (root / "images.lst").write_text(lines)
    rows = list(open_image_directory(root, PORT).read_rows())
    assert [row["id"] for row in rows] == [0, None, 2]


def test_class_indices_follow_a_new_order_of_the_categories(tmp_path: Path) -> None:
    moved = open_three(tmp_path).with_categories(("b", "große"))
    assert moved.categories == ("b", "große")
    assert moved.class_indices.tolist() == [1, 0, 1]
    assert [row["category"] for row in moved.read_rows()] == ["große", "b", "große"]


def test_the_fingerprint_depends_on_the_files_their_order_and_the_categories(tmp_path: Path) -> None:
    directory = open_three(tmp_path)
    again = open_image_directory(directory.root, "Validation dataset")
    assert directory.fingerprint() == again.fingerprint()
    others = {
        directory.fingerprint(),
        directory.select(np.asarray([0, 1])).fingerprint(),
        directory.select(np.asarray([1, 0, 2])).fingerprint(),
        directory.with_categories(("b", "große")).fingerprint(),
    }
    assert len(others) == 4


def test_names_and_classes_of_equal_lengths_have_different_fingerprints(tmp_path: Path) -> None:
    found = set()
    for root, names in enumerate((("x/a", "x/b", "y/c"), ("x/a", "x/d", "y/c"), ("x/a", "y/b", "y/c"))):
        for name in names:
            path = tmp_path / str(root) / f"{name}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        directory = open_image_directory(tmp_path / str(root), PORT)
        found.add(directory.fingerprint())
        found.add(directory.with_categories(("y", "x")).fingerprint())
        found.add(replace(directory, categories=("x", "z")).fingerprint())
        found.add(replace(directory, class_indices=directory.class_indices[::-1]).fingerprint())
    assert len(found) == 12


def test_the_boundary_between_names_is_part_of_the_fingerprint(tmp_path: Path) -> None:
    for root, names in {"one": ("ab.png", "c.png"), "two": ("a", "b.pngc.png")}.items():
        (tmp_path / root).mkdir()
        for name in names:
            (tmp_path / root / name).touch()
    (tmp_path / "two/a").rename(tmp_path / "two/a.png")
    one, two = (open_image_directory(tmp_path / root, PORT) for root in ("one", "two"))
    assert one.fingerprint() != two.fingerprint()


def test_file_name_indices_out_of_range_are_refused(tmp_path: Path) -> None:
    names = open_three(tmp_path).file_names
    for index in (-1, 3):
        with pytest.raises(IndexError):
            names[index]


def test_whole_rows_and_the_schema_are_read_unchanged(tmp_path: Path) -> None:
    root = write_three(tmp_path / "data")
    text = (root / "images.lst").read_text().replace('"id": 1', '"note": {"x": [1.5, null]}, "id": 1')
    (root / "images.lst").write_text(text)
    directory = open_image_directory(root, PORT)
    assert [json.dumps(row) for row in directory.read_listed_rows()] == text.splitlines()
    assert list(directory.select(np.asarray([1])).read_listed_rows()) == [
        {"image_info": {"file_name": "image/1_1.png"}, "category": "b", "note": {"x": [1.5, None]}, "id": 1}
    ]
    assert directory.read_schema() == json.loads((root / "_schema.json").read_text())


def test_rows_and_schema_of_plain_folders_match_those_of_convert(tmp_path: Path) -> None:
    directory = open_image_directory(paint_folders(tmp_path / "data", per_category=2), PORT)
    assert list(directory.read_listed_rows())[3] == image_row("image/1_3.png", 3, "green", "green/1.png")
    assert directory.read_schema() == image_schema(["blue", "green", "red"])
    assert list(directory.select(np.asarray([3])).read_listed_rows()) == [
        image_row("image/1_3.png", 3, "green", "green/1.png")
    ]


def test_original_names_are_read_from_the_list_and_empty_if_unknown(tmp_path: Path) -> None:
    root = write_three(tmp_path / "data")
    lines = (root / "images.lst").read_text().splitlines()
    references = [{"original": "dogs/a \u56f3.jpg"}, {"original": 5}, {}]
    rows = [json.loads(line) for line in lines]
    for row, reference in zip(rows, references, strict=True):
        row["image_info"] |= reference
    (root / "images.lst").write_text("".join(json.dumps(row) + "\n" for row in rows))
    directory = open_image_directory(root, PORT)
    assert directory.original_names(np.asarray([2, 0, 1, 0])) == [
        "",
        "dogs/a \u56f3.jpg",
        "",
        "dogs/a \u56f3.jpg",
    ]
    assert directory.select(np.asarray([0, 2])).original_names(np.asarray([1, 0])) == [
        "",
        "dogs/a \u56f3.jpg",
    ]
    rows[1]["image_info"]["original"] = "long" * 100_000
    (root / "images.lst").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert directory.original_names(np.asarray([1])) == ["long" * 1024]
    (root / "images.lst").write_text("".join(json.dumps(row) + "\n" for row in rows[::-1]))
    assert directory.original_names(np.asarray([0, 1, 2])) == ["", "long" * 1024, ""]  # the rows moved
    (root / "images.lst").write_text("no row any more\n" * 3)
    assert directory.original_names(np.asarray([0, 1])) == ["", ""]
    (root / "images.lst").write_text("[1]\n" * 3)
    assert directory.original_names(np.asarray([0])) == [""]
    (root / "images.lst").unlink()
    assert directory.original_names(np.asarray([0])) == [""]
    (root / "_schema.json").write_text('{"columnAttributes": []}')
    assert directory.original_names(np.asarray([0])) == [""]
    assert directory.original_names(np.asarray([], dtype=np.int64)) == []


def test_original_names_that_are_not_utf8_are_escaped() -> None:
    assert image_row("image/0_0.png", 0, "a", "a/\udcff \u56f3.png")["image_info"] == {
        "file_name": "image/0_0.png",
        "original": "a/\\udcff \u56f3.png",
    }


def test_empty_categories_and_skipped_files_are_warned_about(tmp_path: Path) -> None:
    root = paint_folders(tmp_path / "data", per_category=1)
    assert open_image_directory(root, PORT).warnings() == []
    (root / "empty").mkdir()
    (root / "red/notes.txt").touch()
    assert open_image_directory(root, PORT).warnings() == [
        f"Training dataset \"{root}\" has no image of category\n  'empty'",
        f'Training dataset "{root}": skipped: files of another kind (.txt): 1.',
    ]
    assert open_image_directory(root / "blue", PORT).warnings() == []


def test_a_row_with_a_number_too_long_to_parse_is_reported(tmp_path: Path) -> None:
    root = write_three(tmp_path / "three")
    lines = (root / "images.lst").read_text().splitlines()
    lines[1] = f'{lines[1][:-1]}, "serial": {"9" * 5000}}}'
    (root / "images.lst").write_text("\n".join(lines))
    directory = open_image_directory(root, PORT)
    with pytest.raises(InvalidDatasetError) as raised:
        list(directory.read_rows())
    assert str(raised.value) == (
        f"{directory.title} is not valid, reason: images.lst:2: the row cannot be read: Exceeds the limit"
        " (4300 digits) for integer string conversion: value has 5000 digits. Correct the row, or leave it"
        " out."
    )
    assert len(list(directory.select(np.asarray([0, 2])).read_rows())) == 2


def test_images_listed_more_than_once_are_warned_about(tmp_path: Path) -> None:
    root = write_three(tmp_path / "three")
    assert open_image_directory(root, PORT).warnings() == []
    text = (root / "images.lst").read_text()
    (root / "images.lst").write_text(text + text)
    directory = open_image_directory(root, PORT)
    assert directory.warnings() == [
        f"{directory.title} lists images more than once: 3 rows repeat the file of an earlier row. Each row"
        " counts as an image."
    ]


@pytest.mark.parametrize(("loose", "is_refused"), [(2, False), (3, True)])
def test_labels_are_missing_where_most_images_are_beside_the_folders(
    tmp_path: Path, loose: int, is_refused: bool
) -> None:
    for name in ("a/1.png", "b/1.png", *(f"{number}.png" for number in range(loose))):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    directory = open_image_directory(tmp_path, PORT)
    if not is_refused:
        directory.require_labels()
        return
    with pytest.raises(NotLabeledDatasetError, match="3 images are beside its folders, and 2 in them"):
        directory.require_labels()
