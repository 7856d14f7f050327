"""Copies of an image are found by their hashes among other images, which are no copies."""

from collections.abc import Callable

import imagehash
import numpy as np
import pytest
from PIL import Image, ImageEnhance
from tests.painting import paint_scene, through_jpeg

from train_pytorch_model.quality import near_duplicates
from train_pytorch_model.quality.near_duplicates import find_pairs
from train_pytorch_model.quality.perceptual_hash import perceptual_hash

NUM_SCENES = 60
MIRROR = Image.Transpose.FLIP_LEFT_RIGHT


COPIES: dict[str, Callable[[Image.Image], Image.Image]] = {
    "identical": lambda image: image,
    "re-encoded": through_jpeg,
    "half size": lambda image: image.resize((image.width // 2, image.height // 2)),
    "other shape": lambda image: image.resize((image.width, 2 * image.height)),
    "mirrored": lambda image: image.transpose(MIRROR),
    "mirrored and re-encoded": lambda image: through_jpeg(image.transpose(MIRROR)),
    "cropped by 1 %": lambda image: image.crop((2, 2, image.width - 2, image.height - 2)),
    "darker": lambda image: ImageEnhance.Brightness(image).enhance(0.7),
}


def scenes(count: int = NUM_SCENES, first: int = 0, side: int = 192) -> list[Image.Image]:
    return [paint_scene(index, (side + 64, side)) for index in range(first, first + count)]


def hashes_of(images: list[Image.Image]) -> np.ndarray:
    return np.stack([perceptual_hash(np.asarray(image)) for image in images])


def paired(hashes: np.ndarray, num_known: int = 0) -> list[tuple[int, ...]]:
    return [tuple(pair) for pair in find_pairs(hashes, num_known).images.tolist()]


@pytest.mark.parametrize("kind", COPIES)
def test_a_copy_is_paired_with_its_original_and_with_nothing_else(kind: str) -> None:
    originals = scenes()
    hashes = hashes_of(originals + [COPIES[kind](image) for image in originals[::2]])
    copies = range(NUM_SCENES, len(hashes))
    assert sorted(paired(hashes)) == [(2 * index, copy) for index, copy in enumerate(copies)]
    assert find_pairs(hashes).is_mirrored.all() == kind.startswith("mirrored")


@pytest.mark.parametrize("num_bytes", [2, 3])
def test_pairs_are_those_of_imagehash(num_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways of making buckets; ImageHash compares all pairs, by other bits of a similar
    transform.
    """
    monkeypatch.setattr(near_duplicates, "MANY", 0 if num_bytes == 3 else 1 << 30)
    originals = scenes(40)
    images = [
        copy
        for image in originals
        for copy in (image, through_jpeg(image, 40), image.transpose(MIRROR))
    ]
    theirs = [imagehash.phash(image) for image in images]
    mirrored = [imagehash.phash(image.transpose(MIRROR)) for image in images]
    expected = {
        (one, other)
        for other in range(len(images))
        for one in range(other)
        if min(theirs[one] - theirs[other], mirrored[one] - theirs[other]) <= 8
    }
    found = set(paired(hashes_of(images)))
    assert len(expected) == 3 * 40
    # Of images with the same hash, only the first is paired with others.
    assert found <= expected
    assert {pair for pair in expected if pair[0] % 3 == 0} <= found


def test_images_that_show_nothing_have_no_hash() -> None:
    flat = [Image.new("RGB", (64, 64), (grey, grey, grey)) for grey in (0, 128, 129, 255)]
    assert not hashes_of(flat).any()
    assert paired(hashes_of(flat)) == []


def test_a_symmetric_image_is_its_own_mirror_image_and_no_pair() -> None:
    half = np.asarray(paint_scene(1, (96, 96)))
    symmetric = Image.fromarray(np.concatenate([half, half[:, ::-1]], axis=1))
    hashes = hashes_of([symmetric, symmetric.transpose(MIRROR), *scenes(30, first=5)])
    assert paired(hashes) == [(0, 1)]


def test_images_of_little_variety_have_to_be_more_alike() -> None:
    """Digits resemble each other more than photographs do: a fixed limit pairs hundreds of them."""
    from sklearn.datasets import load_digits

    images = [
        Image.fromarray((digit * (255 / 16)).astype(np.uint8)).resize((32, 32)).convert("RGB")
        for digit in load_digits().images
    ]
    hashes = hashes_of(images)
    assert paired(hashes) == []
    copies = hashes_of([image.transpose(MIRROR) for image in images[:50]])
    assert len(paired(np.concatenate([hashes, copies]))) == 50


def test_many_twins_do_not_count_as_little_variety() -> None:
    originals = scenes(12)
    hashes = hashes_of(originals + [COPIES["cropped by 1 %"](image) for image in originals * 3])
    assert {pair for pair in paired(hashes) if pair[0] < 12} >= {
        (index, 12 + index) for index in range(12)
    }


def test_known_images_are_paired_with_new_ones_only() -> None:
    known, copies = scenes(30), scenes(5, first=10)
    hashes = hashes_of(
        [*known, known[0], *(through_jpeg(image) for image in copies), *scenes(9, first=50)]
    )
    assert sorted(paired(hashes, num_known=31)) == [(10 + index, 31 + index) for index in range(5)]


def test_copies_of_one_image_are_a_star_rather_than_all_pairs() -> None:
    hashes = hashes_of([*scenes(30), *scenes(1) * 500])
    assert sorted(paired(hashes)) == [(0, 30 + index) for index in range(500)]


def test_nothing_is_found_among_no_images() -> None:
    assert paired(np.empty((0, 16), np.uint8)) == []
    assert paired(np.zeros((3, 16), np.uint8)) == []
