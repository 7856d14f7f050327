"""Groups stay in one part of a split: twins, and images that belong together by their names."""

import io
import re
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from sklearn.model_selection import StratifiedGroupKFold
from tests.painting import paint_folders, paint_scene

from train_pytorch_model.datasets.grouping import connect, group_images
from train_pytorch_model.datasets.splitting import split
from train_pytorch_model.errors import InvalidDatasetError, ParameterError
from train_pytorch_model.formats.image_directory import (
    ImageDirectory,
    images_of,
    open_image_directory,
)
from train_pytorch_model.formats.listing import Listing, Packer

PORT = "Input image directory"


def of_names(names: list[str], class_indices: list[int], num_categories: int = 3) -> ImageDirectory:
    """An image directory that does not exist on disk."""
    categories = tuple(f"c{index}" for index in range(num_categories))
    listing = Listing(
        Packer(names).finish(), np.asarray(class_indices, np.int32), categories, ("id",), {}
    )
    return images_of(listing, Path("data"), PORT)


@given(
    members=st.lists(st.tuples(st.integers(0, 8), st.integers(0, 2)), min_size=3, max_size=60),
    fractions=st.sampled_from([(0.8, 0.2), (0.5, 0.5), (0.6, 0.2, 0.2), (0.05, 0.95)]),
    seed=st.integers(0, 9),
    stratified=st.booleans(),
)
def test_a_group_is_in_one_part_and_no_part_is_empty(
    members: list[tuple[int, int]], fractions: tuple[float, ...], seed: int, stratified: bool
) -> None:
    groups = np.array([group for group, _ in members])
    images = of_names([f"{index}.png" for index in range(len(members))], [c for _, c in members])
    if len(set(groups.tolist())) < len(fractions):
        with pytest.raises(InvalidDatasetError, match="too few groups of images"):
            split(images, fractions, seed, stratified, groups)
        return
    parts = split(images, fractions, seed, stratified, groups)
    assert sorted(row for part in parts for row in part.rows.tolist()) == list(range(len(members)))
    of_parts = [set(groups[part.rows].tolist()) for part in parts]
    assert all(of_parts)
    assert sum(map(len, of_parts)) == len(set().union(*of_parts))


def test_the_split_of_groups_is_as_even_as_that_of_scikit_learn() -> None:
    """The largest deviation of a category's fraction, over several draws of patients of 1 to 30
    images.
    """
    ours, theirs = [], []
    for seed in range(10):
        random = np.random.default_rng(seed)
        sizes = random.integers(1, 31, 80)
        groups = np.repeat(np.arange(80), sizes)
        categories = np.repeat(random.integers(0, 3, 80), sizes)
        totals = np.bincount(categories)
        images = of_names([f"{index}.png" for index in range(len(groups))], categories.tolist())
        part = split(images, (0.8, 0.2), seed, True, groups)[1]
        folds = StratifiedGroupKFold(5, shuffle=True, random_state=seed).split(
            categories, categories, groups
        )
        ours.append(np.abs(np.bincount(categories[part.rows], minlength=3) / totals - 0.2).max())
        theirs.append(
            np.mean(
                [
                    np.abs(np.bincount(categories[test], minlength=3) / totals - 0.2).max()
                    for _, test in folds
                ]
            )
        )
    assert np.mean(ours) < np.mean(theirs)
    assert max(ours) < 0.05


def test_each_part_gets_a_group_of_each_category_if_there_are_enough() -> None:
    groups = np.repeat(np.arange(9), 20)
    images = of_names(
        [f"{index}.png" for index in range(180)], np.repeat([0, 1, 2] * 3, 20).tolist()
    )
    for part in split(images, (0.9, 0.05, 0.05), 1, True, groups):
        assert (part.class_counts() > 0).all()


def test_links_connect_through_other_images() -> None:
    links = np.array([[5, 6], [0, 4], [4, 5], [2, 3]])
    assert connect(8, links).tolist() == [0, 1, 2, 2, 0, 0, 0, 7]
    assert connect(2, links[:0]).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("group_by", "labels", "named", "unmatched"),
    [
        ("parent", [0, 0, 2, 2, 2], 2, 0),
        (r"p(\d+)", [0, 1, 0, 3, 4], 3, 1),
        (r"p\d", [0, 1, 0, 1, 4], 2, 1),
        (r"(p\d+)_(\w)", [0, 1, 2, 3, 4], 4, 1),
        (r"(p\d+)?(q\d+)?", [0, 1, 2, 3, 4], 0, 5),
        (r"c\d/(?:p(1)|p(2\d))?", [0, 1, 0, 3, 4], 2, 2),
    ],
)
def test_names_form_groups(group_by: str, labels: list[int], named: int, unmatched: int) -> None:
    names = ["c0/p1_a.png", "c0/p2_a.png", "c1/p1_b.png", "c1/p23_a.png", "c1/x.png"]
    groups = group_images(of_names(names, [0, 0, 1, 1, 1]), group_by, by_twins=False)
    assert groups.labels.tolist() == labels
    assert (groups.num_named, groups.num_unmatched) == (named, unmatched)


def test_nothing_but_the_rows_of_a_file_is_grouped_by_none(tmp_path: Path) -> None:
    images = open_image_directory(paint_folders(tmp_path, 2, size=(4, 4)), "images")
    (tmp_path / "red/1.png").write_bytes((tmp_path / "blue/0.png").read_bytes())
    assert group_images(images).labels.tolist()[5] == 0
    assert group_images(images, "none").labels.tolist() == list(range(6))
    assert group_images(of_names(["a", "b", "a"], [0, 0, 0]), "none").labels.tolist() == [0, 1, 0]


def test_an_invalid_expression_is_refused() -> None:
    with pytest.raises(ParameterError, match=r"--group-by '\(' is not a regular expression: "):
        group_images(of_names(["c0/1.png"], [0]), "(")


def test_twins_stay_in_one_part(tmp_path: Path) -> None:
    """Copies of any kind; of files that show nothing, or are no images, only identical ones."""
    scenes = [paint_scene(index, (192, 128)) for index in range(24)]
    for (index, scene), kind in product(enumerate(scenes), ("png", "jpg", "half", "mirror")):
        folder = tmp_path / "data" / f"c{index % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        if kind == "jpg":
            scene.save(folder / f"{index}.jpg", quality=60)
        elif kind == "png" or index < 12:
            small, turned = scene.resize((96, 64)), scene.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
            {"png": scene, "half": small, "mirror": turned}[kind].save(
                folder / f"{index}{kind}.png"
            )
    flat = io.BytesIO()
    Image.new("RGB", (32, 32)).save(flat, "PNG")
    for name in ("flat1.png", "flat2.png"):
        (tmp_path / "data/c0" / name).write_bytes(flat.getvalue())
    for name in ("torn1.png", "torn2.png"):
        (tmp_path / "data/c1" / name).write_bytes(flat.getvalue()[:60])
    (tmp_path / "data/c1/torn3.png").write_bytes(flat.getvalue()[:59])
    images = open_image_directory(tmp_path / "data", PORT)
    groups = group_images(images)
    firsts: dict[str, int] = {}
    for index, name in enumerate(images.file_names):
        kind = re.sub(r"^(?:c./)(\d+|flat|torn3|torn).*", r"\1", name)
        assert groups.labels[index] == firsts.setdefault(kind, index), name
    assert groups.num_twins == 12 * 3 + 12 + 2
