"""Opening image directories: what is refused, and what is warned about."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.image_directories import PORT, open_three, write_three
from tests.painting import paint_folders

from train_pytorch_model.errors import InvalidDatasetError, NotLabeledDatasetError
from train_pytorch_model.formats.image_directory import open_image_directory
from train_pytorch_model.formats.listing import SUFFIXES


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
    (root / "a/y.svg").touch()
    (root / "a/z.txt").touch()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            nothing,
            "there is no such directory. An image directory holds one folder per category with",
        ),
        (a_file, "it is a file, not a directory. An image directory holds"),
        (empty, "it is empty. An image directory holds"),
        (
            unfinished,
            "it is incomplete: _meta.yaml is not written yet. Run the program that writes it"
            " again.",
        ),
        (
            without_meta,
            "it is incomplete: _meta.yaml is not written yet. Run the program that writes it"
            " again.",
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
    assert str(raised.value).startswith(
        f'Training dataset "{root}" is not valid, reason: {message}'
    )


def test_files_of_other_kinds_are_counted_if_there_are_no_images(tmp_path: Path) -> None:
    without_images(tmp_path / "data")
    with pytest.raises(InvalidDatasetError) as raised:
        open_image_directory(tmp_path / "data", PORT)
    found = str(raised.value).partition(" Found instead:")[2].splitlines()
    assert sorted(found) == [
        "",
        "  files of another kind (.svg): 1",
        "  files of another kind (.txt): 2",
    ]


def test_a_directory_that_cannot_be_listed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Path) -> None:
        raise PermissionError(
            13, "Permission denied"
        )  # tests may run as root, which may list anything

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(
        InvalidDatasetError, match=r"reason: it cannot be listed: Permission denied\.$"
    ):
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


def test_an_unlabelled_directory_opens_and_is_refused_where_labels_are_required(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.png").touch()
    directory = open_image_directory(tmp_path, PORT)
    assert len(directory) == 1
    with pytest.raises(
        NotLabeledDatasetError, match=r"There is no label column in .*: one folder per categ"
    ):
        directory.require_labels()


def test_a_labelled_directory_passes_the_label_check(tmp_path: Path) -> None:
    open_three(tmp_path).require_labels()


def test_plain_folders_open_as_an_image_directory(tmp_path: Path) -> None:
    directory = open_image_directory(paint_folders(tmp_path / "data", per_category=2), PORT)
    assert directory.categories == ("blue", "green", "red")
    assert directory.class_counts().tolist() == [2, 2, 2]
    assert directory.path(3) == tmp_path / "data/green/1.png"
    assert [row for _, row in directory.read_rows()][3] == {"category": "green", "id": 3}
    assert directory.title == f'Training dataset "{tmp_path / "data"}"'


def test_rows_of_unlabelled_files_have_only_an_id(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        (tmp_path / name).touch()
    assert [row for _, row in open_image_directory(tmp_path, PORT).read_rows()] == [
        {"id": 0},
        {"id": 1},
    ]


def test_folders_without_images_and_skipped_files_are_warned_about(tmp_path: Path) -> None:
    root = paint_folders(tmp_path / "data", per_category=1)
    assert open_image_directory(root, PORT).warnings() == []
    (root / "empty").mkdir()
    (root / "red/notes.txt").touch()
    assert open_image_directory(root, PORT).warnings() == [
        f"Training dataset \"{root}\": folders without an image are no categories:\n  'empty'",
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
        [row for _, row in directory.read_rows()]
    assert str(raised.value) == (
        f"{directory.title} is not valid, reason: images.lst:2: the row cannot be read: Exceeds the"
        " limit"
        " (4300 digits) for integer string conversion: value has 5000 digits. Correct the row, or"
        " leave it"
        " out."
    )
    assert len([row for _, row in directory.select(np.asarray([0, 2])).read_rows()]) == 2


def test_images_listed_more_than_once_are_warned_about(tmp_path: Path) -> None:
    root = write_three(tmp_path / "three")
    assert open_image_directory(root, PORT).warnings() == []
    text = (root / "images.lst").read_text()
    (root / "images.lst").write_text(text + text)
    directory = open_image_directory(root, PORT)
    assert directory.warnings() == [
        f"{directory.title} lists images more than once: 3 rows repeat the file of an earlier row."
        " Each row"
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
    with pytest.raises(
        NotLabeledDatasetError, match="3 images are beside its folders, and 2 in them"
    ):
        directory.require_labels()
