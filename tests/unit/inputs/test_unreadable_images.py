"""Image headers, the common image size, and how many unreadable images a dataset may have."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.image_directories import write_three
from tests.painting import paint, paint_folders

from train_pytorch_model.errors import InvalidDatasetError
from train_pytorch_model.formats.image_directory import ImageDirectory, open_image_directory
from train_pytorch_model.inputs import headers
from train_pytorch_model.inputs.headers import read_headers
from train_pytorch_model.inputs.unreadable_images import (
    UnreadableImage,
    list_unreadable_images,
    unreadable_images_warning,
    without_unreadable_images,
)

PORT = "Training dataset"


def open_painted(
    tmp_path: Path, per_category: int, size: tuple[int, int] = (12, 10)
) -> ImageDirectory:
    categories = ("blue", "red")
    return open_image_directory(
        paint_folders(tmp_path / "data", per_category, categories, size), PORT
    )


def of_sizes(tmp_path: Path, *counts: int) -> ImageDirectory:
    """A directory with this many files per category; all are empty, so none is a readable image."""
    for number, count in enumerate(counts):
        (tmp_path / f"data/c{number}").mkdir(parents=True)
        for index in range(count):
            (tmp_path / f"data/c{number}/{index}.png").touch()
    return open_image_directory(tmp_path / "data", PORT)


# ── Headers ──────────────────────────────────────────────────────────────────────────────────────


def test_the_size_of_all_images_is_the_common_size(tmp_path: Path) -> None:
    headers = read_headers(open_painted(tmp_path, 3, size=(12, 10)))
    assert headers.common_size == (10, 12)
    assert headers.unreadable == {}


def test_images_of_different_sizes_have_no_common_size(tmp_path: Path) -> None:
    directory = open_painted(tmp_path, 3)
    paint("blue", 0, (10, 12)).save(directory.path(0))
    assert read_headers(directory).common_size is None


@pytest.mark.parametrize(("others", "common"), [(1, (8, 8)), (2, None)])
def test_one_image_in_a_hundred_may_have_another_size(
    tmp_path: Path, others: int, common: tuple[int, int] | None
) -> None:
    directory = open_painted(tmp_path, 50, size=(8, 8))
    for index in range(others):
        paint("blue", 0, (9, 8)).save(directory.path(index))
    assert read_headers(directory).common_size == common


def test_unreadable_images_are_found_and_do_not_affect_the_common_size(tmp_path: Path) -> None:
    directory = open_painted(tmp_path, 3)
    directory.path(4).write_bytes(b"no image")
    directory.path(1).unlink()
    headers = read_headers(directory)
    assert headers.common_size == (10, 12)
    assert headers.unreadable == {
        1: "the file is gone",
        4: "not an image of a known format (JPEG, PNG, GIF, WebP, AVIF, HEIC, BMP, TIFF, PPM, PGM)",
    }


def test_without_readable_images_there_is_no_common_size(tmp_path: Path) -> None:
    assert read_headers(of_sizes(tmp_path, 2, 2)).common_size is None


def test_an_evenly_spaced_sample_of_a_large_directory_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(headers, "MAX_HEADERS", 4)
    directory = of_sizes(tmp_path, 5, 5)
    assert sorted(read_headers(directory).unreadable) == [0, 3, 6, 9]


# ── Unreadable images ────────────────────────────────────────────────────────────────────────────


def test_without_bad_images_the_directory_is_unchanged(tmp_path: Path) -> None:
    directory = of_sizes(tmp_path, 2, 2)
    assert without_unreadable_images(directory, {}) == (directory, [])


def test_unreadable_images_are_left_out_and_recorded_in_file_order(tmp_path: Path) -> None:
    kept, records = without_unreadable_images(of_sizes(tmp_path, 3, 3), {4: "late", 0: "early"})
    assert list(kept.file_names) == ["c0/1.png", "c0/2.png", "c1/0.png", "c1/2.png"]
    assert kept.class_indices.tolist() == [0, 0, 1, 1]
    assert kept.rows.tolist() == [1, 2, 3, 5]
    assert records == [
        UnreadableImage(PORT, "c0/0.png", "c0", "early"),
        UnreadableImage(PORT, "c1/1.png", "c1", "late"),
    ]


def test_unlabelled_images_are_recorded_without_a_category(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        (tmp_path / name).touch()
    kept, records = without_unreadable_images(open_image_directory(tmp_path, "Dataset"), {0: "x"})
    assert list(kept.file_names) == ["b.png"]
    assert records == [UnreadableImage("Dataset", "a.png", "", "x")]


@pytest.mark.parametrize(
    ("counts", "unreadable", "reason"),
    [
        pytest.param(
            (2, 1),
            range(3),
            "none of its images can be read. Unreadable images:\n  'c0/0.png': broken\n"
            "  'c0/1.png': broken\n"
            "  'c1/0.png': broken\nReplace or remove them.",
            id="all images",
        ),
        pytest.param(
            (2, 3),
            range(2),
            "no image can be read of category 'c0'. Unreadable images:\n  'c0/0.png': broken\n",
            id="all images of a category",
        ),
        pytest.param(
            (1, 1, 5),
            range(2),
            "no image can be read of category 'c0', 'c1'. Unreadable images:",
            id="all images of two categories",
        ),
        pytest.param(
            (199, 100),
            range(10),
            "more than 5% of the images of category 'c0' cannot be read. Unreadable images:",
            id="ten, and more than 5% of a category",
        ),
        pytest.param(
            (100, 99),
            [*range(5), *range(100, 105)],
            "10 of 199 images cannot be read. Unreadable images:",
            id="ten, and more than 5% of all images",
        ),
    ],
)
def test_too_many_unreadable_images_are_an_error(
    tmp_path: Path, counts: tuple[int, ...], unreadable: list[int], reason: str
) -> None:
    directory = of_sizes(tmp_path, *counts)
    with pytest.raises(InvalidDatasetError) as raised:
        without_unreadable_images(directory, dict.fromkeys(unreadable, "broken"))
    assert str(raised.value).startswith(f"{directory.title} is not valid, reason: {reason}")


@pytest.mark.parametrize(
    ("counts", "unreadable"),
    [
        pytest.param((10, 10), list(range(9)), id="nine, whatever their share of the category"),
        pytest.param((200, 100), list(range(10)), id="ten, 5% of their category"),
        pytest.param((3, 0, 3), [0], id="a category that was already empty"),
    ],
)
def test_fewer_unreadable_images_are_left_out(
    tmp_path: Path, counts: tuple[int, ...], unreadable: list[int]
) -> None:
    kept, records = without_unreadable_images(
        of_sizes(tmp_path, *counts), dict.fromkeys(unreadable, "broken")
    )
    assert len(records) == len(unreadable)
    assert len(kept) == sum(counts) - len(unreadable)


def test_too_many_unreadable_images_without_categories_are_an_error(tmp_path: Path) -> None:
    for index in range(20):
        (tmp_path / f"{index}.png").touch()
    with pytest.raises(InvalidDatasetError, match=r"reason: 10 of 20 images cannot be read\."):
        without_unreadable_images(
            open_image_directory(tmp_path, "Dataset"), dict.fromkeys(range(10), "broken")
        )


def test_the_warning_lists_ten_images_and_counts_the_rest() -> None:
    records = [UnreadableImage(PORT, f"{index}.png", "a", "broken") for index in range(12)]
    lines = unreadable_images_warning(records).splitlines()
    assert lines[0] == "12 unreadable images are left out:"
    assert lines[1] == "  Training dataset: '0.png': broken"
    assert lines[11:] == ["  and 2 more"]


def test_unreadable_images_are_written_as_csv(tmp_path: Path) -> None:
    records = [
        UnreadableImage(PORT, "a/1.png", "größe", 'a "reason", with a comma'),
        UnreadableImage("Validation dataset", "caf\udce9.png", "", "gone"),
        UnreadableImage("Validation dataset", "a\rb.png", "", "gone", "bees/größe.png"),
    ]
    list_unreadable_images(tmp_path, records)
    assert (tmp_path / "bad_images.csv").read_bytes() == (
        b"port,file_name,category,reason,original\n"
        + 'Training dataset,a/1.png,größe,"a ""reason"", with a comma",\n'.encode()
        + b"Validation dataset,caf\xe9.png,,gone,\n"
        + b'Validation dataset,"a\rb.png",,gone,bees/gr\xc3\xb6\xc3\x9fe.png\n'
    )


def test_renamed_images_are_reported_with_their_original_names(tmp_path: Path) -> None:
    root = write_three(tmp_path / "data")
    lines = (root / "images.lst").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    rows[0]["image_info"]["original"] = "dogs/größe.jpg"
    (root / "images.lst").write_text("".join(json.dumps(row) + "\n" for row in rows))
    directory = open_image_directory(root, PORT)
    first, second, _ = directory.file_names
    _, records = without_unreadable_images(directory, {1: "late", 0: "early"}, is_limited=False)
    assert [record.original for record in records] == ["dogs/größe.jpg", ""]
    assert unreadable_images_warning(records).splitlines()[1:] == [
        f"  {PORT}: {first!r}, originally 'dogs/größe.jpg': early",
        f"  {PORT}: {second!r}: late",
    ]


def test_headers_do_not_depend_on_the_order_in_which_threads_read_them(tmp_path: Path) -> None:
    directory = of_sizes(tmp_path, 20, 20)
    assert list(read_headers(directory).unreadable) == np.arange(40).tolist()


def test_any_number_of_unreadable_images_except_all_may_be_left_out(tmp_path: Path) -> None:
    directory = of_sizes(tmp_path, 20, 20)
    kept, records = without_unreadable_images(
        directory, dict.fromkeys(range(39), "broken"), is_limited=False
    )
    assert list(kept.file_names) == ["c1/19.png"]
    assert len(records) == 39
    assert without_unreadable_images(directory, {}, is_limited=False) == (directory, [])
    with pytest.raises(
        InvalidDatasetError, match=r"reason: none of its images can be read\. Unreadable images:"
    ):
        without_unreadable_images(directory, dict.fromkeys(range(40), "broken"), is_limited=False)
