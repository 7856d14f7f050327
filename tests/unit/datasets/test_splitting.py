"""Splitting: every image is in one part, categories are split by the fractions, all outputs or
none.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.image_directories import write_image_directory
from tests.painting import encode, paint, paint_folders

from train_pytorch_model.datasets.parts import write_parts
from train_pytorch_model.datasets.splitting import first_counts, split
from train_pytorch_model.errors import InvalidDatasetError, OutputDirectoryError
from train_pytorch_model.formats import image_directory, schema
from train_pytorch_model.formats.image_directory import (
    ImageDirectory,
    open_image_directory,
)
from train_pytorch_model.formats.listing import UNLABELLED, Listing, Packer
from train_pytorch_model.formats.writing import write_json

PORT = "Input image directory"
HALVES = (0.5, 0.5)


def of_classes(class_indices: list[int], num_categories: int) -> ImageDirectory:
    """An image directory that does not exist on disk."""
    names = Packer(f"{index}.png" for index in range(len(class_indices))).finish()
    categories = tuple(f"c{index}" for index in range(num_categories))
    listing = Listing(names, np.asarray(class_indices, dtype=np.int32), categories, ("id",), {})
    return image_directory.images_of(listing, Path("data"), PORT)


def write_split(
    images: ImageDirectory, outputs: Sequence[Path], fractions: Sequence[float] = HALVES
) -> None:
    write_parts(split(images, fractions, seed=1, stratified=True), outputs)


# ── Assignment to parts ──────────────────────────────────────────────────────────────────────────


@given(
    class_indices=st.lists(st.integers(0, 5), min_size=2, max_size=60),
    fraction=st.floats(0, 1, exclude_min=True, exclude_max=True),
    seed=st.integers(),
    stratified=st.booleans(),
)
def test_every_image_is_in_exactly_one_part(
    class_indices: list[int], fraction: float, seed: int, stratified: bool
) -> None:
    images = of_classes(class_indices, 7)
    first, second = split(images, (fraction, 1 - fraction), seed, stratified)
    assert sorted([*first.rows, *second.rows]) == list(range(len(images)))
    for part in (first, second):
        assert len(part) >= 1
        assert sorted(part.rows) == list(part.rows)
        assert part.categories == images.categories
        assert part.class_indices.tolist() == [class_indices[row] for row in part.rows]
        assert list(part.file_names) == [f"{row}.png" for row in part.rows]
    exact = fraction * len(images)
    if not stratified:
        assert abs(len(first) - exact) <= max(0.5, 1 - exact, 1 - (len(images) - exact))
        return
    for category, size in Counter(class_indices).items():
        count = int(first.class_counts()[category])
        if size > 1:
            assert 1 <= count < size
        assert abs(count - fraction * size) < 1 or count in (1, size - 1)


@pytest.mark.parametrize(
    ("sizes", "fraction", "counts"),
    [
        ([10, 20, 30], 0.8, [8, 16, 24]),
        ([12, 12, 12], 0.75, [9, 9, 9]),
        ([10] * 10, 0.85, [9] * 5 + [8] * 5),  # 85 of 100
        (
            [7, 9, 5],
            0.5,
            [4, 4, 2],
        ),  # 10.5 of 21 rounds to even; of equal remainders the first rounds up
        ([2, 2, 100], 0.99, [1, 1, 99]),
        ([2, 2, 100], 0.01, [1, 1, 1]),
        ([1, 1, 1, 1], 0.5, [1, 1, 0, 0]),
        ([1, 1], 0.999999, [1, 0]),
        ([1, 1], 0.000001, [1, 0]),
        ([0, 1, 4], 0.5, [0, 0, 2]),
        ([100], 0.29, [29]),  # 0.29 * 100 is 28.999999999999996
        ([1000], 0.7, [700]),  # exactly 700.0
        ([0, 2], 5e-324, [0, 1]),
    ],
)
def test_each_category_is_split_as_close_to_the_fraction_as_possible(
    sizes: list[int], fraction: float, counts: list[int]
) -> None:
    lacks = np.ones((2, len(sizes) + 1), bool)
    assert first_counts(np.asarray(sizes), fraction, lacks).tolist() == counts


def test_parts_depend_on_the_seed() -> None:
    images = of_classes([0, 1] * 50, 2)
    first = [
        split(images, HALVES, seed, stratified=True)[0].rows.tolist()
        for seed in (1, 1, 2, -1, 10**30)
    ]
    assert first[0] == first[1]
    assert len({tuple(rows) for rows in first}) == 4


def test_a_category_is_shuffled_before_it_is_split() -> None:
    first, _ = split(of_classes([0] * 100, 1), HALVES, seed=1, stratified=True)
    assert 10 < sum(row < 50 for row in first.rows) < 40


def test_images_without_categories_are_split_as_a_whole() -> None:
    images = of_classes([UNLABELLED] * 10, 0)
    assert [len(part) for part in split(images, (0.8, 0.2), seed=1, stratified=True)] == [8, 2]


def test_an_unstratified_split_ignores_categories() -> None:
    images = of_classes([0] * 50 + [1] * 50, 2)
    firsts = [
        split(images, HALVES, seed, stratified=False)[0].class_counts().tolist()
        for seed in range(10)
    ]
    assert {sum(counts) for counts in firsts} == {50}
    assert len({tuple(counts) for counts in firsts}) > 1


@given(
    files=st.lists(st.integers(0, 9), min_size=2, max_size=40).filter(
        lambda files: len(set(files)) > 1
    ),
    fraction=st.floats(0, 1, exclude_min=True, exclude_max=True),
    stratified=st.booleans(),
)
@example(files=[0, 0, 2, 2, 8, 8], fraction=5e-324, stratified=True)
def test_rows_of_the_same_file_stay_in_one_part(
    files: list[int], fraction: float, stratified: bool
) -> None:
    images = of_classes([file % 3 for file in files], 3)
    images = replace(images, file_names=Packer(f"{file}.png" for file in files).finish())
    parts = split(images, (fraction, 1 - fraction), 1, stratified)
    first, second = (set(part.file_names) for part in parts)
    assert first
    assert second
    assert not first & second
    assert sorted(row for part in parts for row in part.rows) == list(range(len(files)))


@pytest.mark.parametrize("rows", [[0], [0, 0, 0]])
def test_a_single_image_cannot_be_split(rows: list[int]) -> None:
    images = of_classes([0], 1).select(np.asarray(rows))
    with pytest.raises(InvalidDatasetError) as raised:
        split(images, HALVES, seed=1, stratified=True)
    assert str(raised.value) == (
        'Input image directory "data" is not valid, reason: it has too few images: each part of'
        " a split"
        " needs one."
    )


@given(
    class_indices=st.lists(st.integers(0, 3), min_size=3, max_size=40),
    fractions=st.sampled_from(
        [(0.6, 0.2, 0.2), (0.8, 0.1, 0.1), (0.98, 0.01, 0.01), (0.01, 0.01, 0.98)]
    ),
    stratified=st.booleans(),
)
def test_three_parts_are_disjoint_and_each_has_every_category_of_three_images(
    class_indices: list[int], fractions: tuple[float, ...], stratified: bool
) -> None:
    images = of_classes(class_indices, 4)
    parts = split(images, fractions, 1, stratified)
    assert sorted(row for part in parts for row in part.rows) == list(range(len(images)))
    assert all(len(part) for part in parts)
    if stratified:
        large = [category for category, size in Counter(class_indices).items() if size >= 3]
        assert all((part.class_counts()[large] > 0).all() for part in parts)


def test_three_parts_have_the_sizes_asked_for() -> None:
    images = of_classes([0] * 20 + [1] * 30, 2)
    parts = split(images, (0.6, 0.2, 0.2), seed=1, stratified=True)
    assert [part.class_counts().tolist() for part in parts] == [[12, 18], [4, 6], [4, 6]]


# ── Written directories ──────────────────────────────────────────────────────────────────────────


def write_classic(root: Path) -> ImageDirectory:
    """A classic directory with a custom column, an empty category, gaps in ids, and two rows of one
    file.
    """
    images = [
        (f"{index % 2}_{index}.png", encode(paint("red", index, (6, 5))), "ab"[index % 2])
        for index in range(8)
    ]
    write_image_directory(root, images, ["a", "b"])
    document = json.loads((root / "_schema.json").read_text())
    document["columnAttributes"][2]["properties"]["categories"] = [
        {"id": 0, "name": "a"},
        {"id": 2, "name": "empty"},
        {"id": 5, "name": "b"},
    ]
    document["columnAttributes"].append({"name": "camera", "type": "String", "isFeature": False})
    (root / "_schema.json").write_text(json.dumps(document))
    rows: list[dict[str, Any]] = [
        json.loads(line) for line in (root / "images.lst").read_text().splitlines()
    ]
    for row in rows:
        row["image_info"]["width"] = 6
        row["id"] += 100
        row["camera"] = f"№ {row['id']}"
    rows.append(rows[0] | {"id": 7000})
    (root / "images.lst").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return open_image_directory(root, PORT)


def lines_of(root: Path) -> list[str]:
    return (root / "images.lst").read_text().splitlines()


def test_rows_schema_and_files_are_preserved(tmp_path: Path) -> None:
    images = write_classic(tmp_path / "in")
    outputs = (tmp_path / "1", tmp_path / "2")
    write_split(images, outputs, (0.6, 0.4))
    assert sorted(lines_of(outputs[0]) + lines_of(outputs[1])) == sorted(lines_of(tmp_path / "in"))
    for root in outputs:
        document = json.loads((root / "_schema.json").read_text())
        assert document == json.loads((tmp_path / "in/_schema.json").read_text())
        part = open_image_directory(root, "Dataset")
        assert part.categories == ("a", "empty", "b")
        for row in map(json.loads, lines_of(root)):
            name = row["image_info"]["file_name"]
            assert (root / name).read_bytes() == (tmp_path / "in" / name).read_bytes()
        files = {path.name for path in (root / "image").iterdir()}
        assert files == {Path(name).name for name in part.file_names}
        samples = json.loads((root / "_samples.json").read_text())
        assert [list(sample) for sample in samples] == [["image", "id", "category", "camera"]] * 3


def test_two_rows_of_one_file_are_written_to_one_part(tmp_path: Path) -> None:
    images = write_classic(tmp_path / "in")
    parts = (images.select(np.asarray([0, 8])), images.select(np.arange(1, 8)))
    write_parts(parts, (tmp_path / "1", tmp_path / "2"))
    assert list(open_image_directory(tmp_path / "1", PORT).file_names) == ["image/0_0.png"] * 2


def test_plain_folders_become_image_directories(tmp_path: Path) -> None:
    images = open_image_directory(paint_folders(tmp_path / "in", 4), PORT)
    write_split(images, (tmp_path / "1", tmp_path / "2"))
    rows = [json.loads(line) for root in ("1", "2") for line in lines_of(tmp_path / root)]
    assert sorted(row["id"] for row in rows) == list(range(12))
    for row in rows:
        category, index = divmod(row["id"], 4)
        assert row["category"] == images.categories[category]
        assert row["image_info"] == {
            "file_name": f"image/{category}_{row['id']}.png",
            "original": f"{row['category']}/{index}.png",
        }
        [copy] = tmp_path.glob(f"[12]/{row['image_info']['file_name']}")
        assert (
            copy.read_bytes() == (tmp_path / "in" / row["category"] / f"{index}.png").read_bytes()
        )


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_no_output_is_left_if_one_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    images = open_image_directory(paint_folders(tmp_path / "in", 4), PORT)
    outputs = (tmp_path / "1", tmp_path / "2", tmp_path / "3")

    def fail(path: Path, value: object) -> None:
        if path == outputs[failing] / "_samples.json":
            raise OSError(28, "No space left on device")
        write_json(path, value)

    monkeypatch.setattr(image_directory, "write_json", fail)
    with pytest.raises(OutputDirectoryError) as raised:
        write_split(images, outputs, (0.5, 0.25, 0.25))
    flag = f"--output-{failing + 1} {outputs[failing]}"
    assert str(raised.value).startswith(
        f"{flag} cannot be finished, and nothing is left of it: [Errno 28]"
    )
    assert [output.exists() for output in outputs] == [False, False, False]


def test_an_output_that_is_not_empty_is_refused_and_neither_is_written(tmp_path: Path) -> None:
    images = open_image_directory(paint_folders(tmp_path / "in", 4), PORT)
    (tmp_path / "2").mkdir()
    (tmp_path / "2/mine").write_text("mine")
    with pytest.raises(OutputDirectoryError, match=r"^--output-2 .* is not empty: it holds mine"):
        write_split(images, (tmp_path / "1", tmp_path / "2"))
    assert not (tmp_path / "1").exists()
    assert (tmp_path / "2/mine").read_text() == "mine"


def test_an_unreadable_image_leaves_no_output(tmp_path: Path) -> None:
    images = open_image_directory(paint_folders(tmp_path / "in", 4), PORT)
    (tmp_path / "in/green/2.png").unlink()
    with pytest.raises(InvalidDatasetError) as raised:
        write_split(images, (tmp_path / "1", tmp_path / "2"))
    assert str(raised.value) == (
        f"{images.title} is not valid, reason: image 'green/2.png': the file cannot be read: No"
        " such file or directory."
    )
    assert [*tmp_path.glob("[12]")] == []


def test_an_interruption_leaves_no_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = open_image_directory(paint_folders(tmp_path / "in", 4), PORT)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(schema, "image_samples", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_split(images, (tmp_path / "1", tmp_path / "2"))
    assert [*tmp_path.glob("[12]")] == []


def test_a_row_that_names_the_image_list_as_its_file_is_refused(tmp_path: Path) -> None:
    images = write_classic(tmp_path / "in")
    text = (images.root / "images.lst").read_text().replace("image/1_1.png", "images.lst")
    (images.root / "images.lst").write_text(text)
    with pytest.raises(OutputDirectoryError, match=r"nothing is left of it: .*File exists"):
        write_split(open_image_directory(images.root, PORT), (tmp_path / "1", tmp_path / "2"))
    assert [*tmp_path.glob("[12]")] == []
